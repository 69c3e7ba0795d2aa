"""The Delvec service: log replay, conflict checks, commits and deletion vectors for Delta tables."""
