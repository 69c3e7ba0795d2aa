"""The engine for one process: DuckDB reads, Arrow writes."""

from delvec.engines.duckdb.engine import DuckDBEngine

__all__ = ["DuckDBEngine"]
