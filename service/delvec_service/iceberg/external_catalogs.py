"""External catalogs that list converted tables: SQL and REST catalogs, through PyIceberg and its configuration.

A catalog always points to published metadata, so what it shows is complete, at worst outdated. A SQL catalog stores
the location of a metadata file, which is replaced with the newest one if it has not changed since it was read. A REST
catalog writes its own metadata: it gets our changes as a commit, which it only accepts on top of the snapshot that
was read.
"""

import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

from delvec_errors import BadRequest, DelvecError, EngineUnavailable, IcebergCatalogError
from delvec_iceberg.table_metadata import DELTA_TABLE_ID, VERSION_TAG
from delvec_service.iceberg.metadata_directory import IcebergDirectory, Published
from delvec_service.store.iceberg_sql_catalog import exchange_metadata, metadata_location

__all__ = ["ALL", "ExternalCatalogs", "catalog_and_table"]

ALL: Final = "*"
_ATTEMPTS: Final = 5
_MAIN: Final = "main"


class _Catalog(Protocol):
    """Updates a catalog to the newest metadata."""

    def point(self, identifier: tuple[str, ...], directory: IcebergDirectory) -> bool:
        """Try once; False if another writer was faster.

        Raises:
            IcebergCatalogError: the catalog has another table of that name, or cannot be updated.
        """


class ExternalCatalogs:
    """Catalogs that PyIceberg's configuration names (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__…``). Safe to share.

    Args:
        allowed: names of catalogs to which this service may write; ``*`` allows all.
    """

    def __init__(self, allowed: tuple[str, ...] = ()) -> None:
        self._allowed = allowed
        self._lock = threading.Lock()
        self._loaded: dict[str, _Catalog] = {}

    def point(self, catalog_table: str, directory: IcebergDirectory, table: str) -> str:
        """Update a catalog to the newest metadata of a directory, and return the table's full name there.

        Args:
            catalog_table: a catalog, or a table in it such as ``prod.sales.orders``; a missing namespace is created.
            directory: contains published metadata.
            table: the Delta table's name, used if ``catalog_table`` has none.

        Raises:
            BadRequest: the catalog does not exist, or writing to it is not allowed.
            EngineUnavailable: PyIceberg is not installed.
            IcebergCatalogError: the catalog rejected the update, failed, or has another table of that name; it is
                unchanged.
        """
        name, identifier = catalog_and_table(catalog_table, table)
        full = ".".join((name, *identifier))
        try:
            catalog = self._catalog(name)
            for _ in range(_ATTEMPTS):
                if catalog.point(identifier, directory):
                    return full
        except DelvecError:
            raise
        except Exception as error:
            raise IcebergCatalogError(
                f"The Iceberg catalog '{name}' did not accept table '{full}' ({type(error).__name__}: "
                f"{str(error)[:300]}). The converted metadata is published at '{directory.location}'; the catalog "
                "still shows the previous state. Convert again once the catalog answers.",
                catalog=name,
                table=table,
            ) from error
        raise IcebergCatalogError(
            f"Other writers changed table '{full}' of the Iceberg catalog first, {_ATTEMPTS} times; try again.",
            catalog=name,
            table=table,
        )

    def _catalog(self, name: str) -> _Catalog:
        if ALL not in self._allowed and name not in self._allowed:
            raise BadRequest(
                f"This service is not allowed to write to the Iceberg catalog '{name[:100]}'; allow it with "
                "DELVEC_ICEBERG_CATALOGS.",
                catalog=name[:100],
            )
        with self._lock:
            found = self._loaded.get(name)
            if found is None:
                found = self._loaded[name] = _load(name)
            return found


def catalog_and_table(property_value: str, table: str) -> tuple[str, tuple[str, ...]]:
    """Return a catalog's name and a table's identifier in it, with a namespace.

    Args:
        property_value: ``prod``, ``prod.orders`` or ``prod.sales.orders``.
        table: the Delta table's name.

    Raises:
        BadRequest: a part of it is empty.
    """
    name, *parts = property_value.split(".")
    identifier = tuple(parts) or tuple(table.split("."))
    if not all((name, *identifier)):
        raise BadRequest(
            f"'{property_value[:200]}' is not a table of an Iceberg catalog; use a name such as prod.sales.orders."
        )
    return name, identifier if len(identifier) > 1 else ("default", *identifier)


def _load(name: str) -> _Catalog:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.rest import RestCatalog
        from pyiceberg.catalog.sql import SqlCatalog
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"Iceberg catalogs require {error.name}: pip install '.[iceberg]' in Delvec's clone on the service's "
            "machine."
        ) from error
    try:
        catalog = load_catalog(name)
    except ValueError as error:
        raise BadRequest(
            f"PyIceberg's configuration has no usable catalog '{name}' ({str(error)[:200]}); configure it in "
            f".pyiceberg.yaml or with PYICEBERG_CATALOG__{name.upper()}__URI on the service's machine.",
            catalog=name,
        ) from error
    if isinstance(catalog, SqlCatalog):
        return _SqlCatalog(catalog, name)
    if isinstance(catalog, RestCatalog):
        return _RestCatalog(catalog, name)
    raise BadRequest(
        f"The Iceberg catalog '{name}' is a {type(catalog).__name__}; only SQL and REST catalogs are supported.",
        catalog=name,
    )


def _newest(directory: IcebergDirectory) -> Published:
    found = directory.newest()
    assert found is not None  # noqa: S101 - it was published just now
    return found


def _another(name: str, identifier: tuple[str, ...], what: str) -> IcebergCatalogError:
    full = ".".join((name, *identifier))
    return IcebergCatalogError(
        f"The table '{full}' of the Iceberg catalog {what}, so it was not changed. Use another name, or drop it "
        "from the catalog (without purging files) and convert again.",
        catalog=name,
    )


# --- SQL ------------------------------------------------------------------------------------------------


class _SqlCatalog:
    """A catalog in a database: one row per table, with the location of its metadata file."""

    def __init__(self, catalog: Any, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def point(self, identifier: tuple[str, ...], directory: IcebergDirectory) -> bool:
        from pyiceberg.exceptions import TableAlreadyExistsError

        catalog = self._catalog
        # Read first: whatever is published by then is at least as new as the target of any other converter.
        before = metadata_location(catalog, identifier)
        after = directory.metadata_location(_newest(directory).number)
        if before == after:
            return True
        if before is None:
            catalog.create_namespace_if_not_exists(identifier[:-1])
            try:
                catalog.register_table(identifier, after)
            except TableAlreadyExistsError:
                return False
            return True
        if not directory.holds(before):
            raise _another(self._name, identifier, f"is at '{before}'")
        return exchange_metadata(catalog, identifier, before, after)


# --- REST -----------------------------------------------------------------------------------------------


class _RestCatalog:
    """A catalog over HTTP, which writes its own metadata files."""

    def __init__(self, catalog: Any, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def point(self, identifier: tuple[str, ...], directory: IcebergDirectory) -> bool:
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

        catalog = self._catalog
        try:
            table = catalog.load_table(identifier)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(identifier[:-1])
            location = directory.metadata_location(_newest(directory).number)
            try:
                catalog.register_table(identifier, location)
            except TableAlreadyExistsError:
                return False
            return True
        publication = _newest(directory)
        metadata = publication.metadata
        if table.metadata.location.rstrip("/") != directory.location:
            raise _another(self._name, identifier, f"is at '{table.metadata.location}'")
        if table.metadata.properties.get(DELTA_TABLE_ID) != metadata["properties"][DELTA_TABLE_ID]:
            raise _another(self._name, identifier, "is a conversion of a Delta table that was there before")
        snapshot_ids = {one.snapshot_id for one in table.metadata.snapshots}
        current_id = table.metadata.current_snapshot_id
        if current_id is not None and current_id not in {one["snapshot-id"] for one in metadata["snapshots"]}:
            newer = table.metadata.last_sequence_number > metadata["last-sequence-number"]
            if newer and _newest(directory).number != publication.number:
                return False
            raise _another(
                self._name,
                identifier,
                "has snapshots that the conversion has replaced, for example by starting over",
            )
        updates = _updates(metadata, table.metadata, snapshot_ids)
        if not updates:
            return True
        try:
            catalog.commit_table(table, _requirements(metadata, current_id), updates)
        except CommitFailedException:
            return False
        return True


def _requirements(metadata: Mapping[str, Any], current_id: int | None) -> tuple[Any, ...]:
    from pydantic import TypeAdapter
    from pyiceberg.table.update import TableRequirement

    found = [
        {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
        {"type": "assert-ref-snapshot-id", "ref": _MAIN, "snapshot-id": current_id},
    ]
    return tuple(TypeAdapter(list[TableRequirement]).validate_python(found))


def _updates(metadata: Mapping[str, Any], before: Any, snapshot_ids: set[int]) -> tuple[Any, ...]:
    """Return the updates that make a catalog's metadata equal to ours; none if they already are.

    Args:
        metadata: our metadata.
        before: the catalog's metadata, as PyIceberg's model.
        snapshot_ids: ids of the catalog's snapshots.
    """
    from pydantic import TypeAdapter
    from pyiceberg.table.update import TableUpdate

    updates: list[dict[str, Any]] = []
    schemas = {one.schema_id for one in before.schemas}
    updates += [
        {"action": "add-schema", "schema": one}
        for one in metadata["schemas"]
        if one["schema-id"] not in schemas
    ]
    schema_id, spec_id = metadata["current-schema-id"], metadata["default-spec-id"]
    if schema_id != before.current_schema_id:
        updates.append({"action": "set-current-schema", "schema-id": schema_id})
    specs = {one.spec_id for one in before.partition_specs}
    updates += [
        {"action": "add-spec", "spec": one}
        for one in metadata["partition-specs"]
        if one["spec-id"] not in specs
    ]
    if spec_id != before.default_spec_id:
        updates.append({"action": "set-default-spec", "spec-id": spec_id})
    updates += [
        {"action": "add-snapshot", "snapshot": one}
        for one in metadata["snapshots"]
        if one["snapshot-id"] not in snapshot_ids and one["sequence-number"] > before.last_sequence_number
    ]
    refs = {name: ref.snapshot_id for name, ref in before.refs.items()}
    updates += [
        {"action": "set-snapshot-ref", "ref-name": name, **ref}
        for name, ref in metadata["refs"].items()
        if refs.get(name) != ref["snapshot-id"]
    ]
    updates += [
        {"action": "remove-snapshot-ref", "ref-name": name}
        for name in sorted(refs.keys() - metadata["refs"].keys())
        if name.startswith(VERSION_TAG)
    ]
    expired_snapshot_ids = snapshot_ids - {one["snapshot-id"] for one in metadata["snapshots"]}
    if expired_snapshot_ids:
        updates.append({"action": "remove-snapshots", "snapshot-ids": sorted(expired_snapshot_ids)})
    changed = {
        key: value for key, value in metadata["properties"].items() if before.properties.get(key) != value
    }
    if changed:
        updates.append({"action": "set-properties", "updates": changed})
    return tuple(TypeAdapter(list[TableUpdate]).validate_python(updates))
