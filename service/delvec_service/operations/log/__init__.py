"""What lies in the log: read, followed, and kept in order."""
