"""A registered table that may be accessed, within the configured roots."""

from dataclasses import dataclass
from functools import cached_property, partial

from delvec_errors import UnsupportedOperation
from delvec_service.store.commit_coordinator import CommitCoordinator, Maintenance
from delvec_service.store.managed_log import ManagedLog
from delvec_service.store.objects import MAX_COMMIT_BYTES, ObjectStore
from delvec_service.store.registry import TableRecord
from delvec_service.telemetry.observer import NO_OBSERVER, Observer
from delvec_storage.roots import Roots

__all__ = ["OpenTable"]


@dataclass(frozen=True)
class OpenTable:
    """A registered table that may be accessed.

    Attributes:
        coordinator: the table in the catalog that decides on its commits; None where the log does.
    """

    record: TableRecord
    roots: Roots
    max_commit_bytes: int = MAX_COMMIT_BYTES
    observer: Observer = NO_OBSERVER
    coordinator: CommitCoordinator | None = None

    @property
    def name(self) -> str:
        """The table's name in errors."""
        return self.record.name

    @property
    def location(self) -> str:
        """The canonical location, without a trailing slash."""
        return self.record.location

    def check_maintenance(self, maintenance: Maintenance) -> None:
        """Reject maintenance that the catalog of the table does not leave to its clients.

        Raises:
            UnsupportedOperation: it does not.
        """
        if not self.objects.allows(maintenance):
            raise UnsupportedOperation(
                f"The catalog of table '{self.name}' keeps this kind of maintenance to itself: {maintenance} is not among "
                "its allowed-maintenance-operations.",
                table=self.name,
            )

    @cached_property
    def objects(self) -> ObjectStore:
        """The table's files."""
        store = ObjectStore if self.coordinator is None else partial(ManagedLog, self.coordinator)
        return store(
            self.record.location,
            is_allowed=self.roots.allows,
            max_commit_bytes=self.max_commit_bytes,
            observer=self.observer,
        )
