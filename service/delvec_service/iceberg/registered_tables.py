"""Registered tables as an Iceberg REST catalog: namespaces, and names within them.

A Delvec name with dots is a namespace of one or more levels and a name. One without dots is in the namespace
``default``.

Tested in `tests/integration/service/test_iceberg_catalog.py`.
"""

from collections.abc import Callable, Sequence
from itertools import groupby, islice
from typing import Any, Final

from delvec_errors import NamespaceNotFound, TableNotFound
from delvec_service.iceberg.conversion import IcebergConversion, IcebergTable
from delvec_service.iceberg.scan_tasks import ScanTasks
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord, not_found
from delvec_service.tables.places import Requester
from delvec_service.tables.registry import Tables

__all__ = ["DEFAULT_NAMESPACE", "IcebergCatalog", "with_referenced_snapshots"]

DEFAULT_NAMESPACE: Final = "default"
_PAGE: Final = 1000
_LAST_ID: Final = "z"
"""Comes after every id, in any collation."""


class IcebergCatalog:
    """The read side of a catalog.

    Args:
        tables: the registered tables.
        conversion: writes a table's metadata on request.
        requester: what the caller may see.
        require: raises for a table, requested by that name, that the caller may not read.
    """

    def __init__(
        self,
        tables: Tables,
        conversion: IcebergConversion,
        requester: Requester,
        require: Callable[[TableRecord, str], None],
    ) -> None:
        self._tables = tables
        self._conversion = conversion
        self._requester = requester
        self._require = require

    def namespaces(self, parent: Sequence[str] = ()) -> list[list[str]]:
        """Return the namespaces directly below ``parent``, in order.

        Raises:
            NamespaceNotFound: it contains no table.
        """
        levels = len(parent)
        namespaces = {
            above[: levels + 1]
            for above in self._namespaces(".".join(parent) or None)
            if len(above) > levels and above[:levels] == tuple(parent)
        }
        if not namespaces and parent:
            self.check_namespace(parent)
        return [list(each) for each in sorted(namespaces)]

    def check_namespace(self, namespace: Sequence[str]) -> None:
        """Raise for a namespace without tables, at any level.

        Raises:
            NamespaceNotFound: it has none.
        """
        wanted = tuple(namespace)
        if not any(above[: len(wanted)] == wanted for above in self._namespaces(_prefix(wanted))):
            name = ".".join(wanted)[:200]
            raise NamespaceNotFound(
                f"Namespace '{name}' does not exist: no registered table's name begins with it.",
                namespace=name,
            )

    def table_names(self, namespace: Sequence[str], after: str, limit: int) -> list[str]:
        """Return up to ``limit`` registered names of tables directly in a namespace, in order, starting after ``after``.

        Raises:
            NamespaceNotFound: the namespace does not exist.
        """
        records = self._tables.directly_in(".".join(namespace), DEFAULT_NAMESPACE, (after, _LAST_ID))
        visible = (record.name for record in records if self._requester.sees(record.id, record.name))
        # Tables named after their folders may share a name.
        names = [name for name, _ in islice(groupby(visible), limit)]
        if not names:
            self.check_namespace(namespace)  # it may contain namespaces
        return names

    def open(self, namespace: Sequence[str], name: str) -> OpenTable:
        """Return a table.

        Raises:
            TableNotFound: the namespace has no table of that name.
            PermissionDenied: the caller may not read it.
            AmbiguousTable: several tables match the name.
            LocationNotAllowed: it is outside the roots.
        """
        full = ".".join((*namespace, name))
        record = None
        if tuple(namespace) == (DEFAULT_NAMESPACE,) and "." not in name:
            record, full = self._called(full), name
        record = record or self._called(full)
        if record is None:
            raise not_found(full)
        self._require(record, full)
        return self._tables.opening(record)

    def _called(self, name: str) -> TableRecord | None:
        """Return the table with a name; ids do not count as names here."""
        try:
            found = self._tables.find(name, self._requester)
        except TableNotFound:
            return None
        return found if found.name == name else None

    def load(self, namespace: Sequence[str], name: str, format_version: int) -> IcebergTable:
        """Return a table's metadata at its newest version, written now if it is missing.

        Raises:
            TableNotFound: or a sibling, see :meth:`open`.
            IcebergUnsupported: or a sibling, see :meth:`IcebergConversion.convert`.
        """
        return self._conversion.convert(self.open(namespace, name), format_version=format_version)

    def scan(
        self, namespace: Sequence[str], name: str, format_version: int, snapshot_id: int | None
    ) -> ScanTasks:
        """Return the scan tasks of a snapshot, by default of the newest version.

        Raises:
            TableNotFound: or a sibling, see :meth:`load`.
            NotFound: the snapshot does not exist.
        """
        table = self.open(namespace, name)
        found = self._conversion.convert(table, format_version=format_version)
        return ScanTasks(table, found, snapshot_id, self._conversion.index)

    def _namespaces(self, within: str | None) -> set[tuple[str, ...]]:
        """Return the namespaces of the tables that the caller sees; ``within`` leaves out others."""
        namespaces = set()
        if self._requester.is_restricted:
            after = ("", "")
            while page := self._tables.page(after, _PAGE, within):
                namespaces |= {
                    record.name.rpartition(".")[0]
                    for record in page
                    if self._requester.sees(record.id, record.name)
                }
                after = page[-1].name, page[-1].id
        else:
            namespaces = self._tables.namespaces(within)
        return {tuple((each or DEFAULT_NAMESPACE).split(".")) for each in namespaces}


def _prefix(namespace: tuple[str, ...]) -> str | None:
    """Return the prefix of registered names in a namespace; None for names without one."""
    return None if namespace == (DEFAULT_NAMESPACE,) else ".".join(namespace)


def with_referenced_snapshots(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata without snapshots that no branch or tag names; clients request the others when they need them."""
    named = {each["snapshot-id"] for each in (metadata.get("refs") or {}).values()}
    named.add(metadata.get("current-snapshot-id"))
    kept = [each for each in metadata.get("snapshots") or () if each["snapshot-id"] in named]
    return {**metadata, "snapshots": kept}
