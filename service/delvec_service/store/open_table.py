"""A registered table that may be accessed, within the configured roots."""

from dataclasses import dataclass
from functools import cached_property

from delvec_service.store.objects import MAX_COMMIT_BYTES, ObjectStore
from delvec_service.store.registry import TableRecord
from delvec_service.telemetry.observer import NO_OBSERVER, Observer
from delvec_storage.roots import Roots

__all__ = ["OpenTable"]


@dataclass(frozen=True)
class OpenTable:
    """A registered table that may be accessed."""

    record: TableRecord
    roots: Roots
    max_commit_bytes: int = MAX_COMMIT_BYTES
    observer: Observer = NO_OBSERVER

    @property
    def name(self) -> str:
        """The table's name in errors."""
        return self.record.name

    @property
    def location(self) -> str:
        """The canonical location, without a trailing slash."""
        return self.record.location

    @cached_property
    def objects(self) -> ObjectStore:
        """The table's files."""
        return ObjectStore(
            self.record.location,
            allowed=self.roots.allows,
            max_commit_bytes=self.max_commit_bytes,
            observer=self.observer,
        )
