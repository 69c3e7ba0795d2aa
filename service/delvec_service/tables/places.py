"""The rule for places: a place belongs to one table, and to those who maintain its name or its whole namespace.

:meth:`Places.check` is the only decision about it. Every operation that names a place asks it before its first effect:
creating, registering, cloning, converting and importing a table, publishing its Iceberg metadata outside its folder,
issuing credentials for it, and deleting its files.
"""

import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, Protocol
from urllib.parse import unquote

from delvec_errors import FileNotInTable, LocationNotAllowed, PermissionDenied
from delvec_kernel import locations
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import Registry, TableRecord
from delvec_service.tables.namespace_roots import NamespaceRoots
from delvec_service.telemetry.observer import NO_OBSERVER, Observer
from delvec_storage.trees import inner_tables, table_below, tables_among

__all__ = ["UNRESTRICTED", "Places", "Requester", "UnattendedService", "check_new_files", "check_reserved"]

_OF_A_TABLE: Final = ("_delta_log", "_delvec", "_change_data")
"""Folders inside a table: what lies there is its log, or deleted with it."""
_REGISTRATION_LEAD: Final = timedelta(minutes=1)
"""A table is registered before its log is written, at most this long."""
_LOOKED_AT: Final = 1000
"""One page of a listing."""


class Requester(Protocol):
    """Who names a place: :class:`~delvec_service.auth.request_access.Access` of a request, or :data:`UNRESTRICTED`."""

    @property
    def is_restricted(self) -> bool:
        """Whether anything is forbidden."""

    def sees(self, identifier: str, name: str) -> bool:
        """Whether a table exists for the requester."""

    def maintains(self, identifier: str, name: str) -> bool:
        """Whether the requester may rename a table."""

    def holds(self, namespace: str) -> bool:
        """Whether every table of a namespace is the requester's to maintain."""

    def refuse_place(self, name: str, namespaces: Sequence[str]) -> NoReturn:
        """Raise because the place is not the folder of the name, nor in a namespace that is the requester's."""


class _Unrestricted:
    """Holds everything: where no token is required, and in an embedded service."""

    is_restricted = False

    def sees(self, identifier: str, name: str) -> bool:  # noqa: ARG002
        return True

    def maintains(self, identifier: str, name: str) -> bool:  # noqa: ARG002
        return True

    def holds(self, namespace: str) -> bool:  # noqa: ARG002
        return True

    def refuse_place(self, name: str, namespaces: Sequence[str]) -> NoReturn:
        raise AssertionError(name, namespaces)


UNRESTRICTED: Final[Requester] = _Unrestricted()


class UnattendedService:
    """The service itself, in the background or for readers: it opens no new place where tokens are required.

    Args:
        is_open: whether no token is required.
    """

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self._is_open = is_open

    @property
    def is_restricted(self) -> bool:
        """Whether anything is forbidden."""
        return not self._is_open()

    def sees(self, identifier: str, name: str) -> bool:  # noqa: ARG002
        """Whether a table exists for the requester."""
        return self._is_open()

    def maintains(self, identifier: str, name: str) -> bool:  # noqa: ARG002
        """Whether the requester may rename a table."""
        return False

    def holds(self, namespace: str) -> bool:  # noqa: ARG002
        """Whether every table of a namespace is the requester's to maintain."""
        return False

    def refuse_place(self, name: str, namespaces: Sequence[str]) -> NoReturn:  # noqa: ARG002
        """Raise, because nobody asks who may use the place."""
        raise PermissionDenied(
            f"Files of table '{name}' outside its own folder are only begun on request, by a principal who may use "
            "that place. Request it once: POST …/iceberg, or to_iceberg().",
            table=name,
        )


class Places:
    """Decides who may use which place.

    Args:
        registry: the tables that have a place.
        roots: where names belong; probes of storage end at them.
        observer: notified of requests to storage.
    """

    def __init__(self, registry: Registry, roots: NamespaceRoots, observer: Observer = NO_OBSERVER) -> None:
        self._registry = registry
        self._roots = roots
        self._observer = observer

    def check(
        self,
        place: str,
        name: str,
        requester: Requester = UNRESTRICTED,
        *,
        table: TableRecord | None = None,
    ) -> None:
        """Reject a place that is not the requester's, or that is inside, above or equal to another table.

        Registered tables are found with one query, others by their ``_delta_log``: one request to storage for the place
        and each folder above it, up to the roots, and a listing of what is below it. If a table is there already, which
        may have millions of files, only the first thousand are listed.

        Args:
            place: canonical, with links resolved.
            name: the name of the table that is to use it.
            requester: who asks. Errors never reveal a table that the requester cannot see.
            table: the registered table that is to use it; None for a new one.

        Raises:
            LocationNotAllowed: the place belongs to another table.
            PermissionDenied: it is not the folder of the name, nor in a namespace that is the requester's.
            StorageError: storage did not answer.
        """
        is_own = table is not None and table.location == place
        if requester.is_restricted and not is_own and not self._roots.is_own_folder(place, name):
            namespaces = self._roots.namespaces_around(place, name)
            if not any(map(requester.holds, namespaces)):
                requester.refuse_place(name, namespaces)
        check_reserved(place)
        self.check_registered(place, requester, table)
        exists = self._check_above(place, requester, table)
        with self._observer.storage("list"):
            below = table_below(place, _LOOKED_AT if exists else None)
        if below is not None:
            raise _refusal(place, f"above the Delta table at {below}")

    def check_table(self, table: TableRecord, requester: Requester = UNRESTRICTED) -> None:
        """Reject a registered table that shares its place: it was registered by an older version, or not by Delvec.

        Raises:
            LocationNotAllowed: it is inside or above another table.
            StorageError: storage did not answer.
        """
        self.check(table.location, table.name, requester, table=table)

    def check_deletions(self, table: TableRecord, requester: Requester = UNRESTRICTED) -> None:
        """Reject deleting files of a table inside another one: they may be the other's.

        Tables below it do not matter, because VACUUM leaves them alone.

        Raises:
            LocationNotAllowed: it is inside another table.
            StorageError: storage did not answer.
        """
        self.check_registered(table.location, requester, table, below=False)
        self._check_above(table.location, requester, table)

    def shows(self, place: str, requester: Requester) -> bool:
        """Whether errors may name a place to the requester: that of a registered table that exists for it, or any."""
        if not requester.is_restricted:
            return True
        found = self._registry.at(place)
        return found is not None and requester.sees(found.id, found.name)

    def table_around(self, place: str, own: str) -> str | None:
        """Return the innermost table at a place or around it, registered or not, if it is not the one at ``own``.

        Raises:
            StorageError: storage did not answer.
        """
        folders = [place, *locations.folders_above(place)]
        others = self._registry.around(place, folders[1:])
        around = [
            other.location
            for other in others
            if _same(place, other.location) or _inside(place, other.location)
        ]
        with self._observer.storage("list"):
            around += tables_among([each for each in folders if self._roots.everywhere.allows(each)])
        innermost = max(around, key=len, default=own)
        return None if innermost == own else innermost

    def check_registered(
        self, place: str, requester: Requester, table: TableRecord | None, *, below: bool = True
    ) -> None:
        """Reject a place that is inside, above or equal to a registered table other than the given one.

        Raises:
            LocationNotAllowed: it is.
        """
        for other in self._registry.around(place, list(locations.folders_above(place))):
            if table is not None and other.id == table.id:
                continue
            is_seen = requester.sees(other.id, other.name)
            if place == other.location and is_seen:
                continue  # the operation says what it does with a table that exists
            if _same(place, other.location):
                relation = "the location of"
            elif _inside(place, other.location):
                relation = "inside"
            elif below and _inside(other.location, place):
                relation = "above"
            else:
                continue
            if not requester.is_restricted and _is_gone(other):
                continue
            raise _refusal(place, f"{relation} table '{other.name}' at {other.location}" if is_seen else None)

    def _check_above(self, place: str, requester: Requester, table: TableRecord | None) -> bool:
        """Reject a place inside a table that is not registered; return whether the place is a table itself."""
        folders = [place]
        for above in locations.folders_above(place):
            if (table is not None and above == table.location) or not self._roots.everywhere.allows(above):
                break
            folders.append(above)
        # A folder that the service may not list has no table that anyone could have by the service.
        with self._observer.storage("list"):
            found = tables_among(folders)
        around = next((folder for folder in found if folder != place), None)
        if around is not None:
            raise _refusal(place, None if requester.is_restricted else f"inside the Delta table at {around}")
        return place in found


def check_reserved(place: str) -> None:
    """Reject a place in a folder that every Delta table has for itself, whatever its letter case. No I/O.

    Raises:
        LocationNotAllowed: it is in one.
    """
    for part in place.partition("://")[2].split("/"):
        if _folded(part) in _OF_A_TABLE:
            raise LocationNotAllowed(
                f"No table can be at {place}: folders called '{unquote(part)}' belong to the table around them. Use "
                "another location.",
                location=place,
            )


def check_new_files(table: OpenTable, paths: Iterable[str]) -> None:
    """Reject new files of a table that lie in another table below it, or behind a link to one.

    One request to storage for each folder of the files below the table's own.

    Args:
        table: the table.
        paths: the paths, as in the log, relative.

    Raises:
        FileNotInTable: a file does.
        StorageError: storage did not answer.
    """
    urls = (locations.resolve(table.location, path) for path in paths)
    inside = [
        locations.relative_to(table.location, url) for url in urls if locations.within(url, table.location)
    ]
    folders = {path.rpartition("/")[0]: path for path in inside if "/" in path}
    if not folders:
        return
    with table.observer.storage("list"):
        others = inner_tables(table.location, folders.values(), is_allowed=table.roots.allows)
    for folder, path in folders.items():
        for other in others:
            if locations.within(folder, other):
                raise _not_in_table(table, path, other)
        for above in tables_among(_behind_link(table, folder)):
            raise _not_in_table(table, path, above)


def _behind_link(table: OpenTable, folder: str) -> list[str]:
    """Return the place to which a link leads out of a table, and the folders above it."""
    top = locations.local_path(table.location)
    if top is None:
        return []
    place = locations.canonical(os.path.realpath(top / unquote(folder)))
    if locations.within(place, locations.canonical(os.path.realpath(top))):
        return []
    return [place, *locations.folders_above(place)]


def _not_in_table(table: OpenTable, path: str, other: str) -> FileNotInTable:
    return FileNotInTable(
        f"'{path[:300]}' cannot be a file of table '{table.name}': '{other[:300]}' is another Delta table. Write it "
        "elsewhere in the table.",
        table=table.name,
        file=path[:300],
    )


def _refusal(place: str, relation: str | None) -> LocationNotAllowed:
    """Return the error for a place of another table, of which only those learn more who may see it."""
    shown = relation or "inside, above or equal to that of another table"
    return LocationNotAllowed(
        f"The location {place} cannot be used: it is {shown}, and a place belongs to one table. VACUUM of each would "
        "delete files of the other. Use another location.",
        location=place,
    )


def _folded(name: str) -> str:
    """Return a name as file systems compare it that ignore letter case, and how accents are encoded."""
    return unicodedata.normalize("NFC", unquote(name)).casefold()


def _same(place: str, other: str) -> bool:
    """Whether two canonical locations are one folder, on a local file system that may ignore letter case."""
    if place == other:
        return True
    mine, theirs = locations.local_path(place), locations.local_path(other)
    if mine is None or theirs is None or _folded(place) != _folded(other):
        return False
    try:
        return mine.samefile(theirs)
    except OSError:
        return False


def _inside(place: str, other: str) -> bool:
    """Whether a place is below another one."""
    depth = other.count("/")
    parts = place.split("/")
    return len(parts) > depth + 1 and _same("/".join(parts[: depth + 1]), other)


def _is_gone(table: TableRecord) -> bool:
    """Whether a registered table was deleted from storage, and is not being created now."""
    if datetime.now(UTC) - table.created_at.astimezone(UTC) < _REGISTRATION_LEAD:
        return False
    return not tables_among([table.location])
