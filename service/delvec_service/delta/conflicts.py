"""Whether a commit may pass the commits that won the race against it, and what it is then.

Pure: what we do and read, and the winners in order, give a verdict (PROTOCOL.md has no conflict rules; they are the
writers' own). The rules are those of docs/conflicts.md.
"""

from collections.abc import Iterable, Sequence

from delvec.protocol.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    MetadataChanged,
    ProtocolChanged,
)
from delvec_service.delta.concurrency.ours import Ours
from delvec_service.delta.concurrency.verdict import Conflict, Overlap, Passed, Vectors
from delvec_service.delta.concurrency.winner import Winner

__all__ = ["Conflict", "Ours", "Overlap", "Passed", "Vectors", "Winner", "check"]


def check(ours: Ours, winners: Sequence[Winner], vectors: Vectors) -> Passed | Conflict:  # noqa: ARG001
    """Return whether ``ours`` may be committed after ``winners``, and as what.

    Args:
        ours: the commit in the making.
        winners: the commits after the version that was read, in order and without a gap.
        vectors: reads deletion vectors.

    Raises:
        CorruptDeletionVector: or a subclass: a deletion vector that has to be looked at cannot be read.
    """
    for winner in winners:
        conflict = _between(ours, winner)
        if conflict is not None:
            return conflict
    return Passed(tuple(winner.version for winner in winners), ours.changes)


def _between(ours: Ours, winner: Winner) -> Conflict | None:
    kind: type[ConcurrentModification]
    files: Iterable[str] = ()
    changed = ours.removes.keys() | ours.row_deletes.keys()
    reads = not ours.changes.is_blind_append
    if winner.protocol is not None:
        kind, what = ProtocolChanged, "changed the table's protocol"
    elif winner.metadata is not None:
        kind, what = MetadataChanged, "changed the table's metadata"
    elif files := changed & winner.removes.keys():
        kind, what = (
            ConcurrentDeleteDelete,
            "removed files, or rows of files, that this commit removes from too,",
        )
    elif reads and (files := winner.new_files):
        kind, what = ConcurrentAppend, "added files"
    elif reads and (files := winner.removes):
        kind, what = ConcurrentDeleteRead, "removed files, or rows of files,"
    else:
        return None
    return Conflict(kind, ours.changes, winner, tuple(sorted(files)), what)
