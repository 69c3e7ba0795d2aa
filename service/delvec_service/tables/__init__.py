"""Registered tables: names, locations, creation."""
