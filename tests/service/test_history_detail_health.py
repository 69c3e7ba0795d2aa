"""What a table was, is, and needs: history, detail and health."""

import json
import os

import pytest

from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile, CommitInfo, DomainMetadata, Metadata, Protocol
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.errors import CorruptLog, NotADeltaTable
from delvec_kernel.log.commit_file import serialize_commit
from delvec_service.maintenance.health import health
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


def advice(report):
    return {item.action: item for item in report.recommendations}


def test_a_healthy_table_needs_nothing(log):
    log.write(0, *head(), add("a", 500 * MIB, 1000), add("b", 300 * MIB, 1000, deleted=10))
    report = health(log.snapshot(), "people")
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


def test_an_empty_table_is_healthy(log):
    log.write(0, *head())
    report = health(log.snapshot(), "people")
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
    report = health(log.snapshot(), "people")
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
    assert "In 2 files more than 5 %" in purge.reason
    assert "200 MiB" in purge.expected_gain
    assert "1,300 rows" in purge.expected_gain
    assert "130 MiB" in purge.expected_gain


def test_a_deletion_vector_without_statistics_is_counted_as_unknown(log):
    log.write(0, *head(), add("a", 100 * MIB, None, deleted=3))
    assert health(log.snapshot(), "people").deleted_ratio_histogram["unknown"] == 1


def test_small_files_call_for_compaction_within_partitions(log):
    files = [add(f"f{i}", 4 * MIB, 10, partition="ab"[i % 2]) for i in range(100)]
    log.write(0, *head(partition_columns=("p",)), *files, add("large", 500 * MIB, 10))
    optimize = advice(health(log.snapshot(), "people"))["OPTIMIZE"]
    assert optimize.reason == "100 of 101 files are smaller than 16 MiB."
    assert optimize.expected_gain.startswith("About 4 files in place of 100: 96 fewer")


def test_small_files_that_cannot_be_joined_are_left(log):
    files = [add(f"f{i}", 4 * MIB, 10, partition=str(i)) for i in range(100)]
    log.write(0, *head(partition_columns=("p",)), *files)
    assert health(log.snapshot(), "people").recommendations == []


@pytest.mark.parametrize(("interval", "expected"), [("5", True), ("10", False), ("x", False), ("0", False)])
def test_many_commits_call_for_a_checkpoint(log, interval, expected):
    log.write(0, *head({"delta.checkpointInterval": interval}))
    for version in range(1, 15):
        log.write(version, CommitInfo(operation="X"))
    report = health(log.snapshot(), "people")
    assert report.commits_since_checkpoint == 15
    assert ("CHECKPOINT" in advice(report)) == expected
