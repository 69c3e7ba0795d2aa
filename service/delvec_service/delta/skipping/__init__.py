"""Data skipping: what is known of the files of a table, and which of them can hold rows of a predicate."""
