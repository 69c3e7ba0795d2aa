"""A commit before it is written: its actions, its conflicts with winning commits, groups."""
