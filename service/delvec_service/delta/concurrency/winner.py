"""A commit that came first: what it did, in the form that the conflict check asks for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from delvec.protocol import locations
from delvec_service.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from delvec_service.delta.changes import RowRun
from delvec_service.delta.concurrency import row_runs
from delvec_service.delta.concurrency.row_runs import SourceRuns
from delvec_service.delta.concurrency.targets import num_records
from delvec_service.delta.group import MemberInfo, members_of

__all__ = ["Winner"]

_MANY_ROWS: Final = 2**27
_ONLY_DELETES_MORE: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


@dataclass(frozen=True)
class Winner:
    """What a commit that came first did.

    Attributes:
        adds: by canonical path; where a path is added twice, the last.
        removes: by canonical path.
        txns: by application.
        domains: by name.
    """

    version: int
    info: CommitInfo | None
    adds: Mapping[str, AddFile]
    removes: Mapping[str, RemoveFile]
    metadata: Metadata | None
    protocol: Protocol | None
    txns: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]
    location: str

    @classmethod
    def of(cls, version: int, actions: Iterable[Action], location: str) -> "Winner":
        """Sort the actions of a commit of the table at ``location``.

        Raises:
            CorruptLog: or a sibling: a path cannot be one of the table's.
        """
        info: CommitInfo | None = None
        metadata: Metadata | None = None
        protocol: Protocol | None = None
        adds: dict[str, AddFile] = {}
        removes: dict[str, RemoveFile] = {}
        txns: dict[str, Txn] = {}
        domains: dict[str, DomainMetadata] = {}
        for action in actions:
            match action:
                case AddFile():
                    adds[locations.canonical_log_path(action.path, location)] = action
                case RemoveFile():
                    removes[locations.canonical_log_path(action.path, location)] = action
                case CommitInfo():
                    info = info or action
                case Metadata():
                    metadata = action
                case Protocol():
                    protocol = action
                case Txn():
                    txns[action.app_id] = action
                case DomainMetadata():
                    domains[action.domain] = action
        return cls(version, info, adds, removes, metadata, protocol, txns, domains, location)

    @property
    def operation(self) -> str:
        """As commitInfo says it."""
        return (self.info.operation if self.info else None) or "unknown operation"

    @property
    def txn_id(self) -> str | None:
        """The transaction id, where the commit says one; a group's is nobody's."""
        return self.info.txn_id if self.info else None

    @cached_property
    def members(self) -> Sequence[MemberInfo]:
        """The transactions that share the commit; none for a commit of one, or where the list is unreadable."""
        return members_of(self.info) if self.info else ()

    @property
    def is_blind_append(self) -> bool:
        """Whether it says that it read nothing, and did nothing but add."""
        return self.info is not None and self.info.is_blind_append is True and not self.removes

    @cached_property
    def new_files(self) -> Mapping[str, AddFile]:
        """Adds of paths that it does not remove as well: new, or added again as they were."""
        if not self.adds or self.adds.keys() <= self.removes.keys():
            return {}
        return {path: add for path, add in self.adds.items() if path not in self.removes}

    @cached_property
    def changes_data(self) -> bool:
        """Whether some action changes rows and does not only arrange them another way."""
        return any(add.data_change for add in self.adds.values()) or any(
            remove.data_change for remove in self.removes.values()
        )

    @property
    def only_deletes_more(self) -> bool:
        """Whether the deletion vectors that it changed are known to hold the rows that they held before."""
        return self.operation in _ONLY_DELETES_MORE

    @property
    def is_restore(self) -> bool:
        """Whether it brought back what the table was once."""
        return self.operation == "RESTORE"

    @cached_property
    def sources(self) -> Mapping[str, SourceRuns]:
        """Where it put the rows of the files that it compacted, by canonical path; nothing where it does not say.

        Nor where it says so of more rows than the file has: to follow them would take any amount of memory.
        """
        return {
            key: runs
            for key, runs in row_runs.by_source(self._runs).items()
            if key in self.removes and runs.total <= (num_records(self.removes[key]) or _MANY_ROWS)
        }

    def rows_of(self, output: str) -> int:
        """Return how many rows a compaction put into an output, those that it deleted there at once among them."""
        return sum(run.count for run in self._runs.get(output, ()))

    @cached_property
    def _runs(self) -> Mapping[str, Sequence[RowRun]]:
        text = (self.info.tags or {}).get(row_runs.TAG) if self.info else None
        if not isinstance(text, str) or self.changes_data:
            return {}
        return row_runs.decode(text, self.location)
