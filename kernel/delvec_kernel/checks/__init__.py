"""The invariants of every table, and findings where they do not hold."""
