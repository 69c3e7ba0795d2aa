"""Spark reads every live row of a scan, from exactly the listed files, or fails."""

import datetime as dt
import decimal
from dataclasses import replace

import pyarrow as pa
import pytest

from delvec_engines.spark import SparkEngine, dv_filter, manifest
from delvec_engines.spark.file_values import FILE
from delvec_engines.spark.manifest import GUARD, ManifestStore
from delvec_engines.spark.scan import ScanFrames
from delvec_errors import (
    CorruptTable,
    EngineUnavailable,
    InternalError,
    InvalidPredicate,
    MissingDataFile,
    UnsupportedTable,
)
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

ODD_NAMES = [
    "plain.parquet",
    "with space.parquet",
    "100%.parquet",
    "%41.parquet",
    "a+b=c.parquet",
    "brackets[1].parquet",
    "hash#1?.parquet",
    "café ünï 日本.parquet",
    "braces{a,b}*.parquet",
    "quote'\"back\\slash.parquet",
    "semi;at@and&.parquet",  # no colon: Hadoop's local file system refuses it
    "folder=x y/deep%2Fer/file.parquet",
]


def rows_of(table):
    return sorted(table.to_pylist(), key=repr)


@pytest.fixture(params=["subquery, dense", "join, sparse", "in tasks, dense"])
def each_way(request, spark, engine):
    """The engine, for each way to bring deletion vectors and partition values to the rows."""
    carried, layout = request.param.split(", ")
    engine._frames = ScanFrames(
        spark,
        ManifestStore(in_table=False),
        subquery_limit=-1 if carried == "join" else 8 << 20,
        dense_limit=8 << 20 if layout == "dense" else -1,
        broadcast_limit=0 if carried == "in tasks" else 128 << 20,
    )
    return engine


@pytest.mark.parametrize("each_way", ["subquery, sparse", "join, dense"], indirect=True)
def test_live_rows_each_way(each_way, numbers_scan):
    assert each_way.count(numbers_scan.scan, None) == len(numbers_scan.live)


@pytest.mark.gate
def test_live_rows(each_way, numbers_scan):
    found = each_way.read(numbers_scan.scan, ["id"], None)

    assert sorted(found["id"].to_pylist()) == numbers_scan.live


def test_columns_are_in_schema_order(engine, numbers_scan):
    found = engine.read(numbers_scan.scan, ["text", "id"], None)

    assert found.schema == numbers_scan.scan.schema.to_arrow()
    assert engine.to_df(numbers_scan.scan, ["text", "id"]).columns == ["text", "id"]


def test_predicate_on_a_column_that_is_not_selected(each_way, numbers_scan, where):
    scan = numbers_scan.scan

    found = each_way.read(scan, ["text"], where(scan, "id between 0 and 3"))

    assert sorted(found["text"].to_pylist()) == ["t1", "t2"]


def test_count(each_way, numbers_scan, where):
    scan = numbers_scan.scan

    assert each_way.count(scan, None) == len(numbers_scan.live)
    assert each_way.count(scan, where(scan, "id >= 99998")) == 1001


@pytest.mark.parametrize("deleted", [None, [1, 3]], ids=["without vectors", "with vectors"])
def test_odd_file_names(each_way, make_scan, deleted, tmp_path):
    rows = pa.table({"x": [0, 1, 2, 3]})
    files = [{"name": name, "rows": rows, "deleted": deleted, "values": {"p": name}} for name in ODD_NAMES]
    scan = make_scan(files, pa.schema([("x", pa.int64()), ("p", pa.string())]), partition_by=["p"])

    found = each_way.read(scan, None, None)

    kept = [0, 1, 2, 3] if deleted is None else [0, 2]
    assert rows_of(found) == sorted(({"x": x, "p": name} for name in ODD_NAMES for x in kept), key=repr)


NTZ = dt.datetime(2024, 3, 10, 2, 30, 0, 500000, dt.UTC).replace(tzinfo=None)
PARTITION_VALUES = [
    ("string", "a/b %=é", "a/b %=é"),
    ("byte", "-128", -128),
    ("short", "32767", 32767),
    ("integer", "-5", -5),
    ("long", "9223372036854775807", 2**63 - 1),
    ("float", "1.5", 1.5),
    ("double", "-2.25", -2.25),
    ("boolean", "true", True),
    ("date", "1582-10-04", dt.date(1582, 10, 4)),
    ("decimal(10,2)", "12.30", decimal.Decimal("12.30")),
    ("binary", "\u0001\u0002", b"\x01\x02"),
    ("timestamp", "2024-03-10 02:30:00.123456", dt.datetime(2024, 3, 10, 2, 30, 0, 123456, dt.UTC)),
    ("timestamp_ntz", "2024-03-10 02:30:00.5", NTZ),
]


@pytest.mark.gate
def test_partition_columns_of_every_type_and_null(each_way, make_scan):
    names = [f"p_{kind.partition('(')[0]}" for kind, _, _ in PARTITION_VALUES]
    fields = [("x", "long"), *zip(names, (kind for kind, _, _ in PARTITION_VALUES), strict=True)]
    schema = StructType.from_json(
        {
            "type": "struct",
            "fields": [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in fields],
        }
    )
    values = {name: text for name, (_, text, _) in zip(names, PARTITION_VALUES, strict=True)}
    rows = pa.table({"x": [1, 2]})
    scan = make_scan(
        [
            {"name": "a.parquet", "rows": rows, "values": values},
            {"name": "b.parquet", "rows": rows, "values": dict.fromkeys(names), "deleted": [0]},
            {"name": "c.parquet", "rows": rows, "values": values, "deleted": [1]},
        ],
        schema,
        partition_by=names,
    )

    found = each_way.read(scan, None, None)

    typed = {name: value for name, (_, _, value) in zip(names, PARTITION_VALUES, strict=True)}
    nulls = dict.fromkeys(names)
    expected = [{"x": 1} | typed, {"x": 2} | typed, {"x": 2} | nulls, {"x": 1} | typed]
    assert found.schema == schema.to_arrow()
    assert rows_of(found) == sorted(expected, key=repr)


def test_predicate_on_a_partition_column(each_way, make_scan, where):
    rows = pa.table({"x": [1, 2]})
    scan = make_scan(
        [
            {"name": "a", "rows": rows, "values": {"P": "a"}, "deleted": [0]},
            {"name": "b", "rows": rows, "values": {"P": None}, "deleted": [0]},
            {"name": "c", "rows": rows, "values": {"P": "c"}},
        ],
        pa.schema([("x", pa.int64()), ("P", pa.string())]),
        partition_by=["P"],
    )

    assert each_way.read(scan, ["x"], where(scan, "p = 'a'"))["x"].to_pylist() == [2]
    assert each_way.read(scan, ["x"], where(scan, "p is null"))["x"].to_pylist() == [2]
    found = each_way.read(scan, ["P"], where(scan, "x = 2"))["P"].to_pylist()
    assert sorted(found, key=str) == [None, "a", "c"]
    assert each_way.count(scan, where(scan, "p in ('a', 'c')")) == 3


def test_a_row_from_an_unlisted_file_fails_the_query(each_way, make_scan, where, monkeypatch):
    rows = pa.table({"x": [1, 2]})
    files = [
        {"name": f"{i}.parquet", "rows": rows, "values": {"p": "ab"[i % 2]}, "deleted": [0]} for i in range(3)
    ]
    scan = make_scan(files, pa.schema([("x", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    genuine = manifest._lines
    monkeypatch.setattr(manifest, "_lines", lambda scan, numbers: genuine(scan, [n + 7 for n in numbers]))

    for columns, predicate in [(["x"], None), (["p"], "p = 'a'"), (["p"], "p is null"), (["x"], "x = 2")]:
        with pytest.raises(InternalError, match="not in the plan"):
            each_way.read(scan, columns, predicate and where(scan, predicate))
    with pytest.raises(InternalError):
        each_way.count(scan, where(scan, "p = 'a'"))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("é %,'\"\\", pa.string(), "é %,'\"\\"),
        (None, pa.string(), None),
        ("-9223372036854775808", pa.int64(), -(2**63)),
        ("1.10", pa.decimal128(18, 2), decimal.Decimal("1.10")),
        ("2024-02-29", pa.date32(), dt.date(2024, 2, 29)),
        ("true", pa.bool_(), True),
        (
            "2024-03-10 02:30:00.5",
            pa.timestamp("us", "UTC"),
            dt.datetime(2024, 3, 10, 2, 30, 0, 500_000, tzinfo=dt.UTC),
        ),
        (None, pa.float64(), None),
        ("NaN", pa.float64(), "nan"),
    ],
)
def test_one_value_for_all_files_needs_no_file_name(engine, make_scan, where, capsys, text, kind, value):
    files = [{"name": f"{i}.parquet", "rows": pa.table({"x": [i]}), "values": {"p": text}} for i in range(3)]
    scan = make_scan(files, pa.schema([("x", pa.int64()), ("p", kind)]), partition_by=["p"])

    found = engine.read(scan, None, None)

    assert sorted(found["x"].to_pylist()) == [0, 1, 2]
    assert {str(each) for each in found["p"].to_pylist()} == {str(value)}
    assert engine.count(scan, where(scan, "p is null")) == (3 if text is None else 0)
    assert engine.to_df(scan).schema["p"].nullable
    engine.to_df(scan).explain()
    # Partition values of doubles are not exact as text.
    assert (FILE in capsys.readouterr().out) == (text == "NaN")


@pytest.mark.gate
def test_pruning_and_pushdown_reach_the_parquet_scan(spark, each_way, numbers_scan, where, capsys):
    scan = numbers_scan.scan

    each_way.to_df(scan).filter("id = 42").select("id").explain()

    plan = capsys.readouterr().out
    scans = [line for line in plan.splitlines() if "FileScan parquet" in line]
    assert len(scans) == 1
    for line in scans:
        assert "EqualTo(id,42)" in line
        assert "text" not in line
        assert "MetadataLogFileIndex" in line
    joins = plan.count("BroadcastHashJoin")
    assert joins == (1 if each_way._frames._subquery_limit < 0 else 0)


@pytest.mark.parametrize(
    ("texts", "kind", "condition"),
    [
        (["a", 'é漢 %,[]"\\', None], pa.string(), "startswith(p, 'é漢 %,[]')"),
        (["1", "-9223372036854775808", None], pa.int64(), "p < 0"),
        (["0001-01-01", "2024-02-29", None], pa.date32(), "p > date'2024-01-01'"),
        (["1.10", "1234567890123456.78", None], pa.decimal128(18, 2), "p > 2"),
        (["false", "true", None], pa.bool_(), "p"),
        (["1999-01-01 00:00:00", "2024-03-10 02:30:00.5", None], pa.timestamp("us", "UTC"), "year(p) = 2024"),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_a_later_filter_prunes_files_of_other_partitions(spark, engine, make_scan, texts, kind, condition):
    rows = pa.table({"x": [1, 2]})
    files = [
        {"name": f"{i}.parquet", "rows": rows, "values": {"p": text}, "deleted": [0] if i % 2 else None}
        for i, text in enumerate(texts * 2)
    ]
    scan = make_scan(files, pa.schema([("x", pa.int64()), ("p", kind)]), partition_by=["p"])

    spark.conf.set("spark.sql.adaptive.enabled", "false")  # adaptive execution hides the scans in the plan
    try:
        found = engine.to_df(scan).filter(condition)

        assert len(found.collect()) == 3
        leaves = found._jdf.queryExecution().executedPlan().collectLeaves()
        plans = [leaves.apply(i) for i in range(leaves.size())]
        read = sum(
            plan.metrics().apply("numFiles").value() for plan in plans if plan.metrics().contains("numFiles")
        )
        assert read == 2
        assert engine.to_df(scan).filter("p is null").count() == 3
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_files_without_vectors_pay_nothing(each_way, make_scan, capsys):
    scan = make_scan([{"name": "a", "rows": pa.table({"x": [1]})}], pa.schema([("x", pa.int64())]))

    each_way.to_df(scan).explain()

    plan = capsys.readouterr().out
    assert "Join" not in plan
    assert "Subquery" not in plan
    assert "row_index" not in plan


@pytest.mark.parametrize(("few", "scans"), [("without", 1), ("with", 2)])
def test_small_files_without_vectors_are_read_with_the_others(each_way, make_scan, capsys, few, scans):
    many, three = list(range(5000)), list(range(5000, 5003))
    having, without = (many, three) if few == "without" else (three, many)
    scan = make_scan(
        [
            {"name": "having", "rows": pa.table({"x": having}), "deleted": [0, 2]},
            {"name": "without", "rows": pa.table({"x": without})},
        ],
        pa.schema([("x", pa.int64())]),
    )

    each_way.to_df(scan).filter("x = 42").explain()

    lines = [line for line in capsys.readouterr().out.splitlines() if "FileScan parquet" in line]
    assert len(lines) == scans
    assert all("EqualTo(x,42)" in line for line in lines)
    live = set(many + three) - {having[0], having[2]}
    assert set(each_way.read(scan, None, None)["x"].to_pylist()) == live


def test_empty_scan(engine, make_scan, where):
    schema = pa.schema([("x", pa.int64()), ("p", pa.date32())])
    scan = make_scan([], schema, partition_by=["p"])

    assert engine.read(scan, ["p"], where(scan, "x = 1")).schema == pa.schema([("p", pa.date32())])
    assert engine.to_df(scan, None, where(scan, "x = 1")).collect() == []
    assert engine.count(scan, None) == 0
    assert engine.find_rows(scan, where(scan, "x = 1")) == {}


def test_only_partition_columns(each_way, make_scan):
    rows = pa.table({"x": [1, 2, 3]})
    scan = make_scan(
        [{"name": "a", "rows": rows, "values": {"p": "1"}, "deleted": [2]}],
        pa.schema([("x", pa.int64()), ("p", pa.int64())]),
        partition_by=["p"],
    )

    assert each_way.read(scan, ["p"], None)["p"].to_pylist() == [1, 1]
    assert each_way.to_df(scan, ["p"]).distinct().collect() == [(1,)]


@pytest.mark.gate
def test_odd_column_names(each_way, make_scan, where):
    names = ["_metadata", "a.b", "with `tick`", "words", "facts", "p0", "é %"]
    rows = pa.table({name: [i, i + 1] for i, name in enumerate(names[:-1])})
    scan = make_scan(
        [{"name": "a", "rows": rows, "values": {"é %": "7"}, "deleted": [0]}],
        pa.schema([(name, pa.int64()) for name in names]),
        partition_by=["é %"],
    )

    found = each_way.read(scan, None, where(scan, "`a.b` = 2 and `_metadata` = 1 and `é %` = 7"))

    assert found.to_pylist() == [dict(zip(names, [1, 2, 3, 4, 5, 6, 7], strict=True))]


def test_nested_columns_and_their_pruning(engine, make_scan, capsys):
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    rows = pa.table({"s": pa.array([{"a": 1, "b": [{"c": "x"}]}, None], kind)})
    scan = make_scan([{"name": "a", "rows": rows}], rows.schema)

    assert engine.read(scan, None, None)["s"].to_pylist() == rows["s"].to_pylist()
    engine.to_df(scan).select("s.a").explain()
    assert "struct<s:struct<a:bigint>>" in capsys.readouterr().out


def mapped_schema(mode_ids=True):
    def item(name, kind, number):
        return {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            },
        }

    inner = {"type": "struct", "fields": [item("city", "string", 4)]}
    return StructType.from_json(
        {
            "type": "struct",
            "fields": [item("id", "long", 1), item("part", "string", 2), item("home", inner, 3)],
        }
    )


@pytest.mark.gate
def test_columns_mapped_by_name(each_way, make_scan, where):
    home = pa.struct([("col-4", pa.string())])
    rows = pa.table({"col-1": [1, 2], "col-3": pa.array([{"col-4": "A"}, {"col-4": "B"}], home)})
    scan = make_scan(
        [{"name": "a", "rows": rows, "values": {"col-2": "x"}, "deleted": [0]}],
        mapped_schema(),
        partition_by=["part"],
        configuration={"delta.columnMapping.mode": "name"},
    )

    assert each_way.read(scan, None, None).to_pylist() == [{"id": 2, "part": "x", "home": {"city": "B"}}]
    assert each_way.count(scan, where(scan, "home.city = 'B' and part = 'x'")) == 1


def with_id(name, kind, number):
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def by_id(make_scan, files):
    return make_scan(
        [{"values": {"col-2": "x"}} | file for file in files],
        mapped_schema(),
        partition_by=["part"],
        configuration={"delta.columnMapping.mode": "id"},
    )


HOME = with_id("lives", pa.struct([with_id("town", pa.string(), 4)]), 3)
FIELD_ID_SETTING = "spark.sql.parquet.fieldId.read.enabled"


@pytest.mark.parametrize("switched", ["false", "true", "on, then off", "off, then on"])
def test_columns_mapped_by_id_regardless_of_session_settings(spark, each_way, make_scan, where, switched):
    rows = pa.table(
        [pa.array([1, 2]), pa.array([{"town": "A"}, {"town": "B"}], HOME.type)],
        schema=pa.schema([with_id("number", pa.int64(), 1), HOME]),
    )
    scan = by_id(make_scan, [{"name": "a", "rows": rows}, {"name": "b", "rows": rows, "deleted": [0]}])
    before, _, after = switched.partition(", then ")
    spark.conf.set(FIELD_ID_SETTING, {"on": "true", "off": "false"}.get(before, before))
    try:
        frame = each_way.to_df(scan)
        spark.conf.set(FIELD_ID_SETTING, {"on": "true", "off": "false"}.get(after, before))

        expected = [{"id": n, "part": "x", "home": {"city": c}} for n, c in [(1, "A"), (2, "B"), (2, "B")]]
        assert sorted(frame.toArrow().to_pylist(), key=repr) == expected
        assert frame.filter("home.city = 'B'").count() == 2
        assert each_way.count(scan, where(scan, "id = 2 and part = 'x'")) == 2
        found = each_way.find_rows(scan, where(scan, "id = 2"))
        assert {path: list(rows) for path, rows in found.items()} == {"a": [1], "b": [1]}
    finally:
        spark.conf.unset(FIELD_ID_SETTING)


@pytest.mark.gate
def test_a_column_name_that_an_older_file_uses_for_another_column(engine, make_scan, where):
    """Columns mapped by id may have any name in a file: Spark pushes filters down by name and must not be misled."""

    def rows(names, values):
        fields = [with_id(name, pa.int64(), number) for name, number in zip(names, [1, 9], strict=True)]
        return pa.table([pa.array(each) for each in values], schema=pa.schema(fields))

    scan = by_id(
        make_scan,
        [
            {"name": "new", "rows": rows(["col-1", "old"], [[1, 2], [10, 20]])},
            {"name": "swapped", "rows": rows(["old", "col-1"], [[3, 4], [30, 40]])},
            {
                "name": "lacking",
                "rows": rows(["col-1", "col-1x"], [[5], [50]]).rename_columns(["x", "col-1"]),
            },
            {"name": "without", "rows": rows(["a", "b"], [[0], [7]]).select(["b"]).rename_columns(["col-1"])},
        ],
    )

    frame = engine.to_df(scan)
    assert sorted(frame.select("id").collect(), key=str) == [(1,), (2,), (3,), (4,), (5,), (None,)]
    assert frame.filter("id = 3").count() == 1
    assert frame.filter("id > 4").select("id").collect() == [(5,)]
    assert frame.filter("id is null").count() == 1
    assert frame.filter("id = 30").count() == 0
    found = engine.find_rows(scan, where(scan, "id in (2, 4) or id is null"))
    assert {path: list(rows) for path, rows in found.items()} == {"new": [1], "swapped": [1], "without": [0]}


def test_a_file_without_field_ids_is_refused(engine, make_scan):
    scan = by_id(make_scan, [{"name": "a.parquet", "rows": pa.table({"col-1": [1]})}])

    with pytest.raises(CorruptTable, match=r"a\.parquet.*people.*version 3.*no field ids"):
        engine.to_df(scan)


def test_a_missing_file_of_a_table_mapped_by_id(engine, make_scan):
    rows = pa.table([pa.array([1])], schema=pa.schema([with_id("x", pa.int64(), 1)]))
    scan = by_id(make_scan, [{"name": "a.parquet", "rows": rows}])
    (make_scan.folder / "a.parquet").unlink()

    with pytest.raises(MissingDataFile, match=r"a\.parquet.*people.*version 3"):
        engine.to_df(scan)


# --- silent failures that must be errors ----------------------------------------------------------------------------


@pytest.mark.gate
def test_a_session_that_ignores_manifests_is_refused(spark, engine, numbers_scan):
    setting = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
    frame = engine.to_df(numbers_scan.scan)
    spark.conf.set(setting, "true")
    try:
        with pytest.raises(UnsupportedTable, match="ignoreMetadata"):
            engine.to_df(numbers_scan.scan)
        assert frame.count() == len(numbers_scan.live)
    finally:
        spark.conf.unset(setting)


@pytest.mark.parametrize("location", ["s3://bucket/people", "gs://bucket/people"])
def test_a_scheme_without_a_hadoop_file_system_is_named(engine, numbers_scan, monkeypatch, location):
    """PySpark comes without Hadoop's cloud connectors; executors would report a class that is not found."""
    scan = replace(numbers_scan.scan, location=location)
    predicate = predicates.parse("id = 1", scan.schema)
    says = r"no file system for \S+.* at s3://bucket/people.*hadoop-aws.*format\('delvec'\).*duckdb"
    for use in (
        lambda: engine.to_df(scan),
        lambda: engine.read(scan, ["id"], None),
        lambda: engine.count(scan, predicate),
        lambda: engine.find_rows(scan, predicate),
    ):
        with pytest.raises(EngineUnavailable, match=says.replace("s3:", location.partition("//")[0])):
            use()
    # As with Spark Connect, where only running the query shows it.
    monkeypatch.setattr(ScanFrames, "_check_session", lambda *_: None)
    monkeypatch.setattr("delvec_storage.files.check_regular", lambda *_, **__: None)
    with pytest.raises(EngineUnavailable, match=says.replace("s3:", location.partition("//")[0])):
        engine.count(scan, predicate)


def test_a_manifest_that_spark_does_not_follow_fails_the_query(spark, engine, numbers_scan, monkeypatch):
    monkeypatch.setattr(ScanFrames, "_check_session", lambda *_: None)
    setting = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
    spark.conf.set(setting, "true")
    try:
        for use in (
            lambda: engine.count(numbers_scan.scan, None),
            lambda: engine.read(numbers_scan.scan, ["id"], None),
        ):
            with pytest.raises(UnsupportedTable, match="did not see the list"):
                use()
    finally:
        spark.conf.unset(setting)


def test_the_guard_fails_even_where_corrupt_files_are_ignored(spark, numbers_scan, tmp_path):
    (tmp_path / GUARD).write_bytes(manifest._GUARD_TEXT)
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        frame = spark.read.schema("id long").option("ignoreCorruptFiles", "false").parquet(tmp_path.as_uri())
        with pytest.raises(Exception, match=GUARD):
            frame.count()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


@pytest.mark.parametrize("setting", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_a_missing_file_is_named_even_if_the_session_ignores_missing_files(
    spark, engine, make_scan, where, setting
):
    rows = pa.table({"x": [1, 2]})
    scan = make_scan(
        [{"name": "a b.parquet", "rows": rows}, {"name": "c.parquet", "rows": rows}], rows.schema
    )
    (make_scan.folder / "a b.parquet").unlink()
    spark.conf.set(f"spark.sql.files.{setting}", "true")
    try:
        for use in (
            lambda: engine.read(scan, None, None),
            lambda: engine.count(scan, where(scan, "x = 1")),
            lambda: engine.find_rows(scan, where(scan, "x = 1")),
        ):
            with pytest.raises(MissingDataFile, match=r"a%20b\.parquet.*people.*version 3") as caught:
                use()
            assert caught.value.details["file"].endswith("a%20b.parquet")
    finally:
        spark.conf.unset(f"spark.sql.files.{setting}")


@pytest.mark.parametrize("size", [0, -1])
def test_a_file_without_a_size_is_refused(engine, make_scan, size):
    rows = pa.table({"x": [1]})
    scan = make_scan([{"name": "a.parquet", "rows": rows, "size": size}], rows.schema)

    with pytest.raises(CorruptTable, match=r"a\.parquet"):
        engine.to_df(scan)


def test_a_table_in_memory_is_refused(engine, make_scan):
    rows = pa.table({"x": [1]})
    scan = make_scan([{"name": "a.parquet", "rows": rows}], rows.schema)
    object.__setattr__(scan, "location", "memory:///people")

    with pytest.raises(EngineUnavailable, match="DuckDB"):
        engine.to_df(scan)


def test_a_predicate_that_spark_cannot_analyse_is_invalid(engine, numbers_scan, where):
    scan = numbers_scan.scan

    for use in (engine.find_rows, engine.count):
        with pytest.raises(InvalidPredicate, match="no_such_function"):
            use(scan, where(scan, "no_such_function(id) = 1"))


def test_files_are_not_checked_before_they_are_read(spark, engine, make_scan):
    """Checking each of 10,000 took 49 seconds; these do not even exist."""
    rows = pa.table({"x": [1]})
    scan = make_scan([{"name": "a.parquet", "rows": rows}], rows.schema)
    many = scan.files.take(pa.array([0] * 10_000))
    names = pa.array([f"nowhere-{number}.parquet" for number in range(10_000)])
    object.__setattr__(scan, "files", many.set_column(0, many.schema.field("path"), names))

    assert engine.to_df(scan).columns == ["x"]


# --- where manifests go -------------------------------------------------------------------------------------


def test_manifests_in_the_table_and_their_clean_up(spark, make_scan):
    rows = pa.table({"x": [1, 2]})
    scan = make_scan([{"name": "a.parquet", "rows": rows, "deleted": [0]}], rows.schema)
    scans = make_scan.folder / "_delvec" / "scans"
    old, recent, foreign = scans / "1000-old", scans / "99999999999-new", scans / "notes"
    for folder in (old, recent, foreign):
        (folder / "_spark_metadata").mkdir(parents=True)

    engine = SparkEngine(spark, manifests_in_table=True)

    assert engine.read(scan, None, None)["x"].to_pylist() == [2]
    assert engine.read(scan, None, None)["x"].to_pylist() == [2]
    names = {path.name for path in scans.iterdir()}
    assert old.name not in names
    assert {recent.name, foreign.name} < names
    assert len(names) == 4


@pytest.mark.parametrize("name", ["my table", "a[1]{b}*", "100%", "%41é"])
def test_a_table_of_an_odd_name_with_its_manifests_inside(spark, scan_maker, tmp_path, name):
    make_scan = scan_maker(tmp_path / name)
    rows = pa.table({"x": [1, 2]})
    scan = make_scan([{"name": "a.parquet", "rows": rows, "deleted": [0]}], rows.schema)

    assert SparkEngine(spark, manifests_in_table=True).read(scan, None, None)["x"].to_pylist() == [2]


def test_numbers_skip_those_that_rounding_to_seconds_would_give():
    numbers = manifest.file_numbers(3000)

    assert len(numbers) == len(set(numbers)) == 3000
    assert not [n for n in numbers if n % 1000 == 0]


def test_the_sparse_layout_is_chosen_beyond_the_limit():
    from pyroaring import BitMap64

    scattered = BitMap64(range(0, 1_000_000_000, 1_000_000))

    sets = dv_filter.BitSets.of([scattered])

    assert not sets.is_dense
    assert sets.nbytes < 3 << 20


def test_a_small_vector_of_more_rows_than_fit_in_memory(scan_maker, spark, tmp_path):
    """Less than a megabyte marks four billion rows of a file that has three, by statistics that do not say so."""
    rows = pa.table({"x": [1, 2, 3]})
    make_scan = scan_maker(tmp_path)
    file = {"name": "a.parquet", "rows": rows, "deleted": range(1, 2**32), "num_records": 2**32}
    scan = make_scan([file], rows.schema)
    engine = SparkEngine(spark)

    assert engine.read(scan, None, None)["x"].to_pylist() == [1]
    assert engine.count(scan, None) == 1


def test_not_null_columns_are_not_nullable_in_frames_if_statistics_prove_it(lake, spark, tmp_path):
    """And filters on them are still pushed down."""
    fields = [("id", "long", False), ("p", "integer", False), ("day", "date", False), ("v", "string", True)]
    schema = StructType(tuple(StructField(name, PrimitiveType(kind), null) for name, kind, null in fields))
    table = lake.create_table(str(tmp_path / "t"), schema, partition_by=["p", "day"], engine=spark)
    assert [item.nullable for item in table.to_df().schema] == [False, False, False, True]
    day = dt.date(2026, 1, 1)
    table.append(
        pa.table(
            {
                "id": range(300),
                "p": pa.array([i % 3 for i in range(300)], pa.int32()),
                "day": [day] * 300,
                "v": ["x"] * 300,
            }
        )
    )
    table.delete("id % 10 = 3")

    frame = table.to_df()

    assert [item.nullable for item in frame.schema] == [False, False, False, True]
    found = frame.where("id > 290 AND p = 1 AND day = '2026-01-01'")
    assert sorted(row.id for row in found.collect()) == [292, 295, 298]
    plan = found._jdf.queryExecution().toString()
    assert "PushedFilters: [GreaterThan(id,290)]" in plan
    assert frame.where("id IS NULL").count() == 0
    assert frame.select("*").count() == 270


def test_a_null_that_a_writer_left_in_a_not_null_column_is_read_as_null(make_scan, spark):
    schema = StructType(
        (StructField("id", PrimitiveType("long"), False), StructField("p", PrimitiveType("string"), False))
    )
    rows = pa.table({"id": pa.array([1, None], pa.int64())})
    scan = make_scan([{"name": "a.parquet", "rows": rows, "values": {"p": None}}], schema, partition_by=["p"])

    frame = SparkEngine(spark).to_df(scan)

    assert [item.nullable for item in frame.schema] == [True, True]
    assert sorted(map(tuple, frame.collect()), key=str) == [(1, None), (None, None)]
