"""Row changes computed by DuckDB in Spark's tasks: how files are shared out, what tasks write, when Spark plans instead.

test_spark_local_execution checks that rows, change feed and counts match those of Spark's own plan.
"""

import logging
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from delvec_engines.spark import choosing_engine, duckdb_tasks
from delvec_engines.spark.duckdb_tasks import ENABLED, DuckDBTasks, shares, task_memory
from delvec_errors import BadRequest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

ROWS = 20_000


@pytest.fixture
def small_shares(monkeypatch):
    monkeypatch.setattr(duckdb_tasks, "_MIN_BYTES", 1)


@pytest.fixture
def people(lake, spark_tasks, tmp_path, small_shares):
    """One unpartitioned file that two tasks share."""
    lake.create_table(tmp_path / "people", "id long, name string, at timestamp")
    table = lake.table(tmp_path / "people", engine=spark_tasks)
    lake.table(tmp_path / "people").append(
        pa.table({"id": range(ROWS), "name": [f"n{number}" for number in range(ROWS)]})
    )
    return table


def ways(caplog):
    return [
        "in tasks, on DuckDB" in record.getMessage() and record.levelname == "INFO"
        for record in caplog.records
        if record.name == choosing_engine.__name__
    ]


@pytest.fixture(autouse=True)
def _logged(caplog):
    caplog.set_level(logging.INFO, choosing_engine.__name__)


def paths(table):
    scan, _ = table.plan()
    return scan.files["path"].to_pylist()


# --- shares -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "files",
    [
        [(100, 10)],
        [(100, 1), (1, 1)],
        [(1, 7), (1000, 999), (3, 2), (500, 500)],
        [(10, None), (1000, None), (10, 3)],
        [(0, 0), (0, 5)],
        [(5, 0)],
    ],
)
def test_every_row_of_every_file_is_in_one_share(make_scan, small_shares, files, parallel):
    given = [{"name": f"{number}.parquet", "rows": pa.table({"id": [1]})} for number, _ in enumerate(files)]
    scan = make_scan(given, pa.schema([("id", pa.int64())]))
    columns = {"size": [size for size, _ in files], "num_records": [rows for _, rows in files]}
    table = scan.files
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.array(values, pa.int64()))
    scan = scan.__class__(**{**vars(scan), "files": table})
    found = shares(scan, parallel)
    seen = {path: [] for path in table["path"].to_pylist()}
    for share in found:
        assert len(share.scan)
        for path in share.scan.files["path"].to_pylist():
            seen[path].append(share.within.get(path))
    for path, ranges in seen.items():
        if ranges == [None]:
            continue
        starts = [each.start for each in ranges]
        assert starts == [0, *(each.stop for each in ranges[:-1])], (path, ranges)
        # The last share is open-ended, in case statistics undercount the rows.
        assert ranges[-1].stop == 1 << 62


def test_a_small_scan_is_one_share(make_scan):
    rows = pa.table({"id": [1, 2]})
    files = [{"name": f"{number}.parquet", "rows": rows} for number in range(3)]
    (share,) = shares(make_scan(files, pa.schema([("id", pa.int64())])), 8)
    assert len(share.scan) == 3
    assert not share.within


@pytest.mark.parametrize("sizes", [[1 << 46], [1 << 60, 5], [(1 << 63) - 1] * 3])
def test_false_sizes_do_not_make_more_tasks_than_a_cluster_can_run(make_scan, sizes):
    rows = pa.table({"id": [1]})
    files = [{"name": f"{number}.parquet", "rows": rows} for number, _ in enumerate(sizes)]
    scan = make_scan(files, pa.schema([("id", pa.int64())]))
    place = scan.files.schema.get_field_index("size")
    table = scan.files.set_column(place, "size", pa.array(sizes, pa.int64()))
    found = shares(scan.__class__(**{**vars(scan), "files": table}), 2)
    assert len(found) <= 1 << 14
    assert {path for share in found for path in share.scan.files["path"].to_pylist()} == set(
        table["path"].to_pylist()
    )


# --- what tasks write ---------------------------------------------------------------------------------------


@pytest.mark.gate
def test_two_tasks_share_a_file_and_their_few_new_rows_become_one_file(people, caplog):
    before = paths(people)
    metrics = people.update({"name": "upper(name)"}, "id % 1000 = 7")
    assert ways(caplog) == [True]
    assert metrics["numUpdatedRows"] == ROWS // 1000
    assert len(set(paths(people)) - set(before)) == 1
    rows = {row["id"]: row["name"] for row in people.to_arrow().to_pylist()}
    assert len(rows) == ROWS
    assert all(
        name == (f"N{number}" if number % 1000 == 7 else f"n{number}") for number, name in rows.items()
    )


def test_inserted_rows_join_the_updated_ones_in_one_file(people, spark_tasks, caplog):
    source = spark_tasks.range(ROWS - 5, ROWS + 5).selectExpr("id", "concat('m', id) AS name")
    before = paths(people)
    merge = people.merge(source, "target.id = source.id").when_matched_update({"name": "source.name"})
    metrics = merge.when_not_matched_insert({"id": "source.id", "name": "source.name"}).execute()
    assert ways(caplog) == [True]
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (5, 5)
    assert len(set(paths(people)) - set(before)) == 1
    found = {row["id"]: row["name"] for row in people.to_arrow().to_pylist() if row["id"] >= ROWS - 6}
    assert found == {ROWS - 6: f"n{ROWS - 6}", **{n: f"m{n}" for n in range(ROWS - 5, ROWS + 5)}}


@pytest.mark.gate
def test_deleted_rows_stay_deleted(people, caplog):
    people.delete("id % 3 = 0")
    people.update({"name": "'x'"}, "id % 2 = 0")
    people.delete("id % 5 = 0")
    assert ways(caplog) == [True, True, True]
    expected = {n: "x" if n % 2 == 0 else f"n{n}" for n in range(ROWS) if n % 3 and n % 5}
    assert {row["id"]: row["name"] for row in people.to_arrow().to_pylist()} == expected


# --- what Spark plans ---------------------------------------------------------------------------------------


def test_spark_plans_the_current_time_so_that_all_tasks_share_it(people, caplog):
    people.update({"at": "current_timestamp()"})
    assert ways(caplog) == [False]
    assert "another value in each task" in caplog.text
    assert len(set(people.to_arrow()["at"].to_pylist())) == 1


def test_a_cancelled_job_is_not_run_again(people, spark_tasks, caplog, monkeypatch):
    def slow(*_):
        time.sleep(600)
        return iter(())

    monkeypatch.setattr(duckdb_tasks, "_run_share", slow)
    context = spark_tasks.sparkContext
    stopping = threading.Event()

    def cancel():
        while not stopping.wait(0.5):
            context.cancelAllJobs()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(Exception, match="cancelled"):
            people.delete("id = 3")
    finally:
        stopping.set()
        canceller.join()
    monkeypatch.undo()
    assert people.delete("id = 4")["numDeletedRows"] == 1
    assert ways(caplog) == [True]


def test_tasks_spill_into_a_directory_of_the_executor_s(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/another")
    engines = [duckdb_tasks._engine.__wrapped__(1, 1 << 28) for _ in range(2)]
    directories = set()
    for engine in engines:
        with engine._session.connected() as cursor:
            ((directory,),) = cursor.sql("SELECT current_setting('temp_directory')").fetchall()
        directories.add(directory)
        engine.close()
    assert len(directories) == 2
    assert {Path(directory).parent for directory in directories} == {tmp_path}


def test_workers_know_the_executor_s_directories(spark):
    def local(_):
        import os

        return iter([os.environ.get("SPARK_LOCAL_DIRS")])

    (found,) = spark.sparkContext.parallelize([1], 1).mapPartitions(local).collect()
    assert found


def test_an_invalid_setting_is_an_error(people, spark):
    session = spark.newSession()
    session.conf.set(ENABLED, "perhaps")
    scan, _ = people.plan()
    with pytest.raises(BadRequest, match=r"spark\.delvec\.duckdbTasks\.enabled must be true or false"):
        DuckDBTasks(session).unsuitable(scan)


@pytest.mark.parametrize(
    ("master", "settings", "mebibytes"),
    [
        ("local[2]", {}, 512),
        ("spark://host:7077", {}, 512),
        ("yarn", {}, 192),
        ("yarn", {"spark.executor.memory": "8g", "spark.executor.cores": "4"}, 102),
        ("yarn", {"spark.executor.memoryOverhead": "2g", "spark.executor.cores": "2"}, 512),
        ("k8s://https://host", {"spark.executor.memoryOverhead": "1024"}, 512),
        ("k8s://https://host", {"spark.executor.pyspark.memory": "300m"}, 150),
    ],
)
def test_duckdb_takes_half_of_what_a_container_has_beside_java(
    spark, monkeypatch, master, settings, mebibytes
):
    context = spark.sparkContext
    monkeypatch.setattr(context, "master", master)
    monkeypatch.setattr(context, "getConf", lambda: settings)
    assert task_memory(spark) >> 20 == mebibytes


def test_containers_without_memory_for_duckdb_run_sparks_own_plan(people, spark_tasks, monkeypatch):
    scan, _ = people.plan()
    monkeypatch.setattr(duckdb_tasks, "task_memory", lambda _: 100 << 20)
    assert "spark.executor.memoryOverhead" in DuckDBTasks(spark_tasks).unsuitable(scan)
