"""CLONE: tables that are made of other ones."""
