"""Found rows: deletion vectors are written early if there are too many rows to hold or send."""

import sqlite3
from functools import partial

import pytest
from pyroaring import BitMap64
from tests.support.tables import ids

import delvec
from delvec_commands.dml import touched_files
from delvec_engines.duckdb import find_rows as duckdb_find_rows
from delvec_engines.found_rows import RowCollector

FILES = 6


@pytest.fixture
def numbers(lake, tmp_path):
    """Six files of 1,000 rows with consecutive ids."""
    table = lake.create_table(tmp_path / "numbers", "id long")
    for number in range(FILES):
        table.append([{"id": id_} for id_ in range(number * 1000, number * 1000 + 1000)])
    return table


@pytest.fixture
def vectors(tmp_path):
    return lambda: sorted((tmp_path / "numbers").rglob("deletion_vector_*.bin"))


@pytest.fixture
def little_room(monkeypatch):
    """The limits for rows in memory and in requests are nearly 0."""
    monkeypatch.setattr(duckdb_find_rows, "RowCollector", partial(RowCollector, max_bytes=300))
    monkeypatch.setattr(touched_files, "SENT_BYTES", 300)
    monkeypatch.setattr(touched_files, "_SURELY_SENT", 0)


def test_what_is_found_is_what_was_added_in_any_order(numbers):
    scan, _ = numbers.plan()
    paths = scan.files["path"].to_pylist()
    change = numbers.transaction("DELETE")
    found = RowCollector(scan, change.deletion_vector_files(scan.location), max_bytes=300)
    rows = {path: BitMap64(range(place, 999, 3 + place)) for place, path in enumerate(paths)}

    for half in (0, 1):
        for path in paths:
            found.add(path, BitMap64(row for row in rows[path] if row % 2 == half))

    assert dict(found.found()) == rows
    assert found.found().written


def test_without_places_all_is_held(numbers):
    scan, _ = numbers.plan()
    found = RowCollector(scan, max_bytes=1)
    for path in scan.files["path"].to_pylist():
        found.add(path, BitMap64(range(0, 999, 2)))

    assert not found.found().written
    assert len(found.found()) == FILES


def test_a_large_delete_is_a_delete(numbers, little_room, vectors):
    """For files with a deletion vector that lose all, nearly all, some, or no rows."""
    numbers.delete("id % 7 = 3 AND id < 3000")

    done = numbers.delete("id % 3 = 0 AND id < 4000 OR id BETWEEN 4000 AND 4999 OR id BETWEEN 5001 AND 5980")

    gone = {id_ for id_ in range(3000) if id_ % 7 == 3} | {id_ for id_ in range(4000) if id_ % 3 == 0}
    gone |= {*range(4000, 5000), *range(5001, 5981)}
    assert ids(numbers) == sorted(set(range(6000)) - gone)
    assert done["numDeletedRows"] == len(gone) - sum(id_ % 7 == 3 for id_ in range(3000))
    assert done["numRemovedFiles"] >= 1
    assert done.version == FILES + 2
    assert len(vectors()) > 2
    assert not numbers.check()["num-errors"]


def test_vectors_and_a_rewrite_of_one_delete_are_one_transaction(tmp_path, little_room):
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with delvec.connect(database_url=store) as lake:
        table = lake.create_table(tmp_path / "numbers", "id long")
        for number in range(FILES):
            table.append([{"id": id_} for id_ in range(number * 1000, number * 1000 + 1000)])
        done = table.delete("id % 3 = 0 OR id BETWEEN 5001 AND 5980")
    assert done["numAddedFiles"] == 1
    with sqlite3.connect(tmp_path / "store.db") as database:
        deletes = database.execute(
            "SELECT state, version FROM transactions WHERE operation <> 'WRITE'"
        ).fetchall()
        files = database.execute("SELECT state, transaction_id FROM ledger_files").fetchall()
    assert deletes == [("committed", done.version)]
    assert {state for state, _ in files} == {"committed"}
    assert len({transaction for _, transaction in files}) == 1


def test_a_large_delete_passes_another_that_wins(numbers, little_room, monkeypatch):
    engine = numbers.engine
    found = type(engine).find_rows

    def slow(self, scan, predicate, places=None):
        gone = found(self, scan, predicate, places)
        monkeypatch.setattr(type(engine), "find_rows", found)
        numbers.delete("id IN (1, 2, 3)")
        return gone

    monkeypatch.setattr(type(engine), "find_rows", slow)
    done = numbers.delete("id % 2 = 0")

    assert done["numDeletedRows"] == 2999
    assert ids(numbers) == [id_ for id_ in range(1, 6000, 2) if id_ not in (1, 3)]


def test_a_large_update_and_merge_send_no_rows_either(numbers, little_room, vectors):
    updated = numbers.update({"id": "id + 100000"}, "id % 3 = 0")
    merged = (
        numbers.merge([{"id": id_} for id_ in range(1, 6000, 3)], "source.id = target.id")
        .when_matched_delete()
        .execute()
    )

    assert updated["numUpdatedRows"] == 2000
    assert merged["numTargetRowsDeleted"] == 2000
    assert ids(numbers) == [*range(2, 6000, 3), *range(100_000, 106_000, 3)]
    assert len(vectors()) >= 2


def test_a_rehearsal_of_a_large_delete_writes_nothing(numbers, little_room, vectors):
    plan = numbers.delete("id % 2 = 0", dry_run=True)

    assert plan["numDeletedRows"] == 3000
    assert not vectors()
