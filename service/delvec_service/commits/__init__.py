"""Commits: a transaction from the request to the version in the log."""
