"""Where a hunk goes in another release, and how sure we are."""
