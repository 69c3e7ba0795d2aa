"""Races, lost responses, failing storage and killed processes: every update takes effect exactly once."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
import pytest
from tests.support.in_process_service import running_service

from delvec_errors import ServiceUnavailable, StorageError
from delvec_kernel import locations
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_service.commits import fault_points
from delvec_service.store.objects import ObjectStore
from delvec_storage.files import read_deletion_vectors

ALONE = {"delvec.groupCommit": "false"}
"""Properties of a table where every transaction is its own version."""


@pytest.fixture
def client(tmp_path):
    """With a database that outlives the service."""
    with running_service(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        yield client


def at_once(count, function):
    start = threading.Barrier(count)

    def run(number):
        start.wait()
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def versions(table):
    return sorted(int(path.stem) for path in table.log.glob("*.json"))


# --- races --------------------------------------------------------------------------------------------


def test_sixteen_appends_at_once_all_succeed(client, create, tmp_path):
    table = create(client, tmp_path / "people", properties=ALONE)
    adds = [table.write_file(f"{number}.parquet", [number]) for number in range(16)]

    answers = at_once(16, lambda number: table.append(adds[number], read_version=0))

    bodies = [answer.json() for answer in answers]
    assert [answer.status_code for answer in answers] == [200] * 16, bodies
    assert sorted(body["version"] for body in bodies) == list(range(1, 17))
    assert versions(table) == list(range(17))
    for body in bodies:
        assert body["winners-passed"] == list(range(1, body["version"]))
        assert body["result"] == ("rebased" if body["version"] > 1 else "committed")
        assert table.action(body["version"], "commitInfo")["txnId"] == body["transaction-id"]
        assert table.action(body["version"], "commitInfo")["readVersion"] == 0
    paths = {table.action(version, "add")["path"] for version in range(1, 17)}
    assert paths == {add["path"] for add in adds}


def test_appends_of_two_services_at_once_all_succeed(running, create, tmp_path):
    with running() as one, running() as two:
        first = create(one, tmp_path / "people", properties=ALONE)
        two.post("/v1/tables", json={"location": str(first.folder)})
        adds = [first.write_file(f"{number}.parquet", [number]) for number in range(12)]

        def append(number):
            body = {"read-version": 0, "operation": "WRITE", "adds": [adds[number]]}
            return (one, two)[number % 2].post("/v1/tables/people/commits", json=body).json()["version"]

        assert sorted(at_once(12, append)) == list(range(1, 13))


def deleted_rows(table, path):
    """The rows that the newest version's deletion vector of a file holds."""
    for version in range(table.version(), -1, -1):
        for action in table.actions(version):
            if action.get("add", {}).get("path") == path:
                found = action["add"].get("deletionVector")
                if found is None:
                    return set()
                wanted = [(path, Descriptor.from_json(found))]
                location = f"file://{table.folder}"
                return set(read_deletion_vectors(location, wanted, table="people", version=version)[path])
    raise AssertionError(path)


def test_deletes_of_different_rows_of_one_file_all_succeed(filled):
    answers = at_once(8, lambda number: filled.delete({"a.parquet": [number]}, read_version=1))

    assert [answer.status_code for answer in answers] == [200] * 8, [answer.text for answer in answers]
    assert [answer.json()["operation-metrics"]["numDeletedRows"] for answer in answers] == [1] * 8
    assert deleted_rows(filled, "a.parquet") == set(range(8))
    for answer in answers:
        body = answer.json()
        assert body["read-version"] == 1
        assert body["winners-passed"] == list(range(2, body["version"]))
        assert body["result"] == ("rebased" if body["version"] > 2 else "committed")


@pytest.mark.parametrize("winner", ["delete", "append"])
def test_a_vector_of_an_attempt_that_lost_serves_the_next_one_if_it_has_the_same_rows(
    running, create, bitmap, tmp_path, winner
):
    with running() as one, running() as two:
        table = create(one, tmp_path / "people", properties=ALONE)
        adds = [table.write_file("a.parquet", range(10)), table.write_file("b.parquet", range(10, 20))]
        assert table.append(adds[0]).status_code == 200
        two.post("/v1/tables", json={"location": str(table.folder)})
        body = {"read-version": 1, "operation": "DELETE", "predicate": "id = 2"}
        body |= {"row-deletes": [{"path": "a.parquet", "rows": bitmap(2)}]}
        if winner == "append":
            body = {"read-version": 1, "operation": "WRITE", "adds": adds[1:]}
        won = []

        def win():
            if not won:
                won.append(None)
                won[0] = two.post("/v1/tables/people/commits", json=body).json()["version"]

        with fault_points.armed(before_put=win):
            answer = table.delete({"a.parquet": [1]}, read_version=1)

        assert (answer.json()["version"], won) == (3, [2])
        assert deleted_rows(table, "a.parquet") == ({1, 2} if winner == "delete" else {1})
        assert len(list(table.folder.glob("*.bin"))) == (3 if winner == "delete" else 1)


def test_deletes_of_the_same_rows_delete_them_once(filled):
    first = filled.delete({"a.parquet": [1, 2]}, read_version=1)
    second = filled.delete({"a.parquet": [2, 3]}, read_version=1)
    third = filled.delete({"a.parquet": [1, 3]}, read_version=1)

    assert first.json()["operation-metrics"]["numDeletedRows"] == 2
    assert second.json()["result"] == "rebased"
    assert second.json()["operation-metrics"]["numDeletedRows"] == 1
    assert second.json()["operation-metrics"]["numRowsAlreadyGone"] == 1
    assert third.json()["result"] == "nothing-to-do"
    assert third.json()["operation-metrics"]["numDeletedRows"] == 0
    assert third.json()["operation-metrics"]["numRowsAlreadyGone"] == 2
    assert deleted_rows(filled, "a.parquet") == {1, 2, 3}
    remove = filled.action(3, "remove")
    assert (
        remove["deletionVector"]
        == next(action["add"] for action in filled.actions(2) if "add" in action)["deletionVector"]
    )


@pytest.mark.parametrize(
    ("winner", "kind", "operation"),
    [
        ("append", "ConcurrentAppendException", "WRITE"),
        ("metadata", "MetadataChangedException", "SET TBLPROPERTIES"),
        ("protocol", "ProtocolChangedException", "UPGRADE PROTOCOL"),
    ],
)
def test_a_delete_that_lost_names_the_winner_and_writes_nothing(filled, error, winner, kind, operation):
    if winner == "append":
        filled.append(filled.write_file("c.parquet", [1]))
    else:
        key = "protocol" if winner == "protocol" else "metaData"
        changed = dict(filled.action(0, key))
        if key == "metaData":
            changed["schemaString"] = changed["schemaString"].replace("long", "string")
        else:
            changed["writerFeatures"] = [
                name for name in changed["writerFeatures"] if name != "deletionVectors"
            ]
            changed["readerFeatures"] = []
        actions = [{"commitInfo": {"operation": operation}}, {key: changed}]
        (filled.log / f"{2:020}.json").write_text("\n".join(map(json.dumps, actions)))
    files = sorted(filled.folder.rglob("*.bin"))

    answer = filled.delete({"a.parquet": [2]}, read_version=1)

    assert answer.status_code == 409
    found = error(answer)
    assert found["type"] == kind
    assert found["retryable"] is True
    assert found["details"]["conflict"]["winning-version"] == 2
    assert found["details"]["conflict"]["winning-operation"] == operation
    assert found["details"]["conflict"]["read-version"] == 1
    assert f"Version 2 of table 'people' ({operation})" in found["message"]
    assert filled.version() == 2
    assert sorted(filled.folder.rglob("*.bin")) == files


def test_a_blind_append_passes_a_delete(filled):
    filled.delete({"a.parquet": [1]})

    answer = filled.append(filled.write_file("c.parquet", [1]), read_version=1)

    assert answer.json()["result"] == "rebased"
    assert answer.json()["winners-passed"] == [2]


def test_an_overwrite_is_no_blind_append(filled):
    filled.append(filled.write_file("c.parquet", [1]))
    add = filled.write_file("d.parquet", [1])

    answer = filled.append(add, read_version=1, operation_parameters={"mode": "Overwrite"})

    assert answer.status_code == 409


def test_foreign_appends_are_passed_and_seen(filled):
    deltalake_schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    add = filled.write_file("c.parquet", [20])
    deltalake.write_deltalake(
        str(filled.folder), pa.table({"id": [30], "name": ["x"]}, deltalake_schema), mode="append"
    )

    answer = filled.append(add, read_version=1)

    assert answer.json()["result"] == "rebased"
    assert answer.json()["winners-passed"] == [2]
    assert filled.client.get(f"{filled.url}/snapshot").json()["num-files"] == 4


def test_a_file_that_a_winner_added_too_is_refused(filled, error):
    add = filled.write_file("c.parquet", [1])
    filled.append(add, read_version=1)

    answer = filled.append(add, read_version=1)

    assert error(answer)["type"] == "DuplicateFile"
    assert "already a live file of the table" in error(answer)["message"]


# --- asked again --------------------------------------------------------------------------------------


def test_a_commit_that_is_sent_again_gets_the_first_answer(filled):
    key = str(uuid.uuid4())
    first = filled.delete({"a.parquet": [1]}, headers={"Idempotency-Key": key})
    filled.append(filled.write_file("c.parquet", [1]))

    again = filled.delete({"a.parquet": [1]}, headers={"Idempotency-Key": key}, read_version=1)

    assert again.json() == first.json()
    assert first.json()["transaction-id"] == key
    assert versions(filled) == [0, 1, 2, 3]


def test_the_log_alone_recognises_a_commit_that_is_sent_again(filled, running):
    request = {"read_version": 1, "transaction_id": "the-transaction"}
    first = filled.delete({"a.parquet": [1]}, **request)
    filled.append(filled.write_file("c.parquet", [1]))

    with running() as other:  # another service, with an empty database
        other.post("/v1/tables", json={"location": str(filled.folder)})
        filled.client = other
        again = filled.delete({"a.parquet": [1]}, **request)

    assert again.json() == first.json()
    assert versions(filled) == [0, 1, 2, 3]


def test_a_commit_that_is_sent_many_times_at_once_happens_once(table):
    add = table.write_file("a.parquet", [1])

    answers = at_once(8, lambda _: table.append(add, read_version=0, transaction_id="the-transaction"))

    assert {json.dumps(answer.json()) for answer in answers} == {json.dumps(answers[0].json())}
    assert answers[0].json()["version"] == 1
    assert versions(table) == [0, 1]


def test_files_of_a_request_that_was_repeated_at_once_are_not_called_committed(filled):
    """Both requests write deletion vectors; the unreferenced ones remain candidates for removal."""
    both = threading.Barrier(2)

    with fault_points.armed(before_put=lambda: both.wait(120)):
        answers = at_once(
            2, lambda _: filled.delete({"a.parquet": [1]}, transaction_id="x", read_version=1).json()
        )

    assert answers[0] == answers[1]
    assert versions(filled) == [0, 1, 2]
    (live,) = [action["add"]["deletionVector"] for action in filled.actions(2) if "add" in action]
    ledger = filled.client.service.ledger
    files = ledger.files(filled.client.get(filled.url).json()["id"], "x")
    named = Descriptor.from_json(live).relative_path()
    assert {file.path: file.state for file in files} == {
        file.path: "committed" if file.path == named else "open" for file in files
    }
    assert len(files) == 2


def test_insert_only_merges_at_once_do_not_both_insert(filled, error):
    """The inserts of a MERGE depend on the absence of matching rows."""
    adds = [filled.write_file(f"{number}.parquet", [100]) for number in range(2)]

    first, second = [filled.commit(operation="MERGE", adds=[add], read_version=1) for add in adds]

    assert first.status_code == 200
    assert error(second)["type"] == "ConcurrentAppendException"
    assert filled.action(2, "commitInfo")["isBlindAppend"] is False


def test_keys_that_differ_are_refused(filled, error):
    answer = filled.delete({"a.parquet": [1]}, transaction_id="a", headers={"Idempotency-Key": "b"})

    assert error(answer)["type"] == "BadRequest"


@pytest.mark.parametrize(
    ("begun", "status", "kind"), [(False, 409, "StaleReadVersion"), (True, 504, "CommitOutcomeUnknown")]
)
def test_a_commit_whose_winners_are_cleaned_up_is_not_made(
    filled, running, tmp_path, error, begun, status, kind
):
    """A transaction begun earlier may be one of the cleaned-up versions."""
    for number in range(3):
        filled.append(filled.write_file(f"{number}.parquet", [number]))
    assert filled.client.post(f"{filled.url}/checkpoint", json={}).status_code == 200
    (filled.log / f"{2:020}.json").unlink()
    key = "lost"
    if begun:
        answer = filled.client.post(f"{filled.url}/transactions", json={"operation": "WRITE"})
        key = answer.json()["transaction-id"]

    # Another service over the same database: the one that wrote the versions still knows what was in them.
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}") as filled.client:
        answer = filled.append(filled.write_file("d.parquet", [1]), read_version=1, transaction_id=key)

    assert answer.status_code == status
    found = error(answer)
    assert found["type"] == kind
    assert found["details"]["transaction_id"] == key
    assert filled.version() == 4


@pytest.mark.parametrize("replica", ["the same", "another"])
@pytest.mark.parametrize("read_version", [1, 4])
def test_a_transaction_whose_own_version_was_cleaned_up_is_not_done_again(
    filled, running, tmp_path, error, replica, read_version
):
    """Whether the repeat has read versions before its own or after it."""
    add = filled.write_file("0.parquet", [0])
    assert filled.append(add, transaction_id="mine", read_version=1).json()["version"] == 2
    for number in (1, 2):
        filled.append(filled.write_file(f"{number}.parquet", [number]))
    assert filled.client.post(f"{filled.url}/checkpoint", json={}).status_code == 200
    for version in range(3):
        (filled.log / f"{version:020}.json").unlink()

    if replica == "the same":
        filled.client.service.loader.forget(locations.canonical(str(filled.folder)))
        answer = filled.append(add, transaction_id="mine", read_version=read_version)
    else:
        with running(database_url=f"sqlite:///{tmp_path / 'store.db'}") as filled.client:
            answer = filled.append(add, transaction_id="mine", read_version=read_version)

    assert answer.status_code == 504
    found = error(answer)
    assert found["type"] == "CommitOutcomeUnknown"
    assert not found["retryable"]
    assert found["details"]["transaction_id"] == "mine"
    assert filled.version() == 4


# --- failing storage ----------------------------------------------------------------------------------


class Faults:
    """Makes creating log entries fail, before or after the entry is there."""

    def __init__(self, monkeypatch, *script):
        self.script = list(script)
        self.real = ObjectStore.put_if_absent
        faults = self

        def put_if_absent(store, path, data, **options):
            fault = faults.script.pop(0) if faults.script else "ok"
            if fault == "before":
                raise StorageError("storage is away")
            done = faults.real(store, path, data, **options)
            if fault == "after":
                raise StorageError("the answer was lost")
            return False if fault == "exists" else done

        monkeypatch.setattr(ObjectStore, "put_if_absent", put_if_absent)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("delvec_service.commits.commit_log._PUT_PAUSE_SECONDS", 0.001)


@pytest.mark.parametrize(
    "script", [["before"], ["after"], ["before", "after"], ["after", "before", "before"]]
)
def test_storage_that_hiccups_is_asked_again(filled, monkeypatch, script):
    Faults(monkeypatch, *script)

    answer = filled.delete({"a.parquet": [1]}, transaction_id="x")

    assert answer.json()["version"] == 2
    assert versions(filled) == [0, 1, 2]
    assert filled.action(2, "commitInfo")["txnId"] == "x"


def test_an_entry_that_exists_but_is_ours_is_a_success(filled, monkeypatch):
    Faults(monkeypatch, "exists")

    answer = filled.delete({"a.parquet": [1]}, transaction_id="x")

    assert answer.json()["result"] == "committed"
    assert answer.json()["version"] == 2
    assert versions(filled) == [0, 1, 2]


def test_storage_that_stays_away_fails_and_leaves_ledgered_files(filled, monkeypatch, error):
    Faults(monkeypatch, *["before"] * 10)

    answer = filled.delete({"a.parquet": [1]}, transaction_id="x")

    assert answer.status_code == 502
    assert error(answer)["type"] == "StorageError"
    assert versions(filled) == [0, 1]
    check_ledgered(filled, filled.client.service.ledger, "x", "failed")
    monkeypatch.undo()
    assert filled.delete({"a.parquet": [1]}, transaction_id="x").json()["version"] == 2


def test_a_failure_that_cannot_be_looked_into_is_an_unknown_outcome(filled, monkeypatch, error):
    real = ObjectStore.put_if_absent
    filled.client.get(f"{filled.url}/snapshot")  # what has been read needs no storage

    def put_if_absent(store, path, data, **options):
        real(store, path, data, **options)
        raise StorageError("the answer was lost")

    def get(store, path):
        raise StorageError("storage is away")

    monkeypatch.setattr(ObjectStore, "put_if_absent", put_if_absent)
    monkeypatch.setattr(ObjectStore, "get", get)

    answer = filled.delete({"a.parquet": [1]}, transaction_id="x")

    assert error(answer)["type"] == "CommitOutcomeUnknown"
    monkeypatch.undo()
    assert filled.delete({"a.parquet": [1]}, transaction_id="x", read_version=1).json()["version"] == 2


def test_an_answer_that_stays_lost_is_an_unknown_outcome_that_asking_again_settles(
    filled, monkeypatch, error
):
    def lost(store, path, data):
        Faults.put(store, path, data)
        raise StorageError("the answer was lost")

    Faults.put = ObjectStore.put_if_absent
    monkeypatch.setattr(ObjectStore, "put_if_absent", lost)

    answer = filled.delete({"a.parquet": [1]}, transaction_id="x")

    assert answer.status_code == 504
    assert error(answer)["type"] == "CommitOutcomeUnknown"
    assert error(answer)["details"]["transaction_id"] == "x"
    monkeypatch.undo()
    again = filled.delete({"a.parquet": [1]}, transaction_id="x", read_version=1)
    assert again.json()["version"] == 2
    assert versions(filled) == [0, 1, 2]


def check_ledgered(table, ledger, transaction, state):
    table_id = table.client.get(table.url).json()["id"]
    files = ledger.files(table_id, transaction)
    on_disk = {str(path.relative_to(table.folder)) for path in table.folder.rglob("*.bin")}
    assert {file.path for file in files} == on_disk != set()
    assert {file.state for file in files} == {state}


def test_a_commit_that_always_comes_second_gives_up(filled, monkeypatch, error):
    number = 2

    def overtaken(store, path, data):
        nonlocal number
        add = {
            "path": f"w{number}",
            "size": 1,
            "modificationTime": 1,
            "partitionValues": {},
            "dataChange": True,
        }
        store.put(path, json.dumps({"add": add}).encode())
        number += 1
        return False

    commits = filled.client.service.commits
    monkeypatch.setattr(commits.loop, "_attempts", 5)
    monkeypatch.setattr(ObjectStore, "put_if_absent", overtaken)

    answer = filled.append(filled.write_file("c.parquet", [1]))

    assert error(answer)["type"] == "ConcurrentWriteException"
    assert filled.version() == 6


def away(*_arguments, **_options):
    raise ServiceUnavailable("the database is away")


def test_without_a_ledger_nothing_is_written(filled, error, monkeypatch):
    monkeypatch.setattr(filled.client.service.ledger, "announce", away)

    answer = filled.delete({"a.parquet": [1]})

    assert answer.status_code == 503
    assert error(answer)["type"] == "ServiceUnavailable"
    assert list(filled.folder.rglob("*.bin")) == []
    assert versions(filled) == [0, 1]


def test_a_service_whose_database_is_deleted_goes_on(filled, tmp_path):
    first = filled.delete({"a.parquet": [1]}, transaction_id="x")
    for leftover in tmp_path.glob("store.db*"):
        leftover.unlink()

    answers = [
        filled.client.post("/v1/tables", json={"location": str(filled.folder)}).status_code for _ in range(2)
    ]

    assert 201 in answers
    assert filled.delete({"a.parquet": [1]}, transaction_id="x", read_version=1).json() == first.json()
    assert filled.delete({"a.parquet": [2]}).json()["version"] == 3


def test_a_ledger_that_fails_afterwards_does_not_fail_the_commit(filled, monkeypatch):
    monkeypatch.setattr(filled.client.service.ledger, "close_all", away)

    assert filled.delete({"a.parquet": [1]}).json()["version"] == 2


# --- killed -------------------------------------------------------------------------------------------


KILLED = """
    import os, sys
    from pyroaring import BitMap64
    from delvec_service.app import create_app
    from delvec_service.config import Settings
    from delvec_kernel.transaction.transaction_changes import Changes
    from delvec_service.store.objects import ObjectStore

    method = sys.argv[3]
    real = getattr(ObjectStore, method)

    def killed(store, path, data):
        if sys.argv[4] == "after":
            real(store, path, data)
        os._exit(9)

    setattr(ObjectStore, method, killed)
    service = create_app(Settings(database_url=sys.argv[1])).state.service
    table = service.tables.open(sys.argv[2])
    service.commits.commit(
        table,
        Changes("DELETE", 1, "killed", "test", row_deletes={"a.parquet": BitMap64([1])}),
    )
"""


@pytest.mark.parametrize(
    ("method", "moment", "version", "files"),
    [
        ("put", "before", 1, 0),
        ("put", "after", 1, 1),
        ("put_if_absent", "before", 1, 1),
        ("put_if_absent", "after", 2, 1),
    ],
)
def test_a_killed_service_leaves_a_table_and_ledgered_files(filled, tmp_path, method, moment, version, files):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    script = textwrap.dedent(KILLED)
    arguments = [sys.executable, "-W", "error", "-c", script, url, "people", method, moment]

    assert subprocess.run(arguments, check=False, env=dict(os.environ)).returncode == 9

    assert filled.client.get(f"{filled.url}/snapshot").json()["version"] == version
    on_disk = {str(path.relative_to(filled.folder)) for path in filled.folder.rglob("*.bin")}
    assert len(on_disk) == files
    table_id = filled.client.get(filled.url).json()["id"]
    ledgered = filled.client.service.ledger.files(table_id, "killed")
    assert on_disk <= {file.path for file in ledgered}
    again = filled.delete({"a.parquet": [1]}, transaction_id="killed", read_version=1)
    assert again.json()["version"] == 2
    assert filled.client.service.ledger.transaction(table_id, "killed").state == "committed"
    assert deltalake.DeltaTable(str(filled.folder)).version() == 2


def test_attempts_are_a_setting(running):
    with running(commit_attempts=3) as client:
        assert client.service.commits.loop._attempts == 3
