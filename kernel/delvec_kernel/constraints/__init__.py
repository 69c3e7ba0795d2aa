"""Rules for a table's rows: NOT NULL, CHECK, generated and default columns."""
