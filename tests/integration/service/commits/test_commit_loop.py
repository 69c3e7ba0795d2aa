"""The commit loop over several attempts: winners, faults at each point, groups, ``txn``."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from tests.support.between import in_between
from tests.support.in_process_service import running_service

from delvec_errors import FileNotInSnapshot, MetadataChanged, ServiceUnavailable
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import commit_loop, fault_points
from delvec_service.commits.commit import Committed, NothingToDo, Rebased
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.objects import ObjectStore
from delvec_storage.files import read_deletion_vectors


@pytest.fixture
def client(tmp_path):
    """With a database that outlives the service."""
    with running_service(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        yield client


def vector_of(table, path):
    """The descriptor of a file's deletion vector in the newest version, as in the log; None without one."""
    for version in range(table.version(), -1, -1):
        for action in table.actions(version):
            if action.get("add", {}).get("path") == path:
                return action["add"].get("deletionVector")
    raise AssertionError(path)


def rows_of(table, path):
    found = vector_of(table, path)
    if found is None:
        return set()
    wanted = [(path, Descriptor.from_json(found))]
    return set(read_deletion_vectors(f"file://{table.folder}", wanted, table="t", version=None)[path])


def ledger(table, transaction):
    table_id = table.client.get(table.url).json()["id"]
    return {file.path: file.state for file in table.client.service.ledger.files(table_id, transaction)}


def vectors_on_disk(table):
    return {str(path.relative_to(table.folder)) for path in table.folder.rglob("*.bin")}


# --- winners in between -----------------------------------------------------------------------------------


def test_a_commit_that_loses_its_version_unites_its_rows_with_the_winners(filled, running):
    with in_between(running, filled, lambda t: t.delete({"a.parquet": [1]}, read_version=1)):
        answer = filled.delete({"a.parquet": [2], "b.parquet": [3]}, transaction_id="x")

    assert answer.json()["result"] == "rebased"
    assert answer.json()["winners-passed"] == [2]
    assert rows_of(filled, "a.parquet") == {1, 2}
    assert rows_of(filled, "b.parquet") == {3}
    states = ledger(filled, "x")
    named = {
        Descriptor.from_json(vector_of(filled, path)).relative_path() for path in ("a.parquet", "b.parquet")
    }
    assert {path for path, state in states.items() if state == "committed"} == named
    assert set(states.values()) <= {"committed", "open"}
    assert vectors_on_disk(filled) >= set(states)


def test_vectors_that_are_still_right_are_used_again(filled, running):
    with in_between(running, filled, lambda t: t.delete({"b.parquet": [1]}, read_version=1)):
        answer = filled.delete({"a.parquet": [2]}, transaction_id="x")

    assert answer.json()["result"] == "rebased"
    assert list(ledger(filled, "x").values()) == ["committed"]
    assert len(vectors_on_disk(filled)) == 2


def test_a_commit_that_loses_all_its_rows_has_nothing_to_do(filled, running):
    with in_between(running, filled, lambda t: t.delete({"a.parquet": [1, 2]}, read_version=1)):
        answer = filled.delete({"a.parquet": [1, 2]}, transaction_id="x")

    assert answer.json()["result"] == "nothing-to-do"
    assert answer.json()["operation-metrics"]["numRowsAlreadyGone"] == 2
    assert filled.version() == 2
    assert set(ledger(filled, "x")) <= vectors_on_disk(filled)


def test_a_commit_that_meets_a_conflict_after_it_wrote_leaves_ledgered_files(filled, running, error):
    append = lambda t: t.append(t.write_file("c.parquet", [1]), read_version=1)  # noqa: E731
    with in_between(running, filled, append):
        answer = filled.delete({"a.parquet": [1]}, transaction_id="x")

    assert answer.status_code == 409
    assert error(answer)["type"] == "ConcurrentAppendException"
    assert set(ledger(filled, "x").values()) == {"conflict"}
    assert vectors_on_disk(filled) == set(ledger(filled, "x"))


def test_a_ledger_that_goes_away_in_mid_commit_does_not_stop_it(filled, running, monkeypatch):
    """A transaction that was begun is never refused as unknown: the log is the source of truth."""
    store = filled.client.service.ledger
    real, calls = store.announce, []

    def once(*arguments):
        calls.append(arguments)
        if len(calls) > 1:
            raise ServiceUnavailable("the database is away")
        real(*arguments)

    monkeypatch.setattr(store, "announce", once)
    with in_between(running, filled, lambda t: t.delete({"a.parquet": [1]}, read_version=1)):
        answer = filled.delete({"a.parquet": [2]})

    assert answer.json()["result"] == "rebased"
    assert len(calls) == 2
    assert rows_of(filled, "a.parquet") == {1, 2}


def test_winners_are_read_once(filled, monkeypatch):
    """A commit with an old read version does not reread commits that the service has read."""
    for number in range(8):
        filled.delete({"a.parquet": [number]})
    read, real = [], LogReader.commit
    monkeypatch.setattr(
        LogReader, "commit", lambda self, version: read.append(version) or real(self, version)
    )

    for row in range(3):
        answer = filled.delete({"b.parquet": [row]}, read_version=1)
        assert answer.json()["winners-passed"] == list(range(2, 10 + row))

    assert sorted(read) == sorted(set(read))
    assert min(read) >= 9


def test_winners_from_before_the_service_began_are_read_once(filled, running, monkeypatch):
    for number in range(4):
        filled.delete({"a.parquet": [number]})

    with running() as other:
        other.post("/v1/tables", json={"location": str(filled.folder)})
        theirs = replace(filled, client=other)
        assert theirs.delete({"b.parquet": [0]}, read_version=1).json()["winners-passed"] == [2, 3, 4, 5]
        for service in (
            filled.client.service,
            other.service,
        ):  # what they do in the background reads commits, too
            assert service.log_maintenance.wait(120)
        read, real = [], LogReader.commit
        monkeypatch.setattr(
            LogReader, "commit", lambda self, version: read.append(version) or real(self, version)
        )
        assert theirs.delete({"b.parquet": [1]}, read_version=1).json()["version"] == 7

    assert all(version >= 6 for version in read), read


def test_a_member_that_is_left_of_a_group_is_known_by_its_own_key(filled):
    """By its checksum, too, and to the watch over replaced commits."""
    run(filled, member("kept", {"a.parquet": [1]}), member("refused", {"nowhere.parquet": [1]}))

    assert filled.action(2, "commitInfo")["txnId"] == "kept"
    assert filled.client.service.log_maintenance.wait(120)
    assert json.loads((filled.log / f"{2:020}.crc").read_text())["txnId"] == "kept"


def test_metadata_that_changed_since_is_compared_with_what_was_read(filled):
    """The checkpoint format does not affect rows."""
    metadata = dict(filled.action(0, "metaData"))
    metadata["configuration"] = {**metadata["configuration"], "delta.checkpointPolicy": "v2"}
    (filled.log / f"{2:020}.json").write_text(
        "\n".join(
            json.dumps(one) for one in ({"commitInfo": {"operation": "CHANGE"}}, {"metaData": metadata})
        )
    )

    answer = filled.delete({"a.parquet": [1]}, read_version=1)

    assert answer.json()["result"] == "rebased", answer.text


# --- compaction -------------------------------------------------------------------------------------------


def compaction(table, sources, *, read_version=1, transaction_id="compaction"):
    """Compact whole files, all rows of which live, into one, in their order."""
    counts = {"a.parquet": (0, 10), "b.parquet": (10, 5)}
    ids, runs = [], []
    for source in sources:
        first, count = counts[source]
        runs.append({"source": source, "first-rank": 0, "count": count, "first-output-row": len(ids)})
        ids += range(first, first + count)
    return table.commit(
        operation="OPTIMIZE",
        read_version=read_version,
        transaction_id=transaction_id,
        data_change=False,
        adds=[table.write_file("o.parquet", ids)],
        removes=[{"path": source} for source in sources],
        rewritten=[{"path": "o.parquet", "runs": runs}],
    )


def ids(table):
    batches = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table.folder)))
    return sorted(pa.table(batches.execute("select id from t").read_all())["id"].to_pylist())


def test_deletes_pass_a_compaction(filled):
    assert compaction(filled, ["a.parquet", "b.parquet"]).json()["result"] == "committed"

    answer = filled.delete({"a.parquet": [2], "b.parquet": [0]}, read_version=1)

    assert answer.json()["result"] == "rebased", answer.text
    assert rows_of(filled, "o.parquet") == {2, 10}
    assert ids(filled) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14]
    info = filled.action(2, "commitInfo")
    assert info["isolationLevel"] == "SnapshotIsolation"
    assert all(
        next(iter(action.values())).get("dataChange") is False
        for action in filled.actions(2)
        if "commitInfo" not in action
    )


def test_a_compaction_passes_deletes(filled):
    filled.delete({"a.parquet": [2], "b.parquet": [0]})

    answer = compaction(filled, ["a.parquet", "b.parquet"])

    assert answer.json()["result"] == "rebased", answer.text
    assert rows_of(filled, "o.parquet") == {2, 10}
    assert ids(filled) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14]
    assert filled.action(3, "add")["deletionVector"]["cardinality"] == 2


# --- applications -----------------------------------------------------------------------------------------


def test_an_application_commits_each_of_its_transactions_once(filled):
    def write(version, number):
        return filled.append(
            filled.write_file(f"{number}.parquet", [number]),
            app_transaction={"app-id": "stream", "version": version},
        )

    first, again, earlier, next_ = write(7, 1), write(7, 2), write(3, 3), write(8, 4)

    assert [answer.json()["result"] for answer in (first, again, earlier, next_)] == [
        "committed",
        "already-applied",
        "already-applied",
        "committed",
    ]
    assert again.json()["version"] is None
    txn = filled.action(2, "txn")
    assert (txn["appId"], txn["version"]) == ("stream", 7)
    assert txn["lastUpdated"] == filled.action(2, "commitInfo")["timestamp"]
    assert filled.version() == 3


def test_an_application_may_say_how_far_it_is_and_nothing_else(filled):
    answer = filled.commit(operation="STREAMING UPDATE", app_transaction={"app-id": "stream", "version": 1})

    assert answer.json()["result"] == "committed"
    assert filled.action(2, "txn")["version"] == 1


# --- groups -----------------------------------------------------------------------------------------------


def member(key, rows, read_version=1, operation="DELETE"):
    deletes = {path: BitMap64(indexes) for path, indexes in rows.items()}
    return PendingCommit(
        Changes(operation, read_version, key, "test", row_deletes=deletes, predicate=f"id = {key}")
    )


def run(table, *members):
    service = table.client.service
    service.commits.run(service.tables.open(table.name), list(members))
    return members


def test_a_group_is_one_version_and_each_member_gets_its_answer(filled):
    one, two, three = run(
        filled,
        member("1", {"a.parquet": [1, 2]}),
        member("2", {"a.parquet": [2, 3], "b.parquet": [0]}),
        member("3", {"a.parquet": [1]}),
    )

    assert filled.version() == 2
    assert rows_of(filled, "a.parquet") == {1, 2, 3}
    assert [one.answer().version, two.answer().version] == [2, 2]
    assert one.answer().metrics["numDeletedRows"] == 2
    assert two.answer().metrics["numDeletedRows"] == 2
    assert three.answer().metrics["numDeletedRows"] == 0
    info = filled.action(2, "commitInfo")
    assert info["operationMetrics"]["numDeletedRows"] == "4"
    assert info["txnId"] not in {"1", "2", "3"}
    # A repeated request finds its own entry in the group commit.
    (again,) = run(filled, member("2", {"a.parquet": [2, 3], "b.parquet": [0]}))
    assert again.answer().version == 2
    assert again.answer().metrics == two.answer().metrics


def removal(key, *paths):
    return PendingCommit(Changes("DELETE", 1, key, "test", removes=paths, predicate=f"id = {key}"))


def test_of_a_file_that_goes_whole_a_member_counts_the_rows_that_are_left_by_those_before_it(filled):
    """Even if some of these rows were already deleted."""
    filled.delete({"a.parquet": [5, 6]})

    one, two, three = run(
        filled,
        member("1", {"a.parquet": [1, 5]}),
        member("2", {"a.parquet": [1, 2]}),
        removal("3", "a.parquet"),
    )

    assert [each.answer().version for each in (one, two, three)] == [3, 3, 3]
    assert [each.answer().metrics["numDeletedRows"] for each in (one, two, three)] == [1, 1, 6]
    assert filled.action(3, "commitInfo")["operationMetrics"]["numDeletedRows"] == "8"
    assert ids(filled) == [10, 11, 12, 13, 14]


def test_a_file_without_vectors_goes_whole_after_rows_of_it_went(filled):
    rows, whole, other = run(
        filled, member("1", {"a.parquet": [1, 2]}), removal("2", "a.parquet"), removal("3", "b.parquet")
    )

    assert [each.answer().metrics["numDeletedRows"] for each in (rows, whole, other)] == [2, 8, 5]
    assert filled.action(2, "commitInfo")["operationMetrics"]["numDeletedRows"] == "15"
    assert ids(filled) == []


def test_a_commit_is_not_taken_for_one_that_is_sent_again(filled):
    (first,) = run(filled, member("1", {"a.parquet": [1]}))
    (again,) = run(filled, member("1", {"a.parquet": [1]}))
    pair = run(filled, member("2", {"a.parquet": [2]}), member("3", {"a.parquet": [3]}))

    assert (first.answer().version, first.answer().replayed) == (2, False)
    assert (again.answer().version, again.answer().replayed) == (2, True)
    assert [each.answer().replayed for each in pair] == [False, False]
    assert filled.version() == 3


def test_a_group_that_meets_another_table_has_an_answer_for_each(filled, running):
    metadata = dict(filled.action(0, "metaData"))
    metadata["configuration"] = {**metadata["configuration"], "delta.enableDeletionVectors": "false"}

    def turn_off(table):
        lines = ({"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"metaData": metadata})
        (table.log / f"{2:020}.json").write_text("\n".join(map(json.dumps, lines)))
        return table.client.get(f"{table.url}/snapshot")

    with in_between(running, filled, turn_off):
        members = run(filled, member("1", {"a.parquet": [1]}), member("2", {"b.parquet": [1]}))

    assert all(each.is_done for each in members)
    assert [each.answer().kind for each in members] == [MetadataChanged, MetadataChanged]
    assert filled.version() == 2


def test_what_always_comes_second_gives_up_after_so_many_attempts(filled, running):
    """For each member of a group, with its own version; none of it is in the table."""
    with running(commit_attempts=3) as client:
        client.post("/v1/tables", json={"location": str(filled.folder), "name": filled.name})
        ours, tries = replace(filled, client=client), []

        def first_comes_another():
            tries.append(1)
            filled.append(filled.write_file(f"w{len(tries)}.parquet", [100 + len(tries)]))

        with fault_points.armed(before_put=once_at_a_time(first_comes_another)):
            answer = ours.append(ours.write_file("late.parquet", [99]), read_version=1)

    assert answer.status_code == 409, answer.text
    assert answer.json()["error"]["type"] == "ConcurrentWriteException"
    assert len(tries) == 3
    assert ids(filled) == [*range(15), 101, 102, 103]


def once_at_a_time(action):
    """Let what an action itself passes by in peace."""
    busy = []

    def act():
        if not busy:
            busy.append(True)
            try:
                action()
            finally:
                busy.clear()

    return act


@pytest.mark.parametrize(("seconds", "times"), [(60.0, 1), (-1.0, 2)])
def test_new_files_are_looked_for_once_in_a_while_however_many_attempts_it_takes(
    filled, running, monkeypatch, seconds, times
):
    monkeypatch.setattr(commit_loop, "_REVERIFY_FILES_SECONDS", seconds)
    looked, real = [], ObjectStore.head
    add = filled.write_file("c.parquet", [1])
    monkeypatch.setattr(ObjectStore, "head", lambda self, path: looked.append(path) or real(self, path))

    others = [lambda t, n=n: t.delete({"b.parquet": [n]}, read_version=1) for n in range(3)]
    with in_between(running, filled, *others):
        assert filled.append(add, read_version=1).json()["result"] == "rebased"

    assert looked.count("c.parquet") == times


def test_a_member_that_cannot_be_committed_does_not_keep_the_others_from_it(filled):
    good, bad, late = run(
        filled,
        member("good", {"a.parquet": [1]}),
        member("bad", {"nowhere.parquet": [1]}),
        member("late", {"b.parquet": [1]}),
    )

    assert isinstance(good.answer(), Committed)
    assert isinstance(late.answer(), Committed)
    with pytest.raises(FileNotInSnapshot):
        bad.answer()
    assert filled.version() == 2


def test_a_group_whose_version_is_taken_is_checked_again_member_by_member(filled, running):
    with in_between(running, filled, lambda t: t.delete({"a.parquet": [1, 2]}, read_version=1)):
        members = run(
            filled,
            member("1", {"a.parquet": [1]}),
            member("2", {"a.parquet": [2, 3]}),
            member("3", {"b.parquet": [0]}),
        )

    first, second, third = (one.answer() for one in members)
    assert isinstance(first, NothingToDo)
    assert isinstance(second, Rebased)
    assert isinstance(third, Rebased)
    assert second.version == third.version == 3
    assert second.metrics["numDeletedRows"] == 1
    assert rows_of(filled, "a.parquet") == {1, 2, 3}


# --- faults -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr("delvec_service.commits.commit_log._PUT_PAUSE_SECONDS", 0.001)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("before-put:error*2", 200),
        ("after-put:lost*1", 200),
        ("after-put:lost*3", 200),
        ("before-close:error", 200),
        ("begin:error*1", 502),
        ("before-ledger:error*1", 502),
        ("after-ledger:error*1", 502),
        ("after-deletion-vectors:error*1", 502),
        ("before-put:error*4", 502),
        ("after-put:lost*4", 504),
        ("before-answer:lost*1", 504),
    ],
)
def test_a_fault_at_each_point_leaves_a_table_that_asking_again_settles(filled, error, fault, status):
    with fault_points.armed(fault):
        answer = filled.delete({"a.parquet": [1]}, transaction_id="x", read_version=1)
        assert fault_points.passed(fault.partition(":")[0]) > 0

    assert answer.status_code == status, answer.text
    if status != 200:
        kind = "CommitOutcomeUnknown" if status == 504 else "StorageError"
        assert error(answer)["type"] == kind
        assert filled.version() == (2 if status == 504 else 1)
    assert vectors_on_disk(filled) <= set(ledger(filled, "x"))
    again = filled.delete({"a.parquet": [1]}, transaction_id="x", read_version=1)
    assert again.json()["version"] == 2
    assert filled.version() == 2
    assert rows_of(filled, "a.parquet") == {1}


KILLED = """
    import sys
    from pyroaring import BitMap64
    from delvec_service.app import create_app
    from delvec_service.config import Settings
    from delvec_kernel.transaction.transaction_changes import Changes

    service = create_app(Settings(database_url=sys.argv[1])).state.service
    table = service.tables.open(sys.argv[2])
    service.commits.commit(
        table,
        Changes("DELETE", 1, "killed", "test", row_deletes={"a.parquet": BitMap64([1])}),
    )
"""


@pytest.mark.parametrize("point", sorted(fault_points.POINTS))
def test_a_service_killed_at_any_point_leaves_a_table_and_ledgered_files(filled, tmp_path, point):
    done = point in ("after-put", "before-close", "before-answer")
    arguments = [
        sys.executable,
        "-c",
        textwrap.dedent(KILLED),
        f"sqlite:///{tmp_path / 'store.db'}",
        "people",
    ]
    environment = {**os.environ, "DELVEC_FAULT_POINTS": f"{point}:kill"}

    killed = subprocess.run(arguments, check=False, env=environment, capture_output=True)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert filled.client.get(f"{filled.url}/snapshot").json()["version"] == (2 if done else 1)
    assert deltalake.DeltaTable(str(filled.folder)).version() == (2 if done else 1)
    assert vectors_on_disk(filled) <= set(ledger(filled, "killed"))
    again = filled.delete({"a.parquet": [1]}, transaction_id="killed", read_version=1)
    assert again.json()["version"] == 2
    assert rows_of(filled, "a.parquet") == {1}
    assert "committed" in ledger(filled, "killed").values() or done
