import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from delvec_kernel.transaction.row_runs import by_source, decode, encode, live_ranks
from delvec_kernel.transaction.transaction_changes import RowRun

LOCATION = "file:///data/people"
NONE = BitMap64()


def test_runs_round_trip_with_canonical_paths():
    text = encode({"o%31.parquet": [RowRun("/data/people/a.parquet", 0, 3, 0), RowRun("b.parquet", 5, 2, 3)]})

    assert decode(text, LOCATION) == {
        "o1.parquet": [RowRun("a.parquet", 0, 3, 0), RowRun("b.parquet", 5, 2, 3)]
    }


def test_the_tag_matches_the_documentation():
    text = encode(
        {"output.parquet": [RowRun("source.parquet", 0, 1000, 0), RowRun("other.parquet", 0, 500, 1000)]}
    )

    assert json.loads(text) == {
        "output.parquet": [["source.parquet", 0, 1000, 0], ["other.parquet", 0, 500, 1000]]
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "7",
        '{"o": 7}',
        '{"o": [7]}',
        '{"o": [[]]}',
        '{"o": [["a", 0, 1]]}',
        '{"o": [["a", 0, 1, 0, 0]]}',
        '{"o": [["a", 0, 0, 0]]}',
        '{"o": [["a", -1, 1, 0]]}',
        '{"o": [["a", 0.5, 1, 0]]}',
        '{"o": [["a", true, 1, 0]]}',
        '{"o": [["a", 0, 1, 4611686018427387904]]}',
        '{"o": [[7, 0, 1, 0]]}',
        '{"o": [["../a", 0, 1, 0]]}',
        "[" * 100_000,
    ],
)
def test_malformed_records_are_ignored(text):
    assert decode(text, LOCATION) == {}


@pytest.mark.parametrize(
    "rewritten",
    [
        {"o": [RowRun("a", 0, 3, 0), RowRun("b", 0, 3, 2)]},  # two rows at one position
        {"o": [RowRun("a", 0, 3, 1)]},  # no source for row 0
        {"o": [RowRun("a", 0, 3, 0), RowRun("b", 0, 3, 4)]},
        {"o": [RowRun("a", 1, 3, 0)]},  # no position for rank 0
        {"o": [RowRun("a", 0, 3, 0)], "p": [RowRun("a", 2, 3, 0)]},  # a row at two positions
        {"o": [RowRun("a", 0, 3, 0)], "p": [RowRun("a", 4, 3, 0)]},
    ],
)
def test_contradictory_runs_are_ignored(rewritten):
    assert by_source(rewritten) == {}


def test_a_row_is_found_by_its_rank():
    # Rows 2 and 4 of source a were deleted when it was read; its live rows went to the end of o, and to p.
    runs = by_source({"o": [RowRun("b", 0, 10, 0), RowRun("a", 0, 3, 10)], "p": [RowRun("a", 3, 5, 0)]})

    placed = runs["a"].moved(BitMap64([0, 3, 5, 9]), BitMap64([2, 4]), {"o": NONE, "p": NONE})

    assert placed == {"o": BitMap64([10, 12]), "p": BitMap64([0, 4])}


def test_concurrent_deletes_do_not_shift_rows():
    # Row 3 of a was deleted during the compaction: it is in a's last deletion vector, and in o's first.
    runs = by_source({"o": [RowRun("a", 0, 9, 0)]})

    placed = runs["a"].moved(BitMap64([1, 4, 9]), BitMap64([2, 3]), {"o": BitMap64([2])})

    assert placed == {"o": BitMap64([1, 3, 8])}


def test_runs_of_an_output_that_was_not_added_still_count():
    runs = by_source({"o": [RowRun("a", 0, 2, 0)], "p": [RowRun("a", 2, 2, 0)]})

    assert runs["a"].moved(BitMap64([3]), BitMap64([0, 1]), {"o": None, "p": NONE}) == {"p": BitMap64([1])}


def test_rows_beyond_the_runs_are_unknown():
    runs = by_source({"o": [RowRun("a", 0, 2, 0)]})

    assert runs["a"].moved(BitMap64([2]), NONE, {"o": NONE}) is None


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_ranks_count_the_live_rows_before(rows, deleted):
    live = [row for row in range(61) if row not in deleted]

    ranks = live_ranks(BitMap64(rows - deleted), BitMap64(deleted))

    assert ranks.tolist() == [live.index(row) for row in sorted(rows - deleted)]


class Moving:
    """Rows with identities, compacted repeatedly while some are deleted concurrently."""

    def __init__(self, random, count):
        self.random = random
        self.files = {"f0": list(range(count))}
        self.deleted = {"f0": BitMap64()}
        self.number = 0

    def live(self, path):
        return [index for index in range(len(self.files[path])) if index not in self.deleted[path]]

    def delete(self):
        for path in self.files:
            for index in self.live(path):
                if self.random.random() < 0.1:
                    self.deleted[path].add(index)

    def pieces(self, ranked):
        found = []
        for path, live in ranked.items():
            rank = 0
            while rank < len(live):
                count = self.random.randint(1, len(live) - rank)
                found.append((path, rank, count))
                rank += count
        self.random.shuffle(found)
        return found

    def compact(self):
        """Compact all files; return the mapping of rows from the old files to the new ones."""
        ranked = {path: self.live(path) for path in self.files}
        pieces = self.pieces(ranked)
        middle = self.random.randint(0, len(pieces))
        rewritten, files = {}, {}
        for part in (pieces[:middle], pieces[middle:]):
            self.number += 1
            output, rows, runs = f"f{self.number}", [], []
            for path, rank, count in part:
                runs.append(RowRun(path, rank, count, len(rows)))
                rows += [self.files[path][index] for index in ranked[path][rank : rank + count]]
            if rows:
                rewritten[output], files[output] = runs, rows
        sources, gone_before = list(self.files), set()
        self.delete()  # concurrent deletes
        for path, rows in self.files.items():
            gone_before |= {rows[index] for index in self.deleted[path]}
        deleted = {
            output: BitMap64([index for index, row in enumerate(rows) if row in gone_before])
            for output, rows in files.items()
        }
        empty = {output for output, rows in files.items() if len(deleted[output]) == len(rows)}
        runs = by_source(decode(encode(rewritten), LOCATION))
        after = {output: None if output in empty else rows for output, rows in deleted.items()}
        before = {path: self.deleted[path] for path in sources}
        self.files = {output: rows for output, rows in files.items() if output not in empty}
        self.deleted = {output: rows for output, rows in deleted.items() if output not in empty}

        def moved(wanted):
            found = {}
            for path, rows in wanted.items():
                if rows - before[path]:
                    for output, placed in runs[path].moved(rows - before[path], before[path], after).items():
                        found[output] = found.get(output, BitMap64()) | placed
            return found

        return moved


@settings(deadline=None, max_examples=150)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 4))
def test_compactions_compose(random, count, times):
    moving = Moving(random, count)
    moving.delete()
    wanted = {"f0": BitMap64([index for index in moving.live("f0") if random.random() < 0.5])}
    identities = {moving.files["f0"][index] for index in wanted["f0"]}

    for _ in range(times):
        wanted = moving.compact()(wanted)
        moving.delete()

    found = [
        moving.files[path][index] for path, rows in wanted.items() for index in rows - moving.deleted[path]
    ]
    living = {moving.files[path][index] for path in moving.files for index in moving.live(path)}
    assert sorted(found) == sorted(identities & living)


def test_no_rows_give_no_outputs():
    (runs,) = by_source({"o": [RowRun("a", 0, 3, 0)]}).values()

    assert runs.rows_at(live_ranks(NONE, NONE)) == {}
