"""Version checksums: a version that contradicts its checksum is refused; invalid checksum files are ignored."""

import json
import logging

import pytest
from tests.support.log_by_hand import VECTORS, LogByHand, add, vector

from delvec_errors import CorruptLog
from delvec_service.snapshots.loader import SnapshotLoader

FILES = ["f1", "f2", "f3"]


@pytest.fixture
def log(tmp_path):
    """Three versions that add a file each, all with good checksums."""
    log = LogByHand(tmp_path / "t", 3)
    for version in range(4):
        log.checksum(version, version)
    return log


def test_good_checksums_pass(log):
    for version in range(4):
        assert log.load(version=version).num_files == version


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("numFiles", 4, "3"),
        ("tableSizeBytes", 4, "3"),
        ("numDeletionVectorsOpt", 1, "0"),
        ("numDeletedRecordsOpt", 7, "0"),
        ("protocol", {"minReaderVersion": 1, "minWriterVersion": 5}, "2"),
        ("domainMetadata", [{"domain": "d", "configuration": "x", "removed": False}], "{}"),
    ],
)
def test_a_contradiction_is_refused_and_explained(log, field, value, found):
    log.checksum(3, 3, **{field: value})
    with pytest.raises(CorruptLog, match=f"{3:020d}.crc has {field} ") as caught:
        log.load()
    details = caught.value.details
    assert (details["table"], details["version"]) == ("people", 3)
    assert (details["file"], details["field"]) == (f"{3:020d}.crc", field)
    assert found in details["found"]
    assert "DELVEC_VERSION_CHECKSUMS=warn" in caught.value.message
    assert log.load(version=2).num_files == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "another"),
        ("schemaString", '{"type":"struct","fields":[]}'),
        ("partitionColumns", ["id"]),
        ("configuration", {"delta.appendOnly": "true"}),
    ],
)
def test_other_metadata_is_refused(log, field, value):
    log.checksum(3, 3, metadata=log.metadata["metaData"] | {field: value})
    with pytest.raises(CorruptLog, match=rf"has metadata\.{field} "):
        log.load()


def test_metadata_may_be_spelled_otherwise(log):
    metadata = log.metadata["metaData"]
    spaced = json.dumps(json.loads(metadata["schemaString"]), indent=1)
    log.checksum(3, 3, metadata=metadata | {"schemaString": spaced, "createdTime": 5, "description": "x"})
    assert log.load().num_files == 3


def test_a_commit_that_lost_its_last_lines_is_noticed(log):
    log.commit(3)
    with pytest.raises(CorruptLog, match="has numFiles 3, but the log has 2"):
        log.load()


def test_deletion_vectors_are_counted(tmp_path):
    log = LogByHand(tmp_path / "t", protocol=VECTORS)
    log.commit(1, add("a", vector(1, rows=3)), add("b", vector(2, rows=4)), add("c"))
    log.checksum(0, 0, numDeletionVectorsOpt=0)
    log.checksum(1, 3, numDeletionVectorsOpt=2, numDeletedRecordsOpt=7)
    assert log.load().num_deleted_rows == 7
    log.checksum(1, 3, numDeletionVectorsOpt=2, numDeletedRecordsOpt=6)
    with pytest.raises(CorruptLog, match="numDeletedRecordsOpt 6, but the log has 7"):
        log.load()


def test_transactions_are_compared_where_both_know_them(log):
    log.commit(4, {"txn": {"appId": "a", "version": 5}}, {"txn": {"appId": "b", "version": 1}})
    expired = {"appId": "old", "version": 1}
    log.checksum(4, 3, setTransactions=[{"appId": "a", "version": 5}, expired])
    assert log.load().txns["a"].version == 5
    log.checksum(4, 3, setTransactions=[{"appId": "a", "version": 4}])
    with pytest.raises(CorruptLog, match="has setTransactions"):
        log.load()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b"5", b'{"numFiles":99}', b"[" * 100_000],
)
def test_what_is_no_checksum_is_passed_over(log, content, caplog):
    log.write(f"{3:020d}.crc", content)
    with caplog.at_level(logging.INFO):
        assert log.load().num_files == 3
    assert f"ignoring {3:020d}.crc" in caplog.text


def test_a_checksum_with_fields_of_other_types_is_passed_over(log):
    for value in ("many", -1.5, [], {}, 2**64):
        log.checksum(3, 3, numFiles=value)
        assert log.load().num_files == 3


def test_a_checksum_of_a_version_that_no_commit_has_means_nothing(log):
    log.checksum(9, 9)
    assert log.load().version == 3


def test_a_checksum_costs_nothing_where_there_is_none_and_one_request_where_there_is(log):
    store = log.store()
    log.load(store=store)
    assert [name for name in store.names if name.endswith(".crc")] == [f"{3:020d}.crc"]
    (log.log / f"{3:020d}.crc").unlink()
    store = log.store()
    log.load(store=store)
    assert not [name for name in store.names if name.endswith(".crc")]


def test_commits_that_follow_a_held_snapshot_are_not_checked(log):
    loader, store = SnapshotLoader(), log.store()
    log.load(loader=loader, store=store)
    log.commit(4, add("f4"))
    log.checksum(4, 99)
    assert log.load(loader=loader, store=store).num_files == 4


# --- which file is wrong --------------------------------------------------------------------------------


def test_a_checkpoint_that_contradicts_checksum_and_commits_is_passed_over(log, caplog):
    log.checkpoint(2, add("f1"))
    with caplog.at_level(logging.WARNING):
        assert sorted(log.files()) == FILES
    assert "contradicts itself" in caplog.text


def test_a_checkpoint_that_nothing_can_replace_is_refused(log):
    log.checkpoint(2, add("f1"))
    log.forget(0, 1)
    with pytest.raises(CorruptLog, match="has numFiles 3, but the log has 2"):
        log.load()


def test_checksums_that_never_agree_with_a_complete_log_are_not_of_this_log(log, caplog):
    """All commits are there and no checksum fits: published tables have such checksums, and every reader reads them."""
    for version in range(4):
        log.checksum(version, version + 10)
    with caplog.at_level(logging.WARNING):
        assert sorted(log.files()) == FILES
    assert "using the log" in caplog.text


@pytest.mark.parametrize("policy", ["warn", "ignore"])
def test_the_check_can_be_loosened(log, policy, caplog):
    log.checksum(3, 4)
    with caplog.at_level(logging.WARNING):
        assert log.load(loader=SnapshotLoader(checksums=policy)).num_files == 3
    assert ("has numFiles 4" in caplog.text) == (policy == "warn")


def test_the_setting_reaches_the_service(tmp_path, running, monkeypatch, error):
    log = LogByHand(tmp_path / "t", 1)
    log.checksum(0, 0)
    log.checksum(1, 7)
    for policy, status in (("check", 422), ("warn", 200)):
        monkeypatch.setenv("DELVEC_VERSION_CHECKSUMS", policy)
        with running() as client:
            created = client.post("/v1/tables", json={"location": str(log.folder)})
            answer = created
            if created.status_code < 300:
                answer = client.get(f"/v1/tables/{created.json()['name']}/snapshot")
            assert answer.status_code == status, answer.text
            if status == 422:
                assert error(answer)["type"] == "CorruptLog"
