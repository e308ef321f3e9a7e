"""The patch queue carried from one release to the next."""
