"""NUL characters in a log: Delta allows them in most text, PostgreSQL cannot store them, and DuckDB truncates names there."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.log_by_hand import LogByHand, add

import delvec
from delvec_errors import BadRequest, UnsupportedTable


@pytest.fixture
def lake(url):
    with delvec.connect(database_url=url) as connection:
        yield connection


def table_of(folder, *fields, meta=None):
    """Write a table with one file holding one row of ones, and return its log."""
    log = LogByHand(folder)
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    log.metadata["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": columns})
    log.metadata["metaData"].update(meta or {})
    log.commit(0, log.protocol, log.metadata)
    pq.write_table(pa.table({name: [1] for name, _ in fields}), folder / "a.parquet")
    log.commit(1, add("a.parquet", size=(folder / "a.parquet").stat().st_size, stats='{"numRecords":1}'))
    return log


def test_a_column_with_nul_in_its_name(lake, tmp_path):
    table_of(tmp_path / "people", ("i\0d", "long"), ("x", "long"))
    table = lake.table(tmp_path / "people")
    assert table.count() == 1
    assert table.to_arrow(columns=["x"]).to_pylist() == [{"x": 1}]
    for command in (
        table.to_arrow,
        lambda: table.to_arrow(predicate="x > 0"),
        lambda: table.update({"x": "3"}),
        lambda: table.append(pa.table({"i\0d": [1], "x": [2]})),
        table.to_duckdb,
    ):
        with pytest.raises(UnsupportedTable, match=r"'i\\x00d' of table '.*people' .*NUL"):
            command()
    assert table.version() == 1


@pytest.mark.parametrize(
    "meta", [{"id": "a\0b" * 40}, {"name": "a\0b", "description": "\0"}, {"configuration": {"a\0b": "c\0d"}}]
)
def test_metadata_with_nul(lake, tmp_path, meta):
    """A table id with NUL failed on PostgreSQL, after the commit."""
    table_of(tmp_path / "people", ("id", "long"), meta=meta)
    table = lake.table(tmp_path / "people")
    for number in range(2):
        assert table.append([{"id": number}]).version == 2 + number
    assert table.update({"id": "id + 10"})["numUpdatedRows"] == 3
    assert sorted(table.to_arrow()["id"].to_pylist()) == [10, 11, 11]
    assert [each["operation"] for each in table.history()][:3] == ["UPDATE", "WRITE", "WRITE"]


def test_binary_partition_values_with_nul(lake, tmp_path):
    schema = pa.schema([("id", pa.int64()), ("p", pa.binary())])
    table = lake.create_table(tmp_path / "people", schema, partition_by=["p"])
    values = [b"\0", b"\0\x01", b"a\0", b"a"]
    table.append(pa.table({"id": range(4), "p": pa.array(values)}))
    table.checkpoint()
    assert {row["p"]: row["id"] for row in table.to_arrow().to_pylist()} == dict(
        zip(values, range(4), strict=True)
    )
    assert table.to_arrow(predicate="p = X'0001'").to_pylist() == [{"id": 1, "p": b"\0\x01"}]
    assert table.update({"id": "id + 10"}, "p = X'00'")["numUpdatedRows"] == 1
    assert table.delete("p = X'6100'")["numDeletedRows"] == 1
    rows = {row["p"]: row["id"] for row in table.to_arrow().to_pylist()}
    assert rows == {b"\0": 10, b"\0\x01": 1, b"a": 3}


def test_text_partition_values_with_nul(lake, tmp_path):
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = lake.create_table(tmp_path / "people", schema, partition_by=["p"])
    table.append(pa.table({"id": [1, 2, 3], "p": ["a\0b", "\0", "a"]}))
    assert {row["p"]: row["id"] for row in table.to_arrow().to_pylist()} == {"a\0b": 1, "\0": 2, "a": 3}


def test_nul_elsewhere_in_a_request_is_refused(lake, tmp_path):
    with pytest.raises(BadRequest, match="NUL"):
        lake.create_table(tmp_path / "people", pa.schema([("i\0d", pa.int64())]))
