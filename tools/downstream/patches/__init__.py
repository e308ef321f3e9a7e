"""Patch files as bytes: the diff text, the DEP-3 header, the series file."""
