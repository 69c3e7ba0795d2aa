"""Random histories against an oracle that knows every row: passing commits do exactly what was requested, to live rows."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from tests.support.rows_in_files import Facts, RowsInFiles, changes

from delvec_kernel.transaction.conflict_checker import Conflict, CurrentTransaction, check
from delvec_kernel.transaction.transaction_changes import Reads, RowRun

VALUES = 12


class History:
    """One table and commands run against it, each at a possibly old version."""

    def __init__(self, random):
        self.random = random
        self.table = RowsInFiles()
        self.passed = self.conflicts = self.rebased = 0
        for _ in range(random.randint(1, 3)):
            self.append(0)

    # --- commands ---------------------------------------------------------------------------------------

    def values(self):
        low = self.random.randrange(VALUES)
        return [self.random.randint(low, min(VALUES, low + 3)) for _ in range(self.random.randint(1, 6))]

    def append(self, version):
        add = self.write(self.table.new_rows(self.values()))
        self.run(changes("WRITE", version, adds=[add]), added=self.table.contents[add.path])

    def write(self, rows, **how):
        return self.table.write(rows, stats=self.random.random() < 0.8, **how)

    def chosen(self, version):
        """Choose a predicate or single rows; return the predicate and row indexes by file."""
        if self.random.random() < 0.5:
            low = self.random.randrange(VALUES)
            high = low + self.random.randrange(3)
            wanted = {
                path: [i for i, row in self.table.rows_of(path, version).items() if low <= row.value <= high]
                for path in self.table.versions[version]
            }
            return (low, high), {path: BitMap64(rows) for path, rows in wanted.items() if rows}
        wanted = {}
        for path in self.table.versions[version]:
            rows = list(self.table.rows_of(path, version))
            few = self.random.sample(rows, self.random.randint(0, min(3, len(rows))))
            if few:
                wanted[path] = BitMap64(few)
        return None, wanted

    def delete(self, version):
        bounds, rows = self.chosen(version)
        if not rows:
            return
        whole, marked = self.whole(rows, version)
        if self.random.random() < 0.3:
            # An engine may send rows that are already deleted.
            marked = {
                path: each | self.table.vectors(self.table.versions[version][path])
                for path, each in marked.items()
            }
        what = changes("DELETE", version, removes=whole, row_deletes=marked, predicate=condition(bounds))
        self.run(what, removed=self.at(rows), none_left=bounds)

    def whole(self, rows, version):
        """Turn some files that lose all rows into whole removes."""
        full = [path for path, each in rows.items() if len(each) == len(self.table.rows_of(path, version))]
        whole = [path for path in full if self.random.random() < 0.5]
        return whole, {path: each for path, each in rows.items() if path not in whole}

    def delete_by_copy(self, version):
        bounds, rows = self.chosen(version)
        copies = {path: self.table.rows_of(path, version) for path in rows}
        adds = [
            self.write([row for index, row in live.items() if index not in rows[path]])
            for path, live in copies.items()
            if len(live) > len(rows[path])
        ]
        if adds:
            what = changes("DELETE", version, removes=list(rows), adds=adds, predicate=condition(bounds))
            self.run(what, removed=self.at(rows), none_left=bounds)

    def update(self, version):
        bounds, rows = self.chosen(version)
        if not rows:
            return
        old = self.at(rows)
        add = self.write(self.table.new_rows(self.random.randrange(VALUES) for _ in old))
        reads = Reads() if bounds is None else None
        kept = []
        if self.random.random() < 0.5:
            # Rows that a MERGE matched and left unchanged.
            _, matched = self.chosen(version)
            reads = Reads(rows=matched) if self.random.random() < 0.5 else Reads(files=list(matched))
            kept = (
                self.at(matched)
                if reads.rows
                else [row for path in matched for row in self.table.rows_of(path, version).values()]
            )
        what = changes(
            "UPDATE" if reads is None else "MERGE",
            version,
            row_deletes=rows,
            adds=[add],
            predicate=condition(bounds),
            reads=reads,
        )
        self.run(
            what, removed=old, added=self.table.contents[add.path], none_left=bounds, kept=kept, exact=True
        )

    def overwrite(self, version):
        add = self.write(self.table.new_rows(self.values()))
        what = changes(
            "WRITE",
            version,
            adds=[add],
            removes=list(self.table.versions[version]),
            parameters={"mode": "Overwrite"},
        )
        self.run(
            what, removed=self.table.rows(version), added=self.table.contents[add.path], none_left=(0, VALUES)
        )

    def optimize(self, version):
        live = self.table.versions[version]
        sources = [path for path in live if self.table.rows_of(path, version) and self.random.random() < 0.6]
        if not sources:
            return
        rewritten, adds, dead = {}, [], {}
        # Files copied whole include their deleted rows.
        copies = self.random.random() < 0.4
        middle = self.random.randint(0, len(sources))
        for group in (sources[:middle], sources[middle:]) if self.random.random() < 0.5 else (sources,):
            for part in self.parts(group, version, copies=copies):
                add = self.write([row for _, _, rows in part for row in rows], data_change=False)
                if copies:
                    alive = [
                        rank + index in self.table.rows_of(path, version)
                        for path, rank, rows in part
                        for index in range(len(rows))
                    ]
                    dead[add.path] = BitMap64([index for index, lives in enumerate(alive) if not lives])
                runs, first = [], 0
                for path, rank, rows in part:
                    runs.append(RowRun(path, rank, len(rows), first))
                    first += len(rows)
                adds.append(add)
                rewritten[add.path] = runs
        recorded = copies or self.random.random() < 0.7
        what = changes(
            "OPTIMIZE",
            version,
            adds=adds,
            removes=sources,
            data_change=False,
            rewritten=rewritten if recorded else {},
            added_deletes={path: rows for path, rows in dead.items() if rows},
        )
        self.run(what)

    def parts(self, sources, version, *, copies=False):
        """Return the rows of one or two outputs as runs in any order: source, first rank, count."""
        pieces = []
        for path in sources:
            live = self.table.rows_of(path, version).values()
            rows, rank = list(self.table.contents[path] if copies else live), 0
            while rank < len(rows):
                count = self.random.randint(1, len(rows) - rank)
                pieces.append((path, rank, rows[rank : rank + count]))
                rank += count
        self.random.shuffle(pieces)
        middle = self.random.randint(0, len(pieces))
        return [part for part in (pieces[:middle], pieces[middle:]) if part]

    def restore(self, _):
        self.table.restore(self.random.randint(max(0, self.table.version - 4), self.table.version))

    def add_again(self, _):
        if self.table.versions[-1]:
            self.table.add_again(self.random.choice(list(self.table.versions[-1])))

    def step(self):
        commands = [self.append] + 6 * [self.delete] + [self.delete_by_copy] + 3 * [self.update]
        commands += [self.overwrite] + 4 * [self.optimize] + [self.restore, self.add_again]
        lag = self.random.choice([0, 1, 1, 2, 3, 4])
        self.random.choice(commands)(max(0, self.table.version - lag))

    # --- the oracle -------------------------------------------------------------------------------------

    def at(self, rows):
        return [self.table.contents[path][index] for path, each in rows.items() for index in each]

    def run(self, what, *, removed=(), added=(), none_left=None, kept=(), exact=False):
        table, version = self.table, what.read_version
        before = table.rows()
        winners = table.winners(version)
        verdict = check(CurrentTransaction.of(what, Facts(version)), winners, table.vectors)
        if isinstance(verdict, Conflict):
            self.conflicts += 1
            self.explained(verdict, removed)
            assert not must_pass(what, winners)
            return
        self.passed += 1
        self.rebased += bool(winners)
        assert verdict.versions == tuple(range(version + 1, table.version + 1))
        table.commit(verdict.changes, says_what=self.random.random() < 0.9)
        gone = set(removed)
        assert Counter(table.rows()) == Counter([row for row in before if row not in gone] + list(added))
        if none_left is not None:
            new = set(added)
            low, high = none_left
            assert not [row for row in table.rows() if low <= row.value <= high and row not in new]
        if exact:
            assert gone <= set(before)
            assert verdict.rows_already_gone == 0
        elif what.data_change:
            assert verdict.rows_already_gone == len(gone - set(before))
        assert set(kept) - gone <= set(before)

    def explained(self, verdict, removed):
        """Check that the rows a conflict counts are those the winner removed."""
        assert verdict.error("people").conflict["winning-version"] == verdict.winner.version
        # A RESTORE may remove a row's file and bring the row back in another one.
        pure = not verdict.winner.new_files and verdict.winner.changes_data and not verdict.winner.is_restore
        if not verdict.overlaps or not pure or verdict.changes.reads is not None:
            return
        version = verdict.winner.version
        taken = set(self.table.rows(version - 1)) - set(self.table.rows(version))
        if verdict.changes.row_deletes and not verdict.changes.removes:
            assert sum(each.count for each in verdict.overlaps) == len(taken & set(removed))


def must_pass(ours, winners):
    """Whether a conflict would be unjustified."""
    if ours.operation == "OPTIMIZE":
        return bool(ours.rewritten) and all(
            winner.changes_data and not winner.is_restore and winner.info is not None for winner in winners
        )
    if ours.operation == "DELETE" and not ours.adds:
        harmless = (
            winner.sources or not winner.new_files or (not winner.changes_data and not winner.removes)
            for winner in winners
        )
        return all(harmless) and all(not w.is_restore and w.info is not None for w in winners)
    return ours.is_blind_append


def condition(bounds):
    return None if bounds is None else f"id BETWEEN {bounds[0]} AND {bounds[1]}"


RANDOM = st.randoms(use_true_random=False)


def play(random, steps):
    history = History(random)
    for _ in range(steps):
        history.step()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RANDOM, st.integers(3, 14))
def test_passing_commits_do_exactly_what_was_requested(random, steps):
    play(random, steps)


@pytest.mark.long("twenty thousand random histories")
@pytest.mark.timeout(0)
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RANDOM, st.integers(3, 25))
def test_passing_commits_do_exactly_what_was_requested_in_long_histories(random, steps):
    play(random, steps)
