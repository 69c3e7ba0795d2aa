"""Snapshots from memory, from the database or from the log, and time travel among them."""
