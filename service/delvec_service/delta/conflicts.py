"""Whether a commit may pass the commits that won the race against it.

Pure: what we do and read, and the winners in order, give a verdict. For now blind appends pass each other, and
every other race is a conflict under the name that delta-spark gives it (PROTOCOL.md has no conflict rules;
they are the writers' own).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delvec.protocol import locations
from delvec.protocol.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    ConcurrentWrite,
    MetadataChanged,
    ProtocolChanged,
)
from delvec_service.delta.actions import Action, AddFile, CommitInfo, Metadata, Protocol, RemoveFile, Txn

__all__ = ["Conflict", "Ours", "Passed", "Winner", "check"]

_FILES_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Ours:
    """What a commit in the making read and does.

    Attributes:
        reads: it depends on rows of the table: all but blind appends do.
        removes: replay keys of the files that it removes, or removes rows of.
    """

    operation: str
    read_version: int
    reads: bool
    removes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Winner:
    """What a commit that came first did.

    Attributes:
        txn_id: its transaction id, where it says one.
        appends_only: it adds files and does nothing else that another append could mind.
        adds: replay keys of the files that were not live before.
        removes: replay keys of the files that it removed, or changed the deletion vector of.
    """

    version: int
    operation: str
    txn_id: str | None
    appends_only: bool
    adds: frozenset[str]
    removes: frozenset[str]
    changes_metadata: bool
    changes_protocol: bool

    @classmethod
    def of(cls, version: int, actions: Iterable[Action], location: str) -> "Winner":
        """Summarize a commit of the table at ``location``."""
        info: CommitInfo | None = None
        adds: set[str] = set()
        removes: set[str] = set()
        metadata = protocol = other = False
        for action in actions:
            if isinstance(action, CommitInfo):
                info = info or action
            elif isinstance(action, AddFile):
                adds.add(locations.canonical_log_path(action.path, location))
            elif isinstance(action, RemoveFile):
                removes.add(locations.canonical_log_path(action.path, location))
            elif isinstance(action, Metadata):
                metadata = True
            elif isinstance(action, Protocol):
                protocol = True
            elif not isinstance(action, Txn):
                other = True
        blind = info is None or info.is_blind_append is not False
        return cls(
            version=version,
            operation=(info.operation if info else None) or "unknown operation",
            txn_id=info.txn_id if info else None,
            appends_only=blind and not (removes or metadata or protocol or other),
            adds=frozenset(adds - removes),
            removes=frozenset(removes),
            changes_metadata=metadata,
            changes_protocol=protocol,
        )


@dataclass(frozen=True, slots=True)
class Passed:
    """No winner is in the way."""

    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A winner is in the way: which, and why.

    Attributes:
        kind: Delta's exception.
        files: replay keys of the files that both touch, or that the winner touched.
        what: what the winner did, as the end of a sentence.
    """

    kind: type[ConcurrentModification]
    ours: Ours
    winner: Winner
    files: tuple[str, ...]
    what: str

    def error(self, table: str) -> ConcurrentModification:
        """Return the exception that reports this."""
        advice = f"run the {self.ours.operation} again: it will read the new version."
        facts: dict[str, Any] = {
            "winning-version": self.winner.version,
            "winning-operation": self.winner.operation,
            "read-version": self.ours.read_version,
            "advice": advice,
            "files": list(self.files[:_FILES_NAMED]),
        }
        return self.kind(
            f"Version {self.winner.version} of table '{table}' ({self.winner.operation}) {self.what} "
            f"after this {self.ours.operation} had read version {self.ours.read_version}; {advice}",
            table=table,
            version=self.ours.read_version,
            conflict=facts,
        )


def check(ours: Ours, winners: Sequence[Winner]) -> Passed | Conflict:
    """Return whether ``ours`` may be committed after ``winners``, which are in the order of their versions."""
    for winner in winners:
        conflict = _between(ours, winner)
        if conflict is not None:
            return conflict
    return Passed(tuple(winner.version for winner in winners))


def _between(ours: Ours, winner: Winner) -> Conflict | None:
    kind: type[ConcurrentModification]
    files: frozenset[str] = frozenset()
    if winner.changes_protocol:
        kind, what = ProtocolChanged, "changed the table's protocol"
    elif winner.changes_metadata:
        kind, what = MetadataChanged, "changed the table's metadata"
    elif files := ours.removes & winner.removes:
        kind = ConcurrentDeleteDelete
        what = f"removed {_count(files)}, or rows of {_them(files)}, that this commit removes from too,"
    elif ours.reads and (files := winner.adds):
        kind, what = ConcurrentAppend, f"added {_count(files)}"
    elif ours.reads and (files := winner.removes):
        kind, what = ConcurrentDeleteRead, f"removed {_count(files)}, or rows of {_them(files)},"
    elif ours.reads or not winner.appends_only:
        kind, what, files = ConcurrentWrite, "was committed", winner.removes
    else:
        return None
    return Conflict(kind, ours, winner, tuple(sorted(files)), what)


def _count(files: frozenset[str]) -> str:
    return "a file" if len(files) == 1 else f"{len(files)} files"


def _them(files: frozenset[str]) -> str:
    return "it" if len(files) == 1 else "them"
