"""VACUUM, the pure part: what a table refers to, and how old a file that it does not refer to has to be."""
