"""Table health: the maintenance that a table's files need."""
