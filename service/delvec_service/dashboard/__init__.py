"""The page for people who care for tables: what every table needs, and doing it."""
