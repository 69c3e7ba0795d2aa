"""``/api/2.1/unity-catalog``: the classic routes of Unity Catalog that clients of its Delta API need besides.

Tested in `tests/integration/service/catalog/test_unity_catalog.py`.
"""

import json
import uuid
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Path, Query

from delvec_contract.parameters import LONGEST_TOKEN
from delvec_contract.unity_catalog import (
    CatalogColumn,
    CreateSchemaRequest,
    CreateTableRequest,
    PathCredentialsRequest,
    TemporaryCredentialsRequest,
)
from delvec_errors import (
    BadRequest,
    DelvecError,
    NamespaceNotFound,
    TableNotFound,
    UnsupportedOperation,
)
from delvec_service.api.dependencies import ServiceState
from delvec_service.api.problems import UNITY_CATALOG
from delvec_service.api.uc_delta_routes import (
    Names,
    path_credentials,
    register_external,
    staging_credentials,
    table_credentials,
    unity_router,
)
from delvec_service.catalog.names import CatalogNames, full_name
from delvec_service.catalog.table_answers import table_info
from delvec_service.logs import bind_log_context
from delvec_service.operations.tables import drop
from delvec_service.page_tokens import page_token, place_of
from delvec_service.service import Service
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.registry import TableRecord
from delvec_service.tables.new_table import NewTable
from delvec_service.tables.registry import Tables

__all__ = ["routers"]

_MAX_LISTED: Final = 50
"""Tables of a page: the log of each is read."""
_METASTORES: Final = uuid.UUID("3c5f0a42-9f6e-4a57-8f5d-6a1f4b0d2c11")
_CREATIONS: Final = uuid.UUID("d6a1a4f5-0d1c-4d0e-9a0b-5a2c7f3c8e11")
_PARTS: Final = 3
_TABLES: Final = "tables of a schema"


_router: Final = unity_router(UNITY_CATALOG)
_Part: TypeAlias = Annotated[str, Path(max_length=512)]
_Text: TypeAlias = Annotated[str, Query(max_length=512)]


@_router.get("/metastore_summary")
def get_metastore(service: ServiceState) -> dict[str, Any]:
    """Return the id of the metastore, which follows from the catalog's name."""
    identifier = str(uuid.uuid5(_METASTORES, service.settings.catalog_name))
    return {"metastore_id": identifier, "name": service.settings.catalog_name}


@_router.get("/catalogs")
def list_catalogs(names: Names) -> dict[str, Any]:
    """List the one catalog."""
    return {"catalogs": [_catalog(names)], "next_page_token": None}


@_router.get("/catalogs/{catalog}")
def get_catalog(names: Names, catalog: _Part) -> dict[str, Any]:
    """Return the catalog."""
    names.check_catalog(catalog)
    return _catalog(names)


@_router.get("/schemas")
def list_schemas(names: Names, catalog_name: _Text = "") -> dict[str, Any]:
    """List the namespaces of the tables that the caller may see."""
    names.check_catalog(catalog_name)
    return {"schemas": [_schema(names, schema) for schema in names.schemas()], "next_page_token": None}


@_router.post("/schemas")
def create_schema(names: Names, body: CreateSchemaRequest) -> dict[str, Any]:
    """Return a schema. Any namespace exists, and a table gives it content."""
    try:
        names.check_schema(body.catalog_name, body.name)
    except NamespaceNotFound as error:
        raise BadRequest(
            f"'{body.name}' cannot be the name of a schema: use letters, digits, _ and -.", name=body.name
        ) from error
    return _schema(names, body.name)


@_router.get("/schemas/{schema}")
def get_schema(names: Names, schema: _Part) -> dict[str, Any]:
    """Return a schema, with tables or without."""
    catalog, name = _two(schema)
    names.check_schema(catalog, name)
    return _schema(names, name)


@_router.delete("/schemas/{schema}")
def delete_schema(names: Names, schema: _Part) -> dict[str, Any]:
    """Do nothing: a namespace without tables is not listed."""
    catalog, name = _two(schema)
    names.check_schema(catalog, name)
    return {}


@_router.get("/tables")
def list_catalog_tables(
    names: Names,
    service: ServiceState,
    catalog_name: _Text = "",
    schema_name: _Text = "",
    token: Annotated[str, Query(alias="page_token", max_length=LONGEST_TOKEN)] = "",
    max_results: Annotated[int, Query(ge=0)] = _MAX_LISTED,
) -> dict[str, Any]:
    """List the tables of a schema that the caller may see, by name."""
    names.check_schema(catalog_name, schema_name)
    size = min(max_results or _MAX_LISTED, _MAX_LISTED)
    last = place_of(token, _TABLES, str, str) if token else ("", "")
    records = names.names_in(schema_name, last, size + 1)
    page = records[:size]
    return {
        "tables": [_info(service, names.catalog, schema_name, record) for record in page],
        "next_page_token": page_token(_TABLES, page[-1].name, page[-1].id) if len(records) > size else None,
    }


@_router.post("/tables")
def create_catalog_table(names: Names, service: ServiceState, body: CreateTableRequest) -> dict[str, Any]:
    """Register a Delta table: an external one, whose log the client has written, or a managed one at its staging place."""
    names.check_schema(body.catalog_name, body.schema_name)
    name = full_name(body.schema_name, body.name)
    names.access.require_name(name, "maintainer")
    bind_log_context(table=name)
    is_table = body.table_type in ("MANAGED", "EXTERNAL") and body.data_source_format == "DELTA"
    if not is_table or body.storage_location is None:
        raise UnsupportedOperation(
            f"'{name}' cannot be created here: only Delta tables with a storage_location can, MANAGED or EXTERNAL; that of a "
            "managed one is the staging_location that a request for a staging table returns.",
            table=name,
        )
    if body.table_type == "MANAGED":
        opened = service.tables.opening(
            service.staging.create(name, body.storage_location, _definition(body))
        )
    else:
        opened = register_external(service, names, name, body.storage_location)
    snapshot = service.loader.load(opened.objects, opened.name, checkpoints=False)
    return table_info(names.catalog, body.schema_name, opened.record, snapshot)


def _definition(body: CreateTableRequest) -> NewTable | None:
    """Return what version 0 is to be of a managed table; None if the client has to write it.

    Raises:
        BadRequest: a column is not a field of Delta's schema.
    """
    if not body.columns:
        return None
    columns = sorted(body.columns, key=lambda each: each.position)
    parts = [each for each in columns if each.partition_index is not None]
    properties = {key: value for key, value in (body.properties or {}).items() if key != "comment"}
    return NewTable(
        schema={"type": "struct", "fields": [_field(each) for each in columns]},
        partition_columns=[each.name for each in sorted(parts, key=lambda each: each.partition_index or 0)],
        properties=properties,
        description=body.comment,
        # The same for a request that is sent again.
        transaction_id=str(uuid.uuid5(_CREATIONS, str(body.storage_location))),
        is_managed=True,
    )


def _field(column: CatalogColumn) -> Any:
    try:
        return json.loads(column.type_json)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The type_json of column {column.name!r} is not JSON: {error}.") from None


@_router.get("/tables/{full_name}")
def get_catalog_table(names: Names, service: ServiceState, full_name: _Part) -> dict[str, Any]:
    """Return a table at its newest version."""
    catalog, schema, table = _three(full_name)
    opened = names.open(catalog, schema, table, "reader")
    snapshot = service.loader.load(opened.objects, opened.name, checkpoints=False)
    return table_info(catalog, schema, opened.record, snapshot)


@_router.delete("/tables/{full_name}")
def drop_catalog_table(names: Names, service: ServiceState, full_name: _Part) -> dict[str, Any]:
    """Drop a table; a managed one can be brought back until its files are deleted."""
    drop(service, names.record(*_three(full_name), "admin").id)
    return {}


@_router.post("/temporary-path-credentials")
def vend_path_credentials(
    names: Names, service: ServiceState, body: PathCredentialsRequest
) -> dict[str, Any]:
    """Return none for a local place that the caller may use; on object stores refuse: there is no table to confine them to."""
    path_credentials(service, names, body.url, "READ_WRITE")
    return {}


@_router.post("/temporary-table-credentials")
def vend_temporary_credentials(
    names: Names, service: ServiceState, body: TemporaryCredentialsRequest
) -> dict[str, Any]:
    """Issue short-lived credentials for a table's files, or for those of a staging table; none for local ones."""
    bind_log_context(change=body.operation)
    [issued] = _issued(names, service, body)
    config = issued["config"]
    if not config:
        return {}
    return {
        "aws_temp_credentials": {
            "access_key_id": config.get("s3.access-key-id"),
            "secret_access_key": config.get("s3.secret-access-key"),
            "session_token": config.get("s3.session-token"),
        },
        "expiration_time": issued["expiration-time-ms"],
    }


def _issued(names: CatalogNames, service: Service, body: TemporaryCredentialsRequest) -> list[dict[str, Any]]:
    try:
        opened = names.by_id(body.table_id, "writer" if body.operation == "READ_WRITE" else "reader")
    except TableNotFound:
        return staging_credentials(service, names, body.table_id)
    service.tables.places.check_table(opened.record, names.access)
    return table_credentials(service, names, opened, body.operation)


def _catalog(names: CatalogNames) -> dict[str, Any]:
    return {"name": names.catalog, "id": str(uuid.uuid5(_METASTORES, names.catalog)), "properties": {}}


def _schema(names: CatalogNames, schema: str) -> dict[str, Any]:
    full = f"{names.catalog}.{schema}"
    return {
        "name": schema,
        "catalog_name": names.catalog,
        "full_name": full,
        "schema_id": str(uuid.uuid5(_METASTORES, full)),
        "properties": {},
    }


def _info(service: Service, catalog: str, schema: str, record: TableRecord) -> dict[str, Any]:
    return table_info(catalog, schema, record, _snapshot(service.tables, service.loader, record))


def _snapshot(tables: Tables, loader: SnapshotLoader, record: TableRecord) -> Any:
    """Return a table's newest version; None if it cannot be read, which must not hide the others."""
    try:
        opened = tables.opening(record)
        return loader.load(opened.objects, opened.name, checkpoints=False)
    except DelvecError:
        return None


def _two(full: str) -> tuple[str, str]:
    catalog, dot, schema = full.partition(".")
    if not dot:
        raise NamespaceNotFound(f"'{full[:200]}' is not a schema; name it catalog.schema.")
    return catalog, schema


def _three(full: str) -> tuple[str, str, str]:
    parts = full.split(".")
    if len(parts) < _PARTS:
        raise TableNotFound(f"'{full[:200]}' is not a table; name it catalog.schema.table.")
    return parts[0], ".".join(parts[1:-1]), parts[-1]


routers: Final = (_router,)
