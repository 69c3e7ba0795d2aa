"""The transaction being committed: what it does, and what it read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias
from typing import Protocol as Shape

from pyroaring import BitMap64

from delvec_errors import InvalidPredicate, UnknownColumn
from delvec_kernel import locations
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.expressions import predicate
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.types import StructType
from delvec_kernel.transaction.transaction_changes import APPENDS, Changes

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
"""A domain that never conflicts: row ids are reassigned at each attempt."""
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
    """The part of :class:`~delvec_kernel.snapshot.snapshot.Snapshot` that the conflict check needs."""

    @property
    def location(self) -> str:
        """The table's canonical location."""

    @property
    def version(self) -> int:
        """The table's version."""

    @property
    def schema(self) -> StructType:
        """The schema, including partition columns."""

    @property
    def metadata(self) -> Metadata:
        """The version's metadata."""

    @property
    def protocol(self) -> Protocol:
        """The version's protocol."""


def isolation_level(changes: Changes, configuration: Mapping[str, str]) -> IsolationLevel:
    """Return the isolation level for a commit: one without data changes only needs a consistent snapshot."""
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
    """A transaction being committed, and its table.

    Attributes:
        changes: as requested.
        facts: the table at the version that was read, or a newer one.
        before: metadata and protocol of the version that was read, if known.
        isolation: the isolation level.
    """

    changes: Changes
    facts: TableFacts
    before: tuple[Metadata, Protocol] | None
    isolation: IsolationLevel

    @classmethod
    def of(cls, changes: Changes, facts: TableFacts, read: TableFacts | None = None) -> "CurrentTransaction":
        """Prepare ``changes`` for the conflict check.

        Args:
            changes: the request.
            facts: the table at the version that was read, or any newer one.
            read: the version that was read; needed only if ``facts`` is newer and a winner changes metadata or
                protocol, which otherwise always conflicts.
        """
        if read is None and facts.version <= changes.read_version:
            read = facts
        before = None if read is None else (read.metadata, read.protocol)
        return cls(changes, facts, before, isolation_level(changes, facts.metadata.configuration))

    @cached_property
    def removes(self) -> Mapping[str, str]:
        """Whole files to remove: the paths as sent, by canonical path."""
        return {self._key(path): path for path in self.changes.removes}

    @cached_property
    def row_deletes(self) -> Mapping[str, tuple[str, BitMap64]]:
        """Rows to remove: the path as sent and row indexes, by canonical path."""
        return {self._key(path): (path, rows) for path, rows in self.changes.row_deletes.items()}

    @cached_property
    def predicate(self) -> Predicate | None:
        """The predicate to match added rows against; None if any row may match."""
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
        """How the removal of a row or file relates to concurrent removals.

        ``idempotent``: it is fine if already removed, as in a DELETE or the removals of an overwrite. ``exact``: the
        commit adds rows made from it, or change files that mention it. ``rearrangement``: its rows are added again in
        other files.
        """
        changes = self.changes
        if not changes.data_change:
            return "rearrangement"
        # A WRITE that copied rows could resurrect rows deleted concurrently; Delvec's own client lists such files in reads.
        copies = changes.reads is None and changes.metrics.get("numCopiedRows", 0) > 0
        if changes.change_files or copies:
            return "exact"
        only_removes = not changes.adds and changes.operation not in ("UPDATE", "RESTORE", "CLONE")
        return "idempotent" if only_removes or changes.operation in _REPLACES else "exact"

    @cached_property
    def reads_whole_table(self) -> bool:
        """Whether any data change conflicts."""
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
        # Rows added by unknown operations may come from anywhere in the table.
        return bool(changes.adds)

    @cached_property
    def reads_added(self) -> Added:
        """Which rows added by others conflict."""
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
            if overwrites or (takes and changes.operation in APPENDS):
                return "anything"
            return "nothing" if changes.operation in APPENDS else "anything"
        return "nothing"

    def _key(self, path: str) -> str:
        return locations.canonical_log_path(path, self.facts.location)
