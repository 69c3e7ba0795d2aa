"""History, detail and health."""

import json
import os
import re

import pytest

from delvec_errors import CorruptLog, NotADeltaTable
from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile, CommitInfo, DomainMetadata, Metadata, Protocol, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.log.commit_file import serialize_commit
from delvec_service.maintenance.health import health as report_of
from delvec_service.scans.describe import detail, history
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

MIB = 1024 * 1024
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "at",
            "type": {
                "type": "struct",
                "fields": [{"name": "day", "type": "date", "nullable": True, "metadata": {}}],
            },
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": "col-1"},
        },
        {"name": "p", "type": "string", "nullable": True, "metadata": {}},
    ],
}


class Log:
    def __init__(self, folder):
        self.log = folder / "_delta_log"
        self.log.mkdir()
        self.store = ObjectStore(locations.canonical(str(folder)))

    def write(self, version, *actions, raw=None):
        file = self.log / f"{version:020d}.json"
        file.write_bytes(raw if raw is not None else serialize_commit(actions))
        os.utime(file, (1_700_000_000 + version,) * 2)

    def snapshot(self):
        return SnapshotLoader().load(self.store, "people")


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


VECTORS = {"delta.enableDeletionVectors": "true"}


def head(configuration=None, partition_columns=()):
    metadata = Metadata(
        "m", json.dumps(SCHEMA), partition_columns, configuration or {}, description="who", created_time=12
    )
    return [Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "appendOnly")), metadata]


def add(path, size, rows=None, deleted=0, dv_file="x", offset=1, partition="a"):
    stats = None if rows is None else json.dumps({"numRecords": rows})
    dv = Descriptor("u", dv_file * 20, offset, 40, deleted) if deleted else None
    return AddFile(path, {"p": partition}, size, 1, stats=stats, deletion_vector=dv)


# --- history


def test_history_has_deltas_columns_newest_first(log):
    log.write(0, *head())
    info = CommitInfo(
        timestamp=5,
        operation="WRITE",
        operation_parameters={"mode": "Append", "partitionBy": ["p"], "n": 5, "flag": True, "none": None},
        read_version=0,
        isolation_level="Serializable",
        is_blind_append=True,
        operation_metrics={"numFiles": 3, "numOutputRows": "7"},
        user_metadata="nightly",
        engine_info="test/1",
        extra={"userName": "ann", "job": {"jobId": "1"}, "newField": 1},
    )
    log.write(1, info, add("a", 1))
    newest, first = (entry.model_dump() for entry in history(log.store, "people"))
    assert newest == {
        "version": 1,
        "timestamp": 1_700_000_001_000,
        "userId": None,
        "userName": "ann",
        "operation": "WRITE",
        "operationParameters": {
            "mode": "Append",
            "partitionBy": '["p"]',
            "n": "5",
            "flag": "true",
            "none": None,
        },
        "job": {"jobId": "1"},
        "notebook": None,
        "clusterId": None,
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "3", "numOutputRows": "7"},
        "userMetadata": "nightly",
        "engineInfo": "test/1",
        "members": None,
    }
    assert (first["version"], first["timestamp"], first["operation"]) == (0, 1_700_000_000_000, None)


def test_history_takes_the_in_commit_timestamp(log):
    log.write(0, CommitInfo(in_commit_timestamp=99), *head({"delta.enableInCommitTimestamps": "true"}))
    assert [entry.timestamp for entry in history(log.store, "people")] == [99]
    log.write(1, CommitInfo(in_commit_timestamp=100), *head())
    assert [entry.timestamp for entry in history(log.store, "people")] == [
        1_700_000_001_000,
        1_700_000_000_000,
    ]


def test_history_is_limited_and_reads_no_more(log):
    log.write(0, raw=b"{ damaged")
    for version in range(1, 6):
        log.write(version, CommitInfo(operation="X"))
    assert [entry.version for entry in history(log.store, "people", limit=2)] == [5, 4]
    with pytest.raises(CorruptLog, match=r"00000000000000000000\.json"):
        history(log.store, "people")


def test_history_of_nothing(log):
    with pytest.raises(NotADeltaTable):
        history(log.store, "people")


# --- detail


def test_detail_has_deltas_columns(log):
    clustering = {"clusteringColumns": [["id"], ["col-1", "day"]], "domainName": "delta.clustering"}
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    log.write(
        0,
        *head(properties, ("p",)),
        DomainMetadata("delta.clustering", json.dumps(clustering)),
        add("a", 5),
        add("b", 6),
    )
    assert detail(log.snapshot(), "people") == {
        "format": "delta",
        "id": "m",
        "name": "people",
        "description": "who",
        "location": log.store.location,
        "createdAt": 12,
        "lastModified": 1_700_000_000_000,
        "partitionColumns": ["p"],
        "clusteringColumns": ["id", "at.day"],
        "numFiles": 2,
        "sizeInBytes": 11,
        "properties": properties,
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "tableFeatures": ["appendOnly", "deletionVectors"],
    }


@pytest.mark.parametrize("configuration", ["", "[]", '{"clusteringColumns":5}', '{"clusteringColumns":[[]]}'])
def test_odd_clustering_does_not_spoil_detail(log, configuration):
    log.write(0, *head(), DomainMetadata("delta.clustering", configuration))
    assert detail(log.snapshot(), "people")["clusteringColumns"] in ([], [""])


def test_detail_names_the_features_of_a_legacy_protocol(log):
    log.write(0, Protocol(1, 3), *head()[1:])
    assert detail(log.snapshot(), "people")["tableFeatures"] == [
        "appendOnly",
        "checkConstraints",
        "invariants",
    ]


# --- health


def health(log, **options):
    return report_of(log.snapshot(), log.store, "people", **options).response()


def advice(report):
    return {item.action: item for item in report.recommendations}


def test_a_healthy_table_needs_nothing(log):
    log.write(0, *head(), add("a", 500 * MIB, 1000), add("b", 300 * MIB, 1000, deleted=10))
    report = health(log)
    assert report.recommendations == []
    assert (report.table, report.version, report.num_files, report.size_in_bytes) == (
        "people",
        0,
        2,
        800 * MIB,
    )
    assert (report.num_physical_rows, report.num_deleted_rows, report.deleted_ratio) == (2000, 10, 0.005)
    assert (report.small_files, report.median_file_size) == (0, 400 * MIB)
    assert (report.num_files_with_deletion_vectors, report.num_deletion_vector_files) == (1, 1)
    assert report.live_deletion_vector_bytes == 48
    assert report.commits_since_checkpoint == 1
    assert {name: count for name, count in report.deleted_ratio_histogram.items() if count} == {
        "0 %": 1,
        "up to 1 %": 1,
    }
    assert {name: count for name, count in report.file_size_histogram.items() if count} == {
        "256 MiB-1 GiB": 2
    }


def test_an_empty_table_is_healthy(log):
    log.write(0, *head())
    report = health(log)
    assert (report.num_files, report.deleted_ratio, report.median_file_size) == (0, 0.0, None)
    assert report.recommendations == []


def test_deleted_rows_call_for_purging(log):
    log.write(
        0,
        *head(),
        add("a", 100 * MIB, 1000, deleted=300, dv_file="x", offset=1),
        add("b", 100 * MIB, 1000, deleted=1000, dv_file="x", offset=49),
        add("c", 100 * MIB, 1000, deleted=50, dv_file="y"),
        add("d", 100 * MIB),
    )
    report = health(log)
    assert (report.num_files_with_deletion_vectors, report.num_deletion_vector_files) == (3, 2)
    assert report.live_deletion_vector_bytes == 3 * 48
    assert (report.num_physical_rows, report.deleted_ratio) == (None, None)
    histogram = report.deleted_ratio_histogram
    assert (histogram["0 %"], histogram["1-5 %"], histogram["10-30 %"], histogram["over 50 %"]) == (
        1,
        1,
        1,
        1,
    )
    purge = advice(report)["PURGE"]
    assert "In 2 files, more than 5 % of the rows are deleted" in purge.reason
    assert "200.0 MiB" in purge.expected_gain
    assert "1,300 rows" in purge.expected_gain
    assert "130.0 MiB" in purge.expected_gain


def test_many_files_of_deletion_vectors_call_for_their_compaction(log):
    files = [add(f"f{i}", 300 * MIB, 1000, deleted=10, dv_file=chr(ord("a") + i)) for i in range(11)]
    log.write(0, *head(VECTORS), *files[:10])
    assert health(log).recommendations == []  # nine files fewer
    log.write(1, files[10])

    report = health(log, traced=3, partitions=5)

    (item,) = report.recommendations
    assert (item.finding, item.command) == (
        "deletion-vector-files",
        "delvec optimize people --deletion-vectors",
    )
    assert (item.num_files, item.expected_gain_files, item.cost_bytes) == (11, 10, 11 * 48)
    assert item.expected_gain_bytes == 0
    assert item.points == pytest.approx(20 * 10 / 11, abs=0.001)
    assert report.score == pytest.approx(100 - item.points, abs=0.01)
    assert [(file.size_in_bytes, file.gain_bytes) for file in item.files] == [(48, 0)] * 3
    assert all(re.fullmatch(r"deletion_vector_[0-9a-f-]{36}\.bin", file.path) for file in item.files)


def test_a_file_of_dead_deletion_vectors_calls_for_compaction_and_costs_no_points(log):
    log.write(0, *head(VECTORS), add("a", 300 * MIB, 1000, deleted=10, offset=80 * MIB))
    report = health(log, traced=3)
    (item,) = report.recommendations
    assert (item.action, item.points, report.score) == ("DV COMPACTION", 0.0, 100.0)
    assert (item.expected_gain_files, item.cost_bytes) == (0, 48)
    assert item.expected_gain_bytes == item.files[0].gain_bytes == 80 * MIB - 1
    log.write(1, head({"delta.enableDeletionVectors": "false"})[1])
    assert health(log).recommendations == []  # nothing may write one again


def test_a_deletion_vector_without_statistics_is_counted_as_unknown(log):
    log.write(0, *head(), add("a", 100 * MIB, None, deleted=3))
    assert health(log).deleted_ratio_histogram["unknown"] == 1


def test_small_files_call_for_compaction_within_partitions(log):
    files = [add(f"f{i}", 4 * MIB, 10, partition="ab"[i % 2]) for i in range(100)]
    log.write(0, *head(partition_columns=("p",)), *files, add("large", 500 * MIB, 10))
    optimize = advice(health(log))["OPTIMIZE"]
    assert optimize.reason == "100 of 101 files are small (the target file size is 256.0 MiB)."
    assert optimize.expected_gain.startswith("About 2 files instead of 100: 98 fewer")
    assert (optimize.expected_gain_files, optimize.cost_bytes) == (98, 400 * MIB)
    assert optimize.command == "delvec optimize people"


def test_small_files_that_cannot_be_joined_are_left(log):
    files = [add(f"f{i}", 4 * MIB, 10, partition=str(i)) for i in range(100)]
    log.write(0, *head(partition_columns=("p",)), *files)
    assert health(log).recommendations == []


@pytest.mark.parametrize(("interval", "expected"), [("5", True), ("10", False), ("x", False), ("0", False)])
def test_many_commits_call_for_a_checkpoint(log, interval, expected):
    log.write(0, *head({"delta.checkpointInterval": interval}))
    for version in range(1, 15):
        log.write(version, CommitInfo(operation="X"))
    report = health(log)
    assert report.commits_since_checkpoint == 15
    assert ("CHECKPOINT" in advice(report)) == expected


def test_advice_follows_the_tables_target_size(log):
    files = [add(f"f{i}", 20 * MIB, 10) for i in range(40)]
    log.write(0, *head({"delta.targetFileSize": "40mb"}), *files)
    assert advice(health(log))["OPTIMIZE"].expected_gain_files == 20
    log.write(1, head({"delta.targetFileSize": "20mb"})[1])
    assert health(log).recommendations == []


def test_the_score_is_the_sum_of_what_files_cost(log):
    small = [add(f"s{i}", 4 * MIB, 10) for i in range(30)]
    log.write(0, *head(), add("a", 400 * MIB, 1000, deleted=500), add("b", 480 * MIB, 1000), *small)
    report = health(log, traced=1000)
    found = advice(report)
    assert report.score == pytest.approx(100 - sum(item.points for item in report.recommendations), abs=0.01)
    for item in report.recommendations:
        assert sum(file.points for file in item.files) == pytest.approx(item.points, abs=0.01)
        assert item.num_files == len(item.files)
    assert found["PURGE"].points == 20.0  # 200 of 1,000 MiB are read for nothing
    assert [(file.path, file.gain_bytes) for file in found["PURGE"].files] == [("a", 200 * MIB)]
    assert {file.path for file in found["OPTIMIZE"].files} == {f"s{i}" for i in range(30)} | {"a"}
    assert report.read_amplification == 1.25
    assert report.deleted_bytes == 200 * MIB
    assert len(advice(health(log, traced=3))["OPTIMIZE"].files) == 3


def test_live_files_are_in_the_order_of_the_log_in_every_process(log):
    names = [f"s{i}" for i in range(100)]
    log.write(0, *head(), *(add(name, 4 * MIB, 10) for name in names))
    log.write(1, RemoveFile("s7", 5, data_change=True), add("s100", 4 * MIB, 10))
    live = log.snapshot().live.columns(["path"])["path"].to_pylist()
    assert live == [name for name in names if name != "s7"] + ["s100"]


def test_partitions_show_where_the_points_come_from(log):
    files = [add(f"f{i}", 10 * MIB, 100, partition="ab"[i % 2]) for i in range(40)]
    log.write(
        0,
        *head(partition_columns=("p",)),
        *files,
        add("c", 600 * MIB, 100, deleted=50, partition="c"),
        add("n", 10 * MIB, 100, partition=None),
    )
    report = health(log, partitions=10)
    names = [item.partition_values["p"] for item in report.partitions]
    assert (names[0], set(names[1:3]), names[3]) == ("c", {"a", "b"}, None)
    worst = report.partitions[0]
    assert (worst.num_files, worst.num_deleted_rows, worst.deleted_bytes) == (1, 50, 300 * MIB)
    assert sum(item.points for item in report.partitions) == pytest.approx(100 - report.score, abs=0.02)
    assert sum(item.size_in_bytes for item in report.partitions) == report.size_in_bytes
    assert len(health(log, partitions=2).partitions) == 2


def test_removed_files_are_counted_once_and_live_ones_not_at_all(log):
    old, now = 1_600_000_000_000, 4_000_000_000_000
    one, two = (add("a", 10, 100, deleted=rows, offset=place) for rows, place in ((1, 1), (2, 49)))
    log.write(0, *head(), add("a", 10, 100), add("b", 20, 100), add("c", 30, 100))
    log.write(1, one, RemoveFile("a", old, size=10))
    log.write(2, two, RemoveFile("a", old, size=10, deletion_vector=one.deletion_vector))
    log.write(3, RemoveFile("b", old, size=20), RemoveFile("c", now, size=30))
    report = health(log, traced=5)
    assert (report.num_removed_files, report.removed_bytes) == (2, 50)
    assert report.dead_deletion_vector_bytes == 48  # the first vector of "a", in the file of the second
    vacuum = advice(report)["VACUUM"]
    assert (vacuum.expected_gain_bytes, vacuum.num_files, vacuum.points) == (20, 1, 0.0)
    assert [file.path for file in vacuum.files] == ["b"]
    assert report.score == 100.0


def test_the_age_of_a_checkpoint_is_said_where_there_is_one(filled):
    assert filled.client.get(f"{filled.url}/health").json()["checkpoint-age-seconds"] is None
    assert filled.client.post(f"{filled.url}/checkpoint", json={}).status_code == 200
    answer = filled.client.get(f"{filled.url}/health", params={"files": 2, "partitions": 2})
    assert answer.json()["checkpoint-age-seconds"] >= 0
    assert answer.json()["partitions"] == []
    assert filled.client.get(f"{filled.url}/health", params={"files": 1001}).status_code == 400
