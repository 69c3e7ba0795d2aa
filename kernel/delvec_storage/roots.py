"""Allowed roots: the directories and buckets that must contain all tables and the files their logs reference.

Tested in `tests/integration/engines/test_roots.py` and `tests/integration/service/test_confinement.py`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from delvec_errors import InvalidLocation, LocationNotAllowed
from delvec_kernel import locations

__all__ = ["Roots"]

_MAX_LOCATION: Final = 2000
_ADVICE: Final = "add its directory to the service's DELVEC_ROOTS, or to roots= of connect()"


class Roots:
    """The allowed directories and buckets; empty allows everything. Picklable, for Spark executors.

    Symbolic links are resolved before the comparison, so a link inside a root does not lead out of it, and
    two paths of one directory are one location.

    Args:
        roots: paths or URLs; relative paths are resolved against the working directory.
        other_roots: roots of other namespaces. Of nested roots the innermost applies, whichever namespace it belongs to.
        namespace: the owner of the roots, for errors; None if namespaces have no separate roots.

    Raises:
        InvalidLocation: a root is neither a path nor a supported URL.
    """

    def __init__(
        self, roots: Sequence[str] = (), other_roots: Sequence[str] = (), namespace: str | None = None
    ) -> None:
        self._given = tuple(_canonical(root) for root in roots)
        self._other_roots = tuple(_canonical(root) for root in other_roots)
        self._namespace = namespace
        self._roots = [_real(root) for root in self._given]
        self._others = [
            real
            for real in map(_real, self._other_roots)
            if not self._roots or any(locations.within(real, root) for root in self._roots)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        # Resolve again on the other machine, where links may differ.
        return Roots, self.arguments

    @property
    def arguments(self) -> tuple[Sequence[str], Sequence[str], str | None]:
        """The constructor's arguments for the same roots."""
        return self._given, self._other_roots, self._namespace

    def __bool__(self) -> bool:
        return bool(self._roots or self._others)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roots) and self.arguments == other.arguments

    def __hash__(self) -> int:
        return hash((self._given, self._other_roots))

    def __iter__(self) -> Iterator[str]:
        return iter(self._roots)

    @property
    def first(self) -> str | None:
        """The first root, canonical."""
        return self._roots[0] if self._roots else None

    def canonical(self, location: str) -> str:
        """Return the canonical, link-free URL of a location in a request.

        Raises:
            InvalidLocation: it is not a location, or is relative, which only the client could resolve.
            LocationNotAllowed: it is outside every root.
        """
        canonical = _real(locations.canonical(location))
        if len(canonical) > _MAX_LOCATION:
            raise InvalidLocation(
                f"The location is too long; as a URL it may have at most {_MAX_LOCATION} characters."
            )
        self.check(canonical)
        return canonical

    def check(self, location: str) -> None:
        """Reject a canonical location that is now outside every root.

        Raises:
            LocationNotAllowed: it is outside, or a symbolic link leads outside.
        """
        if not self.allows(location) or not self.allows(f"{location}/_delta_log"):
            raise LocationNotAllowed(
                f"The location {location} is outside the roots that {self._tables} may use; use another "
                f"location, or {self._advice}.",
                location=location,
            )
        if any(locations.within(root, location) for root in self._others):
            raise LocationNotAllowed(
                f"The location {location} contains roots of other namespaces, whose tables would then be "
                "inside this one; use another location.",
                location=location,
            )

    def check_files(self, location: str, paths: Iterable[str | None], *, table: str, version: int) -> None:
        """Reject files of a plan outside every root, with links resolved, before an engine opens them.

        Args:
            location: the table's canonical location.
            paths: the paths, as in the log; None is ignored.
            table: the table's name, for errors.
            version: the version, for errors.

        Raises:
            LocationNotAllowed: a file is outside.
        """
        folders: dict[str, bool] = {}
        for path in filter(None, paths) if self else ():
            url = locations.resolve(location, path)
            folder = url.rpartition("/")[0]
            if folder not in folders:
                folders[folder] = self.allows(folder)
            # Links are not resolved for each of up to a million files: one that is no link is where its folder is.
            if (_is_link(url) or not folders[folder]) and not self.allows(url):
                raise LocationNotAllowed(
                    f"The file {url} of table '{table}' (version {version}) is outside the roots that "
                    f"{self._tables} may use; {self._advice} if the table may use it.",
                    table=table,
                    version=version,
                    file=path,
                )

    def allows(self, url: str) -> bool:
        """Whether the file or directory at a canonical URL is in a root."""
        return not self or self._contains(_real(url))

    def _contains(self, real: str) -> bool:
        return self.depth(real) > max(
            (len(root) for root in self._others if locations.within(real, root)), default=-1
        )

    def depth(self, real: str) -> int:
        """Return the length of the innermost root that contains a canonical, link-free URL; -1 for none, 0 without roots."""
        if not self._roots:
            return 0
        return max((len(root) for root in self._roots if locations.within(real, root)), default=-1)

    @property
    def _tables(self) -> str:
        if self._namespace is None:
            return "tables"
        if not self._namespace:
            return "tables outside the namespaces that have their own roots"
        return f"tables of the namespace '{self._namespace}'"

    @property
    def _advice(self) -> str:
        if self._namespace is None:
            return _ADVICE
        if not self._namespace:
            return (
                "give the table a name in the namespace that owns these roots, or add its directory to "
                "DELVEC_ROOTS"
            )
        return f"add its directory to the roots of '{self._namespace}' in DELVEC_NAMESPACE_ROOTS"


def _canonical(root: str) -> str:
    return locations.canonical(locations.absolute(root))


def _is_link(url: str) -> bool:
    name = locations.local_name(url)
    return name is not None and os.path.islink(name)  # noqa: PTH114 - for every file of a plan


def _real(url: str) -> str:
    name = locations.local_name(url)
    return url if name is None else locations.canonical(os.path.realpath(name))
