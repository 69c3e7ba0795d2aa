"""``…/alter``: changes, refusals and concurrent commits."""

import json
import threading
import uuid

import pytest

from delvec_kernel.file_index.segment import SegmentsLost
from delvec_service.alter_table import alteration_commit as alter_module
from delvec_service.alter_table import restore as restore_module
from delvec_service.alter_table import table_preparation


def alter(table, *changes, **request):
    headers = request.pop("headers", {})
    body = {"changes": list(changes)} | {key.replace("_", "-"): value for key, value in request.items()}
    return table.client.post(f"{table.url}/alter", json=body, headers=headers)


def add(name, kind="long"):
    return {"change": "add-columns", "columns": [{"column": name, "type": kind}]}


def put(**properties):
    names = {f"delta.{key.replace('__', '.')}": value for key, value in properties.items()}
    return {"change": "set-properties", "properties": names}


def check(name, expression):
    return {"change": "add-constraint", "name": name, "expression": expression}


def columns(table, version):
    schema = json.loads(table.action(version, "metaData")["schemaString"])
    return [field["name"] for field in schema["fields"]]


def test_a_column_is_added_in_a_version_of_its_own(table):
    before = table.action(0, "metaData")

    answer = alter(table, add("age", "integer"), user_metadata="ages", engine_info="test/1")

    body = answer.json()
    assert uuid.UUID(body.pop("transaction-id"))
    assert body == {
        "result": "committed",
        "version": 1,
        "read-version": 0,
        "winners-passed": [],
        "operation": "ADD COLUMNS",
    }
    assert [next(iter(action)) for action in table.actions(1)] == ["commitInfo", "metaData"]
    after = table.action(1, "metaData")
    assert columns(table, 1) == ["id", "name", "age"]
    assert {**after, "schemaString": None} == {**before, "schemaString": None}
    info = table.action(1, "commitInfo")
    assert info["operationParameters"] == {
        "columns": '[{"column":{"name":"age","type":"integer","nullable":true,"metadata":{}}}]'
    }
    assert info["userMetadata"] == "ages"
    assert info["engineInfo"].startswith("test/1 Delvec/")


def test_several_changes_are_one_version_or_none(table, error):
    answer = alter(
        table,
        put(columnMapping__mode="name"),
        {"change": "rename-column", "column": "name", "to": "full name"},
        {"change": "set-comment", "comment": "people"},
    )

    assert answer.json()["version"] == 1
    assert [next(iter(action)) for action in table.actions(1)] == ["commitInfo", "protocol", "metaData"]
    assert columns(table, 1) == ["id", "full name"]
    assert table.action(1, "metaData")["description"] == "people"

    refused = alter(table, add("age"), add("AGE"))

    assert refused.status_code == 400
    assert error(refused)["type"] == "InvalidTableChange"
    assert error(refused)["details"]["table"] == "people"
    assert table.version() == 1


def test_what_changes_nothing_makes_no_version(table):
    answer = alter(table, put(enableDeletionVectors="true"))

    assert answer.status_code == 200
    assert answer.json()["result"] == "nothing-to-do"
    assert table.version() == 0


def test_deletion_vectors_come_to_an_old_table_with_their_protocol(client, create, tmp_path):
    table = create(client, tmp_path / "old", properties={"delta.enableDeletionVectors": "false"})
    table.append(table.write_file("a.parquet", range(10)))
    assert table.action(0, "protocol") == {"minReaderVersion": 1, "minWriterVersion": 2}

    answer = alter(table, put(enableDeletionVectors="true"))

    assert answer.status_code == 200
    assert table.action(2, "protocol") == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["appendOnly", "invariants", "deletionVectors"],
    }
    deleted = table.delete({"a.parquet": [3]})
    assert deleted.status_code == 200
    assert table.action(3, "add")["deletionVector"]["cardinality"] == 1


def test_in_commit_timestamps_are_turned_on_with_the_version_that_has_the_first(filled):
    before = max(path.stat().st_mtime for path in filled.log.glob("*.json")) * 1000

    answer = alter(filled, put(enableInCommitTimestamps="true"))
    filled.append(filled.write_file("c.parquet", [99]))

    assert answer.json()["version"] == 2
    assert next(iter(filled.actions(2)[0])) == "commitInfo"
    stamp = filled.action(2, "commitInfo")["inCommitTimestamp"]
    configuration = filled.action(2, "metaData")["configuration"]
    assert stamp > before - 1
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    assert configuration["delta.inCommitTimestampEnablementTimestamp"] == str(stamp)
    assert "inCommitTimestamp" in filled.action(2, "protocol")["writerFeatures"]
    assert filled.action(3, "commitInfo")["inCommitTimestamp"] > stamp


def test_a_repeated_request_gets_its_first_answer(table):
    headers = {"Idempotency-Key": "add-age"}

    first = alter(table, add("age"), headers=headers)
    again = alter(table, add("age"), headers=headers)

    assert first.json() == again.json()
    assert table.version() == 1


def test_a_repeated_request_is_found_in_the_log_where_nothing_else_remembers_it(table, running):
    headers = {"Idempotency-Key": "add-age"}
    first = alter(table, add("age"), read_version=0, headers=headers)
    table.append(table.write_file("a.parquet", [1]))

    with running() as other:
        other.post("/v1/tables", json={"location": str(table.folder)})
        table.client = other
        again = alter(table, add("age"), read_version=0, headers=headers)
        taken = alter(table, add("weight"), read_version=0, headers={"Idempotency-Key": "add-age"})

    assert taken.status_code == 422
    assert again.json()["version"] == first.json()["version"] == 1
    assert table.version() == 2


# --- what rows must satisfy ---------------------------------------------------------------------------


def test_not_null_and_a_constraint_are_taken_where_statistics_show_that_all_rows_satisfy_them(filled):
    not_null = alter(filled, {"change": "change-column", "column": "id", "nullable": False})
    assert not_null.status_code == 200, not_null.text
    constraint = alter(filled, check("small", "id < 15"))
    assert constraint.json()["version"] == 3

    assert json.loads(filled.action(2, "metaData")["schemaString"])["fields"][0]["nullable"] is False
    assert filled.action(3, "metaData")["configuration"]["delta.constraints.small"] == "id < 15"
    assert "checkConstraints" in filled.action(3, "protocol")["writerFeatures"]


@pytest.mark.parametrize("expression", ["id < 14", "name <> 'n3'", "id > 100"])
def test_a_constraint_that_statistics_do_not_show_is_refused_until_somebody_has_looked(
    filled, error, expression
):
    refused = alter(filled, check("c", expression))

    assert error(refused)["type"] == "InvalidTableChange"
    assert error(refused)["details"]["violating"] == [f"NOT ({expression}) OR ({expression}) IS NULL"]
    assert filled.version() == 1

    taken = alter(filled, check("c", expression), verified_version=1)

    assert taken.json()["version"] == 2


def test_rows_that_were_added_since_somebody_looked_are_judged_by_their_statistics(filled, error):
    filled.append(filled.write_file("c.parquet", [3]))

    passed = alter(filled, check("small", "id < 15 OR id > 100"), verified_version=1)

    assert passed.json()["result"] == "rebased"

    assert filled.append(filled.write_file("d.parquet", [150])).status_code == 200
    lost = alter(filled, check("smaller", "id < 20"), verified_version=passed.json()["version"])

    assert lost.status_code == 409
    assert error(lost)["type"] == "ConcurrentAppendException"
    assert error(lost)["details"]["conflict"]["winning-operation"] == "WRITE"


def test_a_version_that_is_not_there_cannot_have_been_verified(filled, error):
    assert error(alter(filled, check("c", "id < 14"), verified_version=7))["type"] == "VersionFromFuture"


# --- with others --------------------------------------------------------------------------------------


def test_an_append_does_not_come_in_the_way_of_a_change(filled):
    filled.append(filled.write_file("c.parquet", [99]))
    changed = alter(filled, add("age"))

    assert changed.json()["version"] == 3
    assert changed.json()["result"] == "committed"


def test_changes_at_the_same_time_are_all_made_once(filled):
    names = [f"c{number}" for number in range(6)]
    answers = {}

    def run(name):
        answers[name] = alter(filled, add(name)).json()

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answer["version"] for answer in answers.values()) == [2, 3, 4, 5, 6, 7]
    assert sorted(columns(filled, 7)) == sorted(["id", "name", *names])


def test_of_two_that_add_the_same_column_one_hears_of_it(filled, error):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(alter(filled, add("age")))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    done, refused = sorted(answers, key=lambda answer: answer.status_code)
    assert (done.status_code, refused.status_code) == (200, 400)
    assert "'age' already" in error(refused)["message"]
    assert columns(filled, 2) == ["id", "name", "age"]


@pytest.mark.parametrize(
    ("change", "result"),
    [
        (put(enableDeletionVectors="false"), "MetadataChangedException"),
        (add("age"), "MetadataChangedException"),
        (put(checkpointPolicy="v2"), None),
        (put(columnMapping__mode="name"), None),
        ({"change": "add-feature", "feature": "domainMetadata"}, None),
    ],
)
def test_an_append_that_began_before_a_change_passes_it_or_hears_of_it(filled, error, change, result):
    c = filled.write_file("c.parquet", [99])
    assert alter(filled, change).json()["version"] == 2

    answer = filled.append(c, read_version=1)

    if result is None:
        assert answer.json()["result"] == "rebased"
    else:
        assert error(answer)["type"] == result
        assert filled.version() == 2


# --- what is not done ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"change": "spam"}, "spam"),
        ({"change": "add-columns", "columns": []}, "columns"),
        ({"change": "change-column", "column": "id"}, "give what to change"),
        ({"change": "change-column", "column": "id", "first": True, "after": "name"}, "first"),
        (
            {"change": "upgrade-protocol", "min-reader-version": 4, "min-writer-version": 7},
            "min-reader-version",
        ),
        ({"change": "set-properties", "properties": {"a": "b"}, "extra": 1}, "extra"),
    ],
)
def test_a_request_that_is_not_one_is_refused(table, error, change, what):
    answer = alter(table, change)

    assert answer.status_code == 400
    assert what in answer.text
    assert error(answer)["type"] == "BadRequest"
    assert table.version() == 0


def test_a_table_that_delvec_does_not_write_is_not_changed(table, error):
    protocol = {
        "protocol": {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["appendOnly", "invariants", "somethingNew"],
        }
    }
    (table.log / "00000000000000000001.json").write_text(json.dumps(protocol))

    answer = alter(table, add("age"))

    assert answer.status_code == 422
    assert error(answer)["details"]["features"] == ["somethingNew"]


@pytest.mark.parametrize("place", ["alter", "restore", "table_preparation"])
def test_a_database_that_keeps_losing_what_it_caches_is_an_error_to_try_again(
    table, error, monkeypatch, place
):
    def losing(*_):
        raise SegmentsLost

    assert alter(table, put(appendOnly="false")).status_code == 200
    if place == "restore":
        monkeypatch.setattr(restore_module, "restoration", losing)
        answer = table.client.post(f"{table.url}/restore", json={"version": 0})
    elif place == "alter":
        monkeypatch.setattr(alter_module, "alteration_of", losing)
        answer = alter(table, add("age"))
    else:
        monkeypatch.setattr(table_preparation, "alteration_of", losing)
        answer = alter(table, put(enableRowTracking="true"))
    assert answer.status_code == 502
    assert error(answer)["retryable"]
    assert "keeps losing its cached data" in error(answer)["message"]
    assert table.version() == 1
