"""``convert()``, ``CONVERT TO DELTA``, ``delvec convert``: Parquet files become a table."""

import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.checked import assert_sound

import delvec
from delvec.cli import main

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
COLUMNS = {
    "id": pa.array([1, 2, None], pa.int64()),
    "n": pa.array([-3, 4, 5], pa.int16()),
    "d": pa.array([Decimal("-1.10"), None, Decimal("20.25")], pa.decimal128(20, 2)),
    "t": pa.array([MOMENT, None, None], pa.timestamp("us", "UTC")),
    "w": pa.array([datetime(2026, 1, 31), None, None], pa.timestamp("ns")),  # noqa: DTZ001
    "day": pa.array([date(2026, 1, 31)] * 3, pa.date32()),
    "s": pa.array(["x" * 40, "ä", None]),
    "f": pa.array([1.0, float("nan"), None]),
    "b": pa.array([b"a", None, b"c"]),
    "o": pa.array([True, None, False]),
    "u": pa.array([1, 2**32 - 1, None], pa.uint32()),
    "st": pa.array([{"a": 1}, None, {"a": 7}]),
    "li": pa.array([[1], None, []]),
    "nothing": pa.array([None, None, None], pa.string()),
}


def written(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def actions(folder):
    return [json.loads(line) for line in (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()]


def adds(folder):
    return {action["add"]["path"]: action["add"] for action in actions(folder) if "add" in action}


@pytest.fixture
def events(tmp_path):
    folder = tmp_path / "events"
    written(folder / "day=2026-01-31" / "p=a b%3A" / "one.parquet", id=pa.array([1, 2]), v=["a", "b"])
    written(folder / "day=2026-01-31" / "p=ä" / "two.parquet", id=pa.array([3]), v=["c"], more=[1.5])
    written(
        folder / "day=__HIVE_DEFAULT_PARTITION__" / "p=__HIVE_DEFAULT_PARTITION__" / "x y.parquet",
        id=pa.array([4]),
    )
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.crc").touch()
    return folder


def test_every_type_and_its_statistics(lake, tmp_path):
    written(tmp_path / "t" / "one.parquet", **COLUMNS)
    before = (tmp_path / "t" / "one.parquet").read_bytes()

    table = lake.convert(tmp_path / "t")

    assert table.version() == 0
    kinds = {field["name"]: field["type"] for field in table.snapshot().table_schema["fields"]}
    assert (kinds["n"], kinds["d"], kinds["t"], kinds["w"], kinds["u"]) == (
        "short",
        "decimal(20,2)",
        "timestamp",
        "timestamp_ntz",
        "long",
    )
    assert table.to_arrow(columns=["id", "s"]).to_pydict() == {
        "id": [1, 2, None],
        "s": ["x" * 40, "ä", None],
    }
    (add,) = adds(tmp_path / "t").values()
    stats = json.loads(add["stats"])
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {
        "id": 1,
        "n": -3,
        "d": -1.1,
        "t": "2026-01-31T12:00:00.123Z",
        "w": "2026-01-31T00:00:00.000",
        "day": "2026-01-31",
        "s": "x" * 32,
        "st": {"a": 1},
    }
    assert stats["maxValues"] == stats["minValues"] | {
        "id": 2,
        "n": 5,
        "d": 20.25,
        "t": "2026-01-31T12:00:00.124Z",
        "s": "ä",
        "st": {"a": 7},
    }
    nulls = {"id": 1, "n": 0, "d": 1, "t": 2, "w": 2, "day": 0, "s": 1, "f": 1, "b": 1, "o": 1, "u": 1}
    assert stats["nullCount"] == nulls | {"st": {"a": 1}, "nothing": 3}
    assert (tmp_path / "t" / "one.parquet").read_bytes() == before
    assert table.count("u > 4000000000") == 1
    assert table.count("f > 100") == 1  # NaN is greater than every number
    table.delete("id = 1")
    assert table.count() == 2
    assert_sound(tmp_path / "t")


def test_partitions_are_those_of_the_directories(lake, events):
    table = lake.convert(events, "day date, p string", properties={"a": "b"}, description="told")

    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["day"], row["p"], row["v"], row["more"]) for row in rows] == [
        (1, date(2026, 1, 31), "a b:", "a", None),
        (2, date(2026, 1, 31), "a b:", "b", None),
        (3, date(2026, 1, 31), "ä", "c", 1.5),
        (4, None, None, None, None),
    ]
    assert table.count("p = 'ä'") == 1
    assert table.snapshot().partition_columns == ["day", "p"]
    assert (table.snapshot().configuration["a"], table.detail()["description"]) == ("b", "told")
    info = actions(events)[0]["commitInfo"]
    assert info["operation"] == "CONVERT"
    assert info["operationParameters"] == {
        "numFiles": 3,
        "partitionedBy": '["day","p"]',
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    assert info["operationMetrics"] == {"numConvertedFiles": "3"}
    assert len(deltalake.DeltaTable(str(events)).file_uris()) == 3
    table.append([{"id": 5, "day": date(2026, 2, 1), "p": "x", "v": None, "more": None}])
    table.delete("id = 2")
    assert table.count() == 4
    assert table.vacuum()["num-files"] == 0
    assert_sound(events)


def test_again_is_the_same_table(lake, events):
    table = lake.convert(events, "day date, p string")
    again = lake.convert(events)
    assert (again.id, again.version()) == (table.id, 0)


def test_without_statistics(lake, events):
    table = lake.convert(events, "day date, p string", collect_statistics=False)
    assert all("stats" not in add for add in adds(events).values())
    table.delete("id = 1")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3, 4]


@pytest.mark.parametrize(
    ("partition_by", "said"),
    [
        (None, "partition columns are none.*day, p"),
        ("day date", "partition columns are day,"),
        ("p string, day date", "have day, p"),
        ("day int, p string", "not a valid value of type integer"),
    ],
)
def test_other_partition_columns_are_refused(lake, events, partition_by, said):
    with pytest.raises(delvec.BadRequest, match=said):
        lake.convert(events, partition_by)
    assert not (events / "_delta_log").exists()


def test_a_variant_is_refused_before_anything_is_written(lake, tmp_path):
    """Arrow takes a variant for a struct, as which no engine reads it."""
    (tmp_path / "t").mkdir()
    duckdb.sql(
        f"COPY (SELECT 1 AS id, '{{\"a\": 1}}'::JSON::VARIANT AS v) TO '{tmp_path}/t/a.parquet' (FORMAT parquet)"
    )
    with pytest.raises(delvec.InvalidSchema, match=r"'a\.parquet' cannot be .*column 'v'.*variant") as caught:
        lake.convert(tmp_path / "t")
    assert caught.value.details["file"] == "a.parquet"
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["a.parquet"]


def test_what_is_no_table_is_refused(lake, tmp_path):
    def refused(kind, said, folder, **options):
        with pytest.raises(kind, match=said):
            lake.convert(folder, **options)
        assert not (folder / "_delta_log").exists()

    empty = tmp_path / "empty"
    empty.mkdir()
    refused(delvec.BadRequest, "no Parquet file", empty)
    other = tmp_path / "other"
    written(other / "a.parquet", id=pa.array([1]))
    (other / "b.txt").write_text("text")
    refused(delvec.InvalidTableChange, "'b.txt' is not a Parquet file", other)
    (other / "b.txt").unlink()
    written(other / "b.parquet", id=["x"])
    refused(
        delvec.InvalidTableChange, "'id' is long in file 'a.parquet' but string in file 'b.parquet'", other
    )
    (other / "b.parquet").unlink()
    (other / "c.parquet").symlink_to(other / "a.parquet")
    refused(delvec.InvalidTableChange, "'c.parquet' in it is a link", other)
    (other / "c.parquet").unlink()
    refused(
        delvec.InvalidTableChange, "set it afterwards", other, properties={"delta.columnMapping.mode": "name"}
    )
    times = tmp_path / "times"
    written(times / "a.parquet", t=pa.array([1], pa.time64("us")))
    refused(delvec.InvalidSchema, "a.parquet", times)


def test_iceberg_tables_are_not_taken_for_parquet_files(lake, tmp_path):
    folder = tmp_path / "iceberg"
    written(folder / "data" / "a.parquet", id=pa.array([1]))
    (folder / "metadata").mkdir()
    (folder / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(delvec.UnsupportedOperation, match="Iceberg"):
        lake.convert(folder)
    with pytest.raises(delvec.BadRequest, match=r"metadata/version-hint\.text does not exist"):
        lake.sql(f"CONVERT TO DELTA iceberg.`{folder}`")


def test_nested_columns_grow_together(lake, tmp_path):
    folder = tmp_path / "t"
    written(folder / "a.parquet", s=[{"x": 1}])
    written(folder / "b.parquet", s=[{"y": "a"}], n=[1])
    table = lake.convert(folder)
    assert sorted(map(str, table.to_arrow().to_pylist())) == [
        "{'s': {'x': 1, 'y': None}, 'n': None}",
        "{'s': {'x': None, 'y': 'a'}, 'n': 1}",
    ]


def test_int96_is_a_timestamp(lake, tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    data = pa.table({"t": pa.array([MOMENT], pa.timestamp("us", "UTC"))})
    pq.write_table(data, folder / "a.parquet", use_deprecated_int96_timestamps=True)
    table = lake.convert(folder)
    assert table.to_arrow()["t"].to_pylist() == [MOMENT]
    (add,) = adds(folder).values()
    assert json.loads(add["stats"])["minValues"] == {}


def test_tables_stay_within_the_roots(tmp_path, events):
    with delvec.connect(roots=tmp_path / "in") as lake, pytest.raises(delvec.LocationNotAllowed):
        lake.convert(events, "day date, p string")


def test_in_sql_and_in_the_shell(lake, events, tmp_path, capsys):
    for wrong in (
        "CONVERT TO DELTA events",
        f"CONVERT TO DELTA parquet.`{events}` PARTITIONED BY ()",
        f"CONVERT TO DELTA parquet.`{events}` WITH STATISTICS",
    ):
        with pytest.raises(delvec.InvalidStatement):
            lake.sql(wrong)
    done = lake.sql(f"CONVERT TO DELTA parquet.`{events}` NO STATISTICS PARTITIONED BY (day DATE, p STRING)")
    assert (done["numConvertedFiles"], done.version) == (3, 0)
    assert lake.sql(f"CONVERT TO DELTA parquet.`{events}`").version is None
    written(tmp_path / "other" / "p=1" / "a.parquet", id=pa.array([1]))
    for arguments in (["--partition-by", "p decimal(10,2)", "--name", "other"], []):
        with pytest.raises(SystemExit) as ended:
            main(["convert", str(tmp_path / "other"), *arguments])
        assert ended.value.code == 0
    said = "".join(capsys.readouterr())
    assert "converted 1 file: table 'other'" in said
    assert "is already a Delta table" in said
    assert lake.table(tmp_path / "other").to_arrow()["p"].to_pylist() == [Decimal("1.00")]


def test_columns_with_dots_have_their_own_bounds(lake, tmp_path):
    written(tmp_path / "t" / "one.parquet", **{"a.b": [1, 2], "a": [{"b": 100}, {"b": 200}]})
    table = lake.convert(tmp_path / "t")
    assert table.count("`a.b` = 1") == 1
    assert table.count("a.b = 200") == 1
    (add,) = adds(tmp_path / "t").values()
    assert json.loads(add["stats"])["maxValues"] == {"a.b": 2, "a": {"b": 200}}


def test_no_file_is_left_out_in_silence(lake, tmp_path):
    written(tmp_path / "t" / "metadata" / "one.parquet", id=[1])
    written(tmp_path / "t" / "two.parquet", id=[2])
    assert lake.convert(tmp_path / "t").count() == 2

    written(tmp_path / "u" / "one.parquet", id=[1])
    (tmp_path / "u" / "one.parquet").rename(tmp_path / "u" / os.fsdecode(b"M\xfcnchen.parquet"))
    with pytest.raises(delvec.InvalidTableChange, match="not UTF-8"):
        lake.convert(tmp_path / "u")

    written(tmp_path / "v" / "_Day=1" / "one.parquet", id=[1])
    written(tmp_path / "v" / "_day=2" / "two.parquet", id=[2])
    assert lake.convert(tmp_path / "v", "_day int").count() == 2


def test_partitions_that_duckdb_wrote(lake, tmp_path):
    written(tmp_path / "t" / "city=M%C3%BCnchen%20x" / "one.parquet", id=[1])
    assert lake.convert(tmp_path / "t", "city string").to_arrow()["city"].to_pylist() == ["München x"]


def test_a_directory_of_a_table_is_no_table_of_its_own(lake, tmp_path):
    outer = lake.create_table(tmp_path / "outer", "id long, day string", partition_by=["day"])
    outer.append(pa.table({"id": [1], "day": ["a"]}))
    with pytest.raises(delvec.LocationNotAllowed, match="inside table 'outer'"):
        lake.convert(tmp_path / "outer" / "day=a")
    assert not (tmp_path / "outer" / "day=a" / "_delta_log").exists()


def test_footers_that_are_not_kept_are_read_again(lake, events, monkeypatch):
    monkeypatch.setattr("delvec_service.cloning.parquet_directory._MAX_KEPT", 1)
    lake.convert(events, "day date, p string")
    stats = [json.loads(action["add"]["stats"]) for action in actions(events) if "add" in action]
    assert sorted((one["minValues"]["id"], one["numRecords"]) for one in stats) == [(1, 2), (3, 1), (4, 1)]
