"""VACUUM: deletes the files of a table that nothing refers to any more."""
