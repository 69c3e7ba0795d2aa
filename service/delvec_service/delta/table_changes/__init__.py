"""Changes of a table itself: its columns, properties, constraints, protocol. Pure: an old version gives a new one."""
