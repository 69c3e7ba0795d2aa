"""The commit in the making: what it does, and what it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias
from typing import Protocol as Shape

from pyroaring import BitMap64

from delvec.protocol import locations, predicate
from delvec.protocol.errors import InvalidPredicate, UnknownColumn
from delvec.protocol.predicate import Predicate
from delvec.protocol.types import StructType
from delvec_service.delta.actions import Metadata, Protocol
from delvec_service.delta.changes import Changes

__all__ = ["IsolationLevel", "Ours", "TableFacts", "isolation_level"]

IsolationLevel: TypeAlias = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]

_ROW_TRACKING: Final = "delta.rowTracking"
_COPIED: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


class TableFacts(Shape):
    """What is asked of a snapshot; :class:`~delvec_service.delta.snapshot.Snapshot` has it."""

    @property
    def location(self) -> str:
        """Canonical."""

    @property
    def version(self) -> int:
        """Of the table."""

    @property
    def schema(self) -> StructType:
        """Partition columns included."""

    @property
    def metadata(self) -> Metadata:
        """Of that version."""

    @property
    def protocol(self) -> Protocol:
        """Of that version."""


def isolation_level(changes: Changes, configuration: Mapping[str, str]) -> IsolationLevel:
    """Return the level that a commit is checked at: what is no change of data needs only a consistent snapshot."""
    alone = not (changes.metadata or changes.protocol or changes.app_transaction) and all(
        each.domain == _ROW_TRACKING for each in changes.domains
    )
    if not changes.data_change and alone and (changes.adds or changes.removes or changes.row_deletes):
        return "SnapshotIsolation"
    wanted = configuration.get("delta.isolationLevel", "").strip().lower()
    return "WriteSerializable" if wanted == "writeserializable" else "Serializable"


@dataclass(frozen=True)
class Ours:
    """A commit in the making, and the table that it is for.

    Attributes:
        changes: as requested.
        facts: the table at some version: the one that was read, or a newer one.
        before: metadata and protocol of the version that was read, where they are known.
        isolation: the level that it is checked at.
    """

    changes: Changes
    facts: TableFacts
    before: tuple[Metadata, Protocol] | None
    isolation: IsolationLevel

    @classmethod
    def of(cls, changes: Changes, facts: TableFacts, read: TableFacts | None = None) -> "Ours":
        """Return ``changes`` as the check sees them.

        Args:
            changes: the request.
            facts: the table at any version from the one that was read.
            read: the version that was read. Only needed where a winner changes metadata or protocol and ``facts`` is
                newer: without it every such change is a conflict.
        """
        if read is None and facts.version <= changes.read_version:
            read = facts
        before = None if read is None else (read.metadata, read.protocol)
        return cls(changes, facts, before, isolation_level(changes, facts.metadata.configuration))

    @cached_property
    def removes(self) -> Mapping[str, str]:
        """Files that go whole: the paths as sent, by canonical path."""
        return {self._key(path): path for path in self.changes.removes}

    @cached_property
    def row_deletes(self) -> Mapping[str, tuple[str, BitMap64]]:
        """Rows that go: the path as sent and row indexes, by canonical path."""
        return {self._key(path): (path, rows) for path, rows in self.changes.row_deletes.items()}

    @cached_property
    def predicate(self) -> Predicate | None:
        """What added rows are judged by; None: any row may matter."""
        text = self.changes.predicate
        if text is None:
            return None
        try:
            found = predicate.parse(text, self.facts.schema)
        except (InvalidPredicate, UnknownColumn):
            return None
        return found if found.is_deterministic else None

    @property
    def copies_rows(self) -> bool:
        """Whether it replaces files by changed copies of them, so that every row of these files matters."""
        return bool(self.changes.removes and self.changes.adds) and self.changes.operation in _COPIED

    def _key(self, path: str) -> str:
        return locations.canonical_log_path(path, self.facts.location)
