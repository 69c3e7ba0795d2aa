"""The dashboard: the health of tables, and maintenance actions."""
