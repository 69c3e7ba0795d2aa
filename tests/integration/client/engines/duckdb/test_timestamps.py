"""INT96 timestamps of Spark and INT64 timestamps of other writers: the same instant in every time zone."""

import datetime as dt

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "at": UTC,
        "visits": pa.list_(pa.struct({"at": UTC, "n": pa.int32()})),
        "by_name": pa.map_(pa.string(), UTC),
        "last": pa.struct({"at": UTC, "local": pa.timestamp("us")}),
    }
)
ZONES = ["UTC", "America/New_York", "Asia/Kolkata"]


def moment(number):
    return dt.datetime(2021, 3, 28, tzinfo=dt.UTC) + dt.timedelta(minutes=17 * number)


def row(number):
    if number % 5 == 0:
        return {"id": number, "at": None, "visits": None, "by_name": None, "last": None}
    return {
        "id": number,
        "at": moment(number),
        "visits": [{"at": moment(number + 1), "n": number}, {"at": None, "n": None}, None],
        "by_name": [("x", moment(number + 2)), ("y", None)],
        "last": {"at": moment(number + 3), "local": moment(number).replace(tzinfo=None)},
    }


def rows(start, stop):
    return pa.Table.from_pylist([row(number) for number in range(start, stop)], SCHEMA)


def as_spark(folder):
    """Rewrite the data files with INT96."""
    for file in folder.glob("*.parquet"):
        pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
        assert pq.read_metadata(file).schema.column(1).physical_type == "INT96"


_IN_UTC = bytes.fromhex("4c8c111c2c00000000")
"""A column's logical type, Timestamp(isAdjustedToUTC=true, unit=MICROS), in the footer's Thrift."""


def as_old_spark(folder):
    """Remove the logical types from the footers: older writers only had TIMESTAMP_MICROS."""
    for file in folder.glob("*.parquet"):
        data = file.read_bytes()
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        footer = data[start:-8].replace(_IN_UTC, b"")
        file.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        column = pq.read_metadata(file).schema.column(1)
        assert (column.physical_type, column.converted_type) == ("INT64", "TIMESTAMP_MICROS")
        assert len(footer) < len(data[start:-8])


@pytest.fixture(params=["none", "name"])
def table(lake, tmp_path, request):
    """Two files with INT96 and two without, deleted rows in one of each."""
    made = lake.create_table(
        tmp_path / "t", SCHEMA, properties={"delta.columnMapping.mode": request.param}, engine="duckdb"
    )
    made.append(rows(0, 20))
    made.append(rows(20, 40))
    as_spark(tmp_path / "t")
    made.append(rows(40, 60))
    made.append(rows(60, 80))
    made.delete("id IN (3, 4, 45)")
    return made


EXPECTED = rows(0, 80).filter(pa.array([number not in (3, 4, 45) for number in range(80)]))


@pytest.mark.parametrize("zone", ZONES)
def test_a_relation_has_the_same_moments_in_every_zone(table, zone):
    connection = duckdb.connect()
    connection.execute(f"SET TimeZone = '{zone}'")
    relation = table.to_duckdb(connection=connection)

    found = relation.order("id").to_arrow_table().cast(SCHEMA)

    assert found.equals(EXPECTED)
    after = relation.filter(f"\"at\" >= TIMESTAMPTZ '{moment(30).isoformat()}'").count("*").fetchall()
    assert after == [(sum(number >= 30 and number % 5 != 0 for number in range(80)),)]
    connection.execute("SET TimeZone = 'Europe/Berlin'")
    assert relation.order("id").to_arrow_table().cast(SCHEMA).equals(EXPECTED)


def test_files_with_and_without_zones_are_read_and_updated_together(table):
    assert table.to_arrow().sort_by("id").equals(EXPECTED)
    assert table.to_arrow(["id"], "hour(at) = 5 AND id % 2 = 0").sort_by("id")["id"].to_pylist() == [
        number
        for number in range(80)
        if number % 5 and number % 2 == 0 and number != 4 and moment(number).hour == 5
    ]
    table.update({"at": "at + INTERVAL 1 HOUR"}, "at IS NOT NULL AND id % 2 = 1")
    by_id = {each["id"]: each["at"] for each in table.to_arrow(["id", "at"]).to_pylist()}
    assert by_id[21] == moment(21) + dt.timedelta(hours=1)
    assert by_id[61] == moment(61) + dt.timedelta(hours=1)
    assert by_id[22] == moment(22)


def test_timestamps_of_older_writers(lake, tmp_path):
    table = lake.create_table(tmp_path / "t", SCHEMA, engine="duckdb")
    table.append(rows(0, 20))
    as_old_spark(tmp_path / "t")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")

    assert table.to_arrow().sort_by("id").equals(rows(0, 20))
    relation = table.to_duckdb(connection=connection)
    assert relation.order("id").to_arrow_table().cast(SCHEMA).equals(rows(0, 20))


def test_partitions_by_time_do_not_hide_what_files_have(lake, tmp_path):
    schema = pa.schema({"id": pa.int64(), "at": UTC, "hour": UTC})
    table = lake.create_table(tmp_path / "t", schema, partition_by=["hour"], engine="duckdb")
    table.append(pa.table({"id": [1], "at": [moment(1)], "hour": [moment(0)]}, schema))
    (file,) = (tmp_path / "t").glob("*/*.parquet")
    as_spark(file.parent)

    assert table.to_arrow().to_pylist() == [{"id": 1, "at": moment(1), "hour": moment(0)}]
    assert table.to_arrow(["id", "hour"]).num_rows == 1


def test_a_moment_that_duckdb_takes_for_infinity_stays(lake, tmp_path):
    """In files of older writers, whose timestamps DuckDB reads as another type."""
    schema = pa.schema({"id": pa.int64(), "at": UTC})
    table = lake.create_table(tmp_path / "t", schema, engine="duckdb")
    table.append(pa.table({"id": [1, 2], "at": pa.array([0, 2**63 - 1], UTC)}, schema))
    as_old_spark(tmp_path / "t")

    found = table.to_arrow().sort_by("id")

    assert found["at"].cast(pa.int64()).to_pylist() == [0, 2**63 - 1]
