"""The matrix for people and programs: one document, several writers."""
