"""deltalake and Delvec write concurrently: each commits past the other's commits or reports a conflict."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake.exceptions import CommitFailedError

from delvec_commands.transaction import Transaction
from delvec_errors import ConcurrentModification

pytestmark = pytest.mark.full_on_spark("delta-spark takes seconds for each; the gate has the main case")

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
FILES, ROWS = 4, 50
STEPS = 6


def rows(ids):
    ids = list(ids)
    return pa.table({"id": ids, "text": [f"row {id_}" for id_ in ids]}, schema=SCHEMA)


@pytest.fixture
def location(tmp_path):
    return str(tmp_path / "table")


@pytest.fixture
def table(lake, location):
    """Four files of fifty consecutive ids each, at version 4."""
    table = lake.create_table(location, SCHEMA)
    for number in range(FILES):
        table.append(rows(range(number * ROWS, (number + 1) * ROWS)))
    return table


def prepared(table, predicate, operation="DELETE"):
    """Return a DELETE planned at the newest version, not yet committed."""
    scan, condition = table.plan(predicate=predicate)
    assert not pc.any(scan.files["matches_all"]).as_py()
    transaction = Transaction(table._service, table.id, operation, scan.version, predicate=predicate)
    transaction.delete_rows(table.engine.find_rows(scan, condition))
    return transaction


def ids_with_deltalake(location):
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(location))
    return sorted(pa.table(query.execute("select id from t").read_all())["id"].to_pylist())


# --- our commits, after theirs -----------------------------------------------------------------------------


def test_an_append_of_other_rows_does_not_conflict(table, location):
    transaction = prepared(table, "id = 7")
    deltalake.write_deltalake(location, rows([1000, 1001]), mode="append")

    done = transaction.commit()

    assert (done.result, done.read_version, done.version, done.winners_passed) == ("rebased", 4, 6, [5])
    assert ids_with_deltalake(location) == sorted({*range(200), 1000, 1001} - {7})


def test_an_append_of_matching_rows_conflicts_and_the_client_reruns(table, location):
    transaction = prepared(table, "id = 7")
    deltalake.write_deltalake(location, rows([7, 1001]), mode="append")

    with pytest.raises(ConcurrentModification) as caught:
        transaction.commit()

    assert caught.value.type == "ConcurrentAppendException"
    assert caught.value.conflict["winning-version"] == 5
    assert caught.value.conflict["winning-operation"] == "WRITE"
    assert table.delete("id = 7")["numDeletedRows"] == 2
    assert ids_with_deltalake(location) == sorted({*range(200), 1001} - {7})


def test_a_file_that_they_rewrote_is_a_conflict(table, location):
    transaction = prepared(table, "id = 7")
    deltalake.DeltaTable(location).delete("id = 8")

    with pytest.raises(ConcurrentModification) as caught:
        transaction.commit()

    assert caught.value.conflict["winning-operation"] == "DELETE"
    assert table.delete("id = 7")["numDeletedRows"] == 1
    assert ids_with_deltalake(location) == sorted({*range(200)} - {7, 8})


def test_an_unrelated_file_that_they_removed_is_no_conflict(table, location):
    transaction = prepared(table, "id = 7")
    deltalake.DeltaTable(location).delete("id >= 150")

    assert transaction.commit().result == "rebased"
    assert ids_with_deltalake(location) == sorted({*range(150)} - {7})


# --- their commits, after ours -----------------------------------------------------------------------------


def test_their_append_after_our_delete_must_be_repeated(table, location):
    """For deltalake an append conflicts with any delete it has not seen, its own deletes included."""
    theirs = deltalake.DeltaTable(location)
    table.delete("id = 7")

    with pytest.raises(CommitFailedError, match="concurrent transaction"):
        deltalake.write_deltalake(theirs, rows([1000]), mode="append")
    deltalake.write_deltalake(location, rows([1000]), mode="append")

    assert ids_with_deltalake(location) == sorted({*range(200), 1000} - {7})
    assert sorted(table.to_arrow()["id"].to_pylist()) == ids_with_deltalake(location)


def test_their_append_passes_ours(table, location):
    theirs = deltalake.DeltaTable(location)
    table.append(rows([1000]))

    deltalake.write_deltalake(theirs, rows([1001]), mode="append")

    assert ids_with_deltalake(location) == sorted({*range(200), 1000, 1001})


def test_their_delete_from_a_file_that_we_deleted_from_is_a_conflict(table, location):
    theirs = deltalake.DeltaTable(location)
    table.delete("id = 7")

    with pytest.raises(CommitFailedError, match="concurrent transaction"):
        theirs.delete("id = 8")

    assert ids_with_deltalake(location) == sorted({*range(200)} - {7})
    deltalake.DeltaTable(location).delete("id = 8")
    assert ids_with_deltalake(location) == sorted({*range(200)} - {7, 8})


# --- concurrently ------------------------------------------------------------------------------------------


class Crowd:
    """Writers of both kinds, each a thread, and how often each had to retry."""

    def __init__(self, lake, location):
        self.lake, self.location = lake, location
        self.outcomes = Counter()
        self._lock = threading.Lock()

    def run(self, *work):
        with ThreadPoolExecutor(len(work)) as pool:
            for done in [pool.submit(function, argument) for function, argument in work]:
                done.result()

    def note(self, outcome, count=1):
        with self._lock:
            self.outcomes[outcome] += count

    def delete(self, ids):
        for id_ in ids:
            metrics = self.lake.table(self.location).delete(f"id = {id_}", retries=100)
            assert metrics["numDeletedRows"] == 1
            self.note("our delete")
            self.note("our delete, run again", metrics.retries)

    def append(self, ids):
        for id_ in ids:
            self.lake.table(self.location).append(rows([id_]))
            self.note("our append")

    def append_theirs(self, ids):
        for id_ in ids:
            self._until_committed(
                "their append",
                lambda id_=id_: deltalake.write_deltalake(self.location, rows([id_]), mode="append"),
            )

    def delete_theirs(self, ids):
        for id_ in ids:
            self._until_committed(
                "their delete", lambda id_=id_: deltalake.DeltaTable(self.location).delete(f"id = {id_}")
            )

    def _until_committed(self, name, command):
        for _ in range(500):
            try:
                command()
            except CommitFailedError:
                self.note(f"{name}, run again")
            else:
                self.note(name)
                return
        pytest.fail(f"{name} always comes second: {self.outcomes}")


@pytest.mark.jars
@pytest.mark.spark
def test_all_at_once_no_row_is_lost_or_back(table, location, lake, agreed):
    """With Delvec three threads delete and one appends; with deltalake two append and one deletes."""
    crowd = Crowd(lake, location)
    gone = [[step * 37 + number for step in range(STEPS - 1)] for number in range(3)]
    added = [range(10_000 * number, 10_000 * number + STEPS) for number in range(1, 4)]
    theirs_gone = [file * ROWS + 20 for file in range(FILES)]

    crowd.run(
        *((crowd.delete, some) for some in gone),
        (crowd.append, added[0]),
        (crowd.append_theirs, added[1]),
        (crowd.append_theirs, added[2]),
        (crowd.delete_theirs, theirs_gone),
    )

    expected = {*range(FILES * ROWS)}.union(*added).difference(*gone, theirs_gone)
    assert sorted(row["id"] for row in agreed(location)) == sorted(expected), crowd.outcomes
    assert crowd.outcomes["our delete"] == 3 * (STEPS - 1)
    assert crowd.outcomes["their append"] == 2 * STEPS
    assert crowd.outcomes["their delete"] == FILES


# --- taking turns with delta-spark --------------------------------------------------------------------


@pytest.mark.jars
@pytest.mark.spark
def test_delta_spark_takes_turns_with_deletes_by_vector(table, location, delta_spark, agreed):
    path = f"delta.`{location}`"
    gone = set()
    for turn in range(3):
        table.delete(f"id % 50 = {turn}")
        delta_spark.sql(f"DELETE FROM {path} WHERE id % 50 = {turn + 10}")
        gone |= {id_ for id_ in range(200) if id_ % 50 in (turn, turn + 10)}
    delta_spark.sql(f"INSERT INTO {path} VALUES (1000, 'spark')")
    table.append(rows([1001]))

    assert [row["id"] for row in sorted(agreed(location), key=lambda row: row["id"])] == sorted(
        {*range(200), 1000, 1001} - gone
    )
    operations = [entry["operation"] for entry in table.history(limit=8)][::-1]
    assert operations == ["DELETE"] * 6 + ["WRITE", "WRITE"]


@pytest.mark.jars
@pytest.mark.spark
@pytest.mark.gate
def test_a_concurrent_delete_of_delta_spark_is_resolved_row_by_row(table, location, delta_spark, agreed):
    transaction = prepared(table, "id = 7")
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id = 8")

    done = transaction.commit()

    assert (done.result, done.winners_passed) == ("rebased", [5])
    assert {row["id"] for row in agreed(location)} == {*range(200)} - {7, 8}
