"""A table of two files and the commits that conflict on it, without I/O."""

from pyroaring import BitMap64
from tests.support.rows_in_files import Facts, RowsInFiles, changes

from delvec_kernel.transaction.conflict_checker import (
    CurrentTransaction,
    check,
)
from delvec_kernel.transaction.transaction_changes import RowRun

COMPACTED = {"data_change": False}


class Table(RowsInFiles):
    """A table with one version and files a (ids 0 to 99) and b (ids 200 to 209)."""

    def __init__(self):
        super().__init__()
        self.a, self.b = self.file(range(100)), self.file(range(200, 210))
        self.commit(changes("WRITE", 0, adds=[self.a, self.b]))

    def file(self, ids, **how):
        return self.write(self.new_rows(ids), **how)

    def check(self, what, facts=None):
        winners = self.winners(what.read_version)
        return check(CurrentTransaction.of(what, facts or Facts(what.read_version)), winners, self.vectors)

    def delete(self, add, rows, read_version=None, **more):
        version = self.version if read_version is None else read_version
        return changes("DELETE", version, row_deletes={add.path: BitMap64(rows)}, **more)

    def win(self, *actions):
        return self.record(list(actions), dict(self.versions[-1]))

    def append(self, ids, **how):
        return self.commit(changes("WRITE", self.version, adds=[self.file(ids, **how)]))

    def actions(self, what):
        """Return the actions of changes without committing them."""
        before, commits = self.versions[:], self.commits[:]
        self.commit(what)
        actions = self.commits[-1]
        self.versions, self.commits = before, commits
        return actions

    def compact(self, *files):
        """Compact files into one; return its add."""
        live = {file.path: list(self.rows_of(file.path).values()) for file in files}
        output = self.write([row for rows in live.values() for row in rows], data_change=False)
        runs, first = [], 0
        for path, rows in live.items():
            runs.append(RowRun(path, 0, len(rows), first))
            first += len(rows)
        what = changes(
            "OPTIMIZE",
            self.version,
            removes=list(live),
            adds=[output],
            data_change=False,
            rewritten={output.path: runs},
        )
        self.commit(what)
        return output


def compaction(table, *groups):
    """Return a compaction of ours with one output per group of files."""
    adds, rewritten = [], {}
    for group in groups:
        live = {file.path: list(table.rows_of(file.path).values()) for file in group}
        output = table.write([row for rows in live.values() for row in rows], data_change=False)
        runs, first = [], 0
        for path, rows in live.items():
            runs.append(RowRun(path, 0, len(rows), first))
            first += len(rows)
        adds.append(output)
        rewritten[output.path] = runs
    removes = [file.path for group in groups for file in group]
    return changes("OPTIMIZE", table.version, adds=adds, removes=removes, rewritten=rewritten, **COMPACTED)


def copy(table, add, deleted):
    """Return a compaction that copies a file whole, with these rows recorded as deleted."""
    output = table.write(table.contents[add.path], data_change=False)
    runs = [RowRun(add.path, 0, len(table.contents[add.path]), 0)]
    return changes(
        "OPTIMIZE",
        table.version,
        adds=[output],
        removes=[add.path],
        rewritten={output.path: runs},
        added_deletes={output.path: BitMap64(deleted)},
        **COMPACTED,
    )


def spread(table, *outputs):
    """Return a compaction of ours: for each output its source files, each with the (start, end) of its rows."""
    adds, rewritten = [], {}
    for parts in outputs:
        ids = [number for _, first, end in parts for number in range(first, end)]
        adds.append(table.file(ids, data_change=False))
        runs, place = [], 0
        for file, first, end in parts:
            runs.append(RowRun(file.path, first, end - first, place))
            place += end - first
        rewritten[adds[-1].path] = runs
    removes = list(dict.fromkeys(file.path for parts in outputs for file, _, _ in parts))
    return changes("OPTIMIZE", table.version, adds=adds, removes=removes, rewritten=rewritten, **COMPACTED)
