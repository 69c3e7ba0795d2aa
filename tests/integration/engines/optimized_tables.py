"""Tables for tests of OPTIMIZE: columns of various types, with some rows deleted."""

import pyarrow as pa

SCHEMA = "id long, part string, text string, s struct<x: int, y: array<double>>"


def some(first, count, part="a"):
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "part": [part] * count,
            "text": [None if number % 5 == 0 else f"text {number}" for number in range(first, first + count)],
            "s": [{"x": number, "y": [number / 2]} for number in range(first, first + count)],
        }
    )


def filled(lake, folder, *, files, rows_in_file, others_from, deleted):
    """Create a table with DuckDB: ``files`` files in partition a, two in b, with rows deleted by deletion vector."""
    table = lake.create_table(
        folder,
        SCHEMA,
        partition_by=["part"],
        properties={"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"},
        engine="duckdb",
    )
    for number in range(files):
        table.append(some(number * rows_in_file, rows_in_file))
    for number in range(2):
        table.append(some(others_from + number * rows_in_file, rows_in_file, "b"))
    table.delete(deleted)
    return table


def rows(table, **options):
    return table.to_arrow(**options).sort_by("id").to_pylist()
