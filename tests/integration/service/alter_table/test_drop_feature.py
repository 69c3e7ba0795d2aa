"""DROP FEATURE over HTTP: its versions, concurrent commits, and idempotency."""

import json

import pytest
from tests.support.between import in_between
from tests.support.checked import assert_sound


def alter(table, *changes, key=None):
    headers = {} if key is None else {"Idempotency-Key": key}
    return table.client.post(f"{table.url}/alter", json={"changes": list(changes)}, headers=headers)


def drop(feature, **more):
    return {"change": "drop-feature", "feature": feature, **more}


def operations(table):
    return [table.action(version, "commitInfo")["operation"] for version in range(table.version() + 1)]


def checkpoints(table):
    return sorted(int(path.name[:20]) for path in table.log.glob("*.checkpoint.parquet"))


BARRIER = ["Empty Commit"] * 3


def test_deletion_vectors_go_with_a_history_that_is_kept_together(filled):
    answer = alter(filled, drop("deletionVectors"), key="once")

    assert answer.json()["version"] == 6
    assert operations(filled)[2:] == ["UNSET TBLPROPERTIES", *BARRIER, "DROP FEATURE"]
    assert checkpoints(filled) == [3, 4, 5, 6]
    assert filled.action(6, "protocol")["writerFeatures"] == [
        "appendOnly",
        "invariants",
        "checkpointProtection",
    ]
    configuration = filled.action(6, "metaData")["configuration"]
    assert configuration == {"delta.requireCheckpointProtectionBeforeVersion": "6"}
    assert filled.append(filled.write_file("c.parquet", [20])).status_code == 200

    again = alter(filled, drop("deletionVectors"), key="once")

    assert (again.status_code, again.json()) == (200, answer.json())
    assert filled.version() == 7
    assert_sound(filled.folder, data_files=False)


def vectors_removed(table, version):
    return [action["remove"] for action in table.actions(version) if "remove" in action]


@pytest.mark.parametrize("checkpoint", ["none", "sound", "damaged"])
def test_files_of_deletion_vectors_that_older_versions_need_get_tombstones(filled, checkpoint):
    """A VACUUM without deletion vector support keeps recent tombstones, and deletes all other unreferenced files."""
    for row in (1, 2):
        filled.delete({"a.parquet": [row]})
    filled.delete({}, removes=["a.parquet"])
    if checkpoint != "none":
        assert filled.client.post(f"{filled.url}/checkpoint").status_code == 200
    if checkpoint == "damaged":
        for path in filled.log.glob("*.checkpoint.parquet"):
            path.write_bytes(b"no Parquet")
    before = filled.version()
    first = {path.name for path in filled.folder.glob("deletion_vector_*.bin")}

    alter(filled, drop("deletionVectors"))

    assert operations(filled)[before + 1 :] == [
        "UNSET TBLPROPERTIES",
        "Deletion Vector Tombstones",
        *BARRIER,
        "DROP FEATURE",
    ]
    removed = vectors_removed(filled, before + 2)
    assert {each["path"] for each in removed} == first
    assert len(first) == 2
    assert all(set(each) == {"path", "deletionTimestamp", "dataChange"} for each in removed)
    assert not any(each["dataChange"] for each in removed)
    assert filled.client.get(f"{filled.url}/snapshot").json()["num-files"] == 1
    assert_sound(filled.folder, data_files=False)


def test_tombstones_of_a_drop_that_was_broken_off_are_not_given_twice(filled):
    filled.delete({"a.parquet": [1]})
    filled.delete({}, removes=["a.parquet"])
    alter(filled, drop("deletionVectors"))
    on = {"change": "set-properties", "properties": {"delta.enableDeletionVectors": "true"}}
    alter(filled, on)

    alter(filled, drop("deletionVectors"))

    assert operations(filled).count("Deletion Vector Tombstones") == 1
    assert operations(filled)[-1] == "DROP FEATURE"


def test_the_same_request_is_found_in_the_log_where_the_answer_was_forgotten(filled):
    body = {"changes": [drop("vacuumProtocolCheck")], "transaction-id": "tx", "read-version": 1}
    added = alter(filled, {"change": "add-feature", "feature": "vacuumProtocolCheck"})
    first = filled.client.post(f"{filled.url}/alter", json=body)
    again = filled.client.post(f"{filled.url}/alter", json=body)

    assert added.json()["version"] == 2
    assert operations(filled)[3:] == [*BARRIER, "DROP FEATURE"]
    assert [each.json()["version"] for each in (first, again)] == [6, 6]


def test_a_feature_of_writers_goes_in_one_version(filled):
    answer = alter(filled, drop("appendOnly"))

    assert answer.json()["version"] == 2
    assert operations(filled)[2:] == ["DROP FEATURE"]
    assert filled.action(2, "commitInfo")["operationParameters"] == {
        "featureName": "appendOnly",
        "truncateHistory": False,
    }
    assert checkpoints(filled) == []


def test_what_is_in_the_way_is_told_before_anything_is_done(filled, error):
    filled.delete({"a.parquet": [1]})

    refused = alter(filled, drop("deletionVectors"))

    assert refused.status_code == 400
    assert "1 file has a deletion vector" in error(refused)["message"]
    both = alter(filled, drop("appendOnly"), {"change": "set-comment", "comment": "x"})
    assert "in a request of its own" in error(both)["message"]
    assert filled.version() == 2


def test_a_delete_that_read_the_table_before_loses_and_an_append_does_too(filled, error):
    added = filled.write_file("c.parquet", [20])
    alter(filled, drop("deletionVectors"))

    deleted = filled.delete({"a.parquet": [1]}, read_version=1)
    appended = filled.append(added, read_version=1)

    assert [deleted.status_code, appended.status_code] == [409, 409]
    assert {error(each)["type"] for each in (deleted, appended)} == {"MetadataChangedException"}


def test_versions_that_come_in_between_are_kept_together_too(filled, running):
    alter(filled, {"change": "add-feature", "feature": "vacuumProtocolCheck"})
    added = filled.write_file("c.parquet", [20])
    nothing = lambda table: table.client.get(table.url)  # noqa: E731 - until the barrier is there
    appends = lambda table: table.append(added)  # noqa: E731

    with in_between(running, filled, *[nothing] * 3, appends):
        answer = alter(filled, drop("vacuumProtocolCheck"))

    assert answer.json()["version"] == 7
    assert operations(filled)[3:] == [*BARRIER, "WRITE", "DROP FEATURE"]
    protected = "delta.requireCheckpointProtectionBeforeVersion"
    assert filled.action(7, "metaData")["configuration"][protected] == "7"


def test_a_domain_that_somebody_sets_meanwhile_keeps_its_feature(filled, running, error):
    """A commit of another writer, with fields that Delvec never sets."""
    alter(filled, {"change": "add-feature", "feature": "domainMetadata"})

    def set_domain(table):
        domain = {"domain": "theirs", "configuration": "{}", "removed": False}
        actions = [{"commitInfo": {"operation": "SET DOMAIN"}}, {"domainMetadata": domain}]
        path = table.log / f"{table.version() + 1:020}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        return table.client.get(table.url)

    with in_between(running, filled, set_domain):
        refused = alter(filled, drop("domainMetadata"))

    assert refused.status_code == 400
    assert "domain metadata that other software set: theirs" in error(refused)["message"]
    assert operations(filled)[2:] == ["SET TBLPROPERTIES", "SET DOMAIN"]


def restored(*files):
    """A RESTORE of another writer, which restores files, but not protocol and metadata."""

    def restore(table):
        adds = [{"add": {**file, "modificationTime": 1, "dataChange": True}} for file in files]
        actions = [{"commitInfo": {"operation": "RESTORE"}}, *adds]
        path = table.log / f"{table.version() + 1:020}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        return table.client.get(table.url)

    return restore


def nothing(table):
    return table.client.get(table.url)


def test_a_deletion_vector_that_a_restore_brings_back_keeps_its_feature(filled, running, error):
    filled.delete({"a.parquet": [1]})
    (with_vector,) = [action["add"] for action in filled.actions(2) if "add" in action]
    filled.delete({}, removes=["a.parquet"])

    # After the property is unset, the tombstones and the barrier: right before the feature goes.
    with in_between(running, filled, *[nothing] * 5, restored(with_vector)):
        refused = alter(filled, drop("deletionVectors"))

    assert (refused.status_code, "1 file has a deletion vector" in error(refused)["message"]) == (400, True)
    assert operations(filled)[-1] == "RESTORE"
    rows = filled.client.get(f"{filled.url}/snapshot").json()
    assert (rows["num-files"], rows["num-deletion-vectors"]) == (2, 1)


def test_row_ids_that_a_restore_brings_back_are_taken_away_first(filled, running):
    on = {"change": "set-properties", "properties": {"delta.enableRowTracking": "true"}}
    alter(filled, on)
    version = filled.version()
    with_ids = next(
        action["add"]
        for number in range(version + 1)
        for action in filled.actions(number)
        if "baseRowId" in action.get("add", {})
    )
    filled.delete({}, removes=[with_ids["path"]])

    with in_between(running, filled, *[nothing] * 2, restored(with_ids)):
        dropped = alter(filled, drop("rowTracking"))

    assert dropped.status_code == 200, dropped.text
    assert operations(filled)[-3:] == ["RESTORE", "ROW TRACKING UNBACKFILL", "DROP FEATURE"]
    live = {}
    for number in range(filled.version() + 1):
        for action in filled.actions(number):
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    assert not any("baseRowId" in live[path] for path in live)


def test_files_that_need_nothing_of_the_feature_do_not_keep_it(filled, running):
    added = {"path": "c.parquet", "partitionValues": {}, "size": 1, "stats": '{"numRecords":1}'}

    with in_between(running, filled, *[nothing] * 4, restored(added)):
        dropped = alter(filled, drop("deletionVectors"))

    assert operations(filled)[-2:] == ["RESTORE", "DROP FEATURE"]
    assert dropped.json()["version"] == filled.version()


def test_in_commit_timestamps_go_and_come_again(filled):
    on = {"change": "set-properties", "properties": {"delta.enableInCommitTimestamps": "true"}}
    alter(filled, on)
    dropped = alter(filled, drop("inCommitTimestamp"))
    filled.append(filled.write_file("c.parquet", [20]))

    assert dropped.json()["version"] == 3
    assert "inCommitTimestamp" not in filled.action(3, "commitInfo")
    assert "inCommitTimestamp" not in filled.action(4, "commitInfo")
    assert alter(filled, on).json()["version"] == 5
    assert_sound(filled.folder, data_files=False)
