"""The commands of a table, one implementation of each, whatever the engine."""
