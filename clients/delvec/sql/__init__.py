"""Statements in SQL over a connection's tables: ``connection.sql("DELETE FROM sales WHERE ...")``.

Statements become the commands of :class:`~delvec.DeltaTable`; nothing but these and queries over tables of the
connection is ever run.
"""
