"""Files that a client could not read show in the table's health, though the service's own sample missed them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec
from delvec_service.maintenance import damage_watch


@pytest.fixture
def table(lake, tmp_path, monkeypatch):
    monkeypatch.setattr(damage_watch, "_SAMPLE", 0)
    table = lake.create_table(tmp_path / "t", "id long, part string", partition_by=["part"])
    table.append([{"id": number, "part": "ab"[number % 2]} for number in range(20)])
    next((tmp_path / "t").rglob("part=a/*.parquet")).unlink()
    assert table.health()["score"] > 0
    return table


READS = {
    "read": lambda table: table.to_arrow(),
    "batches": lambda table: table.to_batches().read_all(),
    "count": lambda table: table.count("id % 3 = 1"),
    "head": lambda table: table.scan(predicate="part = 'a'").head(),
    "DuckDB": lambda table: table.to_duckdb(),
    "DELETE": lambda table: table.delete("id % 3 = 1"),
    "UPDATE": lambda table: table.update({"id": "id + 1"}, "id % 3 = 1"),
    "MERGE": lambda table: (
        table.merge(pa.table({"id": [2]}), "target.id = source.id").when_matched_delete().execute()
    ),
}


@pytest.mark.parametrize("read", READS)
def test_a_file_that_cannot_be_read_shows_in_the_health(table, read):
    with pytest.raises(delvec.MissingDataFile):
        READS[read](table)

    health = table.health()
    assert (health["score"], [one["action"] for one in health["recommendations"]]) == (0, ["CHECK"])


def test_a_file_that_a_query_cannot_read_shows_in_the_health(lake, table):
    with pytest.raises(delvec.MissingDataFile):
        lake.sql(f"SELECT sum(id) FROM delta.`{table.location}`")
    assert table.health()["score"] == 0


def test_a_file_that_ends_a_query_shows_in_the_health(lake, table, tmp_path):
    """Its schema is that of the table, so the query begins."""
    path = next((tmp_path / "t").rglob("part=b/*.parquet"))
    pq.write_table(pa.table({"id": pa.array([1 << 63], pa.uint64())}), path)
    with pytest.raises(delvec.CorruptTable, match="cannot hold"):
        lake.sql(f"SELECT sum(id) FROM delta.`{table.location}` WHERE part = 'b'")
    assert table.health()["score"] == 0


def test_a_report_that_fails_does_not_hide_the_error(table, monkeypatch):
    monkeypatch.setattr(type(table._service), "call", lambda *_, **__: 1 / 0)

    with pytest.raises(delvec.MissingDataFile):
        table.to_arrow()
