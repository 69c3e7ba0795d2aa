"""A commit before it is written: its actions, conflicts with winning commits, and group commits."""
