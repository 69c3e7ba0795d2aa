"""Predicates and expressions in Spark's SQL: parsed, checked, and translated for DuckDB."""
