"""The calls that Spark makes to ``readStream.format("delvec")``, in Spark's order but without Spark, so that every case is quick.

:class:`Job` calls as PySpark 4.1 does, or as 4.2 and later do; test_spark_stream_source repeats this with Spark itself.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import delvec
from delvec.spark_datasource import stream_source as stream_module
from delvec.spark_datasource.source import DelvecSource

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string())])


def people(start, count, country="NZ"):
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [f"n{i}" for i in ids], "country": [country] * count}, schema=SCHEMA)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "people é [1] 100%")


class Job:
    """A query with a checkpoint: its batches' end offsets, and how many of them are committed."""

    def __init__(self, folder, *, says_start, **options):
        self.folder, self.says_start, self.options = folder, says_start, options
        self.ends, self.committed, self.batches = [], 0, {}
        self.reader = None

    def start(self):
        """Start, or restart as after a failure."""
        source = DelvecSource({**self.options, "path": self.folder})
        self.reader = source.streamReader(source.schema())
        if self.ends:
            assert not self.reader.partitions(self.last, self.last)
            if self.committed < len(self.ends):
                self.read()
        return self

    @property
    def last(self):
        return json.loads(self.ends[-1])

    def plan(self):
        """Plan a batch and record it; return whether there is one."""
        if self.says_start:
            start = self.last if self.ends else self.reader.initialOffset()
            end = self.reader.latestOffset(start, None)
        else:
            end = self.reader.latestOffset()
        if self.ends and self.last == end:
            return False
        self.ends.append(json.dumps(end))
        return True

    def read(self):
        """Read the last planned batch, and commit it."""
        number = len(self.ends) - 1
        start = json.loads(self.ends[-2]) if number else self.reader.initialOffset()
        tasks = self.reader.partitions(start, self.last)
        self.batches[number] = [
            row for task in tasks for rows in self.reader.read(task) for row in rows.to_pylist()
        ]
        self.committed = number + 1
        return self.batches[number]

    def run(self):
        """Read and return all available rows."""
        known = set(self.batches)
        self.start()
        while self.plan():
            self.read()
        return [row for number in sorted(set(self.batches) - known) for row in self.batches[number]]

    def ids(self):
        return sorted(row["id"] for row in self.run())

    @property
    def sizes(self):
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]


@pytest.fixture(params=[False, True], ids=["4.1", "4.2"])
def job(request, folder, monkeypatch):
    """``job(**options)`` creates a query on the table in ``folder``."""
    if not request.param:
        monkeypatch.setattr(stream_module, "limits", None)
    return lambda **options: Job(folder, says_start=request.param, **options)


def test_the_snapshot_comes_first_then_appends(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, partition_by=["country"], engine="duckdb")
    for start, country in ((0, "NZ"), (100, "a=b/c é"), (200, None)):
        table.append(people(start, 20, country))
    table.delete("id % 10 = 3")
    query = job()

    assert sorted(query.run(), key=repr) == sorted(table.to_arrow().to_pylist(), key=repr)
    assert query.run() == []
    table.append(people(300, 5))
    table.append(people(310, 5, None))
    assert query.ids() == [*range(300, 305), *range(310, 315)]
    table.append(people(320, 5))
    assert query.ids() == [*range(320, 325)]


def test_an_empty_table_and_versions_that_add_nothing(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    query = job(ignoreDeletes="true").start()
    assert query.plan()
    assert query.read() == []
    for number in range(3):
        table.append(people(number * 10, 10))
        assert query.plan()
        assert len(query.read()) == 10
        table.alter.comment(f"the {number}th")
        table.delete(f"id = {number * 10}")
        assert not query.plan()
        assert not query.plan()
    assert query.run() == []
    assert len(query.ends) == 5


def test_starting_version_and_timestamp(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    for number in range(4):
        table.append(people(number * 10, 2))

    assert job(startingVersion="3").ids() == [20, 21, 30, 31]
    assert job(startingTimestamp="1971-01-01").ids() == [0, 1, 10, 11, 20, 21, 30, 31]
    latest = job(startingVersion="latest")
    assert latest.ids() == []
    table.append(people(40, 2))
    assert latest.ids() == [40, 41]
    with pytest.raises(delvec.VersionNotFound):
        job(startingVersion="9").run()


@pytest.mark.parametrize(
    ("options", "first", "later"),
    [
        ({"maxFilesPerTrigger": "2"}, [20, 20, 10], [10]),
        ({"maxBytesPerTrigger": "1"}, [10] * 5, [10]),
        ({"maxBytesPerTrigger": "1g", "maxFilesPerTrigger": "4"}, [40, 10], [10]),
    ],
)
def test_batches_respect_their_limits(lake, folder, job, options, first, later):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    for number in range(5):
        table.append(people(number * 10, 10))
    query, commits = job(**options), job(**options, startingVersion="0")

    for each in (query, commits):
        assert len({row["id"] for row in each.run()}) == 50
    table.append(people(50, 10))
    for each in (query, commits):
        assert each.ids() == list(range(50, 60))
        assert each.sizes == first + later


def test_a_planned_batch_has_the_same_rows_after_a_restart(lake, folder, job):
    """Including the first one, whose snapshot is no longer the newest version."""
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    for number in range(4):
        table.append(people(number * 10, 10))
    table.delete("id % 10 = 7")
    query = job(maxFilesPerTrigger="3").start()
    assert query.plan()
    expected = sorted(row["id"] for row in query.read())
    for attempt in range(3):
        query.committed = len(query.ends) - 1  # it failed before Spark recorded it
        table.append(people(1000 + attempt, 1))
        query.start()
        assert sorted(row["id"] for row in query.batches[len(query.ends) - 1]) == expected
        if not attempt:
            assert query.plan()
            expected = sorted(row["id"] for row in query.read())

    query.run()
    found = sorted(row["id"] for rows in query.batches.values() for row in rows)
    assert found == [i for i in range(40) if i % 10 != 7] + [1000, 1001, 1002]


def test_available_now_reads_all_rows_before_it_stops(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    for number in range(3):
        table.append(people(number * 10, 10))
    query = job()
    if not query.says_start:
        query.start()
        assert query.plan()
        assert len(query.read()) == 30  # Spark calls it once
        assert stream_module.default_limits(query.reader._options).max_files is None
    elif stream_module.limits is not None:
        query.options = {"maxFilesPerTrigger": "2"}
        query.start().reader.prepareForTriggerAvailableNow()
        table.append(people(100, 10))
        while query.plan():
            query.read()
        assert query.sizes == [20, 10]
        assert query.ids() == list(range(100, 110))
        everything = stream_module.limits.ReadAllAvailable()
        assert query.reader.latestOffset(query.reader.initialOffset(), everything)["version"] == 5
        assert query.reader.getDefaultReadLimit().max_files == 2


def test_deleted_and_updated_rows(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 10))
    plain, deletes, changes = job(), job(ignoreDeletes="true"), job(skipChangeCommits="true")
    for query in (plain, deletes, changes):
        assert len(query.run()) == 10
    table.delete("id < 3")
    table.append(people(10, 5))

    with pytest.raises(delvec.SourceRowsChanged, match=r"Version 2 .*ignoreDeletes"):
        plain.run()
    assert deletes.ids() == changes.ids() == [*range(10, 15)]
    table.update({"name": "'x'"}, "id = 12")
    table.append(people(20, 5))
    with pytest.raises(delvec.SourceRowsChanged, match=r"Version 4 .*skipChangeCommits"):
        deletes.run()
    assert changes.ids() == [*range(20, 25)]
    plain.options = {"skipChangeCommits": "true"}  # the same checkpoint
    assert plain.ids() == [*range(10, 15), *range(20, 25)]
    table.overwrite(people(0, 1))
    assert changes.ids() == []


def test_an_added_column_needs_a_restart(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 3))
    query = job()
    query.run()
    table.append(people(5, 1))
    table.alter.add_columns("age int")
    table.append(people(10, 3).append_column("age", pa.array([1, 2, 3], pa.int32())))
    assert query.plan()
    assert [row["id"] for row in query.read()] == [5]  # rows committed before it are read first
    for _ in range(2):
        with pytest.raises(delvec.StreamSchemaChanged, match="restart the query"):
            query.plan()

    assert sorted((row["id"], row["age"]) for row in query.run()) == [(10, 1), (11, 2), (12, 3)]
    assert query.run() == []
    anew = job(startingVersion="0").run()
    assert {(row["id"], row["age"]) for row in anew} >= {(0, None), (12, 3)}


def test_renamed_columns_keep_their_values(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, partition_by=["country"], engine="duckdb")
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    table.append(people(0, 4))
    table.delete("id = 1")
    query = job(columns="name,id")
    assert sorted(query.run(), key=repr) == [{"name": f"n{i}", "id": i} for i in (0, 2, 3)]
    table.append(people(10, 2))
    table.alter.rename_column("name", "called")
    assert query.plan()
    assert len(query.read()) == 2
    with pytest.raises(delvec.IncompatibleSchemaChange, match="version 5"):
        query.plan()
    table.append(people(20, 1).rename_columns(["id", "called", "country"]))
    query.options = {"columns": "called,id"}
    assert query.run() == [{"called": "n20", "id": 20}]
    with pytest.raises(delvec.IncompatibleSchemaChange, match="Start a new query"):
        job(columns="called,id", startingVersion="0").run()


def test_the_change_feed_as_a_stream(lake, folder, job):
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(
        folder, SCHEMA, partition_by=["country"], properties=properties, engine="duckdb"
    )
    table.append(people(0, 10))
    table.append(people(50, 1, None))
    table.delete("id = 0")
    whole, from_start = job(readChangeFeed="true"), job(readChangeFeed="true", startingVersion="0")
    in_steps = job(readChangeFeed="true", maxFilesPerTrigger="1")

    def by_repr(rows):
        return sorted(rows, key=repr)

    first = whole.run()
    assert {(row["_change_type"], row["_commit_version"]) for row in first} == {("insert", 3)}
    assert sorted(row["id"] for row in first) == [*range(1, 10), 50]
    assert by_repr(in_steps.run()) == by_repr(first)
    assert in_steps.sizes == [9, 1]
    table.update({"name": "'x'"}, "id = 5")
    table.delete("id > 7 and country = 'NZ'")
    table.delete("id = 6")
    table.append(people(20, 2))

    assert by_repr(whole.run()) == by_repr(table.changes(4).to_pylist())
    assert by_repr(in_steps.run()) == by_repr(table.changes(4).to_pylist())
    assert in_steps.sizes == [9, 1, 2, 2, 1, 2]
    assert by_repr(from_start.run()) == by_repr(table.changes(0).to_pylist())
    table.alter.unset_properties(["delta.enableChangeDataFeed"])
    with pytest.raises(delvec.ChangeDataNotRecorded):
        whole.run()


def test_restored_files_are_read_twice(lake, folder, job):
    """Two versions in one batch may add the same path, each with different rows deleted."""
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 10))
    table.delete("id < 4")
    lines = log_file(folder, 2).read_text().splitlines()
    (added,) = [json.loads(line)["add"] for line in lines if '"add"' in line]
    gone = {"path": added["path"], "deletionVector": added["deletionVector"], "dataChange": True}
    for version, action in ((3, {"remove": gone | {"deletionTimestamp": 1}}), (4, {"add": added})):
        log_file(folder, version).write_text(json.dumps(action) + "\n")

    found = job(startingVersion="0", ignoreDeletes="true").ids()
    assert found == sorted([*range(10), *range(4, 10)])


def log_file(folder, version):
    return Path(folder) / "_delta_log" / f"{version:020}.json"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ignoreChanges": "true"}, "skipChangeCommits"),
        ({"version": "0"}, "startingVersion"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger"),
        ({"startingVersion": "-1"}, "startingVersion"),
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "not both"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"skipChangeCommits": "perhaps"}, "true or false"),
    ],
)
def test_invalid_options(lake, folder, job, options, says):
    lake.create_table(folder, SCHEMA, engine="duckdb")

    with pytest.raises(delvec.BadRequest, match=says):
        job(**options).run()


def test_checkpoints_of_another_source(lake, folder, job, tmp_path):
    lake.create_table(folder, SCHEMA, engine="duckdb").append(people(0, 1))
    other = str(tmp_path / "other")
    lake.create_table(other, SCHEMA, engine="duckdb").append(people(0, 1))
    query = job()
    query.run()
    query.folder = other
    with pytest.raises(delvec.SourceRowsChanged, match="a different table"):
        query.run()
    query.folder, query.ends = folder, ['{"sourceVersion": 1, "reservoirVersion": 1}']
    query.committed = 1
    with pytest.raises(delvec.BadRequest, match="new checkpoint"):
        query.run()


def test_a_spark_that_asks_for_the_end_before_it_gives_the_start(lake, folder, job):
    """PySpark 4.1's wrapper for Trigger.AvailableNow would take the first batch's end for the end of the input."""
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 5))
    query = job(maxFilesPerTrigger="1")
    query.run()
    table.append(people(5, 5))
    query.run()
    source = DelvecSource({**query.options, "path": folder})
    reader = source.streamReader(source.schema())
    reader.latestOffset()

    with pytest.raises(delvec.UnsupportedOperation, match="triggerAvailableNowWrapper"):
        reader.partitions(query.last, query.last)


def test_streaming_options_are_refused_in_batch_reads(lake, folder):
    lake.create_table(folder, SCHEMA, engine="duckdb")
    source = DelvecSource({"path": folder, "maxFilesPerTrigger": "1"})

    with pytest.raises(delvec.BadRequest, match="readStream"):
        source.reader(source.schema())


def test_tasks_get_no_token(lake, folder):
    lake.create_table(folder, SCHEMA, engine="duckdb")
    source = DelvecSource({"path": folder})
    reader = source.streamReader(source.schema())

    assert (reader.__getstate__(), source.__getstate__()["options"]) == ({}, {})


def test_a_change_of_partition_columns_stops_the_stream(lake, folder, job):
    """Files lack their partition columns: the former ones would be read as NULL."""
    table = lake.create_table(folder, SCHEMA, partition_by=["country"], engine="duckdb")
    query = job(skipChangeCommits="true")
    table.append(people(0, 2))
    assert query.ids() == [0, 1]
    running = query.start()
    table.overwrite(people(10, 2), overwrite_schema=True, partition_by=["name"])
    table.append(people(20, 2))
    with pytest.raises(delvec.IncompatibleSchemaChange, match="partition"):
        running.plan()
    assert query.run() == people(20, 2).to_pylist()
