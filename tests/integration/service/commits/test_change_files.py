"""``…/commits`` with change files: when they are required, and that they never become stale."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.checked import assert_sound

from delvec_contract.commits import CommitRequest


@pytest.fixture
def fed(client, create, tmp_path):
    """A table with a change data feed; ten rows in ``a.parquet`` at version 1."""
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    table = create(client, tmp_path / "people", properties=properties)
    assert table.append(table.write_file("a.parquet", range(10))).status_code == 200
    return table


def change_file(table, name="_change_data/cdc-1.parquet", *, ids=(1,)):
    path = table.folder / name
    path.parent.mkdir(exist_ok=True)
    columns = {"id": ids, "name": ["x" for _ in ids], "_change_type": ["update_preimage" for _ in ids]}
    pq.write_table(pa.table(columns), path)
    return {"path": name, "size": path.stat().st_size}


def update(table, rows, bitmap, **request):
    row_deletes = [{"path": path, "rows": bitmap(*indexes)} for path, indexes in rows.items()]
    given = {"operation": "UPDATE", "predicate": "id = 1", "row_deletes": row_deletes, **request}
    return table.commit(**given)


def test_change_files_are_committed_beside_what_they_tell_of(fed, bitmap):
    changes = change_file(fed)

    answer = update(
        fed, {"a.parquet": [1]}, bitmap, adds=[fed.write_file("b.parquet", [1])], change_files=[changes]
    )

    assert answer.json()["result"] == "committed", answer.text
    assert answer.json()["operation-metrics"]["numAddedChangeFiles"] == 1
    assert fed.action(2, "cdc") == {**changes, "partitionValues": {}, "dataChange": False}
    assert fed.action(2, "commitInfo")["operationMetrics"]["numAddedChangeFiles"] == "1"
    history = fed.client.get(f"{fed.url}/history").json()["history"]
    assert history[0]["operationMetrics"]["numAddedChangeFiles"] == "1"
    assert_sound(fed.folder)


def test_rows_are_not_copied_or_changed_without_change_files(fed, bitmap, error):
    whole = {"removes": [{"path": "a.parquet"}]}
    rows = {"row_deletes": [{"path": "a.parquet", "rows": bitmap(1)}]}
    adds = [fed.write_file("b.parquet", [1])]
    cases = [("UPDATE", rows), ("UPDATE", whole), ("MERGE", rows), ("MERGE", whole), ("DELETE", whole)]
    cases += [("WRITE", whole | {"operation_metrics": {"numCopiedRows": copied}}) for copied in (1, 9)]
    for operation, request in cases:
        answer = fed.commit(operation=operation, adds=adds, **request)
        assert (answer.status_code, error(answer)["type"]) == (400, "MissingChangeFiles"), operation
    assert fed.version() == 1
    answer = fed.commit(operation="DELETE", adds=adds, change_files=[change_file(fed)], **whole)
    assert answer.json()["result"] == "committed"


def test_what_the_feed_is_told_from_needs_no_change_files(fed, bitmap):
    assert fed.delete({"a.parquet": [1]}).status_code == 200
    assert fed.append(fed.write_file("b.parquet", [1])).status_code == 200
    deleting = {"operation": "MERGE", "row_deletes": [{"path": "a.parquet", "rows": bitmap(2)}]}
    assert fed.commit(**deleting).status_code == 200
    inserting = {"operation": "MERGE", "adds": [fed.write_file("c.parquet", [1])]}
    assert fed.commit(**inserting).status_code == 200
    removed = {"removes": [{"path": path} for path in ("a.parquet", "b.parquet", "c.parquet")]}
    parameters = {"mode": "Overwrite"}
    overwriting = {"adds": [fed.write_file("d.parquet", [1])], "operation_parameters": parameters}
    assert fed.commit(operation="WRITE", **removed, **overwriting).status_code == 200
    assert fed.delete({}, removes=["d.parquet"]).status_code == 200


def test_a_compaction_needs_none_and_has_none(fed, error):
    request = {"removes": [{"path": "a.parquet"}], "data_change": False, "operation": "OPTIMIZE"}
    request["adds"] = [fed.write_file("b.parquet", range(10))]
    answer = fed.commit(**request, change_files=[change_file(fed)])
    assert (answer.status_code, error(answer)["type"]) == (400, "InvalidCommit")
    assert fed.commit(**request).status_code == 200


def test_a_table_without_a_change_feed_has_no_change_files(filled, bitmap, error):
    request = {"adds": [filled.write_file("c.parquet", [1])], "change_files": [change_file(filled)]}
    answer = update(filled, {"a.parquet": [1]}, bitmap, **request)
    assert (answer.status_code, error(answer)["type"]) == (400, "InvalidCommit")
    assert "delta.enableChangeDataFeed" in error(answer)["message"]
    assert filled.version() == 1


def test_a_change_file_must_be_what_the_request_says(fed, bitmap, error):
    file = change_file(fed)
    wrong = [
        ({"size": file["size"] + 1}, "FileSizeMismatch"),
        ({"path": "_change_data/absent.parquet"}, "FileNotInStorage"),
        ({"path": "../_change_data/cdc-1.parquet"}, "FileNotInTable"),
        ({"path": "_change_data/../a.parquet"}, "FileNotInTable"),
        ({"path": "_delta_log/_change_data/x.parquet"}, "InvalidCommit"),
        ({"path": "cdc-1.parquet"}, "InvalidCommit"),
        ({"path": "_change_data/_hidden"}, "InvalidCommit"),
        ({"partitionValues": {"name": "x"}}, "InvalidCommit"),
        ({"path": "_change_data/\ud800"}, "BadRequest"),
    ]
    body = {
        "read-version": 1,
        "operation": "UPDATE",
        "adds": [fed.write_file("b.parquet", [1])],
        "row-deletes": [{"path": "a.parquet", "rows": bitmap(1)}],
    }
    for change, expected in wrong:
        content = json.dumps(body | {"change-files": [file | change]})
        headers = {"Content-Type": "application/json"}
        answer = fed.client.post(f"{fed.url}/commits", content=content, headers=headers)
        assert (answer.status_code, error(answer)["type"]) == (400, expected), answer.text
    assert fed.version() == 1


@pytest.mark.parametrize("change", [{"path": "_change_data/absent.parquet"}, {"size": 1}])
def test_a_change_file_beside_nothing_but_deleted_rows_is_looked_for_too(fed, bitmap, error, change):
    file = change_file(fed) | change
    answer = update(fed, {"a.parquet": [1]}, bitmap, operation="DELETE", change_files=[file])
    expected = "FileSizeMismatch" if "size" in change else "FileNotInStorage"
    assert (answer.status_code, error(answer)["type"]) == (400, expected)
    assert fed.version() == 1


def test_a_file_is_not_data_and_changes_at_once(fed, bitmap, error):
    changes = change_file(fed)
    add = {**fed.write_file("b.parquet", [1]), **changes}
    answer = update(fed, {"a.parquet": [1]}, bitmap, adds=[add], change_files=[changes])
    assert error(answer)["type"] == "DuplicateFile"


def test_a_winner_that_took_a_row_of_the_change_files_is_a_conflict(fed, bitmap, error):
    """Even for deletes: the change file says that this commit deleted the row, which is not true."""
    assert fed.delete({"a.parquet": [1]}, read_version=1).status_code == 200
    for operation in ("MERGE", "DELETE"):
        request = {"read_version": 1, "operation": operation, "change_files": [change_file(fed)]}
        answer = update(fed, {"a.parquet": [1, 2]}, bitmap, **request)
        assert answer.status_code == 409, answer.text
        whole = {"row_deletes": [], "removes": [{"path": "a.parquet"}]}
        assert update(fed, {}, bitmap, **request | whole).status_code == 409
        assert fed.version() == 2


def test_a_winner_that_took_other_rows_is_passed(fed, bitmap):
    assert fed.delete({"a.parquet": [1]}, read_version=1).status_code == 200
    request = {"read_version": 1, "change_files": [change_file(fed)]}
    answer = update(fed, {"a.parquet": [2]}, bitmap, **request)
    assert answer.json()["result"] == "rebased"
    assert fed.action(3, "cdc")["path"] == "_change_data/cdc-1.parquet"


def test_nothing_to_do_leaves_no_change_files_in_the_log(fed, bitmap):
    assert fed.delete({"a.parquet": [1]}).status_code == 200
    answer = update(fed, {"a.parquet": [1]}, bitmap, operation="MERGE", change_files=[change_file(fed)])
    assert answer.json()["result"] == "nothing-to-do"
    assert fed.version() == 2


def test_the_wire_has_them_in_deltas_spelling():
    request = CommitRequest.model_validate(
        {
            "read-version": 1,
            "operation": "UPDATE",
            "change-files": [{"path": "_change_data/a", "partitionValues": {"p": None}, "size": 1}],
        }
    )
    assert request.change_files[0].partition_values == {"p": None}
