"""Transactions, from the request to the version in the log."""
