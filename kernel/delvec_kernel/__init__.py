"""Delta Lake's protocol as pure functions, and the one package that reads and writes files."""
