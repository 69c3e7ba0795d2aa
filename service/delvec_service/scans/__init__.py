"""Plans: which files a scan, a change feed or a stream has to read."""
