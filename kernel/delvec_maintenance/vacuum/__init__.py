"""VACUUM without I/O: referenced files, and the minimum age of files to delete."""
