"""Early and late times written by Spark, in each calendar and as INT96, on each engine."""

import datetime as dt

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("day", pa.date32())])),
    ]
)
TIMES = [
    "0001-01-01",
    "1500-02-28",
    "1582-10-04",
    "1582-10-15",
    "1883-11-18",
    "1969-12-31",
    "2024-03-10",
    "9999-12-31",
]


def day(text):
    return dt.date.fromisoformat(text)


def expected(times):
    rows = [
        {
            "id": number,
            "day": day(text),
            "at": dt.datetime.combine(day(text), dt.time(7, 8, 9, 10), dt.UTC),
            "s": {"day": day(text)},
        }
        for number, text in enumerate(times)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture(scope="module")
def spark_file(spark, tmp_path_factory):
    """``spark_file(path, times, calendar, timestamps)`` lets Spark write ``times`` into one file."""
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "calendar",
        "spark.sql.parquet.int96RebaseModeInWrite": "calendar",
        "spark.sql.parquet.outputTimestampType": "timestamps",
    }

    def write(path, times, **choice):
        rows = ", ".join(
            f"({number}L, DATE '{text}', TIMESTAMP '{text} 07:08:09.000010Z')"
            for number, text in enumerate(times)
        )
        frame = spark.sql(
            f"SELECT id, day, at, named_struct('day', day) AS s FROM VALUES {rows} AS t(id, day, at)"
        )
        folder = tmp_path_factory.mktemp("written") / "files"
        for name, key in settings.items():
            spark.conf.set(name, choice[key])
        try:
            frame.coalesce(1).write.parquet(str(folder))
        finally:
            for name in settings:
                spark.conf.unset(name)
        (written,) = folder.glob("*.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written.read_bytes())

    return write


@pytest.fixture(params=["INT96", "TIMESTAMP_MICROS"])
def timestamps(request):
    return request.param


@pytest.mark.gate
def test_todays_calendar(write_table, data_file, spark_file, read, same, timestamps):
    spark_file(write_table.folder / "t" / "a.parquet", TIMES, calendar="CORRECTED", timestamps=timestamps)
    table = write_table("t", SCHEMA, [data_file(None, name="a.parquet")])
    same(read(table), expected(TIMES))
    assert read(table, ["id"], "day < DATE '1582-10-15'")["id"].to_pylist() == [0, 1, 2]
    assert sorted(read(table, ["id"], "at >= TIMESTAMP '1883-11-18 00:00:00Z'")["id"].to_pylist()) == [
        4,
        5,
        6,
        7,
    ]


def test_the_calendar_of_spark_2(write_table, data_file, spark_file, read, same, timestamps, engine):
    spark_file(write_table.folder / "t" / "a.parquet", TIMES, calendar="LEGACY", timestamps=timestamps)
    old = write_table("t", SCHEMA, [data_file(None, name="a.parquet")])
    if engine == "duckdb":
        for columns in (None, ["day"], ["at"], ["s"]):
            with pytest.raises(delvec.UnsupportedTable, match=r"'a\.parquet'.*calendar of Spark 2"):
                read(old, columns)
        with pytest.raises(delvec.UnsupportedTable, match="read it with Spark"):
            read(old, ["id"], "day = DATE '1500-02-28'")
        # Later times are equal in both calendars.
        assert read(old, ["id"], "day > DATE '2000-01-01'")["id"].to_pylist() == [6, 7]
    else:
        same(read(old), expected(TIMES))
