"""A downstream fork kept as a patch queue over pinned upstream releases."""
