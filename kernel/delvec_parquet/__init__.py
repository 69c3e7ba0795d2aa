"""How Parquet files are opened, and what they are as bytes: footers, pages and indexes, without decoding values."""
