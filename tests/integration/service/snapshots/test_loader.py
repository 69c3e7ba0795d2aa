"""Loading snapshots: the right version, read once, and rebuilt if the log was replaced."""

import json
import os
import shutil
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.log_by_hand import CountingStore

from delvec_errors import (
    BadRequest,
    CorruptLog,
    MissingLogFile,
    NotADeltaTable,
    UnsupportedReaderFeature,
    UnsupportedTable,
    VersionNotFound,
)
from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from delvec_kernel.log.commit_file import serialize_commit
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
HOUR = 3_600_000
START = 1_700_000_000_000


class Log:
    """A table on local disk that consists of its log."""

    def __init__(self, folder, **configuration):
        self.folder = folder / "täble 1"
        self.log = self.folder / "_delta_log"
        self.log.mkdir(parents=True)
        self.store = CountingStore(locations.canonical(str(self.folder)))
        self.create(**configuration)

    def create(self, **configuration):
        self.metadata = Metadata(str(uuid.uuid4()), SCHEMA, (), configuration)
        self.commit(0, Protocol(1, 2), self.metadata)

    def commit(self, version, *actions, time=None, in_commit=None):
        info = CommitInfo(operation="TEST", in_commit_timestamp=in_commit)
        file = self.log / f"{version:020d}.json"
        file.write_bytes(serialize_commit([info, *actions]))
        moment = START + version * HOUR if time is None else time
        os.utime(file, ns=(moment * 1_000_000,) * 2)

    def add(self, version, **times):
        self.commit(version, AddFile(f"f{version}", {}, 1, 1, stats='{"numRecords":10}'), **times)

    def checkpoint(self, version, files):
        """Write the checkpoint that a reader needs to know these files."""
        add = pa.struct(
            [
                ("path", pa.string()),
                ("partitionValues", pa.map_(pa.string(), pa.string())),
                ("size", pa.int64()),
                ("modificationTime", pa.int64()),
                ("dataChange", pa.bool_()),
            ]
        )
        protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
        metadata = pa.struct(
            [
                ("id", pa.string()),
                ("schemaString", pa.string()),
                ("configuration", pa.map_(pa.string(), pa.string())),
            ]
        )
        rows = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
        configuration = list(self.metadata.configuration.items())
        rows += [
            {"metaData": {"id": self.metadata.id, "schemaString": SCHEMA, "configuration": configuration}}
        ]
        rows += [
            {"add": {"path": path, "size": 1, "modificationTime": 1, "dataChange": True}} for path in files
        ]
        schema = pa.schema([("add", add), ("protocol", protocol), ("metaData", metadata)])
        name = f"{version:020d}.checkpoint.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), self.log / name)
        return self.log / name

    def hint(self, text):
        (self.log / "_last_checkpoint").write_text(text)

    def load(self, loader=None, **point):
        return (loader or SnapshotLoader()).load(self.store, "people", **point)


@pytest.fixture
def log(tmp_path):
    found = Log(tmp_path)
    for version in (1, 2, 3):
        found.add(version)
    return found


def files(snapshot):
    return sorted(snapshot.files["path"].to_pylist())


def test_the_newest_version(log):
    snapshot = log.load()
    assert (snapshot.version, files(snapshot)) == (3, ["f1", "f2", "f3"])
    assert snapshot.timestamp == START + 3 * HOUR
    assert snapshot.schema.names == ["id"]
    assert (snapshot.num_files, snapshot.size_in_bytes, snapshot.num_records) == (3, 3, 30)
    assert snapshot.commits_since_checkpoint == 4
    assert not snapshot.dv_enabled


def test_only_new_commits_are_read(log):
    loader = SnapshotLoader()
    assert log.load(loader).version == 3
    log.store.names.clear()
    assert log.load(loader) is log.load(loader)
    assert log.store.names == []
    log.add(4)
    log.commit(5, RemoveFile("f1"))
    assert files(log.load(loader)) == ["f2", "f3", "f4"]
    assert log.store.names == [f"{4:020d}.json", f"{5:020d}.json"]


def test_the_next_commits_are_found_without_a_listing_where_checkpoints_do_not_matter(log):
    loader = SnapshotLoader()
    assert loader.known(log.store.location) is None
    assert log.load(loader, checkpoints=False).version == 3
    log.store.asked.clear()
    log.add(4)
    log.add(5)
    assert log.load(loader, checkpoints=False).version == 5
    assert log.load(loader, checkpoints=False) is loader.known(log.store.location)
    assert log.store.asked == {"get": 2}
    log.checkpoint(5, ["f1", "f2", "f3", "f4", "f5"])
    assert log.load(loader, checkpoints=False).checkpoint_version is None
    assert log.load(loader).checkpoint_version == 5


def test_a_log_that_is_another_one_is_noticed_without_a_listing(log):
    loader = SnapshotLoader()
    assert log.load(loader).version == 3
    log.commit(3, AddFile("another", {}, 1, 1), time=START)
    assert files(log.load(loader, checkpoints=False)) == ["another", "f1", "f2"]
    (log.log / f"{3:020d}.json").unlink()
    assert log.load(loader, checkpoints=False).version == 2
    log.add(4)
    with pytest.raises(MissingLogFile):
        log.load(loader, checkpoints=False)


def test_threads_do_not_replay_the_same_log(log):
    loader, ready = SnapshotLoader(), threading.Barrier(8)

    def load():
        ready.wait()
        return log.load(loader)

    with ThreadPoolExecutor(8) as pool:
        found = [future.result() for future in [pool.submit(load) for _ in range(8)]]
    assert len({id(snapshot) for snapshot in found}) == 1
    assert log.store.names.count(f"{0:020d}.json") == 1


@pytest.fixture
def slow_version(log, monkeypatch):
    """Reading version 1 stops at its commit file, until it is released; returns when it is there."""
    there, released, plain = threading.Event(), threading.Event(), log.store.get

    def get(path):
        if path.endswith(f"{1:020d}.json") and threading.current_thread() is not threading.main_thread():
            there.set()
            assert released.wait(30)
        return plain(path)

    monkeypatch.setattr(log.store, "get", get)
    return there, released


def test_an_old_version_that_is_read_slowly_holds_up_nobody_else(log, slow_version):
    loader, (there, released) = SnapshotLoader(), slow_version
    log.load(loader)
    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(log.load, loader, version=1) for _ in range(2)]
        assert there.wait(30)
        log.add(4)
        assert log.load(loader).version == 4
        assert log.load(loader, version=2).version == 2
        assert not any(each.done() for each in slow)
        released.set()
        first, second = (each.result(30) for each in slow)
    assert files(first) == ["f1"]
    assert second is first


def test_an_old_version_of_which_a_commit_changes_meanwhile_is_not_kept(log, slow_version):
    loader, (there, released) = SnapshotLoader(), slow_version
    now = time.time_ns() // 1_000_000
    log.commit(0, Protocol(1, 2), log.metadata, AddFile("a", {}, 1, 1), time=now)
    log.load(loader)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(log.load, loader, version=1)
        assert there.wait(30)
        log.commit(0, Protocol(1, 2), log.metadata, AddFile("other", {}, 1, 1), time=now)
        assert "other" in files(log.load(loader))
        released.set()
        slow.result(30)
    assert files(log.load(loader, version=1)) == ["f1", "other"]


def test_a_table_that_was_deleted_and_created_again_is_read_anew(log):
    loader = SnapshotLoader()
    before = log.load(loader)
    shutil.rmtree(log.log)
    with pytest.raises(NotADeltaTable, match="is not a Delta table"):
        log.load(loader)
    log.log.mkdir()
    log.create()
    for version in (1, 2, 3, 4):
        log.commit(version, AddFile(f"g{version}", {}, 1, 1), time=START + 77 + version)
    after = log.load(loader)
    assert after.metadata.id != before.metadata.id
    assert files(after) == ["g1", "g2", "g3", "g4"]
    assert files(log.load(loader, version=2)) == ["g1", "g2"]


def test_a_log_that_was_cleaned_up_is_read_from_its_checkpoint(log):
    loader = SnapshotLoader()
    log.load(loader)
    log.add(4)
    log.add(5)
    log.checkpoint(5, ["f4", "f5"])
    for version in range(5):
        (log.log / f"{version:020d}.json").unlink()
    assert files(log.load(loader)) == ["f4", "f5"]


@pytest.mark.parametrize(
    "hint",
    [
        None,
        '{"version":2}',
        '{"version":1}',
        '{"version":99}',
        '{"version":-1}',
        '{"version":"2"}',
        "[",
        "{}",
        "\0",
    ],
)
def test_the_last_checkpoint_is_only_a_hint(log, hint):
    log.checkpoint(2, ["f1", "f2"])
    if hint is not None:
        log.hint(hint)
    snapshot = log.load()
    assert (snapshot.version, files(snapshot), snapshot.checkpoint_version) == (3, ["f1", "f2", "f3"], 2)
    assert snapshot.commits_since_checkpoint == 1
    assert f"{1:020d}.json" not in log.store.names


def test_a_new_checkpoint_is_noticed(log):
    loader = SnapshotLoader()
    assert log.load(loader).checkpoint_version is None
    log.checkpoint(3, ["f1", "f2", "f3"])
    assert log.load(loader).commits_since_checkpoint == 0
    assert log.load(loader) is log.load(loader)


def test_versions_of_the_past(log):
    loader = SnapshotLoader()
    assert [files(log.load(loader, version=version)) for version in (0, 2, 1)] == [[], ["f1", "f2"], ["f1"]]
    log.store.names.clear()
    assert log.load(loader, version=2) is log.load(loader, version=2)
    assert log.store.names == []
    with pytest.raises(VersionNotFound, match="newest is 3"):
        log.load(loader, version=4)
    with pytest.raises(BadRequest):
        log.load(loader, version=1, timestamp="2020-01-01")


def test_an_older_version_can_be_read_where_the_newest_cannot(log):
    log.commit(4, Protocol(99, 7))
    with pytest.raises(UnsupportedReaderFeature, match="reader version 99"):
        log.load()
    assert log.load(version=3).version == 3


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [
        (str(START), 0),
        (str(START + HOUR - 1), 0),
        (str(START + HOUR), 1),
        ("2023-11-15T00:13:20Z", 2),
        ("2023-11-15 00:13:20", 2),
        ("2023-11-15T01:13:19.999+01:00", 1),
        ("2023-11-15T01:13:20+00:00", 3),
    ],
)
def test_versions_by_time(log, timestamp, version):
    assert log.load(timestamp=timestamp).version == version


def test_times_out_of_range(log):
    with pytest.raises(
        VersionNotFound, match=r"its newest version, 3, was committed at 2023-11-15T01:13:20\.000Z"
    ) as caught:
        log.load(timestamp=str(START + 3 * HOUR + 1))
    assert caught.value.details["latest"] == 3
    with pytest.raises(
        VersionNotFound, match=r"its oldest readable version, 0, was committed at 2023-11-14T22:13:20"
    ):
        log.load(timestamp="2000-01-01")
    with pytest.raises(BadRequest, match="ISO 8601"):
        log.load(timestamp="yesterday")


def test_the_oldest_time_is_that_of_the_oldest_version_that_can_be_read(log):
    log.checkpoint(2, ["f1", "f2"])
    (log.log / f"{0:020d}.json").unlink()
    with pytest.raises(VersionNotFound, match="its oldest readable version, 2"):
        log.load(timestamp=str(START + HOUR))


def test_file_times_that_do_not_ascend(tmp_path):
    log = Log(tmp_path)
    for version in (1, 2, 3):
        log.add(version, time=START - version)
    assert log.load().timestamp == START + 3
    assert [log.load(timestamp=str(START + plus)).version for plus in range(4)] == [0, 1, 2, 3]


def test_in_commit_timestamps_count_where_they_are_enabled(tmp_path):
    log = Log(tmp_path)
    log.add(1)
    enabled = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "2"}
    log.metadata = Metadata("m", SCHEMA, (), enabled)
    log.commit(2, log.metadata, in_commit=START + 2 * HOUR, time=1)
    log.commit(3, in_commit=START + 5 * HOUR, time=2)
    assert log.load().timestamp == START + 5 * HOUR
    assert log.load(version=1).timestamp == START + HOUR
    times = [START, START + HOUR, START + 2 * HOUR, START + 5 * HOUR - 1, START + 5 * HOUR]
    assert [log.load(timestamp=str(time)).version for time in times] == [0, 1, 2, 2, 3]
    log.checkpoint(3, [])
    assert log.load().in_commit_timestamp == START + 5 * HOUR
    log.commit(4, time=3)
    log.commit(5, in_commit=START + 9 * HOUR)
    with pytest.raises(CorruptLog, match="Version 4 of table 'people' has no in-commit timestamp"):
        log.load(timestamp=str(START + 6 * HOUR))


@pytest.mark.parametrize("cut", [1, 40])
def test_a_truncated_commit_is_named(log, cut):
    file = log.log / f"{2:020d}.json"
    file.write_bytes(file.read_bytes()[:-cut].rstrip(b"}\n"))
    os.utime(file, (1, 1))  # nobody is writing it any more
    with pytest.raises(
        CorruptLog, match=r"people.*version 2: line 2 of 00000000000000000002\.json"
    ) as caught:
        log.load()
    assert caught.value.details["line"] == 2


def test_a_gap_is_named(log):
    (log.log / f"{2:020d}.json").unlink()
    with pytest.raises(MissingLogFile, match=r"people.*00000000000000000002\.json"):
        log.load()


@pytest.mark.parametrize(("lost", "word"), [(Protocol, "protocol"), (Metadata, "metadata")])
def test_a_log_without_protocol_or_metadata_is_named(tmp_path, lost, word):
    log = Log(tmp_path)
    kept = [item for item in (Protocol(1, 2), log.metadata) if not isinstance(item, lost)]
    log.commit(0, *kept)
    with pytest.raises(CorruptLog, match=f"'people' contains no {word} up to version 0") as caught:
        log.load()
    assert caught.value.details == {"table": "people", "version": 0, "file": f"{0:020d}.json"}


@pytest.mark.parametrize(
    ("schema", "error", "words"),
    [
        ("{", CorruptLog, "not JSON"),
        (SCHEMA.replace('"long"', '"geometry"'), UnsupportedTable, "geometry"),
    ],
)
def test_a_schema_that_cannot_be_used(tmp_path, schema, error, words):
    log = Log(tmp_path)
    log.commit(0, Protocol(1, 2), Metadata("m", schema))
    with pytest.raises(error, match=words):
        _ = log.load().schema


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("long", "the partition column 'gone' is not among"),
        ({"type": "struct", "fields": []}, "column 'gone'.*nested"),
    ],
)
def test_partition_columns_that_the_schema_lacks(tmp_path, kind, words):
    # delta-spark 4.4 fails, too: "No such struct field `gone`".
    schema = json.loads(SCHEMA)
    if kind != "long":
        schema["fields"].append({"name": "gone", "type": kind, "nullable": True, "metadata": {}})
    log = Log(tmp_path)
    log.commit(0, Protocol(1, 2), Metadata("m", json.dumps(schema), partition_columns=("gone",)))
    with pytest.raises(CorruptLog, match=words) as raised:
        _ = log.load().schema
    assert (raised.value.details["version"], raised.value.details["column"]) == (0, "gone")


def test_memory_is_bounded_by_dropping_tables(tmp_path):
    logs = []
    for number in range(4):
        logs.append(Log(tmp_path / str(number)))
        logs[-1].commit(1, *(AddFile(f"f{i}", {}, 1, 1) for i in range(500)))
    one = SnapshotLoader()
    size = logs[0].load(one).live.nbytes
    loader = SnapshotLoader(max_bytes=2 * size + size // 2)
    for log in logs:
        log.load(loader)
    for log in logs:
        log.store.names.clear()
    for log in reversed(logs):
        log.load(loader)
    assert [bool(log.store.names) for log in logs] == [True, True, False, False]


def test_loads_and_drops_keep_a_running_total_and_ask_no_other_table(tmp_path):
    logs = []
    for number in range(3):
        logs.append(Log(tmp_path / str(number)))
        logs[-1].commit(1, *(AddFile(f"f{i}", {}, 1, 1) for i in range(500)))
    loader = SnapshotLoader()
    sizes = []
    for log in logs:
        log.load(loader)
        sizes.append(loader.nbytes)
    assert 0 < sizes[0] < sizes[1] < sizes[2]
    loader._tables["file:///another"] = object()  # asking it for its size would fail
    loader._tables.move_to_end("file:///another", last=False)
    logs[0].commit(2, *(AddFile(f"g{i}", {}, 1, 1) for i in range(500)))
    for version in (None, 1, 0, 2):
        logs[0].load(loader, version=version)
    assert loader.nbytes > sizes[2]
    del loader._tables["file:///another"]

    loader.discard(logs[0].store.location)
    loader.discard(logs[0].store.location)
    assert loader.nbytes == sizes[2] - sizes[0]
    assert loader.nbytes == sum(held.nbytes for held in loader._tables.values())


def test_nothing_is_no_table(tmp_path):
    store = ObjectStore(locations.canonical(str(tmp_path / "none")))
    with pytest.raises(NotADeltaTable, match="none"):
        SnapshotLoader().load(store, "none")


def test_in_memory_tables_are_read_alike():
    store = ObjectStore(f"memory:///{uuid.uuid4()}")
    actions = [Protocol(1, 2), Metadata("m", SCHEMA), AddFile("a", {}, 1, 1)]
    assert store.put_if_absent(f"_delta_log/{0:020d}.json", serialize_commit(actions))
    loader = SnapshotLoader()
    assert files(loader.load(store, "t")) == ["a"]
    for version in range(1, 8):
        store.put_if_absent(
            f"_delta_log/{version:020d}.json", serialize_commit([AddFile(f"b{version}", {}, 1, 1)])
        )
    assert loader.load(store, "t").num_files == 8
    assert loader.load(store, "t", version=7).num_files == 8
