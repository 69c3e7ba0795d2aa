"""Sorting compactions: rows are found at their new positions, and false maps are not trusted."""

import json
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from tests.support.rows_in_files import LOCATION, Facts, RowsInFiles, changes

from delvec_kernel.transaction import row_maps
from delvec_kernel.transaction.conflict_checker import Conflict, CurrentTransaction, Passed, check
from delvec_kernel.transaction.row_maps import SCHEMA, RowMapReader, decode, encode
from delvec_kernel.transaction.transaction_changes import MappedOutput, Reads, RowMap, RowMapFile

FILE = "_delvec/row_maps/{:08x}-0000-4000-8000-000000000000.parquet"
NONE = BitMap64()


def batch(rows):
    """Return rows of a map: source and physical index of each."""
    sources = pa.array([source for source, _ in rows], pa.string()).dictionary_encode()
    return pa.RecordBatch.from_arrays(
        [sources, pa.array([row for _, row in rows], pa.int64())], schema=SCHEMA
    )


def read(row_map, rows, sources, pieces=1):
    reader = RowMapReader(row_map, sources, LOCATION)
    whole = batch(rows)
    size = -(-len(rows) // pieces) or 1
    for start in range(0, len(rows), size):
        reader.add(whole.slice(start, size))
    return reader.finish()


def map_of(outputs, number=0):
    count = sum(outputs.values())
    return RowMap(
        (RowMapFile(FILE.format(number), 1, count),),
        tuple(MappedOutput(*output) for output in outputs.items()),
    )


def test_the_tag_names_files_and_outputs():
    row_map = map_of({"o1.parquet": 3, "p.parquet": 2})
    written = encode(
        replace(row_map, outputs=(MappedOutput("o%31.parquet", 3), MappedOutput("p.parquet", 2)))
    )
    assert json.loads(written) == {
        "files": [[FILE.format(0), 1, 5]],
        "outputs": [["o%31.parquet", 3], ["p.parquet", 2]],
    }
    assert decode(written, LOCATION) == row_map


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"files": [], "outputs": {}}',
        '{"files": [], "outputs": [["o", 1]]}',
        '{"files": [["%s", 1, 1]], "outputs": [["o", 2]]}',
        '{"files": [["%s", 1, 2]], "outputs": [["o", 1], ["o", 1]]}',
        '{"files": [["%s", 1, 2]], "outputs": [["o", 1], ["./%%6f", 1]]}',
        '{"files": [["%s", 1, true]], "outputs": [["o", true]]}',
        '{"files": [["%s", -1, 1]], "outputs": [["o", 1]]}',
        '{"files": [["%s", 1e300, 1]], "outputs": [["o", 1]]}',
        '{"files": [["_delvec/row_maps/../../x.parquet", 1, 1]], "outputs": [["o", 1]]}',
        '{"files": [["/etc/passwd", 1, 1]], "outputs": [["o", 1]]}',
        '{"files": [[7, 1, 1]], "outputs": [["o", 1]]}',
        '{"files": [["%s", 1, 16777217]], "outputs": [["o", 16777217]]}',
        '{"files": [["%s", 1, 1, 1]], "outputs": [["o", 1]]}',
    ],
    ids=range(16),
)
def test_malformed_tags_are_ignored(text):
    assert decode(text % FILE.format(0) if "%s" in text else text, LOCATION) is None


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 0), ("a", 0), ("a", 1)],  # a row in two places
        [("a", 0), ("a", 1)],  # too few
        [("a", 0), ("a", 1), ("a", 2), ("a", 3)],  # too many
        [("a", 0), ("a", -1), ("a", 2)],
        [("a", 0), ("a", 2**32), ("a", 2)],
        [("a", 0), (None, 1), ("a", 2)],
        [("a", 0), ("../../a", 1), ("a", 2)],
    ],
)
def test_invalid_rows_are_refused(rows):
    with pytest.raises(ValueError, match=r"row|source"):
        read(map_of({"o": 3}), rows, ["a"])


def test_more_rows_than_can_be_followed_are_refused(monkeypatch):
    monkeypatch.setattr(row_maps, "MAX_FOLLOWED_ROWS", 2)
    rows = [("a", 0), ("a", 1), ("b", 0)]
    assert set(read(map_of({"o": 3}), rows, ["a"])) == {"a"}
    with pytest.raises(ValueError, match="followed"):
        read(map_of({"o": 3}), rows, ["a", "b"])


def test_the_memory_of_followed_rows_grows_with_them():
    few, many = (
        read(map_of({"o": count}), [("a", row) for row in range(count)], ["a"])["a"].nbytes
        for count in (10, 1000)
    )
    assert 0 < 50 * few < many


def test_a_map_that_contradicts_deletion_vectors_moves_nothing():
    found = read(map_of({"o": 3}), [("a", 4), ("a", 0), ("a", 2)], ["a"])["a"]
    assert found.moved(BitMap64([0, 4]), BitMap64([2]), {"o": BitMap64([2])}) == {"o": BitMap64([0, 1])}
    assert found.moved(BitMap64([0, 3]), NONE, {"o": NONE}) is None  # row 3 is not in the map
    assert found.moved(BitMap64([9]), NONE, {"o": NONE}) is None
    assert found.moved(BitMap64([0]), BitMap64([2]), {"o": BitMap64([0])}) is None  # another row is deleted
    assert found.moved(NONE, NONE, {"o": NONE}) == {}


class Sorting(RowsInFiles):
    """A table whose files are sorted in random orders by winning commits."""

    def __init__(self, random, files):
        super().__init__()
        self.random = random
        self.maps = {}
        self.commit(changes("WRITE", 0, adds=[self.write(self.new_rows(range(n))) for n in files]))

    def check(self, what):
        ours = CurrentTransaction.of(what, Facts(what.read_version))
        return check(ours, self.winners(what.read_version), self.vectors, self.read_map)

    def read_map(self, row_map, sources):
        return read(row_map, self.maps[row_map.files[0].path], sources, self.random.randint(1, 4))

    def some(self, path, share):
        return BitMap64([index for index in self.rows_of(path) if self.random.random() < share])

    def delete(self, share=0.2):
        rows = {path: found for path in self.versions[-1] if (found := self.some(path, share))}
        return changes("DELETE", self.version, row_deletes=rows, reads=Reads())

    def update(self, share=0.1):
        rows = {path: found for path in self.versions[-1] if (found := self.some(path, share))}
        count = sum(map(len, rows.values()))
        adds = [self.write(self.new_rows(range(1000, 1000 + count)))] if count else []
        return changes("UPDATE", self.version, row_deletes=rows, adds=adds, reads=Reads())

    def sort(self):
        chosen = [path for path in self.versions[-1] if self.random.random() < 0.8]
        rows = [(path, index, row) for path in chosen for index, row in self.rows_of(path).items()]
        if not rows:
            return None
        self.random.shuffle(rows)
        cut = self.random.randint(0, len(rows))
        parts = [part for part in (rows[:cut], rows[cut:]) if part]
        adds = [self.write([row for *_, row in part], data_change=False) for part in parts]
        row_map = map_of({add.path: len(part) for add, part in zip(adds, parts, strict=True)}, len(self.maps))
        self.maps[row_map.files[0].path] = [(path, index) for path, index, _ in rows]
        return changes(
            "OPTIMIZE", self.version, removes=chosen, adds=adds, data_change=False, row_map=row_map
        )


def identities(rows):
    return sorted(row.identity for row in rows)


@settings(deadline=None, max_examples=150)
@given(st.randoms(use_true_random=False), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_sorting_and_row_changes_can_be_rebased_on_each_other(random, files):
    """Commands planned on one version are committed in any order, and the table has the right rows."""
    table = Sorting(random, files)
    for _ in range(3):
        live = set(identities(table.rows()))
        planned = [what for what in (table.sort(), table.delete(), table.update(), table.delete()) if what]
        random.shuffle(planned)
        taken, added, updated = set(), set(), False
        for what in planned:
            takes = {
                table.contents[path][index].identity
                for path, rows in what.row_deletes.items()
                for index in rows
            }
            verdict = table.check(what)
            if isinstance(verdict, Conflict):
                # Both change one row, and one of them rewrites it, wherever it is.
                assert taken & takes, verdict
                assert updated or what.operation == "UPDATE"
                continue
            taken |= takes
            if what.operation == "UPDATE":
                updated = updated or bool(takes)
                added |= {row.identity for add in what.adds for row in table.contents[add.path]}
            if verdict.changes.adds or verdict.changes.removes or verdict.changes.row_deletes:
                table.commit(verdict.changes)
        assert identities(table.rows()) == sorted((live - taken) | added)


@settings(deadline=None, max_examples=100)
@given(st.randoms(use_true_random=False), st.integers(2, 12))
def test_a_false_map_conflicts_or_removes_as_many_rows(random, count):
    """Two exchanged live rows cannot be detected; everything else is."""
    table = Sorting(random, [count])
    delete, sort = table.delete(0.5), table.sort()
    if sort is None or not delete.row_deletes:
        return
    table.commit(table.check(sort).changes)
    rows = table.maps[sort.row_map.files[0].path]
    place = random.randrange(len(rows))
    rows[place] = random.choice([("no such file", 0), (rows[place][0], count + 1), (rows[place][0], 2**31)])
    verdict = table.check(delete)
    if isinstance(verdict, Passed):
        whole = sum(len(table.contents[path]) for path in verdict.changes.removes)
        by_row = sum(map(len, verdict.changes.row_deletes.values()))
        assert whole + by_row == len(*delete.row_deletes.values())
    else:
        assert "without recording where" in verdict.error("people").message


def test_without_the_map_sorting_conflicts():
    table = Sorting(Random(1), [5])
    delete, sort = table.delete(0.9), table.sort()
    table.commit(sort)
    table.read_map = lambda _row_map, _sources: {}
    assert "without recording where" in table.check(delete).error("people").message
    other = Sorting(Random(1), [5])
    delete, sort = other.delete(0.9), other.sort()
    other.commit(delete)
    other.read_map = table.read_map
    assert "without recording where each row is" in other.check(sort).error("people").message


@pytest.mark.parametrize("told", [4, 6])
def test_a_map_that_contradicts_our_outputs_is_ignored(told):
    table = Sorting(Random(1), [5])
    delete, sort = table.delete(0.9), table.sort()
    *others, last = sort.adds
    ours = replace(sort, adds=[*others, replace(last, stats=json.dumps({"numRecords": told}))])
    table.commit(delete)
    assert "without recording where each row is" in table.check(ours).error("people").message
