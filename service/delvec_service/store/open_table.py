"""A registered table that may be worked on, within the configured roots."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from delvec_kernel import locations
from delvec_kernel.errors import (
    InvalidLocation,
    LocationNotAllowed,
)
from delvec_service.store.objects import MAX_COMMIT_BYTES, ObjectStore
from delvec_service.store.registry import TableRecord

__all__ = ["OpenTable", "Roots"]

_MAX_LOCATION: Final = 2000


class Roots:
    """The directories and buckets that tables may lie in; without any, everywhere.

    Symbolic links are followed before the comparison, so a link inside a root does not lead out of it, and
    two paths of one directory are one location.

    Args:
        roots: paths or URLs; a relative path starts from the working directory.

    Raises:
        InvalidLocation: a root is neither.
    """

    def __init__(self, roots: Sequence[str] = ()) -> None:
        self._roots = [_real(locations.canonical(locations.absolute(root))) for root in roots]

    @property
    def first(self) -> str | None:
        """The first root, canonical."""
        return self._roots[0] if self._roots else None

    def canonical(self, location: str) -> str:
        """Return the canonical, link-free URL of a location in a request.

        Raises:
            InvalidLocation: it is not a location, or is relative: the working directory is the client's.
            LocationNotAllowed: it lies outside every root.
        """
        canonical = _real(locations.canonical(location))
        if len(canonical) > _MAX_LOCATION:
            raise InvalidLocation(f"A location has at most {_MAX_LOCATION} characters as a URL.")
        self.check(canonical)
        return canonical

    def check(self, location: str) -> None:
        """Refuse a canonical location that lies outside every root by now.

        Raises:
            LocationNotAllowed: it does, or a symbolic link leads there.
        """
        if not self.allows(location) or not self.allows(f"{location}/_delta_log"):
            raise LocationNotAllowed(
                f"The location {location} lies outside the roots that this service may work in; "
                "use another location, or add its directory to DELVEC_ROOTS.",
                location=location,
            )

    def allows(self, url: str) -> bool:
        """Whether the file or directory at a canonical URL lies in a root."""
        if not self._roots:
            return True
        real = _real(url)
        return any(locations.within(real, root) for root in self._roots)


def _real(url: str) -> str:
    path = locations.local_path(url)
    return url if path is None else locations.canonical(os.path.realpath(path))


@dataclass(frozen=True)
class OpenTable:
    """A registered table that may be worked on."""

    record: TableRecord
    roots: Roots
    max_commit_bytes: int = MAX_COMMIT_BYTES

    @property
    def name(self) -> str:
        """What errors call the table."""
        return self.record.name

    @property
    def location(self) -> str:
        """Canonical, without a trailing slash."""
        return self.record.location

    @cached_property
    def objects(self) -> ObjectStore:
        """The table's files."""
        return ObjectStore(
            self.record.location, allowed=self.roots.allows, max_commit_bytes=self.max_commit_bytes
        )
