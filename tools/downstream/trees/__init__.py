"""The files of one release, wherever they are kept, read by repository path."""
