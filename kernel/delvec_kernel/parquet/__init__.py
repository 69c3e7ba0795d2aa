"""Parquet files as bytes: footers, pages and indexes, without the values in them."""
