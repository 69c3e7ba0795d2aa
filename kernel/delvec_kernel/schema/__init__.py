"""Schemas, types, column mapping, partition values."""
