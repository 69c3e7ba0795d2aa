"""Snapshots from memory, the database or the log, and time travel."""
