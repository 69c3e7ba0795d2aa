"""RESTORE over HTTP: restored and kept state, concurrent commits, and missing files."""

import json

import pytest
from tests.support.between import in_between
from tests.support.checked import assert_sound

from delvec_kernel.locations import canonical
from delvec_service.commits import fault_points
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

METRICS = (
    "tableSizeAfterRestore",
    "numOfFilesAfterRestore",
    "numRemovedFiles",
    "numRestoredFiles",
    "removedFilesSize",
    "restoredFilesSize",
)


def restore(table, version=None, *, key=None, **request):
    headers = {} if key is None else {"Idempotency-Key": key}
    body = {name.replace("_", "-"): value for name, value in request.items()}
    if version is not None:
        body["version"] = version
    return table.client.post(f"{table.url}/restore", json=body, headers=headers)


def alter(table, *changes):
    answer = table.client.post(f"{table.url}/alter", json={"changes": list(changes)})
    assert answer.status_code == 200, answer.text
    return answer


def properties(table, **values):
    return alter(table, {"change": "set-properties", "properties": values})


def live(table, version=None):
    """The files of a version with their deletion vectors, from the log alone."""
    snapshot = SnapshotLoader().load(ObjectStore(canonical(str(table.folder))), "table", version=version)
    return {
        (row["path"], json.dumps(row["deletion_vector"])): row["num_records"]
        for row in snapshot.files.to_pylist()
    }


def snapshot(table):
    return table.client.get(f"{table.url}/snapshot").json()


def test_files_and_deletion_vectors_are_those_of_the_version(filled):
    filled.delete({"a.parquet": [1, 2]})
    filled.delete({"a.parquet": [3]}, removes=["b.parquet"])
    filled.append(filled.write_file("c.parquet", [20, 21]))
    sizes = {name: (filled.folder / f"{name}.parquet").stat().st_size for name in "abc"}

    answer = restore(filled, 2, user_metadata="a mistake", engine_info="a test")

    assert answer.status_code == 200, answer.text
    assert (answer.json()["result"], answer.json()["version"], answer.json()["restored-version"]) == (
        "committed",
        5,
        2,
    )
    assert live(filled, 5) == live(filled, 2)
    info = filled.action(5, "commitInfo")
    assert info["operation"] == "RESTORE"
    assert info["operationParameters"] == {"version": 2, "timestamp": None}
    assert (info["isBlindAppend"], info["readVersion"], info["userMetadata"]) == (False, 4, "a mistake")
    metrics = {
        "tableSizeAfterRestore": sizes["a"] + sizes["b"],
        "numOfFilesAfterRestore": 2,
        "numRemovedFiles": 2,
        "numRestoredFiles": 2,
        "removedFilesSize": sizes["a"] + sizes["c"],
        "restoredFilesSize": sizes["a"] + sizes["b"],
    }
    assert answer.json()["operation-metrics"] == metrics
    assert info["operationMetrics"] == {name: str(value) for name, value in metrics.items()}
    files = [action for action in filled.actions(5) if "add" in action or "remove" in action]
    assert all(next(iter(action.values()))["dataChange"] for action in files)
    assert_sound(filled.folder)


def test_a_restore_can_be_restored(filled):
    filled.delete({"a.parquet": [1, 2]})
    restore(filled, 1)

    assert restore(filled, 2).json()["version"] == 4

    assert live(filled, 4) == live(filled, 2)
    assert_sound(filled.folder)


def test_a_version_by_time(filled):
    filled.delete({"a.parquet": [1, 2]})
    # The newest version has an in-commit timestamp, unlike the one before.
    committed = snapshot(filled)["timestamp"]
    filled.delete({"a.parquet": [3]})

    answer = restore(filled, timestamp=str(committed))

    assert answer.json()["restored-version"] == 2
    assert filled.action(4, "commitInfo")["operationParameters"] == {
        "version": None,
        "timestamp": str(committed),
    }
    assert live(filled, 4) == live(filled, 2)


def test_a_repeated_request_is_found_in_the_log_where_nothing_else_remembers_it(filled, running):
    filled.delete({"a.parquet": [1, 2]})
    moment = str(snapshot(filled)["timestamp"])
    filled.delete({"a.parquet": [3]})
    requests = [{"version": 1, "read_version": 3}, {"timestamp": moment, "read_version": 4}]
    first = [restore(filled, key=f"r{number}", **each).json() for number, each in enumerate(requests)]
    filled.append(filled.write_file("c.parquet", [99]))

    with running() as other:
        other.post("/v1/tables", json={"location": str(filled.folder)})
        filled.client = other
        again = [restore(filled, key=f"r{number}", **each).json() for number, each in enumerate(requests)]
        taken = restore(filled, 2, key="r0", read_version=3)

        assert taken.status_code == 422
        assert [(each["version"], each["restored-version"]) for each in again] == [(4, 1), (5, 2)]
        assert again == first
        assert filled.version() == 6


def test_the_newest_version_needs_no_restore(filled):
    answer = restore(filled, 1)

    assert (answer.json()["result"], answer.json().get("version")) == ("nothing-to-do", None)
    assert answer.json()["operation-metrics"] == {}
    assert filled.version() == 1


def test_a_version_that_differs_in_nothing_is_restored_all_the_same(filled):
    """As in delta-spark: the history has the requested target."""
    properties(filled, team="red")
    alter(filled, {"change": "unset-properties", "names": ["team"]})

    assert restore(filled, 1).json()["version"] == 4

    assert {next(iter(action)) for action in filled.actions(4)} == {"commitInfo", "metaData"}


def test_a_dry_run_tells_and_commits_nothing(filled):
    filled.delete({"a.parquet": [1]}, removes=["b.parquet"])

    answer = restore(filled, 1, dry_run=True).json()

    assert (answer["result"], answer.get("version"), answer["restored-version"]) == ("dry-run", None, 1)
    assert answer["operation-metrics"]["numRestoredFiles"] == 2
    assert filled.version() == 2


@pytest.mark.parametrize("body", [{}, {"version": 1, "timestamp": "2026-01-31"}, {"version": -1}])
def test_one_version_has_to_be_named(filled, error, body):
    answer = filled.client.post(f"{filled.url}/restore", json=body)

    assert (answer.status_code, error(answer)["code"]) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("target", [{"version": 9}, {"timestamp": "1990-01-01"}, {"timestamp": "2990-01-01"}])
def test_a_version_that_there_is_not(filled, error, target):
    answer = restore(filled, **target)

    assert (answer.status_code, error(answer)["type"]) == (404, "VersionNotFound")


def test_the_same_request_restores_once(filled):
    filled.delete({"a.parquet": [1]})
    first = restore(filled, 1, key="once")
    filled.delete({"a.parquet": [4]})

    again = restore(filled, 1, key="once")

    assert again.json() == first.json()
    assert filled.version() == 4
    assert restore(filled, 2, key="once").status_code == 422


@pytest.mark.parametrize("point", ["begin", "before-put", "after-put", "before-close", "before-answer"])
@pytest.mark.parametrize("fault", ["error", "lost"])
def test_a_restore_that_failed_anywhere_is_done_once_when_sent_again(filled, point, fault):
    filled.delete({"a.parquet": [1]})
    with fault_points.armed(f"{point}:{fault}*1"):
        first = restore(filled, 1, key="again")
    assert first.status_code in (200, 502, 504), first.text

    second = restore(filled, 1, key="again")

    assert second.status_code == 200, second.text
    assert (second.json()["version"], filled.version()) == (3, 3)
    assert live(filled, 3) == live(filled, 1)
    assert_sound(filled.folder)


# --- others at the same time ----------------------------------------------------------------------------------------


MEANWHILE = {
    "append": lambda table: table.append(table.write_file("c.parquet", [20])),
    "DELETE": lambda table: table.delete({"a.parquet": [5]}, removes=["b.parquet"]),
    "DELETE in a file that the RESTORE leaves alone": lambda table: table.delete({"b.parquet": [1]}),
    "metadata": lambda table: properties(table, team="red"),
}


@pytest.mark.parametrize("theirs", MEANWHILE)
def test_what_others_commit_meanwhile_is_undone_too(filled, running, theirs):
    """The RESTORE is applied after it, as if it had been requested a little later."""
    filled.delete({"a.parquet": [1]})

    with in_between(running, filled, MEANWHILE[theirs]):
        answer = restore(filled, 1)

    assert answer.status_code == 200, answer.text
    assert filled.version() == answer.json()["version"] == 4
    assert live(filled, 4) == live(filled, 1)
    assert "team" not in filled.action(4, "metaData")["configuration"]
    assert_sound(filled.folder)


def test_two_restores_at_once(filled, running):
    filled.delete({"a.parquet": [1]})
    filled.delete({"a.parquet": [2]})

    with in_between(running, filled, lambda table: restore(table, 1)):
        answer = restore(filled, 2)

    assert (answer.json()["version"], filled.version()) == (5, 5)
    assert live(filled, 4) == live(filled, 1)
    assert live(filled, 5) == live(filled, 2)
    assert_sound(filled.folder)


def test_a_delete_is_told_of_rows_that_a_restore_brought_back(filled, running, error):
    filled.delete({"a.parquet": [1]}, removes=["b.parquet"])

    with in_between(running, filled, lambda table: restore(table, 1)):
        answer = filled.delete({"a.parquet": [5]}, predicate="id >= 5")

    assert answer.status_code == 409
    assert error(answer)["details"]["conflict"]["winning-operation"] == "RESTORE"
    assert live(filled) == live(filled, 1)


def test_a_compaction_of_other_files_is_kept(filled, running):
    filled.append(filled.write_file("c.parquet", [20]))
    filled.append(filled.write_file("d.parquet", [30]))

    def compact(table):
        new = table.write_file("ab.parquet", range(15))
        return table.commit(
            operation="OPTIMIZE",
            data_change=False,
            adds=[new],
            removes=[{"path": "a.parquet"}, {"path": "b.parquet"}],
        )

    with in_between(running, filled, compact):
        answer = restore(filled, 2)

    assert answer.status_code == 200, answer.text
    assert sum(live(filled).values()) == 16


# --- what never goes back -------------------------------------------------------------------------------------------


def test_features_stay_and_properties_go_back(client, create, tmp_path):
    table = create(client, tmp_path / "t", properties={"delta.enableDeletionVectors": "false"})
    table.append(table.write_file("a.parquet", range(10)))
    properties(table, **{"delta.enableDeletionVectors": "true", "team": "red"})
    table.delete({"a.parquet": [1]})

    assert restore(table, 1).status_code == 200

    assert live(table, 4) == live(table, 1)
    now = snapshot(table)
    assert "deletionVectors" in now["protocol"]["writerFeatures"]
    assert (now["configuration"]["delta.enableDeletionVectors"], now["configuration"].get("team")) == (
        "false",
        None,
    )
    assert restore(table, 3).status_code == 200
    assert live(table, 5) == live(table, 3)
    assert_sound(table.folder)


def test_a_feature_that_was_dropped_comes_back_with_its_files(filled):
    filled.delete({"a.parquet": [1]})
    alter(filled, {"change": "set-properties", "properties": {"delta.enableDeletionVectors": "false"}})
    new = filled.write_file("a2.parquet", [0, *range(2, 10)])
    answer = filled.commit(
        operation="OPTIMIZE", data_change=False, adds=[new], removes=[{"path": "a.parquet"}]
    )
    assert answer.status_code == 200, answer.text
    alter(filled, {"change": "drop-feature", "feature": "deletionVectors"})
    before = snapshot(filled)
    assert "deletionVectors" not in before["protocol"]["writerFeatures"]

    assert restore(filled, 2).status_code == 200

    now = snapshot(filled)
    assert "deletionVectors" in now["protocol"]["readerFeatures"]
    assert live(filled) == live(filled, 2)
    kept = "delta.requireCheckpointProtectionBeforeVersion"
    assert now["configuration"][kept] == before["configuration"][kept]
    assert_sound(filled.folder)


def test_column_ids_are_not_given_twice(filled):
    properties(filled, **{"delta.columnMapping.mode": "name"})
    alter(filled, {"change": "add-columns", "columns": [{"column": "age", "type": "integer"}]})

    assert restore(filled, 2).status_code == 200
    alter(filled, {"change": "add-columns", "columns": [{"column": "born", "type": "date"}]})

    fields = json.loads(filled.action(5, "metaData")["schemaString"])["fields"]
    assert [(each["name"], each["metadata"]["delta.columnMapping.id"]) for each in fields] == [
        ("id", 1),
        ("name", 2),
        ("born", 4),
    ]


def test_column_mapping_is_off_again_and_on_again(filled):
    properties(filled, **{"delta.columnMapping.mode": "name"})
    alter(filled, {"change": "rename-column", "column": "name", "to": "called"})

    assert restore(filled, 1).status_code == 200
    assert [each["name"] for each in snapshot(filled)["schema"]["fields"]] == ["id", "name"]
    assert "delta.columnMapping.mode" not in snapshot(filled)["configuration"]
    assert restore(filled, 3).status_code == 200

    assert [each["name"] for each in snapshot(filled)["schema"]["fields"]] == ["id", "called"]
    assert_sound(filled.folder)


def test_row_ids_are_not_given_twice(client, create, tmp_path):
    table = create(client, tmp_path / "t", properties={"delta.enableRowTracking": "true"})
    table.append(table.write_file("a.parquet", range(10)))
    table.append(table.write_file("b.parquet", range(5)))

    assert restore(table, 1).status_code == 200
    table.append(table.write_file("c.parquet", range(3)))
    assert restore(table, 2).status_code == 200

    ids = {row["path"]: row["base_row_id"] for row in _files(table)}
    assert ids == {"a.parquet": 0, "b.parquet": 10}
    table.append(table.write_file("d.parquet", range(3)))
    assert {row["path"]: row["base_row_id"] for row in _files(table)}["d.parquet"] == 18
    assert_sound(table.folder)


def _files(table):
    return SnapshotLoader().load(ObjectStore(canonical(str(table.folder))), "table").files.to_pylist()


def test_files_from_before_row_tracking_get_ids(filled):
    filled.commit(operation="DELETE", removes=[{"path": "b.parquet"}], predicate="id > 9")
    properties(filled, **{"delta.enableRowTracking": "true"})

    assert restore(filled, 1).status_code == 200

    ids = {row["path"]: row["base_row_id"] for row in _files(filled)}
    assert ids == {"a.parquet": 0, "b.parquet": 10}
    assert "delta.enableRowTracking" not in snapshot(filled)["configuration"]
    assert_sound(filled.folder)


def test_ids_that_files_have_lost_cannot_be_promised_again(client, create, tmp_path, error):
    table = create(client, tmp_path / "t", properties={"delta.enableRowTracking": "true"})
    table.append(table.write_file("a.parquet", range(10)))
    alter(table, {"change": "drop-feature", "feature": "rowTracking"})

    answer = restore(table, 1)

    assert (answer.status_code, error(answer)["type"]) == (400, "InvalidTableChange")
    assert "a.parquet" in error(answer)["message"]


@pytest.mark.parametrize("step", [3, -3])
def test_identity_columns_go_on_behind_their_numbers(client, create, tmp_path, step):
    numbers = {
        "delta.identity.start": 10,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": False,
    }
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": numbers},
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    ]
    table = create(client, tmp_path / "t", schema={"type": "struct", "fields": fields})
    for number in range(2):
        mark = 10 + step * (number * 5 + 4)
        advance = {"change": "advance-identity", "column": "id", "high-water-mark": mark}
        ids = [10 + step * (number * 5 + place) for place in range(5)]
        answer = table.append(table.write_file(f"{number}.parquet", ids), table_changes=[advance])
        assert answer.status_code == 200, answer.text

    assert restore(table, 1).status_code == 200

    (identity, _) = json.loads(table.action(3, "metaData")["schemaString"])["fields"]
    assert identity["metadata"]["delta.identity.highWaterMark"] == 10 + step * 9
    assert live(table, 3) == live(table, 1)


def test_timestamps_in_commits_count_from_when_they_were_turned_on_last(filled):
    name = "delta.enableInCommitTimestamps"
    for value in ("true", "false", "true"):
        properties(filled, **{name: value})
    now = snapshot(filled)["configuration"]

    assert restore(filled, 2).status_code == 200

    assert snapshot(filled)["configuration"] == now
    assert filled.action(5, "commitInfo")["inCommitTimestamp"]
    assert restore(filled, 1).status_code == 200
    assert "inCommitTimestamp" not in filled.action(6, "commitInfo")
    assert restore(filled, 4).status_code == 200
    assert snapshot(filled)["configuration"]["delta.inCommitTimestampEnablementVersion"] == "7"
    assert_sound(filled.folder)


def test_clustering_columns_go_back_and_other_domains_do_not(filled):
    alter(filled, {"change": "cluster-by", "columns": ["id"]})
    alter(filled, {"change": "cluster-by", "columns": ["name"]})

    for version, columns in ((2, [["id"]]), (1, []), (3, [["name"]])):
        assert restore(filled, version).status_code == 200
        found = snapshot(filled)["domain-metadata"]["delta.clustering"]
        assert json.loads(found)["clusteringColumns"] == columns


# --- what is in the way ---------------------------------------------------------------------------------------------


def test_an_append_only_table_keeps_its_rows(filled, error):
    properties(filled, **{"delta.appendOnly": "true"})
    filled.append(filled.write_file("c.parquet", [20]))

    answer = restore(filled, 2)

    assert (answer.status_code, error(answer)["type"]) == (422, "AppendOnlyTable")
    assert filled.version() == 3


def test_all_missing_files_are_named_and_nothing_is_committed(filled, error):
    filled.delete({"a.parquet": [1, 2]})
    (vector,) = filled.folder.glob("deletion_vector_*.bin")
    filled.delete({"a.parquet": [3]}, removes=["b.parquet"])
    (filled.folder / "b.parquet").unlink()
    vector.unlink()

    for dry_run in (True, False):
        answer = restore(filled, 2, dry_run=dry_run)

        assert (answer.status_code, error(answer)["type"]) == (422, "MissingRestoreFiles")
        details = error(answer)["details"]
        assert {each["file"] for each in details["missing"]} == {"a.parquet", "b.parquet"}
        assert (details["version"], details["count"]) == (2, 2)
    assert filled.version() == 3


def test_a_file_that_was_replaced_is_as_bad_as_a_missing_one(filled, error):
    filled.commit(operation="DELETE", removes=[{"path": "b.parquet"}], predicate="id > 9")
    (filled.folder / "b.parquet").write_bytes(b"PAR1PAR1")

    answer = restore(filled, 1)

    assert error(answer)["type"] == "MissingRestoreFiles"
    assert "8 bytes" in error(answer)["message"]


def test_missing_files_can_be_ignored_where_that_is_asked_for(filled):
    filled.commit(operation="DELETE", removes=[{"path": "b.parquet"}], predicate="id > 9")
    (filled.folder / "b.parquet").unlink()

    assert restore(filled, 1, ignore_missing_files=True).json()["version"] == 3

    assert live(filled, 3) == live(filled, 1)


def test_files_that_stay_are_not_looked_at(filled):
    filled.append(filled.write_file("c.parquet", [20]))
    (filled.folder / "a.parquet").unlink()

    assert restore(filled, 1).status_code == 200


def test_a_table_that_must_not_be_written_is_not_restored(filled, error):
    filled.delete({"a.parquet": [1]})
    protocol = filled.action(0, "protocol")
    protocol["writerFeatures"].append("aFeatureOfTheFuture")
    entry = filled.log / f"{3:020}.json"
    entry.write_text(
        json.dumps({"commitInfo": {"operation": "x"}}) + "\n" + json.dumps({"protocol": protocol})
    )

    answer = restore(filled, 1)

    assert (answer.status_code, error(answer)["type"]) == (422, "UnsupportedWriterFeature")
