"""A package index that shadows upstream's names with ours."""
