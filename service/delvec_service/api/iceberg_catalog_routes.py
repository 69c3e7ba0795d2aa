"""``/iceberg/v1``: the read side of Iceberg's REST catalog (open-api/rest-catalog-open-api.yaml of Apache Iceberg).

Iceberg has its own OpenAPI document, from which clients are generated, so Delvec's does not list these routes.

Tested in `tests/integration/service/test_iceberg_catalog.py`.
"""

import json
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response, status

from delvec_contract.iceberg_catalog import FetchScanTasksRequest, PlanTableScanRequest, PlanTask
from delvec_contract.parameters import LONGEST_TOKEN
from delvec_errors import BadRequest, NotFound, UnsupportedOperation
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.resource import operation_id
from delvec_service.api.routes import LenientRoute
from delvec_service.iceberg.registered_tables import IcebergCatalog, with_referenced_snapshots
from delvec_service.page_tokens import page_token, place_of
from delvec_service.store.registry import TableRecord

__all__ = ["PREFIXES", "routers"]

_Handler = TypeVar("_Handler", bound=Callable[..., Any])

_ALL: Final = 1_000_000
PREFIXES: Final = ("/iceberg/v1", "/iceberg/v1/v3")
"""Below the first prefix tables have format version 2, below the second 3."""
_MAX_REPEATED: Final = 16 << 20
"""Bytes of an answer that are copies of the request's filter; unless it is as short as what an answer says about a file."""
_SHORT_FILTER: Final = 4096
_SEPARATOR: Final = "\x1f"
_NAMESPACES: Final = "iceberg namespaces"
_TABLES: Final = "iceberg tables"
_WAREHOUSES: Final = ("", "v2", "v3")
_ENDPOINTS: Final = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks",
]


routers: Final = tuple(
    APIRouter(
        prefix=prefix,
        route_class=LenientRoute,
        include_in_schema=False,
        generate_unique_id_function=operation_id,
    )
    for prefix in PREFIXES
)


def _route(method: str, path: str, **options: Any) -> Callable[[_Handler], _Handler]:
    """Return a decorator for a handler, whose path is below both prefixes."""

    def add(handler: _Handler) -> _Handler:
        for router in routers:
            router.add_api_route(path, handler, methods=[method], **options)
        return handler

    return add


async def _catalog(service: ServiceState, access: Caller) -> IcebergCatalog:
    def require(record: TableRecord, name: str) -> None:
        access.require(record, "reader", name)

    access.is_decided = True  # Every catalog method calls one of the two.
    return IcebergCatalog(service.tables, service.iceberg, access, require)


async def _namespace(namespace: Annotated[str, Path(max_length=1024)]) -> list[str]:
    return namespace.split(_SEPARATOR)


async def _format_version(request: Request) -> int:
    return 3 if request.url.path.startswith(f"{PREFIXES[1]}/") else 2


_Catalog = Annotated[IcebergCatalog, Depends(_catalog)]
_Namespace = Annotated[list[str], Depends(_namespace)]
_FormatVersion = Annotated[int, Depends(_format_version)]
_Name = Annotated[str, Path(max_length=200)]
_PageToken = Annotated[str | None, Query(alias="pageToken", max_length=LONGEST_TOKEN)]
_PageSize = Annotated[int, Query(alias="pageSize", ge=1, le=1000)]


@_route("GET", "/config")
def get_config(warehouse: Annotated[str, Query(max_length=200)] = "") -> dict[str, Any]:
    """Return what clients may request. The warehouse selects the format version."""
    if warehouse not in _WAREHOUSES:
        raise BadRequest(
            f"Warehouse {warehouse!r} does not exist; leave it out, or use 'v2' for tables of format version 2 or "
            "'v3' for version 3.",
            warehouse=warehouse,
        )
    overrides = {"prefix": "v3"} if warehouse == "v3" else {}
    return {"defaults": {}, "overrides": overrides, "endpoints": _ENDPOINTS}


@_route("GET", "/namespaces")
def list_namespaces(
    catalog: _Catalog,
    parent: Annotated[str, Query(max_length=1024)] = "",
    token: _PageToken = None,
    page_size: _PageSize = 1000,
) -> dict[str, Any]:
    """List the namespaces below another one, or the top-level ones."""
    above = parent.split(_SEPARATOR) if parent else []
    found = catalog.namespaces(above)
    last = place_of(token, _NAMESPACES, str)[0].split(_SEPARATOR) if token else []
    page = [each for each in found if each > last]
    more = len(page) > page_size and token is not None
    page = page[:page_size] if token is not None else page
    return {
        "namespaces": page,
        "next-page-token": page_token(_NAMESPACES, _SEPARATOR.join(page[-1])) if more else None,
    }


@_route("GET", "/namespaces/{namespace}")
def load_namespace(catalog: _Catalog, namespace: _Namespace) -> dict[str, Any]:
    """Return a namespace. Namespaces have no properties."""
    catalog.check_namespace(namespace)
    return {"namespace": namespace, "properties": {}}


@_route("HEAD", "/namespaces/{namespace}", status_code=status.HTTP_204_NO_CONTENT)
def namespace_exists(catalog: _Catalog, namespace: _Namespace) -> Response:
    """Check whether a namespace exists."""
    catalog.check_namespace(namespace)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_route("GET", "/namespaces/{namespace}/tables")
def list_catalog_tables(
    catalog: _Catalog,
    namespace: _Namespace,
    token: _PageToken = None,
    page_size: _PageSize = 1000,
) -> dict[str, Any]:
    """List the tables of a namespace. Without a page token all of them are returned."""
    limit = page_size if token is not None else _ALL
    (last,) = place_of(token, _TABLES, str) if token else ("",)
    found = catalog.table_names(namespace, last, limit + 1)
    page = found[:limit]
    return {
        "identifiers": [{"namespace": namespace, "name": name.rpartition(".")[2]} for name in page],
        "next-page-token": page_token(_TABLES, page[-1]) if len(found) > limit else None,
    }


@_route("GET", "/namespaces/{namespace}/tables/{table}")
def load_table(
    catalog: _Catalog,
    namespace: _Namespace,
    table: _Name,
    format_version: _FormatVersion,
    snapshots: Annotated[str, Query(max_length=10)] = "all",
) -> dict[str, Any]:
    """Return a table at its newest Delta version. Its Iceberg metadata is written now if it is missing."""
    if snapshots not in ("all", "refs"):
        raise BadRequest(f"snapshots must be 'all' or 'refs', not {snapshots!r}.")
    found = catalog.load(namespace, table, format_version)
    metadata = dict(found.metadata)
    return {
        "metadata-location": found.metadata_location,
        "metadata": with_referenced_snapshots(metadata) if snapshots == "refs" else metadata,
        "config": {},
    }


@_route("HEAD", "/namespaces/{namespace}/tables/{table}", status_code=status.HTTP_204_NO_CONTENT)
def table_exists(catalog: _Catalog, namespace: _Namespace, table: _Name) -> Response:
    """Check whether a table exists."""
    catalog.open(namespace, table)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_route("POST", "/namespaces/{namespace}/tables/{table}/metrics", status_code=status.HTTP_204_NO_CONTENT)
def report_metrics(catalog: _Catalog, namespace: _Namespace, table: _Name) -> Response:
    """Accept a scan report and discard it."""
    catalog.open(namespace, table)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_route("POST", "/namespaces/{namespace}/tables/{table}/plan")
def plan_scan(
    catalog: _Catalog,
    namespace: _Namespace,
    table: _Name,
    format_version: _FormatVersion,
    body: PlanTableScanRequest,
) -> dict[str, Any]:
    """Plan a scan.

    Small tables with one manifest are planned at once, others as tasks that clients fetch one by one. No file is
    pruned: the filter comes back as the residual, for the client to apply to rows.
    """
    if body.start_snapshot_id is not None or body.end_snapshot_id is not None:
        raise UnsupportedOperation(
            "The service does not plan scans between snapshots; plan them in the client.",
            operation="PLAN",
        )
    return _plan(catalog, namespace, table, format_version, body.snapshot_id, body.filter)


@_route("GET", "/namespaces/{namespace}/tables/{table}/plan/{plan_id}")
def get_plan(
    catalog: _Catalog,
    namespace: _Namespace,
    table: _Name,
    format_version: _FormatVersion,
    plan_id: Annotated[str, Path(max_length=100)],
) -> dict[str, Any]:
    """Return a plan again: all files of its snapshot, because filtering is left to the client."""
    try:
        snapshot_id = int(plan_id)
    except ValueError:
        raise NotFound(f"Plan {plan_id!r} does not exist; plan the scan again.") from None
    return _plan(catalog, namespace, table, format_version, snapshot_id, None)


@_route(
    "DELETE", "/namespaces/{namespace}/tables/{table}/plan/{plan_id}", status_code=status.HTTP_204_NO_CONTENT
)
def cancel_plan(
    catalog: _Catalog, namespace: _Namespace, table: _Name, plan_id: Annotated[str, Path(max_length=100)]
) -> Response:
    """Discard a plan. The service keeps nothing of it."""
    del plan_id
    catalog.open(namespace, table)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_route("POST", "/namespaces/{namespace}/tables/{table}/tasks")
def fetch_scan_tasks(
    catalog: _Catalog,
    namespace: _Namespace,
    table: _Name,
    format_version: _FormatVersion,
    body: FetchScanTasksRequest,
) -> dict[str, Any]:
    """Return the files of one task of a plan."""
    try:
        task = PlanTask.model_validate_json(body.plan_task)
    except ValueError:
        raise NotFound("This plan task does not exist; plan the scan again.") from None
    tasks = catalog.scan(namespace, table, format_version, task.snapshot_id)
    return _files(tasks.of(task.manifest), task.filter)


def _plan(
    catalog: IcebergCatalog,
    namespace: list[str],
    table: str,
    format_version: int,
    snapshot_id: int | None,
    row_filter: Any,
) -> dict[str, Any]:
    tasks = catalog.scan(namespace, table, format_version, snapshot_id)
    manifests = tasks.manifests()
    response: dict[str, Any] = {"status": "completed"}
    if tasks.snapshot_id is None:
        return {**response, "plan-id": "none", **_files([], None)}
    response["plan-id"] = str(tasks.snapshot_id)
    if len(manifests) == 1:
        return {**response, **_files(tasks.of(manifests[0]), row_filter)}
    _check_repeated(row_filter, len(manifests))
    plan_tasks = [
        PlanTask(snapshot_id=tasks.snapshot_id, manifest=manifest, filter=row_filter)
        for manifest in manifests
    ]
    return {
        **response,
        "plan-tasks": [task.model_dump_json(by_alias=True, exclude_none=True) for task in plan_tasks],
    }


def _check_repeated(row_filter: Any, times: int) -> None:
    """Refuse a filter that would make the answer many times as large as the request.

    Leaving it out is no way: PyIceberg takes a file without a residual filter for one whose rows all match.
    """
    if row_filter is None:
        return
    size = len(json.dumps(row_filter))
    if size > _SHORT_FILTER and size * times > _MAX_REPEATED:
        raise BadRequest(
            f"The filter has {size:,} bytes, and Iceberg's protocol repeats it for each of {times:,} files or tasks, more "
            f"than {_MAX_REPEATED >> 20} MiB in all. Shorten the filter, or plan the scan in the client "
            "(scan-planning-mode=client)."
        )


def _files(found: list[tuple[dict[str, Any], list[dict[str, Any]]]], row_filter: Any) -> dict[str, Any]:
    _check_repeated(row_filter, len(found))
    deletes: list[dict[str, Any]] = []
    places: dict[int, int] = {}  # of objects that several data files share
    tasks = []
    for data, its in found:
        task: dict[str, Any] = {"data-file": data}
        if its:
            for one in its:
                if places.setdefault(id(one), len(deletes)) == len(deletes):
                    deletes.append(one)
            task["delete-file-references"] = [places[id(one)] for one in its]
        if row_filter is not None:
            task["residual-filter"] = row_filter
        tasks.append(task)
    return {"delete-files": deletes, "file-scan-tasks": tasks} if deletes else {"file-scan-tasks": tasks}
