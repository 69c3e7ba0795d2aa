"""Which files can hold rows that satisfy a predicate."""
