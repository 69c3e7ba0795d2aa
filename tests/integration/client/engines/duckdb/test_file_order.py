"""Live rows in file order: the same values as any other read, and a promised order."""

import re

import pyarrow as pa
import pytest

from delvec_engines import row_ids
from delvec_engines.duckdb import file_order
from delvec_engines.duckdb.statement_runner import DuckDBSession
from delvec_engines.protocol import WriteTarget


@pytest.fixture
def tracked(lake, tmp_path):
    """A scan with row tracking columns: mapped columns, NULL as a partition value, stored and default row ids, vectors."""
    table = lake.create_table(
        tmp_path / "t",
        "id long, day date, country string, s struct<x: int>",
        ["day", "country"],
        properties={"delta.enableRowTracking": "true", "delta.columnMapping.mode": "name"},
    )
    table.alter.rename_column("country", "COUNTRY")
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("COUNTRY", pa.string())])
    for day, country in (("2026-01-02", "NZ"), ("2026-01-02", None), (None, "a/b")):
        rows = [{"id": number, "day": day, "COUNTRY": country} for number in range(5000)]
        rows = pa.Table.from_pylist(rows, schema)
        rows = rows.set_column(1, "day", rows["day"].cast(pa.date32()))
        table.append(rows.append_column("s", pa.array([{"x": 1}] * 5000, pa.struct([("x", pa.int32())]))))
    table.update({"s": "NULL"}, "id = 7")
    table.delete("id < 2000 OR id = 3000")
    scan, _ = table.plan(row_ids=True)
    target = WriteTarget(scan.location, scan.schema, scan.partition_columns, scan.configuration, "none")
    return row_ids.add_to_rewrite(scan, target)[0], table.engine


def test_the_values_are_those_of_any_read(tracked):
    scan, engine = tracked
    batches = list(file_order.in_file_order(DuckDBSession(), scan))

    rows = pa.Table.from_batches([each.columns for each in batches]).cast(scan.schema.to_arrow())
    key = scan.schema.names[-2]
    assert rows.sort_by(key) == engine.read(scan, None, None).sort_by(key)
    assert rows.num_rows == 3 * 2999
    places = [
        place for each in batches for place in zip(each.files.tolist(), each.rows.tolist(), strict=True)
    ]
    assert places == sorted(places)


def test_duckdb_reads_a_single_table(tracked, monkeypatch):
    """DuckDB promises the order of rows for nothing else."""
    scan, _ = tracked
    statements = []
    batches = DuckDBSession.batches

    def recorded(self, scan, source, sql, predicate):
        statements.append(sql)
        return batches(self, scan, source, sql, predicate)

    monkeypatch.setattr(DuckDBSession, "batches", recorded)
    list(file_order.in_file_order(DuckDBSession(), scan))
    assert statements
    assert not any(re.search(r"\bJOIN\b|\bUNION\b|, \(", sql, re.IGNORECASE) for sql in statements)
