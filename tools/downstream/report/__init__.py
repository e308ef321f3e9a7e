"""One writer per format over the verdict model."""
