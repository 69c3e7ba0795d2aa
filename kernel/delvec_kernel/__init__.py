"""The Delta protocol as pure functions: no I/O, HTTP or threads."""
