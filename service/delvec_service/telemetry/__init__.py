"""Metrics and traces of the running service."""
