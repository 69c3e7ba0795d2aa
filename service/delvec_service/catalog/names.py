"""Names in three parts: the catalog, a schema that is a namespace of Delvec, and a table.

A name without a namespace is in the schema ``default``. Schemas are prefixes of names: they exist without being created.

Tested in `tests/integration/service/catalog/test_unity_catalog.py`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from delvec_contract.access import Role
from delvec_contract.tables import TABLE_NAME
from delvec_errors import BadRequest, NamespaceNotFound, NotFound, TableNotFound
from delvec_service.auth.request_access import Access
from delvec_service.logs import bind_log_context
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord, not_found
from delvec_service.tables.registry import Tables

__all__ = ["DEFAULT_SCHEMA", "CatalogNames", "full_name"]

DEFAULT_SCHEMA: Final = "default"
_PAGE: Final = 1000
_LONGEST: Final = 128


def full_name(schema: str, table: str) -> str:
    """Return Delvec's name of a table.

    Raises:
        BadRequest: no table can have that name.
    """
    name = table if schema == DEFAULT_SCHEMA else f"{schema}.{table}"
    if "." in table or len(name) > _LONGEST or not re.fullmatch(TABLE_NAME, name):
        raise BadRequest(
            f"{schema[:_LONGEST]!r}.{table[:_LONGEST]!r} cannot be the name of a table: use letters, digits, _ and -, "
            f"together at most {_LONGEST} characters.",
            name=name[:_LONGEST],
        )
    return name


@dataclass(frozen=True)
class CatalogNames:
    """The names of one catalog, as one caller sees them.

    Attributes:
        catalog: its name.
        tables: the registered tables.
        access: what the caller may do.
    """

    catalog: str
    tables: Tables
    access: Access

    def check_catalog(self, catalog: str) -> None:
        """Reject another catalog.

        Raises:
            NotFound: the service has one catalog, called otherwise.
        """
        if catalog != self.catalog:
            raise NotFound(
                f"Catalog '{catalog[:_LONGEST]}' does not exist; the catalog of this service is '{self.catalog}' "
                "(DELVEC_CATALOG_NAME).",
                catalog=catalog[:_LONGEST],
            )

    def check_schema(self, catalog: str, schema: str) -> None:
        """Reject a schema that no table's name can begin with.

        Raises:
            NotFound: the catalog is another one.
            NamespaceNotFound: it is not a namespace.
        """
        self.check_catalog(catalog)
        if not re.fullmatch(TABLE_NAME, schema):
            raise NamespaceNotFound(
                f"Schema '{schema[:_LONGEST]}' does not exist: it is not a namespace of table names.",
                namespace=schema[:_LONGEST],
            )

    def open(self, catalog: str, schema: str, table: str, role: Role) -> OpenTable:
        """Return a table on which the caller has a role.

        Raises:
            TableNotFound: there is none of that name, or the caller may not see it.
            PermissionDenied: the caller lacks the role.
            LocationNotAllowed: it is outside the roots.
        """
        return self.tables.opening(self.record(catalog, schema, table, role))

    def record(self, catalog: str, schema: str, table: str, role: Role) -> TableRecord:
        """Return the record of a table on which the caller has a role.

        Raises:
            TableNotFound: or a sibling, see :meth:`open`.
        """
        self.check_schema(catalog, schema)
        name = full_name(schema, table)
        record = self.tables.find(name, self.access)
        if record.name != name:  # an id
            raise not_found(name)
        return self._required(record, role, name)

    def by_id(self, table_id: str, role: Role) -> OpenTable:
        """Return the table with an id.

        Raises:
            TableNotFound: or a sibling, see :meth:`open`.
        """
        record = self.tables.find(table_id, self.access)
        if record.id != table_id:
            raise not_found(table_id)
        return self.tables.opening(self._required(record, role, table_id))

    def _required(self, record: TableRecord, role: Role, name: str) -> TableRecord:
        bind_log_context(table=record.name, table_id=record.id)
        if self.tables.catalog_of(record.name) is not None:
            raise not_found(name)  # it is another catalog's to serve
        self.access.require(record, role, name)
        return record

    def exists(self, name: str) -> bool:
        """Whether a table that the caller sees has this name."""
        try:
            return self.tables.find(name, self.access).name == name
        except TableNotFound:
            return False

    def schemas(self) -> list[str]:
        """Return the namespaces of all tables that the caller sees, and the default one, in order."""
        if self.access.is_restricted:
            schemas = {record.name.rpartition(".")[0] for record in self._visible(self._all())}
        else:
            self.access.is_decided = True  # it sees every table
            schemas = {each for each in self.tables.namespaces() if self._is_own(f"{each}.t")}
        return sorted({DEFAULT_SCHEMA, *(schemas - {""})})

    def names_in(self, schema: str, after: tuple[str, str], limit: int) -> list[TableRecord]:
        """Return up to ``limit`` tables of a schema that the caller sees, by name, after a name and an id."""
        return list(islice(self._visible(self.tables.directly_in(schema, DEFAULT_SCHEMA, after)), limit))

    def _visible(self, records: Iterable[TableRecord]) -> Iterator[TableRecord]:
        self.access.is_decided = True  # each table is asked about
        return (
            record
            for record in records
            if self._is_own(record.name) and self.access.sees(record.id, record.name)
        )

    def _is_own(self, name: str) -> bool:
        return self.tables.catalog_of(name) is None

    def _all(self) -> Iterator[TableRecord]:
        after = ("", "")
        while page := self.tables.page(after, _PAGE):
            yield from page
            after = page[-1].name, page[-1].id
