"""Invariants of tables, and the findings when they are violated."""
