"""Small row changes in the driver: same rows, feeds, counts and errors as on Spark, which runs all doubtful ones."""

import datetime as dt
import logging
import re
import shutil
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.conftest import as_users_have_it

import delvec
from delvec_engines.spark import ChoosingEngine, SparkEngine, choosing_engine, duckdb_tasks
from delvec_engines.spark.local_execution import ENABLED, MAX_BYTES, LocalExecution
from delvec_engines.spark.merge_source import merge_source
from delvec_errors import BadRequest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

SCHEMA = (
    "id long, n int, price decimal(10,2), x double, f float, name string, day date, at timestamp, local timestamp_ntz, "
    "place struct<city: string, zip: int>, tags array<string>, part string"
)
TABLES = {
    "plain": {},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "tracked": {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"},
    "no vectors": {"delta.enableDeletionVectors": "false", "delta.enableChangeDataFeed": "true"},
}


def a_row(number):
    odd = number % 7
    moment = dt.datetime(2024, 3, 10, 6, 59, tzinfo=dt.UTC) + dt.timedelta(minutes=number)
    return {
        "id": number,
        "n": None if odd == 3 else number % 13 - 6,
        "price": None if odd == 5 else Decimal(number * 37) / 100,
        "x": [0.1 * number, float("nan"), None, -0.0, float("inf"), 1e-9, 0.0][odd],
        "f": [1.5, None, float("nan"), 0.1, -0.0, 3.0, float("-inf")][odd],
        "name": [f"N{number}", None, "ß", "", "a%b_c", "Émile", "\U0001f600x"][odd],
        "day": None if odd == 2 else dt.date(2024, 1, 1) + dt.timedelta(days=number),
        "at": None if odd == 1 else moment,
        "local": None if odd == 4 else moment.replace(tzinfo=None),
        "place": None if odd == 6 else {"city": None if odd == 0 else f"c{number % 5}", "zip": number},
        "tags": None if odd == 1 else ["a", None, str(number)][: number % 4],
        "part": [None, "x", "y z", "ü=1"][number % 4],
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with delvec.connect(database_url=f"sqlite:///{tmp_path_factory.mktemp('lake')}/delvec.db") as lake:
        yield lake


@pytest.fixture(scope="module")
def templates(lake, tmp_path_factory):
    """Four partitions of two files each, some rows already deleted."""
    folder = tmp_path_factory.mktemp("templates")
    for name, properties in TABLES.items():
        table = lake.create_table(folder / name, SCHEMA, partition_by=["part"], properties=properties)
        for numbers in (range(40), range(40, 80)):
            table.append([a_row(number) for number in numbers])
        table.delete("id % 10 = 4")
    return folder


class Recorder(logging.Handler):
    """Records what the log says about where commands ran."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    @property
    def in_driver(self):
        return [" ran in the driver, on DuckDB" in line for line in self.lines]

    @property
    def sites(self):
        """What ran each command."""
        return [re.search("in the driver|in tasks|runs on Spark", line)[0] for line in self.lines]


@pytest.fixture
def log():
    handler, logger = Recorder(), logging.getLogger(choosing_engine.__name__)
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


def jobs(spark):
    return spark.sparkContext._jsc.sc().statusStore().jobsList(None).size()


def merged(frame):
    def run(table):
        merge = table.merge(
            frame(table), "t.id = s.id AND t.n IS NOT NULL", target_alias="t", source_alias="s"
        )
        merge = merge.when_matched_delete("s.n = 99").when_matched_update(
            {"name": "s.name", "price": "s.price + t.price", "place.zip": "s.n", "at": "s.at"}
        )
        merge = merge.when_not_matched_insert_all("s.id > 1000")
        return merge.when_not_matched_by_source_update({"n": "t.n + 1"}, "t.id % 9 = 1").execute()

    return run


def source_rows():
    rows = [a_row(number) for number in (1, 2, 3, 4, 5, 50, 51, 2000, 2001, 3000, 999)]
    rows[2]["n"] = rows[6]["n"] = 99
    return pa.Table.from_pylist(
        rows,
        pa.schema(
            [
                ("id", pa.int64()),
                ("n", pa.int32()),
                ("price", pa.decimal128(10, 2)),
                ("x", pa.float64()),
                ("f", pa.float32()),
                ("name", pa.string()),
                ("day", pa.date32()),
                ("at", pa.timestamp("us", "UTC")),
                ("local", pa.timestamp("us")),
                ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
                ("tags", pa.list_(pa.string())),
                ("part", pa.string()),
            ]
        ),
    )


def keyed(table):
    return table.delete("n < 5", keys=pa.table({"id": [1, 2, 2, 3, 77]}), on="id")


COMMANDS = {
    "delete": lambda table: table.delete("id % 10 = 7"),
    "delete NaN": lambda table: table.delete("x > 1e300 OR f = 0.0"),
    "delete by text": lambda table: table.delete(r"name LIKE 'a\\%b%' OR upper(name) = 'SS' OR part = 'ü=1'"),
    "delete by day": lambda table: table.delete("day >= DATE'2024-02-20' AND coalesce(n, 0) <> 2"),
    "delete nothing": lambda table: table.delete("id % 100 = 99"),
    "delete nearly all of a partition": lambda table: table.delete("part = 'x' AND id > 9"),
    "delete by keys": keyed,
    "update": lambda table: table.update({"n": "n * 2 - 1", "name": "name || '!'"}, "id BETWEEN 10 AND 30"),
    "update all": lambda table: table.update({"price": "price + 0.01", "x": "x / 3"}),
    "update a partition": lambda table: table.update(
        {"part": "concat(part, 'é')"}, "part IS NOT NULL AND n > 0"
    ),
    "update fields": lambda table: table.update(
        {"place.zip": "place.zip + 1", "tags": None}, "place IS NOT NULL"
    ),
    "update days": lambda table: table.update(
        {"day": "date_add(day, 3)", "x": "CAST(n AS DOUBLE)"}, "id < 9"
    ),
    "update by value": lambda table: table.update(
        {"price": Decimal("7.5"), "day": dt.date(1999, 12, 31), "n": 3}, "x <=> -0.0"
    ),
    "merge": merged(lambda _: source_rows()),
}


@pytest.fixture
def new_york_tasks(spark, monkeypatch):
    """A session in New York's time zone whose commands run on DuckDB in tasks, several per file."""
    monkeypatch.setattr(duckdb_tasks, "_MIN_BYTES", 1)
    session = spark.newSession()
    session.conf.set(duckdb_tasks.ENABLED, "true")
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session


@pytest.fixture
def new_york(spark):
    """A session in New York's time zone whose commands may run in the driver."""
    session = spark.newSession()
    session.conf.set(ENABLED, "true")
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session


@pytest.fixture
def sessions(new_york, new_york_tasks, spark):
    return {"driver": new_york, "tasks": new_york_tasks, "spark": spark}


CASES = [
    *(("plain", name) for name in COMMANDS),
    *(("feed", name) for name in ("delete", "delete by keys", "update fields", "merge")),
    *(("mapped", name) for name in ("delete by text", "update a partition", "merge")),
    *(("tracked", name) for name in ("update", "merge")),
    *(("no vectors", name) for name in ("delete", "update", "merge")),
]


@pytest.mark.parametrize(("made", "name"), CASES)
def test_all_ways_leave_the_same_rows_feed_and_counts(lake, templates, sessions, tmp_path, log, made, name):
    found = {}
    before = jobs(sessions["spark"])
    for way, session in sessions.items():
        folder = tmp_path / way
        shutil.copytree(templates / made, folder)
        table = lake.table(folder, engine=session)
        first = table.version()
        metrics = dict(COMMANDS[name](table))
        if way == "driver":
            assert jobs(session) == before, log.lines
        rows = table_rows(lake, folder)
        feed = feed_rows(lake, folder, first)
        counts = {key: value for key, value in metrics.items() if "Rows" in key or "Vectors" in key}
        found[way] = counts, rows, feed
    # Without vectors each command also rewrites files.
    ran = {"driver": "in the driver", "tasks": "in tasks", "spark": "runs on Spark"}
    if made == "no vectors":
        expected = [ran["driver"], ran["driver"], ran["tasks"], ran["spark"], ran["spark"], ran["spark"]]
    else:
        expected = list(ran.values())
    assert log.sites == expected, log.lines
    for way in ("driver", "tasks"):
        assert found[way][0] == found["spark"][0]
        assert found[way][1] == found["spark"][1]
        assert found[way][2] == found["spark"][2]


def table_rows(lake, folder):
    return sorted(map(repr, lake.table(folder).to_arrow().to_pylist()))


def feed_rows(lake, folder, first):
    table = lake.table(folder)
    has_feed = table.detail()["properties"].get("delta.enableChangeDataFeed") == "true"
    if not has_feed or table.version() == first:
        return []
    return sorted(map(repr, table.changes(first + 1).drop_columns(["_commit_timestamp"]).to_pylist()))


def test_a_source_of_more_rows_than_spark_expects_stays_at_its_executors(spark):
    frame = spark.range(0, 200_000, 1, 2)
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.driver.maxResultSize", "1m")
    try:
        source = merge_source(spark, frame, lambda scan: scan)
        assert source.data.pinned.rows == 200_000
        assert source.data.collected(64 << 20) is None
    finally:
        settings.remove("spark.driver.maxResultSize")
    assert source.data.pinned.frame.count() == 200_000


@pytest.mark.gate
def test_a_source_that_spark_reads_is_read_once(lake, templates, spark_driver, tmp_path, log):
    folder = tmp_path / "people"
    shutil.copytree(templates / "plain", folder)
    table = lake.table(folder, engine=spark_driver)
    source = spark_driver.sql("SELECT id, CAST(rand() * 1000 AS INT) n FROM range(38, 46)")
    merge = table.merge(source, "target.id = source.id").when_matched_update({"n": "source.n"})
    metrics = merge.when_not_matched_insert({"id": "source.id", "n": "source.n"}).execute()
    assert log.in_driver == [True]
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (7, 1)  # 44 was deleted
    found = [row["id"] for row in lake.table(folder).to_arrow().to_pylist() if 38 <= row["id"] < 46]
    assert sorted(found) == list(range(38, 46))


def test_a_session_without_settings_runs_small_changes_in_the_driver_and_larger_ones_in_tasks(
    lake, spark, tmp_path, log
):
    lake.create_table(tmp_path / "t", "id long, n int").append(
        [{"id": number, "n": 0} for number in range(9)]
    )
    session = as_users_have_it(spark)
    table = lake.table(tmp_path / "t", engine=session)
    assert isinstance(table.engine, ChoosingEngine)
    done = [table.update({"n": "n + 1"}, "id > 2")]
    session.conf.set(MAX_BYTES, "1b")
    done.append(table.update({"n": "n + 1"}, "id > 3"))
    session.udf.register("twice", lambda number: 2 * number, "int")
    done += [table.update({"n": "twice(n)"}, "id > 7"), table.delete("id = 0"), table.append([{"id": 9}])]
    assert log.sites == ["in the driver", "in tasks", "runs on Spark", "in tasks"], log.lines
    assert sorted(table.to_arrow(predicate="n IS NOT NULL")["n"].to_pylist()) == [0, 0, 1, 2, 2, 2, 2, 4]
    assert [metrics.executed_by.partition(":")[0] for metrics in done] == [
        "DuckDB in the driver",
        "DuckDB in tasks",
        "Spark",
        "DuckDB in tasks",
        "Spark",
    ]
    assert done[2].executed_by.endswith("the expression 'twice(n)' has another value in each task")
    assert f"executed_by={done[0].executed_by!r}" in repr(done[0])
    assert done[0].executed_by in done[0]._repr_html_()
    assert all(isinstance(number, int) for number in dict(done[0]).values())
    infos = [entry["engineInfo"].split(" Delvec/")[0] for entry in reversed(table.history(limit=5))]
    spark_itself = table.engine.name
    assert infos == [
        f"{spark_itself} (DuckDB in the driver)",
        f"{spark_itself} (DuckDB in tasks)",
        spark_itself,
        f"{spark_itself} (DuckDB in tasks)",
        spark_itself,
    ]


def test_explain_says_what_would_run_each_command(lake, spark_driver, tmp_path):
    name, other = f"`{tmp_path}/t`", f"`{tmp_path}/u`"
    for folder in ("t", "u"):
        table = lake.create_table(tmp_path / folder, "id long, n int", partition_by=["n"])
        table.append([{"id": number, "n": number} for number in range(3)])

    def explained(statement):
        return lake.sql(f"EXPLAIN {statement}", engine=spark_driver).to_pylist()[-1]

    for statement in (
        f"DELETE FROM delta.{name} WHERE id = 1",
        f"UPDATE delta.{name} SET id = id + 1",
        f"MERGE INTO delta.{name} t USING (SELECT * FROM delta.{other} WHERE n = 1) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"OPTIMIZE delta.{name}",
    ):
        assert explained(statement)["engine"] == "DuckDB in the driver"
    merge = explained(
        f"MERGE INTO delta.{name} t USING (SELECT * FROM delta.{other} WHERE n = 1) s ON t.id = s.id "
        "WHEN MATCHED AND t.n RLIKE '1' THEN DELETE"
    )
    assert (merge["files"], merge["files_skipped"]) == (1, 2)
    assert re.match("Spark: the expression .* may not mean the same on both engines", merge["engine"])
    changed = explained(f"UPDATE delta.{name} SET id = CAST(rand() * 9 AS INT)")
    assert changed["engine"].startswith("Spark: the expression")
    assert lake.table(tmp_path / "t").version() == 1


def test_a_spark_engine_that_is_given_runs_everything_itself(lake, spark, tmp_path, log):
    lake.create_table(tmp_path / "t", "id long").append([{"id": 1}, {"id": 2}])
    lake.table(tmp_path / "t", engine=SparkEngine(as_users_have_it(spark))).delete("id = 1")
    assert log.lines == []
    assert lake.table(tmp_path / "t").to_arrow()["id"].to_pylist() == [2]


# --- not provably equivalent: left to Spark ----------------------------------------------------------------


@pytest.fixture
def people(lake, tmp_path):
    lake.create_table(tmp_path / "people", "id long, name string, price decimal(10,2), f float, at timestamp")
    rows = [(1, "a", 1, 0.5, 0), (2, "bc", 2, None, 3600), (3, None, None, 1.5, 7200)]
    lake.table(tmp_path / "people").append(
        [
            {"id": i, "name": name, "price": price, "f": f, "at": dt.datetime.fromtimestamp(at, dt.UTC)}
            for i, name, price, f, at in rows
        ]
    )
    return lambda session: lake.table(tmp_path / "people", engine=session)


def reason(log):
    (line,) = log.lines
    assert " runs on Spark: " in line
    return line.partition(" runs on Spark: ")[2]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({ENABLED: "false"}, "localExecution.enabled is false"),
        ({MAX_BYTES: "100b"}, "maxBytes = 100"),
        ({"spark.sql.ansi.enabled": "false"}, "spark.sql.ansi.enabled is false"),
        ({"spark.sql.timestampType": "TIMESTAMP_NTZ"}, "spark.sql.timestampType is TIMESTAMP_NTZ"),
        ({"spark.sql.parser.escapedStringLiterals": "true"}, "escapedStringLiterals is true"),
        ({"spark.sql.legacy.timeParserPolicy": "LEGACY"}, "spark.sql.legacy.timeParserPolicy is set"),
        (
            {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"},
            "spark.sql.parquet.datetimeRebaseModeInRead is set",
        ),
    ],
)
def test_settings_that_change_a_commands_meaning_or_cost_leave_it_to_spark(
    people, spark, log, settings, expected
):
    session = spark.newSession()
    session.conf.set(ENABLED, "true")
    for name, value in settings.items():
        session.conf.set(name, value)
    assert people(session).delete("id = 1")["numDeletedRows"] == 1
    assert expected in reason(log)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("name RLIKE '^a'", "may not mean the same"),
        ("f + price > 1000", "not exact"),
        ("price / 3 > 1000", "not exact"),
        ("reverse(name) = 'cb'", "DuckDB in the driver failed"),
        ("at < '1970-01-01 00:30:00'", "time zone"),
        ("at <= TIMESTAMP'1969-12-31 19:00:00'", "time zone"),
        ("hour(at) = 19", "time zone"),
    ],
)
@pytest.mark.gate
def test_predicates_that_may_differ_in_meaning_are_left_to_spark(people, new_york, log, predicate, expected):
    people(new_york).delete(predicate)
    assert expected in reason(log)


def test_the_sessions_time_zone_applies_to_timestamps_in_text(people, new_york, log):
    people(new_york).delete("at < '1969-12-31 20:00:00'")
    assert people(new_york).to_arrow()["id"].to_pylist() == [2, 3]


@pytest.mark.parametrize(
    ("value", "in_driver"),
    [
        ("at", True),
        ("current_timestamp()", True),
        ("'2024-03-10 02:30:00'", False),
        ("at + INTERVAL 1 DAY", False),
    ],
)
def test_copied_timestamps_and_the_current_time_need_no_time_zone(people, new_york, log, value, in_driver):
    assert people(new_york).update({"at": value}, "id = 1")["numUpdatedRows"] == 1
    assert log.in_driver == [in_driver]


@pytest.mark.gate
def test_in_utc_timestamps_are_computed_in_the_driver(people, spark_driver, log):
    people(spark_driver).delete("at < '1970-01-01 00:30:00'")
    assert people(spark_driver).to_arrow()["id"].to_pylist() == [2, 3]
    assert log.in_driver == [True]


def test_a_users_function_is_not_mistaken_for_sparks_of_that_name(people, spark, log):
    session = spark.newSession()
    session.conf.set(ENABLED, "true")
    session.udf.register("upper", lambda text: text and f"<{text}>")
    people(session).update({"name": "upper(name)"}, "id = 2")
    assert people(session).to_arrow()["name"].to_pylist().count("<bc>") == 1
    assert "function upper is not Spark's own" in reason(log)


@pytest.mark.parametrize(("name", "value"), [(ENABLED, "perhaps"), (MAX_BYTES, "many")])
def test_invalid_settings_are_errors(people, spark, name, value):
    session = spark.newSession()
    session.conf.set(ENABLED, "true")
    session.conf.set(name, value)
    with pytest.raises(BadRequest, match=name):
        people(session).delete("id = 1")


@pytest.mark.parametrize(
    ("master", "location", "path", "in_driver"),
    [
        ("local", "file:///t", "a.parquet", True),
        ("local[*, 3]", "file:///t", "a.parquet", True),
        ("local-cluster[2,1,1024]", "file:///t", "a.parquet", False),
        ("yarn", "file:///t", "a.parquet", False),
        ("yarn", "s3://bucket/t", "a.parquet", True),
        ("yarn", "s3://bucket/t", "file:///elsewhere/a.parquet", False),
        ("k8s://host", "abfss://c@a.dfs.core.windows.net/t", "a.parquet", True),
        ("local[2]", "memory://t", "a.parquet", False),
    ],
)
def test_the_driver_only_runs_on_storage_that_executors_share(
    spark_driver, make_scan, monkeypatch, master, location, path, in_driver
):
    scan = make_scan([{"name": "a.parquet", "rows": pa.table({"id": [1]})}], pa.schema([("id", pa.int64())]))
    files = scan.files.set_column(0, scan.files.schema.field("path"), pa.array([path]))
    scan = replace(scan, location=location, files=files)
    monkeypatch.setattr(spark_driver.sparkContext, "master", master)
    assert (LocalExecution(spark_driver).unsuitable(scan) is None) is in_driver


@pytest.mark.parametrize("name", ["plain", "tracked"])
def test_small_files_are_rewritten_in_the_driver_as_spark_rewrites_them(
    lake, templates, spark_driver, spark, tmp_path, log, name
):
    def rows_by_id(table):
        return sorted(map(repr, table.to_arrow(columns=["id", "name", "price", "place"]).to_pylist()))

    for folder, engine in (("driver", spark_driver), ("spark", SparkEngine(spark))):
        shutil.copytree(templates / name, tmp_path / folder)
        table = lake.table(tmp_path / folder, engine=engine)
        log.lines.clear()
        before = jobs(spark)
        assert table.optimize(rewrite="always", max_deleted_ratio=0.0)["numRemovedFiles"] == 8
        table.delete("id % 10 = 8")
        assert table.optimize.purge()["numRemovedFiles"] == 2
        table.optimize.z_order(["id", "name"])
        if folder == "driver":
            assert len(log.sites) == 4
            assert set(log.sites) == {"in the driver"}, log.lines
            assert jobs(spark) == before
    driver, on_spark = (rows_by_id(lake.table(tmp_path / folder)) for folder in ("driver", "spark"))
    assert len(driver) == 64
    assert driver == on_spark
