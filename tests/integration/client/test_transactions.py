"""Transactions with given changes: row indexes, files, and deletion vectors that the client writes."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.support.tables import ids

from delvec_commands import transaction
from delvec_errors import (
    BadRequest,
    CommitOverwritten,
    ConcurrentAppend,
    ConcurrentModification,
    DuplicateFile,
    FileNotInSnapshot,
    InvalidCommit,
    InvalidDeletionVector,
)
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, Where, encode, frame, unframe


def the_file(table):
    (path,) = table.plan()[0].files["path"].to_pylist()
    return path


def action(table, tmp_path, version, key):
    entry = tmp_path / table.name / "_delta_log" / f"{version:020}.json"
    (found,) = [json.loads(line)[key] for line in entry.read_text().splitlines() if key in json.loads(line)]
    return found


def written(table, tmp_path, name, numbers):
    """Write a data file without Delvec, and return its description."""
    rows = pa.table(
        {"id": pa.array(numbers, pa.int64()), "name": ["x"] * len(numbers), "country": ["FI"] * len(numbers)}
    )
    path = tmp_path / table.name / name
    pq.write_table(rows, path)
    stats = json.dumps({"numRecords": len(numbers)})
    described = {"path": name, "size": path.stat().st_size, "stats": stats}
    return described | {"modificationTime": int(path.stat().st_mtime * 1000)}


@pytest.fixture
def people(lake, tmp_path):
    table = lake.create_table(tmp_path / "people", "id long, name string, country string")
    table.append([{"id": number, "name": f"n{number}", "country": "NZ"} for number in range(10)])
    return table


def test_a_transaction_is_committed_at_the_end_of_its_block(people):
    with people.transaction("DELETE", read_version=1, predicate="id IN (1, 2)") as change:
        change.delete_rows({the_file(people): [1, 2]})
        assert change.result is None

    assert (change.result.result, change.result.version) == ("committed", 2)
    assert change.result.operation_metrics["numDeletedRows"] == 2
    assert change.result.transaction_id == change.transaction_id
    assert ids(people) == [0, *range(3, 10)]


def test_a_block_that_raises_commits_nothing(people):
    change = people.transaction("DELETE")

    def fail():
        with change:
            change.delete_rows({the_file(people): [1]})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert change.result is None
    assert people.version() == 1


def test_nothing_to_change_is_no_commit(people):
    with people.transaction("DELETE") as change:
        change.delete_rows({the_file(people): []})

    assert change.is_empty
    assert people.version() == 1


def test_a_transaction_reads_the_newest_version_unless_told_otherwise(people):
    with people.transaction("DELETE") as change:
        change.remove([the_file(people)])

    assert change.read_version == 1
    assert people.count() == 0
    with (
        pytest.raises(BadRequest, match="read-version"),
        people.transaction("DELETE", read_version=-1) as bad,
    ):
        bad.remove(["x"])


def test_files_that_a_program_wrote_are_added(people, tmp_path):
    with people.transaction("WRITE", user_metadata="by hand") as change:
        change.add([written(people, tmp_path, f"{change.transaction_id}.parquet", [20, 21])])
        change.add([AddFile.from_json(written(people, tmp_path, "other.parquet", [22]))])

    assert ids(people) == [*range(10), 20, 21, 22]
    assert people.history(1)[0]["userMetadata"] == "by hand"


def test_files_are_written_another_way(people, tmp_path):
    old = the_file(people)
    options = {"data_change": False, "operation_parameters": {"predicate": "[]"}}
    with people.transaction("OPTIMIZE", **options) as change:
        change.add([written(people, tmp_path, "new.parquet", list(range(10)))])
        change.remove([old])

    assert ids(people) == list(range(10))
    assert action(people, tmp_path, 2, "remove")["dataChange"] is False
    assert people.history(1)[0]["operationParameters"]["predicate"] == "[]"


def test_a_contradiction_is_refused_by_name(people):
    with pytest.raises(FileNotInSnapshot), people.transaction("DELETE") as change:
        change.delete_rows({"nowhere.parquet": [1]})
    assert people.version() == 1


def test_a_file_loses_rows_once(people):
    file = the_file(people)
    change = people.transaction("DELETE")
    change.delete_rows({file: [1]})
    with pytest.raises(DuplicateFile, match="twice"):
        change.delete_rows({file: [2]})
    change.commit()
    assert ids(people) == [0, *range(2, 10)]


def test_a_bitmap_that_is_changed_later_deletes_what_it_was(people):
    rows = BitMap64([1])
    change = people.transaction("DELETE")
    change.delete_rows({the_file(people): rows})
    rows.add(2)
    change.commit()
    rows |= BitMap64(range(10))

    assert ids(people) == [0, *range(2, 10)]
    people.delete("id = 5")
    assert ids(people) == [0, 2, 3, 4, 6, 7, 8, 9]


def test_a_row_that_no_vector_can_have_is_refused(people):
    with (
        pytest.raises(InvalidCommit, match="the largest that a deletion vector can"),
        people.transaction("DELETE") as change,
    ):
        change.delete_rows({the_file(people): [2**63 - 1]})
    assert people.version() == 1


def test_a_transaction_that_is_committed_again_gets_the_first_answer(people):
    change = people.transaction("DELETE", read_version=1)
    change.delete_rows({the_file(people): [1]})

    assert change.commit() == change.commit()
    assert people.version() == 2


# --- what a transaction rests on ------------------------------------------------------------------------


def test_what_was_read_beside_is_said(people):
    file = the_file(people)
    people.delete("id = 5")

    def change(**rests):
        with people.transaction("UPDATE", read_version=1, predicate="id = 1") as update:
            update.delete_rows({file: [1]})
            update.mark_read(**rests)
        return update.result

    for rests in ({"whole_table": True}, {"files": [file]}, {"rows": {file: [5]}}):
        with pytest.raises(ConcurrentModification):
            change(**rests)
    assert change(rows={file: [6]}).result == "rebased"


def test_of_rows_that_are_too_many_to_be_said_the_files_are(people, monkeypatch):
    file = the_file(people)
    people.append([{"id": 10, "name": "n", "country": "NZ"}])
    other = [path for path in people.plan()[0].files["path"].to_pylist() if path != file]
    monkeypatch.setattr(transaction, "SENT_BYTES", 0)
    people.delete("id = 5")

    def change(**rests):
        with people.transaction("UPDATE", read_version=2, predicate="id = 1") as update:
            update.delete_rows({file: [1]})
            update.mark_read(**rests)
        return update.result

    with pytest.raises(ConcurrentModification):
        change(rows={file: [6]})
    assert change(rows={file: [], other[0]: [0]}).result == "rebased"


def test_the_loser_is_told_which_rows_of_which_file_it_lost(people):
    file = the_file(people)
    people.delete("id IN (2, 3)")

    with (
        pytest.raises(ConcurrentModification) as caught,
        people.transaction("UPDATE", read_version=1) as update,
    ):
        update.delete_rows({file: [3, 4]})

    conflict = caught.value.conflict
    assert (conflict["winning-version"], conflict["winning-operation"]) == (2, "DELETE")
    assert conflict["files"] == [file]
    assert conflict["overlapping-rows"] == 1
    assert conflict["overlaps"] == [{"path": file, "count": 1, "row-indexes": [3]}]
    assert "UPDATE again" in conflict["advice"]


def test_rows_that_match_and_were_added_since_are_a_conflict(people):
    file = the_file(people)
    people.append([{"id": 1, "name": "new", "country": "FI"}])

    lost = people.transaction("DELETE", read_version=1, predicate="id = 1")
    with pytest.raises(ConcurrentAppend), lost:
        lost.delete_rows({file: [1]})
    with people.transaction("DELETE", read_version=1, predicate="id = 5") as change:
        change.delete_rows({file: [5]})

    assert change.result.winners_passed == [2]


# --- applications ---------------------------------------------------------------------------------------


def test_an_application_adds_each_of_its_batches_once(people, tmp_path):
    batch = [{"id": 50, "name": "a", "country": "FI"}]
    first = people.append(batch, txn=("stream-1", 0))
    assert (first.version, first.already_applied) == (2, False)

    again = people.append(batch, txn=("stream-1", 0))
    assert (again.version, again.already_applied) == (None, True)
    assert "already_applied=True" in repr(again)
    assert again["numOutputRows"] == 0

    assert people.append(batch, txn=("stream-1", 7)).version == 3
    assert people.append(batch, txn=("stream-1", 6)).already_applied
    assert people.append(batch, txn=("stream-2", 0)).version == 4
    assert people.snapshot().app_transactions == {"stream-1": 7, "stream-2": 0}
    assert action(people, tmp_path, 3, "txn")["appId"] == "stream-1"
    assert ids(people).count(50) == 3


def test_a_batch_that_another_run_of_the_application_adds_meanwhile_is_added_once(people, monkeypatch):
    batch = [{"id": 50, "name": "a", "country": "FI"}]
    write = people.engine.write

    def late(data, target):
        monkeypatch.setattr(people.engine, "write", write)
        people.append(batch, txn=("stream", 0))
        return write(data, target)

    monkeypatch.setattr(people.engine, "write", late)

    metrics = people.append(batch, txn=("stream", 0))

    assert (metrics.version, metrics.already_applied) == (None, True)
    assert ids(people).count(50) == 1


def test_an_application_that_is_not_one_is_refused(people):
    for txn in (("", 1), ("a", -1)):
        with pytest.raises(BadRequest):
            people.append([{"id": 1, "name": "x", "country": "y"}], txn=txn)
    assert people.version() == 1


# --- vectors that the client writes ---------------------------------------------------------------------


def test_the_client_writes_vectors_itself(people, tmp_path):
    """At positions assigned by the service; includes rows that were already deleted."""
    file = the_file(people)
    people.delete("id = 7")

    with people.transaction("DELETE", predicate="id IN (1, 2)") as change:
        change.delete_rows_by_vectors(people.location, {file: BitMap64([1, 2, 7])})

    assert (change.result.version, change.result.operation_metrics["numDeletedRows"]) == (3, 2)
    assert ids(people) == [0, 3, 4, 5, 6, 8, 9]
    descriptor = Descriptor.from_json(action(people, tmp_path, 3, "add")["deletionVector"])
    assert (descriptor.storage_type, descriptor.offset, descriptor.cardinality) == ("u", 1, 3)
    content = (tmp_path / "people" / descriptor.relative_path()).read_bytes()
    assert content == b"\x01" + frame(encode(BitMap64([1, 2, 7])))
    start, end = descriptor.byte_range
    assert unframe(content[start:end], descriptor, Where("people", 3, file)) == BitMap64([1, 2, 7])


def test_vectors_of_several_files_share_one(people, tmp_path):
    people.append([{"id": number, "name": "b", "country": "FI"} for number in range(20, 40)])
    files = people.plan()[0].files["path"].to_pylist()

    with people.transaction("DELETE") as change:
        change.delete_rows_by_vectors(
            people.location, {path: [0, number] for number, path in enumerate(files, 1)}
        )

    assert change.result.operation_metrics["numDeletedRows"] == 4
    assert people.count() == 26
    assert len(list((tmp_path / "people").rglob("deletion_vector_*.bin"))) == 1


def test_vectors_that_the_client_writes_move_past_a_winner(people):
    file = the_file(people)
    with people.transaction("DELETE", read_version=1) as change:
        change.delete_rows_by_vectors(people.location, {file: [1, 2]})
        people.delete("id = 9")

    assert (change.result.result, change.result.version) == ("rebased", 3)
    assert ids(people) == [0, *range(3, 9)]


def test_a_vector_that_lacks_rows_that_were_gone_is_refused(people):
    file = the_file(people)
    people.delete("id = 7")

    with pytest.raises(InvalidDeletionVector), people.transaction("DELETE") as change:
        change.delete_rows_by_vectors(people.location, {file: [1]})

    assert ids(people) == [*range(7), 8, 9]


def test_vectors_are_not_written_for_a_table_without_them(lake, tmp_path):
    plain = lake.create_table(
        tmp_path / "plain", "id long", properties={"delta.enableDeletionVectors": "false"}
    )
    plain.append([{"id": 1}, {"id": 2}])

    with pytest.raises(InvalidCommit, match="deletion vectors"), plain.transaction("DELETE") as change:
        change.delete_rows_by_vectors(plain.location, {the_file(plain): [1]})

    assert not list((tmp_path / "plain").rglob("deletion_vector_*.bin"))


def replace_newest(table, tmp_path):
    """Replace the newest commit, as a writer that checks and then renames would."""
    log = tmp_path / table.name / "_delta_log"
    newest = max(log.glob("*.json"))
    lines = [line for line in newest.read_text().splitlines() if "commitInfo" not in line]
    lines.append(json.dumps({"commitInfo": {"operation": "WRITE", "txnId": "theirs"}}))
    more = written(table, tmp_path, "theirs.parquet", [2, 77]) | {"partitionValues": {}, "dataChange": True}
    (log / ".tmp").write_text("\n".join([*lines, json.dumps({"add": more})]))
    (log / ".tmp").rename(newest)


@pytest.mark.parametrize("command", ["delete", "update", "merge", "transaction", "evolve", "overwrite"])
def test_what_mark_read_a_version_that_another_writer_replaced_is_not_committed(
    people, tmp_path, monkeypatch, command
):
    """The rows added by the other commit were never read, which no path shows."""
    engine = people.engine
    source = pa.table({"id": pa.array([2], pa.int64()), "name": ["new"], "country": ["FI"]})

    def first(method):
        def call(*arguments, **options):
            found = method(*arguments, **options)
            replace_newest(people, tmp_path)
            return found

        return call

    for name in ("find_rows", "change_rows", "write"):
        monkeypatch.setattr(engine, name, first(getattr(engine, name)))

    def run():
        if command == "delete":
            people.delete("id = 2", retries=0)
        elif command == "update":
            people.update({"name": "'new'"}, "id = 2", retries=0)
        elif command == "evolve":
            people.append([{"id": 11, "age": 3}], merge_schema=True, retries=0)
        elif command == "overwrite":
            people.overwrite(source, retries=0)
        elif command == "merge":
            people.merge(source, "source.id = target.id").when_matched_update_all().execute(retries=0)
        else:
            change = people.transaction("DELETE", predicate="id = 2")
            replace_newest(people, tmp_path)
            change.delete_rows({"theirs.parquet": [0]})
            change.commit()

    with pytest.raises(CommitOverwritten, match=r"[vV]ersion 1 "):
        run()
    monkeypatch.undo()
    assert people.version() == 1
    assert ids(people).count(2) == 2
    people.delete("id = 2")
    assert ids(people).count(2) == 0


def test_a_command_whose_version_was_replaced_runs_again_on_the_new_one(people, tmp_path, monkeypatch):
    find_rows, calls = people.engine.find_rows, []

    def once(*arguments):
        found = find_rows(*arguments)
        if not calls:
            replace_newest(people, tmp_path)
        calls.append(found)
        return found

    monkeypatch.setattr(people.engine, "find_rows", once)
    deleted = people.delete("id = 2")

    assert (deleted.retries, deleted.version) == (1, 2)
    assert deleted["numDeletedRows"] == 2
    assert ids(people).count(2) == 0


def test_partitions_of_a_version_that_another_writer_replaced_are_not_overwritten(
    lake, tmp_path, monkeypatch
):
    table = lake.create_table(tmp_path / "parts", "id long, country string", ["country"])
    table.append([{"id": 1, "country": "NZ"}, {"id": 2, "country": "FI"}])
    write = table.engine.write

    def overtaken(data, target):
        found = write(data, target)
        newest = max((tmp_path / "parts" / "_delta_log").glob("*.json"))
        other = newest.with_name(".tmp")
        other.write_text(newest.read_text().replace('"NZ"', '"New Zealand"'))
        other.rename(newest)
        return found

    monkeypatch.setattr(table.engine, "write", overtaken)
    with pytest.raises(CommitOverwritten, match=r"[vV]ersion 1 "):
        table.overwrite([{"id": 3, "country": "NZ"}], partition_overwrite="dynamic", retries=0)
    assert table.version() == 1
