"""Changes of a table itself: an old version and a list of changes give a new one."""
