"""Changes of a table, computed from its newest version and committed."""
