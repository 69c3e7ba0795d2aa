"""The files of a log: what they are called, what they hold, and what replaying them gives."""
