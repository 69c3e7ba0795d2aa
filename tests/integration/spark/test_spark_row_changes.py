"""What Spark computes for an UPDATE or a MERGE: new files, removed rows, counts; nothing is committed."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812

from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import Clause, RowChange
from delvec_engines.spark import source_copies
from delvec_engines.spark.arrow_frames import frame_of
from delvec_errors import (
    BadRequest,
    ConstraintViolation,
    InvalidPredicate,
    InvalidSchema,
    MultipleMatches,
    SchemaMismatch,
)
from delvec_kernel.expressions.expression import parse_expression
from delvec_kernel.schema.types import StructType, schema_from
from delvec_storage.files import open_input

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

TRANSACTION = "0198c0de-0000-7000-8000-000000000001"
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("name", pa.string())])


@pytest.fixture
def scan(make_scan):
    """Ids 0 to 9 in one file, with 0 and 9 deleted, and 10 to 14 in another."""
    first = pa.table({"id": range(10), "n": range(10), "name": [f"a{i}" for i in range(10)]}, schema=SCHEMA)
    second = pa.table({"id": range(10, 15), "n": [None] * 5, "name": ["b"] * 5}, schema=SCHEMA)
    return make_scan(
        [{"name": "a.parquet", "rows": first, "deleted": [0, 9]}, {"name": "b.parquet", "rows": second}],
        SCHEMA,
    )


def target_of(scan, schema=None, **configuration):
    return WriteTarget(
        location=scan.location,
        schema=schema or scan.schema,
        partition_columns=list(scan.partition_columns),
        configuration=configuration,
        transaction_id=TRANSACTION,
    )


class Changes:
    """Clauses over a scan and a source, written as SQL."""

    def __init__(self, engine, scan, data=None, target=None):
        self.engine, self.scan = engine, scan
        self.target = target or target_of(scan)
        self.source = None if data is None else engine.merge_source(data)
        self.relations = {"t": scan.schema} | ({"s": self.source.schema} if self.source else {})
        self.clauses = []

    def parsed(self, text, boolean=False):
        return None if text is None else parse_expression(text, self.relations, boolean=boolean)

    def when(self, match, action, condition=None, **values):
        found = ()
        if action != "delete":
            kept = (lambda name: f"t.`{name}`") if action == "update" else (lambda _: "NULL")
            names = self.target.schema.names
            found = [self.parsed(values.get(name, kept(name))) for name in names]
        self.clauses.append(Clause(match, action, self.parsed(condition, boolean=True), found))
        return self

    def run(self, on=None, **options):
        change = RowChange(self.clauses, on=self.parsed(on, boolean=True), source=self.source, **options)
        return self.engine.change_rows(self.scan, change, self.target)


def written(files, location):
    tables = []
    for each in files:
        with open_input(location, each.path) as file:
            tables.append(pq.read_table(file))
    return sorted((row for table in tables for row in table.to_pylist()), key=repr)


def files_in(scan, folder):
    return sorted(path.name for path in folder.rglob("*.parquet") if TRANSACTION in path.name)


def test_update_writes_as_many_rows_as_it_removes(engine, scan):
    changes = Changes(engine, scan).when(
        "matched", "update", "id % 5 = 4 or id = 0", n="n + 1", name="upper(name)"
    )

    done = changes.run()

    assert done.row_deletes == {
        "a.parquet": BitMap64([4]),
        "b.parquet": BitMap64([4]),
    }  # 0 and 9 were deleted before
    assert written(done.adds, scan.location) == [
        {"id": 14, "n": None, "name": "B"},
        {"id": 4, "n": 5, "name": "A4"},
    ]
    assert (done.rows_updated, done.rows_deleted, done.rows_inserted) == (2, 0, 0)
    assert sum(json.loads(add.stats)["numRecords"] for add in done.adds) == 2
    assert all(TRANSACTION in add.path for add in done.adds)
    assert done.matched == {}


def test_values_are_cast_as_in_an_assignment(engine, scan, spark):
    changes = Changes(engine, scan).when("matched", "update", "id = 3", id="'12'", n="id * 1.5D", name="id")
    assert written(changes.run().adds, scan.location) == [{"id": 12, "n": 4, "name": "3"}]

    before = spark.conf.get("spark.sql.ansi.enabled")
    for ansi in ("false", "true"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            with pytest.raises(SchemaMismatch, match=r"'5000000000' does not fit into column 'n'.*int"):
                Changes(engine, scan).when("matched", "update", "id = 5", n="id * 1000000000").run()
            with pytest.raises(SchemaMismatch, match="column 'id'"):
                Changes(engine, scan).when("matched", "update", "id = 5", id="name").run()
        finally:
            spark.conf.set("spark.sql.ansi.enabled", before)


def test_timestamps_without_a_zone_take_the_sessions_except_those_from_python(engine, make_scan, spark):
    """The session is in New York; Spark casts DataFrames and columns, as with delta-spark."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("wall", pa.timestamp("us"))])
    noon = dt.datetime(2024, 7, 1, 12)  # noqa: DTZ001 - a wall clock
    rows = pa.table({"id": [1, 2], "at": [None, None], "wall": [noon, noon]}, schema=schema)
    scan = make_scan([{"name": "a.parquet", "rows": rows}], schema)
    given = pa.table({"id": [2, 3], "wall": pa.array([noon, noon], pa.timestamp("us"))})

    def moments(done):
        return {row["id"]: row["at"].astimezone(dt.UTC).hour for row in written(done.adds, scan.location)}

    update = Changes(engine, scan).when("matched", "update", "id = 1", at="wall")
    assert moments(update.run()) == {1: 16}
    for source, hour in ((given, 12), (frame_of(spark, given, schema_from(given.schema)), 16)):
        merge = Changes(engine, scan, source).when("matched", "update", at="s.wall")
        merge.when("not-matched", "insert", id="s.id", at="s.wall")
        assert moments(merge.run("t.id = s.id")) == {2: hour, 3: hour}
    frame = spark.sql(
        "SELECT 4L AS id, TIMESTAMP_NTZ '2024-07-01 12:00:00' AS at, CAST(NULL AS timestamp_ntz) AS wall"
    )
    (add,) = engine.write(frame, target_of(scan))
    assert [row["at"].hour for row in written([add], scan.location)] == [16]


def test_an_expression_that_fails_only_for_unaffected_rows_fails_nothing(engine, scan):
    changes = Changes(engine, scan)
    changes.when("matched", "delete", "id = 1").when("matched", "update", "id = 2", n="6 div (id - 1)")

    done = changes.run()

    assert done.row_deletes == {"a.parquet": BitMap64([1, 2])}
    assert written(done.adds, scan.location) == [{"id": 2, "n": 6, "name": "a2"}]
    with pytest.raises(InvalidPredicate, match="by zero"):
        Changes(engine, scan).when("matched", "update", "id = 1", n="6 div (id - 1)").run()
    with pytest.raises(InvalidPredicate, match=r"no_such\(id\)"):
        Changes(engine, scan).when("matched", "update", "id = 1", n="no_such(id)").run()


@pytest.mark.gate
def test_merge_with_every_clause(engine, scan):
    source = pa.table({"id": [1, 2, 3, 100, 101], "v": [10, 20, 30, 40, 50]})
    changes = Changes(engine, scan, source)
    changes.when("matched", "update", "s.v >= 20", n="s.v + t.n").when("matched", "delete", "s.v < 15")
    changes.when("not-matched", "insert", "s.v > 40", id="s.id", n="s.v", name="'new'")
    changes.when("not-matched-by-source", "update", "t.id = 12", name="'alone'")
    changes.when("not-matched-by-source", "delete", "t.id > 12")

    done = changes.run("t.id = s.id")

    assert done.row_deletes == {"a.parquet": BitMap64([1, 2, 3]), "b.parquet": BitMap64([2, 3, 4])}
    assert written(done.adds, scan.location) == [
        {"id": 101, "n": 50, "name": "new"},
        {"id": 12, "n": None, "name": "alone"},
        {"id": 2, "n": 22, "name": "a2"},
        {"id": 3, "n": 33, "name": "a3"},
    ]
    assert (done.rows_updated, done.rows_deleted, done.rows_inserted, done.source_rows) == (3, 3, 1, 5)
    assert done.matched == {"a.parquet": BitMap64([1, 2, 3])}


def test_a_few_rows_from_several_tasks_share_a_file(engine, scan, spark):
    changes = Changes(engine, scan, pa.table({"id": [1, 13, 100, 200]}))
    changes.when("matched", "update", n="100").when("not-matched", "insert", id="s.id", n="0")
    bytes_of_a_task = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4m")
    try:
        done = changes.run("t.id = s.id", change_feed=True)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", bytes_of_a_task)

    assert (len(done.adds), len(done.change_files)) == (1, 1)
    assert [row["id"] for row in written(done.adds, scan.location)] == [1, 100, 13, 200]


@pytest.mark.gate
def test_many_rows_are_written_by_the_tasks_that_compute_them(engine, scan):
    done = Changes(engine, scan).when("matched", "update", name="repeat(name, 1000000)").run()

    rows = written(done.adds, scan.location)
    assert sorted(row["id"] for row in rows) == [*range(1, 9), *range(10, 15)]
    assert {len(row["name"]) for row in rows} == {1_000_000, 2_000_000}


def test_a_merge_without_inserts_does_not_report_matches(engine, scan):
    changes = Changes(engine, scan, [{"id": 1}, {"id": 77}]).when("matched", "update", name="'x'")

    done = changes.run("t.id = s.id")

    assert (done.matched, done.source_rows) == ({}, 2)
    assert done.row_deletes == {"a.parquet": BitMap64([1])}


def test_rows_matched_by_several_source_rows(engine, scan, spark):
    twice = spark.createDataFrame([(3, 1), (3, 2), (99, 1)], "id long, v int").repartition(3)
    changes = Changes(engine, scan, twice).when("matched", "update", n="s.v")
    with pytest.raises(MultipleMatches, match=r"a\.parquet"):
        changes.run("t.id = s.id")

    # Refused too if only one of them has an effect, or only other rows change; not if only one of them is joined.
    some = Changes(engine, scan, twice).when("matched", "update", "s.v = 2", n="s.v")
    others = Changes(engine, scan, twice).when("not-matched-by-source", "delete")
    for each in (some, others):
        with pytest.raises(MultipleMatches, match=r"a\.parquet"):
            each.run("t.id = s.id")
    told = some.run("t.id = s.id AND s.v = 2")
    assert written(told.adds, scan.location) == [{"id": 3, "n": 2, "name": "a3"}]
    assert told.matched == {}

    gone = Changes(engine, scan, twice).when("matched", "delete")
    gone.when("not-matched", "insert", id="s.id")
    done = gone.run("t.id = s.id", change_feed=True)
    assert (done.rows_deleted, done.rows_inserted) == (1, 1)
    assert done.row_deletes == done.matched == {"a.parquet": BitMap64([3])}
    kinds = [(row["_change_type"], row["id"]) for row in written(done.change_files, scan.location)]
    assert sorted(kinds) == [("delete", 3), ("insert", 99)]


def test_a_nondeterministic_source_is_read_once(engine, scan, spark):
    random = spark.range(2000).select((F.rand() * 1_000_000).cast("long").alias("id"), F.expr("uuid() u"))
    changes = Changes(engine, scan, random).when("matched", "update", name="s.u")
    changes.when("not-matched", "insert", id="s.id", name="s.u")

    done = changes.run("t.id = s.id")

    names = [row["name"] for row in written(done.adds, scan.location)]
    assert done.rows_inserted + done.rows_updated == len(set(names)) == 2000


def test_nulls_match_only_with_null_safe_equality(engine, scan):
    rows = pa.table({"n": pa.array([None, 1], pa.int32())})
    strict = (
        Changes(engine, scan, rows)
        .when("matched", "delete")
        .when("not-matched", "insert", n="s.n", name="'i'")
    )
    done = strict.run("t.n = s.n")
    assert done.row_deletes == {"a.parquet": BitMap64([1])}
    assert written(done.adds, scan.location) == [{"id": None, "n": None, "name": "i"}]

    safe = Changes(engine, scan, rows).when("matched", "delete").run("t.n <=> s.n")
    assert safe.row_deletes == {"a.parquet": BitMap64([1]), "b.parquet": BitMap64(range(5))}


@pytest.mark.gate
def test_change_files_hold_rows_before_and_after(engine, scan):
    changes = Changes(engine, scan, [{"id": 1, "v": 5}, {"id": 2, "v": None}, {"id": 50, "v": 1}])
    changes.when("matched", "update", "s.v is not null", n="s.v").when("matched", "delete")
    changes.when("not-matched", "insert", id="s.id", n="s.v")

    done = changes.run("t.id = s.id", change_feed=True)

    told = [(row["_change_type"], row["id"], row["n"]) for row in written(done.change_files, scan.location)]
    assert sorted(told) == [
        ("delete", 2, 2),
        ("insert", 50, 1),
        ("update_postimage", 1, 5),
        ("update_preimage", 1, 1),
    ]
    assert all(
        file.path.startswith("_change_data/") and TRANSACTION in file.path for file in done.change_files
    )


def test_new_rows_are_checked_against_the_constraints(engine, scan):
    target = target_of(scan, **{"delta.constraints.small": "n < 100"})
    bad = Changes(engine, scan, target=target).when("matched", "update", "id in (3, 4)", n="n * 30")
    with pytest.raises(ConstraintViolation, match="small") as caught:
        bad.run()
    assert caught.value.details["values"] == {"n": "120"}
    good = Changes(engine, scan, target=target).when("matched", "update", "id = 3", n="n * 30").run()
    assert written(good.adds, scan.location) == [{"id": 3, "n": 90, "name": "a3"}]


def test_generated_columns_follow_the_new_row(engine, make_scan):
    schema = StructType.from_json(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "long", "nullable": False, "metadata": {}},
                {
                    "name": "tens",
                    "type": "long",
                    "nullable": True,
                    "metadata": {"delta.generationExpression": "id * 10"},
                },
            ],
        }
    )
    rows = pa.table({"id": [1, 2], "tens": [10, 20]})
    scan = make_scan([{"name": "a.parquet", "rows": rows}], schema)
    changes = Changes(engine, scan, [{"id": 1, "new": 7}, {"id": 9, "new": 9}])
    changes.when("matched", "update", id="s.new").when("not-matched", "insert", id="s.id", tens="s.new * 10")
    first = changes.clauses[0]
    changes.clauses[0] = Clause(first.match, first.action, None, [first.values[0], None])

    assert written(changes.run("t.id = s.id").adds, scan.location) == [
        {"id": 7, "tens": 70},
        {"id": 9, "tens": 90},
    ]
    changes = Changes(engine, scan).when("matched", "update", id="NULL", tens="NULL")
    with pytest.raises(ConstraintViolation, match="id"):
        changes.run()
    changes = Changes(engine, scan).when("matched", "update", "id = 1", tens="11")
    with pytest.raises(ConstraintViolation, match="Generated Column"):
        changes.run()


def test_columns_added_by_schema_evolution(engine, scan):
    wider = schema_from(SCHEMA.append(pa.field("more", pa.struct([("a", pa.int32()), ("b", pa.string())]))))
    source = pa.table(
        {
            "id": [1, 60],
            "more": pa.array([{"b": "x", "a": 1}, None], pa.struct([("b", pa.string()), ("a", pa.int64())])),
        }
    )
    changes = Changes(engine, scan, source, target_of(scan, wider))
    changes.when("matched", "update", more="s.more").when("not-matched", "insert", id="s.id", more="s.more")
    changes.clauses[0] = Clause(
        "matched",
        "update",
        None,
        [*(changes.parsed(f"t.{name}") for name in SCHEMA.names), changes.parsed("s.more")],
    )

    done = changes.run("t.id = s.id", change_feed=True)

    assert [row["more"] for row in written(done.adds, scan.location)] == [{"a": 1, "b": "x"}, None]
    before = [
        row for row in written(done.change_files, scan.location) if row["_change_type"] == "update_preimage"
    ]
    assert before == [{"id": 1, "n": 1, "name": "a1", "more": None, "_change_type": "update_preimage"}]


def test_partitions_and_floats(engine, make_scan):
    schema = pa.schema([("x", pa.float64()), ("p", pa.date32())])
    rows = pa.table({"x": [float("nan"), -0.0, 1.5, None]}, pa.schema([schema.field("x")]))
    files = [
        {"name": f"{day}.parquet", "rows": rows, "values": {"p": day}} for day in ("2024-01-01", "2024-01-02")
    ]
    scan = make_scan(files, schema, partition_by=["p"])
    changes = Changes(engine, scan).when(
        "matched", "update", "p = '2024-01-02' and (x > 100 or x = 0)", x="1", p="date_add(p, 30)"
    )

    done = changes.run()

    assert done.row_deletes == {"2024-01-02.parquet": BitMap64([0, 1])}
    assert {add.partition_values["p"] for add in done.adds} == {"2024-02-01"}


def test_merge_into_an_empty_table_only_inserts(engine, make_scan, spark):
    scan = make_scan([], SCHEMA)
    changes = (
        Changes(engine, scan, spark.range(3))
        .when("matched", "delete")
        .when("not-matched", "insert", id="s.id")
    )

    done = changes.run("t.id = s.id")

    assert (done.row_deletes, done.rows_inserted, done.source_rows) == ({}, 3, 3)
    assert Changes(engine, scan).when("matched", "update", n="1").run().rows_updated == 0


def test_a_dry_run_writes_nothing(engine, scan, tmp_path):
    changes = Changes(engine, scan, [{"id": 1}, {"id": 70}])
    changes.when("matched", "update", n="1").when("not-matched", "insert", id="s.id")

    done = changes.run("t.id = s.id", change_feed=True, dry_run=True)

    assert (done.rows_updated, done.rows_inserted, list(done.adds), list(done.change_files)) == (1, 1, [], [])
    assert done.row_deletes == {"a.parquet": BitMap64([1])}
    assert files_in(scan, tmp_path) == []


def test_unchanged_rows_are_copied(engine, scan):
    adds = engine.copy_rows(
        scan, {"a.parquet": BitMap64([9, 8, 1]), "b.parquet": BitMap64(range(5))}, target_of(scan)
    )

    assert [row["id"] for row in written(adds, scan.location)] == [2, 3, 4, 5, 6, 7]


def test_sources(engine, spark, lake, tmp_path):
    other = lake.create_table(str(tmp_path / "other"), "id long, name string", engine=spark)
    other.append(pa.table({"id": [1, 2], "name": ["x", "y"]}))
    taken = engine.merge_source(other)
    other.delete("id = 1")
    assert taken.schema.names == ["id", "name"]
    assert taken.data.pinned.rows == 2
    assert taken.bounds(["id", "name"]) == {"id": (1, 2), "name": ("x", "y")}

    arrow = pa.table({"id": [3, None, 1], "x": [1.0, 2.0, float("nan")], "none": pa.nulls(3, pa.int64())})
    assert engine.merge_source(arrow).bounds(arrow.column_names) == {"id": (1, 3)}
    assert engine.merge_source(arrow.to_reader()).is_repeatable
    with pytest.raises(InvalidSchema, match="'ID' twice"):
        engine.merge_source(spark.range(1).selectExpr("id", "id as ID"))
    failing = engine.merge_source(
        spark.range(1).selectExpr("cast(raise_error('broken source') as int) as id")
    )
    with pytest.raises(BadRequest, match="broken source"):
        failing.bounds(["id"])
    with pytest.raises(InvalidSchema, match="streaming"):
        engine.merge_source(spark.readStream.format("rate").load())


COPIES = {"id": "s.id", "n": "s.n", "name": "s.label"}


@pytest.mark.parametrize(
    "inserts",
    [
        [(None, COPIES)],
        [("s.id % 2 = 0", COPIES), (None, COPIES)],
        [("s.n > 0", COPIES), (None, {**COPIES, "n": "7"})],
    ],
    ids=["copied", "copied whichever clause applies", "computed by the second clause"],
)
@pytest.mark.parametrize("on", ["t.id = s.id", "1 = 0"])
def test_new_rows_that_are_copied_are_those_that_spark_inserts(engine, scan, spark, monkeypatch, inserts, on):
    rows = pa.table(
        {
            "ID": [1, 0, 12, 40, 41, None],
            "n": pa.array([10, None, 30, -40, 50, 60], pa.int32()),
            "label": ["x", "y", None, "ü", "v", ""],
        }
    )
    outcomes = []
    for copies in (True, False):
        if not copies:
            monkeypatch.setattr(source_copies, "copied_columns", lambda *_: None)
        for data in (rows, spark.createDataFrame(rows)):
            changes = Changes(engine, scan, data)
            for condition, values in inserts:
                changes.when("not-matched", "insert", condition, **values)
            changed = changes.run(on)
            new = sorted(written(changed.adds, scan.location), key=repr)
            matched = {path: list(numbers) for path, numbers in changed.matched.items() if numbers}
            outcomes.append((new, changed.rows_inserted, changed.source_rows, matched, changed.row_deletes))
    assert outcomes[0][1:3] == (4 if on == "t.id = s.id" else 6, 6)
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_updated_and_copied_rows_share_a_file(engine, scan):
    changes = Changes(engine, scan, pa.table({"id": [1, 200], "n": pa.array([5, 6], pa.int32())}))
    changes.when("matched", "update", n="s.n").when("not-matched", "insert", id="s.id", n="s.n")
    changed = changes.run("t.id = s.id")
    (add,) = changed.adds
    assert sorted(row["id"] for row in written([add], scan.location)) == [1, 200]
    assert (changed.rows_updated, changed.rows_inserted) == (1, 1)
