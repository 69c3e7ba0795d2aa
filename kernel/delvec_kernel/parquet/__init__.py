"""Parquet files at the byte level: footers, pages and indexes, without decoding values."""
