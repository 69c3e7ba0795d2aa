"""The directories and buckets that tables, and the files that their logs name, must lie in."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from delvec_kernel import locations
from delvec_kernel.errors import InvalidLocation, LocationNotAllowed

__all__ = ["Roots"]

_MAX_LOCATION: Final = 2000
_ADVICE: Final = "add its directory to the service's DELVEC_ROOTS, or to roots= of connect()"


class Roots:
    """The directories and buckets that tables may lie in; without any, everywhere. Travels to executors.

    Symbolic links are followed before the comparison, so a link inside a root does not lead out of it, and
    two paths of one directory are one location.

    Args:
        roots: paths or URLs; a relative path starts from the working directory.

    Raises:
        InvalidLocation: a root is neither.
    """

    def __init__(self, roots: Sequence[str] = ()) -> None:
        self._given = tuple(locations.canonical(locations.absolute(root)) for root in roots)
        self._roots = [_real(root) for root in self._given]

    def __reduce__(self) -> tuple[Any, ...]:
        # Links may lead elsewhere on another machine.
        return Roots, (self._given,)

    def __bool__(self) -> bool:
        return bool(self._roots)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roots) and self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given)

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
                f"The location {location} lies outside the roots that tables may use; "
                f"use another location, or {_ADVICE}.",
                location=location,
            )

    def check_files(self, location: str, paths: Iterable[str | None], *, table: str, version: int) -> None:
        """Refuse files of a plan that lie outside every root, links included, before an engine opens them.

        Args:
            location: the table's canonical location.
            paths: as in the log; None is passed over.
            table: for errors.
            version: for errors.

        Raises:
            LocationNotAllowed: one does.
        """
        for path in filter(None, paths) if self._roots else ():
            url = locations.resolve(location, path)
            if not self.allows(url):
                raise LocationNotAllowed(
                    f"The file {url} of table '{table}' (version {version}) lies outside the roots that tables may use; "
                    f"{_ADVICE} if the table may use it.",
                    table=table,
                    version=version,
                    file=path,
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
