"""Predicates and expressions in Spark SQL: parsed, checked, and translated for DuckDB."""
