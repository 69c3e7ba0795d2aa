"""Delta Lake itself: the protocol as pure functions, and the one package that reads and writes files."""
