"""Ahead-of-time modules and their proof in machine code."""
