"""The single-process engine: DuckDB reads, Arrow writes."""

from delvec_engines.duckdb.engine import DuckDBEngine

__all__ = ["DuckDBEngine"]
