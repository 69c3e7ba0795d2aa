"""Credentials of object stores for engines: short-lived, and for one table each."""
