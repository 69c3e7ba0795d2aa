"""Plans: the files that a scan, a change feed or a stream has to read."""
