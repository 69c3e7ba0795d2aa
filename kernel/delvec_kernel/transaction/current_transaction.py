"""The commit in the making: what it does, and what it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias
from typing import Protocol as Shape

from pyroaring import BitMap64

from delvec_kernel import locations
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.errors import InvalidPredicate, UnknownColumn
from delvec_kernel.expressions import predicate
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.types import StructType
from delvec_kernel.transaction.transaction_changes import Changes

__all__ = [
    "ROW_TRACKING",
    "CurrentTransaction",
    "IsolationLevel",
    "RemovalKind",
    "TableFacts",
    "isolation_level",
]

IsolationLevel: TypeAlias = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]
RemovalKind: TypeAlias = Literal["idempotent", "exact", "rearrangement"]
Added: TypeAlias = Literal["nothing", "matching", "anything"]

ROW_TRACKING: Final = "delta.rowTracking"
"""A domain that merges: row ids are given anew at each attempt."""
_APPENDS: Final = frozenset({"WRITE", "STREAMING UPDATE"})
_REPLACES: Final = frozenset(
    {
        "WRITE",
        "STREAMING UPDATE",
        "TRUNCATE",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
    }
)


class TableFacts(Shape):
    """What is asked of a snapshot; :class:`~delvec_kernel.snapshot.snapshot.Snapshot` has it."""

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
        each.domain == ROW_TRACKING for each in changes.domains
    )
    of_rows = changes.adds or changes.removes or changes.row_deletes
    files = of_rows or changes.again or changes.statistics or changes.repacked or changes.repairs
    if not changes.data_change and alone and files:
        return "SnapshotIsolation"
    wanted = configuration.get("delta.isolationLevel", "").strip().lower()
    return "WriteSerializable" if wanted == "writeserializable" else "Serializable"


@dataclass(frozen=True)
class CurrentTransaction:
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
    def of(cls, changes: Changes, facts: TableFacts, read: TableFacts | None = None) -> "CurrentTransaction":
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

    @cached_property
    def removal_kind(self) -> RemovalKind:
        """What it means that a row or a file is removed.

        ``idempotent``: it is not to be there any more, so one that is gone already is no loss: a DELETE, the
        part of an overwrite that removes. ``exact``: what is added instead was made from them, or change files
        tell of each. ``rearrangement``: they are added again, in other files.
        """
        changes = self.changes
        if not changes.data_change:
            return "rearrangement"
        # A WRITE that copied rows would bring those back that others have deleted; our own client names such files.
        copies = changes.reads is None and changes.metrics.get("numCopiedRows", 0) > 0
        if changes.change_files or copies:
            return "exact"
        only_removes = not changes.adds and changes.operation not in ("UPDATE", "RESTORE", "CLONE")
        return "idempotent" if only_removes or changes.operation in _REPLACES else "exact"

    @cached_property
    def reads_whole_table(self) -> bool:
        """Whether any change of data matters."""
        changes = self.changes
        if changes.reads is not None:
            return changes.reads.whole_table
        if changes.is_blind_append or not changes.data_change:
            return False
        if changes.operation in ("MERGE", "RESTORE", "CLONE"):
            return True
        if changes.operation == "UPDATE":
            return changes.predicate is None
        if changes.predicate is not None or changes.operation in _REPLACES:
            return False
        # Of what is not known one must fear that its new rows come from anywhere in the table.
        return bool(changes.adds)

    @cached_property
    def reads_added(self) -> Added:
        """Which rows that others add matter."""
        changes = self.changes
        if changes.is_blind_append or not changes.data_change:
            return "nothing"
        if self.reads_whole_table:
            return "anything"
        if changes.predicate is not None:
            return "matching"
        overwrites = changes.parameters.get("mode", "").lower() == "overwrite"
        takes = bool(changes.removes or changes.row_deletes)
        if changes.reads is None and changes.operation in _REPLACES:
            if overwrites or (takes and changes.operation in _APPENDS):
                return "anything"
            return "nothing" if changes.operation in _APPENDS else "anything"
        return "nothing"

    def _key(self, path: str) -> str:
        return locations.canonical_log_path(path, self.facts.location)
