"""What a table demands of its rows: NOT NULL, CHECK, generated and default columns."""
