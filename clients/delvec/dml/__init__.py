"""DELETE, UPDATE, MERGE, append and overwrite: one implementation of each, whatever the engine."""
