"""The other catalogs that a service knows: which names are theirs, and their tables.

A name of such a table begins with the catalog's: ``main.sales.orders``.

Tested in `tests/integration/service/catalog_client/test_catalogs.py`.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cachetools import LRUCache
from pydantic import SecretStr

from delvec_contract.tables import TABLE_NAME
from delvec_contract.unity_catalog import ListedName
from delvec_errors import BadRequest, DelvecError, InvalidLocation, PermissionDenied, TableNotFound
from delvec_kernel.locations import canonical, table_id
from delvec_service.catalog_client.catalog_table import CatalogTable, is_managed
from delvec_service.catalog_client.staged_table import TableToCreate, drop_table
from delvec_service.catalog_client.unity_catalog import RemoteName, UnityCatalog
from delvec_service.config import CatalogSettings, is_sendable
from delvec_service.logs import logger
from delvec_service.store.registry import TableRecord

__all__ = ["Catalogs", "catalogs_of"]

_PARTS: Final = 3
_MAX_TABLES: Final = 1000
_MAX_LISTED: Final = 100_000
_LISTED_SECONDS: Final = 5.0
_LONGEST: Final = 128


class Catalogs:
    """Other catalogs, by the names that they have here. Safe to share between threads.

    Args:
        settings: by name.

    Raises:
        BadRequest: a URL is no URL, or would send a token unencrypted.
    """

    def __init__(self, settings: Mapping[str, CatalogSettings]) -> None:
        self._settings = dict(settings)
        self._servers = {
            name: UnityCatalog(name, each.url, _token_of(name, each)) for name, each in settings.items()
        }
        self._lock = threading.Lock()
        self._tables: LRUCache[str, CatalogTable] = LRUCache(_MAX_TABLES)
        self._listed: dict[tuple[str, str | None], tuple[float, list[TableRecord]]] = {}

    def __bool__(self) -> bool:
        return bool(self._servers)

    def catalog_of(self, name: str) -> str | None:
        """Return the catalog that a table's name belongs to, if it is one of these."""
        catalog, dot, _ = name.partition(".")
        return catalog if dot and catalog in self._servers else None

    def load(self, name: str) -> CatalogTable:
        """Ask a catalog for the table that has a name now.

        Raises:
            TableNotFound: it has none.
            UnsupportedOperation: it does not manage the table's commits.
            CatalogUnavailable: or a sibling: it does not answer.
        """
        server, remote = self._remote(name)
        answer = server.load(remote)
        with self._lock:
            cached_table = self._tables.get(name)
        if cached_table is not None and cached_table.table_id == answer.metadata.table_uuid:
            return cached_table
        table = CatalogTable(server, remote, answer)
        with self._lock:
            self._tables[name] = table
        if cached_table is not None:
            cached_table.close()
        return table

    def table(self, name: str, location: str) -> CatalogTable:
        """Return the table of a name that was found before; asks only if it is not in memory.

        Raises:
            TableNotFound: the name has another table by now, or none.
            CatalogUnavailable: or a sibling: it does not answer.
        """
        with self._lock:
            cached_table = self._tables.get(name)
        if cached_table is None or cached_table.location != location:
            cached_table = self.load(name)
        if cached_table.location != location:
            raise TableNotFound(
                f"Table '{name}' is at {cached_table.location} by now, and no longer at {location}. Open it again by its name.",
                table=name,
            )
        return cached_table

    def stage(self, name: str) -> TableToCreate:
        """Request a place for a new table.

        Raises:
            TableAlreadyExists: a table has the name.
            BadRequest: it is not the name of a table of a catalog.
            DelvecError: as :meth:`load`.
        """
        try:
            server, remote = self._remote(name)
        except TableNotFound as error:
            raise BadRequest(error.message, name=name[:_LONGEST]) from None
        return TableToCreate(server, remote, server.stage(remote))

    def drop(self, name: str) -> None:
        """Drop the table that has a name now. Whether its files stay is the catalog's to decide.

        Raises:
            TableNotFound: there is none.
            CommitOutcomeUnknown: the catalog does not tell what happened.
            DelvecError: as :meth:`load`.
        """
        server, remote = self._remote(name)
        drop_table(server, remote)
        with self._lock:
            held = self._tables.pop(name, None)
            self._listed.clear()
        if held is not None:
            held.close()

    def records(self, namespace: str | None) -> list[TableRecord]:
        """Return the managed tables below a namespace, or all, by name.

        Raises:
            CatalogUnavailable: or a sibling: the catalog of the namespace does not answer. Of all tables, those of a
                catalog that does not answer are left out.
        """
        if namespace is not None:
            catalog, _, schema = namespace.partition(".")
            return self._of_catalog(catalog, schema or None) if catalog in self._servers else []
        records: list[TableRecord] = []
        for name in sorted(self._servers):
            try:
                records += self._of_catalog(name, None)
            except DelvecError as error:
                logger.warning("catalog not listed", catalog=name, reason=error.message)
        return records

    def close(self) -> None:
        """Close the connections, and forget credentials."""
        with self._lock:
            tables = list(self._tables.values())
            self._tables.clear()
        for table in tables:
            table.close()
        for server in self._servers.values():
            server.close()

    def _remote(self, name: str) -> tuple[UnityCatalog, RemoteName]:
        parts = name.split(".")
        if len(parts) != _PARTS or len(name) > _LONGEST:
            raise TableNotFound(
                f"'{name[:200]}' is not a table of the catalog '{parts[0]}'; name it {parts[0]}.schema.table.",
                table=name[:200],
            )
        catalog, schema, table = parts
        return self._servers[catalog], RemoteName(self._settings[catalog].catalog or catalog, schema, table)

    def _of_catalog(self, name: str, schema: str | None) -> list[TableRecord]:
        with self._lock:
            cached = self._listed.get((name, schema))
        if cached is not None and time.monotonic() - cached[0] < _LISTED_SECONDS:
            return cached[1]
        began = time.monotonic()
        server, remote = self._servers[name], self._settings[name].catalog or name
        records: list[TableRecord] = []
        for each in [schema] if schema is not None else server.schemas(remote):
            records += [
                record
                for table in server.tables(remote, each)
                if (record := _record(f"{name}.{each}.{table.name}", table)) is not None
            ]
            if len(records) > _MAX_LISTED:
                raise BadRequest(
                    f"The catalog '{name}' has more than {_MAX_LISTED} tables; list those of one schema: {name}.<schema>."
                )
        records.sort(key=lambda record: (record.name, record.id))
        with self._lock:
            self._listed[name, schema] = began, records
        return records


def catalogs_of(url: str, token: str | None) -> dict[str, CatalogSettings]:
    """Return settings for all catalogs of a server, under their own names.

    Raises:
        BadRequest: the URL is invalid.
        PermissionDenied: the token does not allow it.
        CatalogUnavailable: the server does not answer.
    """
    settings = CatalogSettings(url=url, token=None if token is None else SecretStr(token))
    server = UnityCatalog("catalog", url, _token_of("catalog", settings))
    try:
        return {
            name: settings for name in server.catalogs() if re.fullmatch(TABLE_NAME, name) and "." not in name
        }
    finally:
        server.close()


def _record(name: str, table: ListedName) -> TableRecord | None:
    """Return a listed table as it would be registered; None for those that Delvec does not open through the catalog."""
    if not is_managed(table.properties or {}) or len(name) > _LONGEST or not re.fullmatch(TABLE_NAME, name):
        return None
    try:
        location = canonical(table.storage_location or "")
    except InvalidLocation:
        return None
    created = datetime.fromtimestamp((table.created_at or 0) // 1000 % 2**32, UTC)
    return TableRecord(table_id(location), name, location, created, is_named=True)


def _token_of(name: str, settings: CatalogSettings) -> Callable[[], str | None]:
    """Return what reads a catalog's token: a file may be renewed at any time."""

    def token() -> str | None:
        if settings.token is not None:
            return settings.token.get_secret_value()
        if settings.token_file is None:
            return None
        try:
            text = Path(settings.token_file).read_text().strip()
        except (OSError, ValueError) as error:
            raise PermissionDenied(
                f"The token of the catalog '{name}' cannot be read from {settings.token_file}: {error}."
            ) from None
        if not is_sendable(text):
            raise PermissionDenied(f"The file {settings.token_file} has no token of the catalog '{name}'.")
        return text

    return token
