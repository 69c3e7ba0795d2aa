"""DELETE, UPDATE, MERGE, append and overwrite: one implementation of each for all engines."""
