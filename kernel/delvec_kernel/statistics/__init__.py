"""Per-file statistics, and the column bounds derived from them."""
