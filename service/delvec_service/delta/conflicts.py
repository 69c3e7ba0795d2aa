"""Whether a commit may pass the commits that won the race against it, and what it is then.

Pure: what we do and read, and the winners in order, give a verdict (PROTOCOL.md has no conflict rules; they are the
writers' own). By row and not by path, wherever the log tells which rows. docs/conflicts.md has the rules in words.
"""

from collections.abc import Sequence

from delvec_service.delta.concurrency.added_files import AddedFiles
from delvec_service.delta.concurrency.ours import Ours
from delvec_service.delta.concurrency.reads import AddedRows, RowsRead
from delvec_service.delta.concurrency.rebase import DeletedRows, Rebase
from delvec_service.delta.concurrency.table_rules import TableRules
from delvec_service.delta.concurrency.verdict import Conflict, Overlap, Passed, Vectors
from delvec_service.delta.concurrency.winner import Winner

__all__ = ["Conflict", "Ours", "Overlap", "Passed", "Vectors", "Winner", "check"]


def check(ours: Ours, winners: Sequence[Winner], vectors: Vectors) -> Passed | Conflict:
    """Return whether ``ours`` may be committed after ``winners``, and as what.

    Args:
        ours: the commit in the making.
        winners: the commits after the version that was read, in order and without a gap.
        vectors: reads deletion vectors.

    Raises:
        CorruptDeletionVector: or a subclass: a deletion vector that has to be looked at cannot be read.
    """
    deleted, files = DeletedRows(vectors), AddedFiles(ours, winners)
    table, rebase = TableRules(ours), Rebase(ours, deleted, files)
    reads, added = RowsRead(ours, deleted), AddedRows(ours, deleted, files)
    for place, winner in enumerate(winners):
        conflict = (
            table.conflict(winner)
            or rebase.conflict(winner)
            or reads.conflict(winner)
            or added.conflict(winner, winners[:place], rebase)
        )
        if conflict is not None:
            return conflict
    changes, gone = rebase.result()
    return Passed(tuple(winner.version for winner in winners), changes, gone)
