"""Data files that end the DuckDB database that reads them."""

from pathlib import Path

from tests.fuzz.footer_mutations import joined, split
from tests.fuzz.thrift_tree import decode, encode


def end_duckdb(path):
    """Make a column's compressed size negative, which DuckDB answers with an internal error."""
    path = Path(path)
    before, footer = split(path.read_bytes())
    tree = decode(footer)
    groups = next(field for field in tree if field.number == 4).value[1]
    for group in groups:
        for chunk in next(field for field in group if field.number == 1).value[1]:
            metadata = next(field for field in chunk if field.number == 3).value
            next(field for field in metadata if field.number == 7).value = -297
    path.write_bytes(joined(before, encode(tree)))
