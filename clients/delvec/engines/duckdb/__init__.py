"""The single-process engine: DuckDB reads, Arrow writes."""

from delvec.engines.duckdb.engine import DuckDBEngine

__all__ = ["DuckDBEngine"]
