"""The port to the catalog that decides on a table's commits (PROTOCOL.md, "Catalog-managed tables").

Where no catalog does, the log decides by itself: :class:`~delvec_service.store.objects.ObjectStore` is that case, and
:class:`~delvec_service.store.managed_log.ManagedLog` the other one.

Tested in `tests/integration/service/catalog_client/test_managed_log.py`.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from delvec_errors import DelvecError
from delvec_kernel.actions.actions import DomainMetadata, Metadata
from delvec_kernel.actions.actions import Protocol as TableProtocol

__all__ = [
    "CLEAN_DATA",
    "CLEAN_LOG",
    "REORGANIZE",
    "STAGED",
    "CommitCoordinator",
    "Maintenance",
    "Outcome",
    "Proposal",
    "ProposalAnswer",
    "Ratified",
    "RatifiedCommit",
    "TableChange",
]

STAGED: Final = "_delta_log/_staged_commits"

Maintenance: TypeAlias = Literal["DATA_REORGANIZATION", "DATA_CLEANUP", "METADATA_CLEANUP"]
REORGANIZE: Final = "DATA_REORGANIZATION"
CLEAN_DATA: Final = "DATA_CLEANUP"
CLEAN_LOG: Final = "METADATA_CLEANUP"


Outcome: TypeAlias = Literal["accepted", "conflict", "full", "refused", "unsent", "unknown"]


@dataclass(frozen=True, slots=True)
class RatifiedCommit:
    """A commit that is a version of the table, and whose file may only be in ``_staged_commits``.

    Attributes:
        file_name: a path segment.
        size: in bytes.
        modified_ms: when the file was written.
    """

    file_name: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Ratified:
    """What a catalog says about a table.

    Attributes:
        latest: the newest version.
        commits: those of its newest versions that nobody has reported as published.
        allowed: what maintenance the catalog leaves to its clients.
    """

    latest: int
    commits: Mapping[int, RatifiedCommit] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a commit changes about the table itself, which the catalog repeats to its clients.

    Attributes:
        protocol: if it changes.
        metadata: if it changes.
        domains: that change.
        before: the metadata of the version before.
    """

    protocol: TableProtocol | None
    metadata: Metadata | None
    domains: Sequence[DomainMetadata]
    before: Metadata | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A staged commit that is to become a version.

    Attributes:
        timestamp: its in-commit timestamp.
        commit: its file.
    """

    version: int
    timestamp: int
    commit: RatifiedCommit
    change: TableChange


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """How a catalog answered a proposal; only what it has ratified says whose the version is.

    Attributes:
        outcome: ``full`` if versions must be published first, ``unsent`` if the request did not reach the catalog.
        ratified: what the answer says about the table, if it does.
        error: what to raise, unless the outcome is ``accepted``.
    """

    outcome: Outcome
    ratified: Ratified | None = None
    error: DelvecError | None = None


class CommitCoordinator(Protocol):
    """One table of a catalog. Safe to share between threads."""

    @property
    def times(self) -> MutableMapping[int, int]:
        """Of the files of versions that were listed before they were published, by version."""

    @property
    def table_id(self) -> str:
        """The table's id in the catalog."""

    def latest(self) -> Ratified:
        """Ask the catalog.

        Raises:
            CatalogUnavailable: it does not answer, or not as a catalog does.
            TableNotFound: it has another table of that name, or none.
        """

    def known(self) -> Ratified:
        """Return the last answer; asks if there was none. Raises as :meth:`latest`."""

    def doubt(self) -> None:
        """Forget how far the table is said to have come: that was wrong."""

    def propose(self, proposal: Proposal) -> ProposalAnswer:
        """Ask for a version. The same proposal may be sent again."""

    def published(self, version: int) -> None:
        """Report that the log has all versions up to this one. Raises as :meth:`latest`."""
