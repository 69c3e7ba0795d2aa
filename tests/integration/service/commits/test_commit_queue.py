"""Group commit: transactions that wait for a version share the next one, each with its own result."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyroaring import BitMap64

from delvec_errors import IdempotencyKeyReused, InternalError, StorageError
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import commit_checks, fault_points
from delvec_service.commits.commit_log import CommitLog
from delvec_service.commits.pending_commit import PendingCommit
from delvec_storage.files import read_deletion_vectors

LONG = 60.0


def _nothing():
    pass


class Line:
    """The commits of one table, forced to wait for each other."""

    def __init__(self, table):
        self.table = table
        self.groups = table.client.service.commits._groups
        self.groups._patience = LONG  # no timeouts on a slow machine

    def length(self):
        line = self.groups._queues.get(f"file://{self.table.folder}")
        return 0 if line is None else len(line.waiting)

    def together(self, *requests, after_first=lambda: None, meanwhile=lambda: None):
        """Send requests while a delete is written, so that they are in line in this order; return their answers.

        ``after_first`` is called once that delete is written, ``meanwhile`` when those after it are about to create
        their version.
        """
        reached, release = threading.Event(), threading.Event()

        def hold():
            reached.set()
            assert release.wait(LONG)

        before, after = iter((hold, meanwhile)), iter((after_first,))

        def before_put():
            next(before, _nothing)()

        def after_put():
            next(after, _nothing)()

        with (
            fault_points.armed(before_put=before_put, after_put=after_put),
            ThreadPoolExecutor(1 + len(requests)) as pool,
        ):
            plug = pool.submit(self.table.delete, {"a.parquet": [9]})
            assert reached.wait(LONG)
            futures = []
            for number, request in enumerate(requests, 1):
                futures.append(pool.submit(request))
                until = time.monotonic() + LONG
                while self.length() < number and time.monotonic() < until:
                    time.sleep(0.001)
                assert self.length() == number
            release.set()
            assert plug.result(LONG).status_code == 200, plug.result().text
            return [future.result(LONG) for future in futures]


@pytest.fixture
def line(filled):
    """The line of ``filled``, which is in order whatever a test does."""
    yield Line(filled)
    report = filled.client.get(f"{filled.url}/check").json()
    assert report["num-errors"] == 0, report["findings"]


def members(table, version):
    tags = table.action(version, "commitInfo").get("tags", {})
    return json.loads(tags["delvec.members"]) if "delvec.members" in tags else None


def deleted(table, version, path):
    (found,) = [a["add"] for a in table.actions(version) if a.get("add", {}).get("path") == path]
    wanted = [(path, Descriptor.from_json(found["deletionVector"]))]
    return set(read_deletion_vectors(f"file://{table.folder}", wanted, table="people", version=version)[path])


def test_deletes_that_wait_share_the_next_version(filled, line):
    answers = line.together(
        lambda: filled.delete({"a.parquet": [0]}, predicate="id = 0", headers={"Idempotency-Key": "one"}),
        lambda: filled.delete({"a.parquet": [1, 2]}, predicate="id IN (1, 2)"),
        lambda: filled.delete({"b.parquet": [0]}, predicate="id = 10"),
        lambda: filled.delete({"a.parquet": [2, 3]}, predicate="id IN (2, 3)"),
    )
    bodies = [answer.json() for answer in answers]
    assert [body["version"] for body in bodies] == [3] * 4
    assert [body["result"] for body in bodies] == ["rebased"] * 4
    assert [body["winners-passed"] for body in bodies] == [[2]] * 4
    # A row deleted by an earlier member is not counted again.
    assert [body["operation-metrics"]["numDeletedRows"] for body in bodies] == [1, 2, 1, 1]

    actions = filled.actions(3)
    assert [next(iter(action)) for action in actions] == ["commitInfo", "remove", "remove", "add", "add"]
    assert deleted(filled, 3, "a.parquet") == {0, 1, 2, 3, 9}
    assert deleted(filled, 3, "b.parquet") == {0}
    info = actions[0]["commitInfo"]
    assert info["operation"] == "DELETE"
    assert info["readVersion"] == 1
    assert info["isBlindAppend"] is False
    assert info["operationMetrics"]["numDeletedRows"] == "5"
    assert info["operationMetrics"]["numDeletionVectorsAdded"] == "2"
    assert info["operationMetrics"]["numDeletionVectorsUpdated"] == "1"
    keys = [body["transaction-id"] for body in bodies]
    assert info["txnId"] not in keys
    listed = members(filled, 3)
    assert [member["key"] for member in listed] == keys
    assert keys[0] == "one"
    assert [member["metrics"] for member in listed] == [body["operation-metrics"] for body in bodies]
    assert [member["predicate"] for member in listed] == ["id = 0", "id IN (1, 2)", "id = 10", "id IN (2, 3)"]
    assert [member["readVersion"] for member in listed] == [1] * 4


def test_history_shows_who_is_in_a_version(filled, line):
    line.together(
        lambda: filled.delete({"a.parquet": [0]}, predicate="id = 0", headers={"Idempotency-Key": "one"}),
        lambda: filled.delete({"a.parquet": [1]}, predicate="id = 1", headers={"Idempotency-Key": "two"}),
    )
    newest, before, *_ = filled.client.get(f"{filled.url}/history").json()["history"]
    assert before["members"] is None
    assert newest["operationMetrics"]["numDeletedRows"] == "2"
    assert newest["operationParameters"]["predicate"] == '["((id = 0) OR (id = 1))"]'
    assert [(one["key"], one["readVersion"], one["predicate"]) for one in newest["members"]] == [
        ("one", 1, "id = 0"),
        ("two", 1, "id = 1"),
    ]
    assert [one["metrics"]["numDeletedRows"] for one in newest["members"]] == [1, 1]


def test_a_file_that_loses_its_last_rows_by_several_is_removed_once(filled, line):
    answers = line.together(
        lambda: filled.delete({"b.parquet": [0, 1, 2]}),
        lambda: filled.delete({"b.parquet": [3, 4]}),
        lambda: filled.delete({"b.parquet": [4]}),
    )
    assert [answer.json()["version"] for answer in answers] == [3] * 3
    assert [answer.json()["operation-metrics"]["numDeletedRows"] for answer in answers] == [3, 2, 0]
    assert [next(iter(action)) for action in filled.actions(3)] == ["commitInfo", "remove"]
    assert filled.action(3, "commitInfo")["operationMetrics"]["numRemovedFiles"] == "1"


def test_rows_and_whole_files_share_a_version(filled, line):
    answers = line.together(
        lambda: filled.delete({"b.parquet": [0]}),
        lambda: filled.delete({}, removes=["b.parquet"]),
        lambda: filled.delete({"b.parquet": [1], "a.parquet": [1]}),
    )
    assert [answer.json()["version"] for answer in answers] == [3] * 3
    assert [answer.json()["operation-metrics"]["numDeletedRows"] for answer in answers] == [1, 4, 1]
    assert filled.action(3, "commitInfo")["operationMetrics"]["numDeletedRows"] == "6"
    removed = [action["remove"]["path"] for action in filled.actions(3) if "remove" in action]
    assert sorted(removed) == ["a.parquet", "b.parquet"]


def test_blind_appends_that_wait_share_the_next_version(filled, line):
    adds = [filled.write_file(f"{number}.parquet", [100 + number]) for number in range(3)]
    answers = line.together(*(lambda add=add: filled.append(add, read_version=1) for add in adds))
    assert [answer.json()["version"] for answer in answers] == [3] * 3
    assert [answer.json()["operation-metrics"]["numOutputRows"] for answer in answers] == [1] * 3
    info = filled.action(3, "commitInfo")
    assert info["isBlindAppend"] is True
    assert info["operation"] == "WRITE"
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": "[]"}
    assert info["operationMetrics"]["numFiles"] == "3"
    assert info["operationMetrics"]["numOutputRows"] == "3"
    assert {action["add"]["path"] for action in filled.actions(3) if "add" in action} == {
        add["path"] for add in adds
    }


def test_deletes_and_appends_and_all_else_have_versions_of_their_own(filled, line, bitmap):
    add = filled.write_file("c.parquet", [100])
    other = filled.write_file("d.parquet", [1])
    update = {
        "operation": "UPDATE",
        "predicate": "id = 1",
        "row_deletes": [{"path": "a.parquet", "rows": bitmap(1)}],
        "adds": [other],
    }
    answers = line.together(
        lambda: filled.delete({"a.parquet": [0]}),
        lambda: filled.append(add),
        lambda: filled.commit(**update),
        lambda: filled.delete({"a.parquet": [2]}),
    )
    assert [answer.json()["version"] for answer in answers] == [3, 4, 5, 3]
    for version in (3, 4, 5):
        assert (members(filled, version) is None) == (version != 3)


def test_a_member_that_cannot_be_does_not_fail_the_others(filled, line, error):
    answers = line.together(
        lambda: filled.delete({"a.parquet": [0]}),
        lambda: filled.delete({"a.parquet": [77]}),
        lambda: filled.delete({"nowhere.parquet": [0]}),
        lambda: filled.delete({"a.parquet": [1]}),
        lambda: filled.delete({"a.parquet": [9]}),
    )
    assert [answer.status_code for answer in answers] == [200, 400, 400, 200, 200], [a.text for a in answers]
    assert error(answers[1])["type"] == "RowIndexOutOfRange"
    assert error(answers[2])["type"] == "FileNotInSnapshot"
    assert [answers[number].json()["version"] for number in (0, 3)] == [3, 3]
    assert answers[4].json()["result"] == "nothing-to-do"  # the commit before them took that row
    assert len(members(filled, 3)) == 2
    assert deleted(filled, 3, "a.parquet") == {0, 1, 9}


def test_a_table_property_gives_everyone_a_version(client, create, tmp_path):
    table = create(client, tmp_path / "people", properties={"delvec.groupCommit": "false"})
    assert table.append(table.write_file("a.parquet", range(10))).status_code == 200
    answers = Line(table).together(
        lambda: table.delete({"a.parquet": [0]}), lambda: table.delete({"a.parquet": [1]})
    )
    assert [answer.json()["version"] for answer in answers] == [3, 4]


def test_the_property_counts_from_the_version_that_sets_it(filled, line):
    def change():
        """Another writer sets the property, right after the commit that the others wait for."""
        metadata = filled.action(0, "metaData")
        metadata["configuration"]["delvec.groupCommit"] = "false"
        actions = [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"metaData": metadata}]
        (filled.log / f"{3:020}.json").write_text("\n".join(map(json.dumps, actions)))

    answers = line.together(
        lambda: filled.delete({"a.parquet": [0]}, read_version=3),
        lambda: filled.delete({"a.parquet": [1]}, read_version=3),
        after_first=change,
    )
    assert [answer.json()["version"] for answer in answers] == [4, 5]
    assert deleted(filled, 5, "a.parquet") == {0, 1, 9}


def test_a_member_asked_again_gets_its_own_answer(filled, line):
    asked = [
        lambda: filled.delete({"a.parquet": [0]}, read_version=1, headers={"Idempotency-Key": "one"}),
        lambda: filled.delete({"a.parquet": [1, 2]}, read_version=1, headers={"Idempotency-Key": "two"}),
    ]
    first = line.together(*asked)
    table_id = filled.client.get(filled.url).json()["id"]
    ledger = filled.client.service.ledger
    assert ledger.transaction(table_id, "one").version == 3
    again = [ask() for ask in asked]
    assert [answer.json() for answer in again] == [answer.json() for answer in first]
    assert filled.version() == 3
    for key, answer in zip(("one", "two"), first, strict=True):
        found = filled.client.get(f"{filled.url}/commits", params={"transaction-id": key})
        assert found.json()["commit"] == answer.json()


def test_the_same_request_twice_at_once_is_done_once(filled, line):
    def ask():
        return filled.delete({"a.parquet": [0]}, read_version=1, headers={"Idempotency-Key": "one"})

    answers = line.together(ask, lambda: filled.delete({"a.parquet": [1]}, read_version=1), ask)
    assert [answer.json()["version"] for answer in answers] == [3] * 3
    assert answers[0].json() == answers[2].json()
    assert len(members(filled, 3)) == 2


def test_a_group_that_comes_second_is_checked_again_member_by_member(filled, line):
    def foreign():
        """Another writer removes ``b.parquet`` and rewrites it under another name."""
        (add,) = [a["add"] for a in filled.actions(1) if a.get("add", {}).get("path") == "b.parquet"]
        actions = [
            {"commitInfo": {"operation": "MERGE", "isBlindAppend": False}},
            {"remove": {"path": "b.parquet", "deletionTimestamp": 1, "dataChange": True}},
            {"add": {**add, "path": "c.parquet"}},
        ]
        (filled.folder / "c.parquet").write_bytes((filled.folder / "b.parquet").read_bytes())
        (filled.log / f"{3:020}.json").write_text("\n".join(map(json.dumps, actions)))

    answers = line.together(
        lambda: filled.delete({"a.parquet": [0]}, predicate="id = 0"),
        lambda: filled.delete({"b.parquet": [0]}, predicate="id = 10"),
        lambda: filled.delete({"a.parquet": [1]}, predicate="id = 1"),
        meanwhile=foreign,
    )
    assert [answer.status_code for answer in answers] == [200, 409, 200], [a.text for a in answers]
    assert [answers[number].json()["version"] for number in (0, 2)] == [4, 4]
    assert [answers[number].json()["winners-passed"] for number in (0, 2)] == [[2, 3]] * 2
    assert deleted(filled, 4, "a.parquet") == {0, 1, 9}
    assert len(members(filled, 4)) == 2


def test_when_a_group_fails_each_member_is_tried_alone(filled, line):
    def fail():
        raise OSError("out of order")

    answers = line.together(
        lambda: filled.delete({"a.parquet": [0]}), lambda: filled.delete({"a.parquet": [1]}), meanwhile=fail
    )
    assert [answer.json()["version"] for answer in answers] == [3, 4]
    assert deleted(filled, 4, "a.parquet") == {0, 1, 9}


def test_what_fails_always_is_told_to_every_member_and_the_line_goes_on(filled, line, monkeypatch):
    def fail(*_):
        raise OSError("out of order")

    with monkeypatch.context() as patch:
        answers = line.together(
            lambda: filled.delete({"a.parquet": [0]}),
            lambda: filled.delete({"a.parquet": [1]}),
            meanwhile=lambda: patch.setattr(CommitLog, "create", fail) or fail(),
        )
    assert [answer.status_code for answer in answers] == [500, 500]
    assert filled.version() == 2
    assert filled.delete({"a.parquet": [0]}).json()["version"] == 3


def test_everything_that_a_group_wrote_is_in_the_ledger(filled, line):
    answers = line.together(
        lambda: filled.delete({"a.parquet": [0]}), lambda: filled.delete({"b.parquet": [1]})
    )
    table_id = filled.client.get(filled.url).json()["id"]
    ledger = filled.client.service.ledger
    key = filled.action(3, "commitInfo")["txnId"]
    named = {file.path: file.state for file in ledger.files(table_id, key)}
    assert len(named) == 1
    assert set(named.values()) == {"committed"}
    assert {path.name for path in filled.folder.glob("*.bin")} == {
        file.path for file in ledger.files(table_id)
    }
    for answer in answers:
        assert ledger.transaction(table_id, answer.json()["transaction-id"]).state == "committed"


def test_a_defect_that_one_meets_is_not_the_others(filled, monkeypatch):
    check, table = commit_checks.check_adds, filled.client.service.tables.open(filled.name)

    def broken(table, changes, snapshot):
        if changes.transaction_id == "1":
            raise ZeroDivisionError
        check(table, changes, snapshot)

    monkeypatch.setattr(commit_checks, "check_adds", broken)
    members = [
        PendingCommit(Changes("DELETE", 1, str(number), "x", row_deletes={"a.parquet": BitMap64([number])}))
        for number in range(3)
    ]
    filled.client.service.commits.run(table, members)

    assert [type(member.error) for member in members] == [type(None), InternalError, type(None)]
    assert sorted(member.result.version for member in members if member.result) == [2, 3]


def test_a_defect_that_the_last_one_meets_is_not_that_of_those_who_have_their_answers(filled, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    service = filled.client.service
    assert filled.delete({"a.parquet": [9]}, headers={"Idempotency-Key": "known"}).status_code == 200
    members = [
        PendingCommit(
            Changes("DELETE", 2, key, "x", row_deletes={"a.parquet": BitMap64([1])}, request_hash=key)
        )
        for key in ("known", "new")
    ]
    monkeypatch.setattr(commit_checks, "check_adds", broken)
    service.commits.run(service.tables.open(filled.name), members)

    assert [type(member.error) for member in members] == [IdempotencyKeyReused, InternalError]


@pytest.mark.parametrize("step", ["check_files", "check_table", "entries"])
def test_storage_that_fails_for_one_member_does_not_fail_the_others(filled, monkeypatch, step):
    """A symlink loop, or an unreadable file, is an error of one request, not of storage."""
    service = filled.client.service
    table, seen = service.tables.open(filled.name), []
    holder = service.commits.log if step == "entries" else commit_checks
    real = getattr(holder, step)

    def fails_for_the_second(*arguments):
        seen.append(step)
        if len(seen) == 2:
            raise StorageError("Cannot look up a file: permission denied; try again, or check storage.")
        return real(*arguments)

    files = [AddFile.from_json(filled.write_file(f"c{number}.parquet", [number])) for number in range(3)]
    members = [PendingCommit(Changes("WRITE", 1, f"member-{file.path}", "x", adds=[file])) for file in files]
    monkeypatch.setattr(holder, step, fails_for_the_second)
    service.commits.run(table, members)

    assert [type(member.error) for member in members] == [type(None), StorageError, type(None)]
    assert [member.result.version for member in members if member.result] == [2, 2]


def test_storage_that_does_not_answer_for_long_is_everybody_s_matter(filled, monkeypatch):
    service, seen = filled.client.service, []

    def fails(*_):
        seen.append(1)
        raise StorageError("Cannot look up a file: no answer; try again, or check storage.")

    monkeypatch.setattr("delvec_service.commits.pending_commit._LONG_SECONDS", -1)
    monkeypatch.setattr(commit_checks, "check_table", fails)
    members = [
        PendingCommit(Changes("DELETE", 1, str(number), "x", row_deletes={"a.parquet": BitMap64([number])}))
        for number in range(3)
    ]
    service.commits.run(service.tables.open(filled.name), members)
    assert [type(member.error) for member in members] == [StorageError] * 3
    assert len(seen) == 1
