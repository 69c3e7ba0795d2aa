"""``/api/2.1/unity-catalog/delta/v1``: the Unity Catalog Delta API v1, by which Delta clients commit to managed tables.

The API has its own OpenAPI document (``api/delta.yaml`` of unitycatalog), from which clients are generated, so Delvec's does
not list these routes.

Tested in `tests/integration/service/catalog/test_unity_catalog.py`.
"""

import json
import time
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import APIRouter, Depends, Path, Query, Response, status

from delvec_contract.alterations import AlterRequest
from delvec_contract.shapes import FilePath
from delvec_contract.tables import TableRequest
from delvec_contract.unity_catalog import (
    CreateManagedTableRequest,
    RenameManagedTableRequest,
    StagingTableRequest,
    TableRequirement,
    TableUpdate,
    UpdateManagedTableRequest,
)
from delvec_errors import (
    BadRequest,
    CommitOutcomeUnknown,
    CredentialVendingUnsupported,
    DelvecError,
    InvalidCommit,
    MetadataChanged,
    StorageError,
    TableAlreadyExists,
    TableNotFound,
    UnsupportedOperation,
)
from delvec_kernel.alter_table.change_types import SetComment
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.locations import table_id
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_service.alter_table.alteration_commit import alter
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.problems import UNITY_CATALOG
from delvec_service.api.resource import operation_id
from delvec_service.api.routes import LenientRoute, Route
from delvec_service.catalog.names import CatalogNames, full_name
from delvec_service.catalog.staging import staging_answer
from delvec_service.catalog.table_answers import etag, loaded
from delvec_service.commits.idempotency import request_hash
from delvec_service.commits.ratification import StagedFile
from delvec_service.credentials.vending import Use
from delvec_service.logs import bind_log_context
from delvec_service.operations.tables import drop, register
from delvec_service.service import Service
from delvec_service.store.commit_coordinator import STAGED
from delvec_service.store.open_table import OpenTable

__all__ = [
    "PREFIX",
    "CommitRoute",
    "Names",
    "check_report",
    "names",
    "new_name",
    "path_credentials",
    "register_external",
    "routers",
    "staged_place",
    "staging_credentials",
    "storage_credentials",
    "table_credentials",
    "unity_router",
]

PREFIX: Final = f"{UNITY_CATALOG}/delta/v1"
_SCHEMA: Final = "/catalogs/{catalog}/schemas/{schema}"
_TABLE: Final = f"{_SCHEMA}/tables/{{table}}"
_ENDPOINTS: Final = [
    f"POST /v1{_SCHEMA}/staging-tables",
    "GET /v1/staging-tables/{table_id}/credentials",
    f"POST /v1{_SCHEMA}/tables",
    *(f"{method} /v1{_TABLE}" for method in ("GET", "HEAD", "POST", "DELETE")),
    f"POST /v1{_TABLE}/rename",
    f"GET /v1{_TABLE}/credentials",
    f"POST /v1{_TABLE}/metrics",
    "GET /v1/temporary-path-credentials",
]
_LOCAL: Final = ("file:", "memory:")
_COMMENT: Final = "set-table-comment"
_FROM_THE_LOG: Final = frozenset(
    {
        "set-properties",
        "remove-properties",
        "set-protocol",
        "set-columns",
        "set-partition-columns",
        _COMMENT,
        "set-domain-metadata",
        "remove-domain-metadata",
    }
)
"""Changes that the log carries; the request only repeats them."""
_OF_EXTERNAL: Final = "update-metadata-snapshot-version"
_REPORTS: Final = {"set-latest-backfilled-version", _OF_EXTERNAL}
_OPPOSITES: Final = (
    ("set-properties", "remove-properties"),
    ("set-domain-metadata", "remove-domain-metadata"),
)


class CommitRoute(LenientRoute):
    """A route that commits: what it did is unknown if it takes too long."""

    kind = "commits"

    @staticmethod
    def timeout_error(seconds: float) -> DelvecError:
        """Return the error for a commit that takes too long."""
        return CommitOutcomeUnknown(
            f"The commit took longer than {seconds:g} seconds and may still succeed. Send the same request again.",
            seconds=seconds,
        )


def unity_router(prefix: str, route_class: type[Route] = LenientRoute) -> APIRouter:
    """Return a router of one of the catalog's APIs."""
    return APIRouter(
        prefix=prefix,
        route_class=route_class,
        include_in_schema=False,
        generate_unique_id_function=operation_id,
    )


_reading, _commits = unity_router(PREFIX), unity_router(PREFIX, CommitRoute)


async def names(service: ServiceState, access: Caller) -> CatalogNames:
    """Return the names of the service's catalog as the caller sees them."""
    return CatalogNames(service.settings.catalog_name, service.tables, access)


Names: TypeAlias = Annotated[CatalogNames, Depends(names)]
_Part: TypeAlias = Annotated[str, Path(max_length=256)]
_Operation: TypeAlias = Annotated[Literal["READ", "READ_WRITE"], Query()]


@_reading.get("/config")
def get_delta_config(names: Names, catalog: Annotated[str, Query(max_length=256)] = "") -> dict[str, Any]:
    """Return what clients may request."""
    names.check_catalog(catalog)
    return {"endpoints": _ENDPOINTS, "protocol-version": "1.0"}


@_reading.post(f"{_SCHEMA}/staging-tables")
def stage_managed_table(
    names: Names,
    service: ServiceState,
    catalog: _Part,
    schema: _Part,
    body: StagingTableRequest,
) -> dict[str, Any]:
    """Return a place for a new table, and what its version 0 must have."""
    name = new_name(names, catalog, schema, body.name)
    location = staged_place(service, names, name)
    try:
        issued = storage_credentials(service, names, location, "CREATE")
    except CredentialVendingUnsupported:
        issued = []  # the client may have its own
    return staging_answer(location, issued)


@_reading.get("/staging-tables/{staging}/credentials")
def get_staging_credentials(names: Names, service: ServiceState, staging: _Part) -> dict[str, Any]:
    """Renew the credentials for a place of a new table, for who requested it, until the table is created."""
    return {"storage-credentials": staging_credentials(service, names, staging)}


def staged_place(service: Service, names: CatalogNames, name: str) -> str:
    """Return a new place for a table of a name, and note who requested it."""
    location = service.staging.place(name)
    service.answers.keep(*_staged_key(names, table_id(location)), 200, json.dumps([name, location]).encode())
    return location


def staging_credentials(service: Service, names: CatalogNames, staging: str) -> list[dict[str, Any]]:
    """Return credentials for a staging table's place.

    Raises:
        TableNotFound: the caller has requested none with that id.
        TableAlreadyExists: it is a table by now.
        CredentialVendingUnsupported: the store cannot issue them.
    """
    names.access.is_decided = True
    stored = service.answers.find(*_staged_key(names, staging))
    if stored is None:
        raise TableNotFound(
            f"No staging table has the id {staging[:64]}, or it was requested too long ago; request one again."
        )
    name, location = json.loads(stored.body)
    names.access.require_name(name, "maintainer")
    bind_log_context(table=name)
    if service.tables.at(location) is not None:
        raise TableAlreadyExists(
            f"Table '{name}' is created; request the credentials of the table.", table=name
        )
    if service.tables.dropped.has(staging):
        raise TableAlreadyExists(f"Table '{name}' was created, and dropped since; stage another.", table=name)
    return storage_credentials(service, names, location, "CREATE")


def _staged_key(names: CatalogNames, identifier: str) -> tuple[str, str]:
    """Return the key of the caller's staging table among the stored answers, with a space, which no client's key has; and a hash."""
    whose = request_hash("staging", names.access.name)
    return f"staging {identifier[:64]} {whose}", whose


@_commits.post(f"{_SCHEMA}/tables")
def create_managed_table(
    names: Names,
    service: ServiceState,
    catalog: _Part,
    schema: _Part,
    body: CreateManagedTableRequest,
) -> dict[str, Any]:
    """Register a table whose log the client has written: a managed one at its staging place, or an external one."""
    names.check_schema(catalog, schema)
    name = full_name(schema, body.name)
    names.access.require_name(name, "maintainer")
    bind_log_context(table=name)
    _check_uniform(body.uniform, name)
    if body.table_type == "EXTERNAL":
        return _loaded(service, register_external(service, names, name, body.location))
    record = service.staging.create(name, body.location)
    bind_log_context(table_id=record.id)
    return _loaded(service, service.tables.opening(record))


@_reading.get(_TABLE)
def load_managed_table(
    names: Names, service: ServiceState, catalog: _Part, schema: _Part, table: _Part
) -> dict[str, Any]:
    """Return a table at its newest version."""
    opened = names.open(catalog, schema, table, "reader")
    answer = _loaded(service, opened)
    if answer["metadata"]["table-type"] == "MANAGED":
        # delta-spark makes the folder only with a table, and Delvec, or a restored backup, may have made this one. Where the
        # service cannot write, its clients can still read.
        with suppress(StorageError, FileNotFoundError):
            opened.objects.make_directory(STAGED)
    return answer


@_reading.head(_TABLE, status_code=status.HTTP_204_NO_CONTENT)
def managed_table_exists(names: Names, catalog: _Part, schema: _Part, table: _Part) -> Response:
    """Check whether a table exists."""
    names.record(catalog, schema, table, "reader")
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_commits.post(_TABLE)
def update_managed_table(
    names: Names,
    service: ServiceState,
    catalog: _Part,
    schema: _Part,
    table: _Part,
    body: UpdateManagedTableRequest,
) -> dict[str, Any]:
    """Commit: publish a staged commit as the next version.

    Reports of published versions change nothing, since the service publishes itself; they are only checked.
    """
    opened = names.open(catalog, schema, table, "writer")
    requirements = {each.type: each for each in body.requirements}
    _check_uuid(opened, requirements.get("assert-table-uuid"))
    actions = _by_action(opened, body.updates)
    tag = requirements.get("assert-etag")

    def check_before(snapshot: Snapshot) -> None:
        # Not before the race for the version is decided: who lost it may have seen the winner's version in the log.
        check_report(_reported(actions), opened, snapshot.version)
        if _OF_EXTERNAL in actions and is_catalog_managed(snapshot.protocol):
            raise BadRequest(
                f"Table '{opened.name}' is managed, and {_OF_EXTERNAL} is for external tables only; stage a commit.",
                table=opened.name,
            )
        if tag is not None and tag.etag != etag(snapshot):
            what = (
                f"The etag of table '{opened.name}' is {etag(snapshot)}, not {tag.etag!r}: its metadata has changed. "
                "Load it again."
            )
            raise MetadataChanged(what, table=opened.name, version=snapshot.version)

    added = actions.get("add-commit")
    if added is not None and added.commit is not None:
        one = added.commit
        staged = StagedFile(one.version, one.timestamp, one.file_name, one.file_size)
        service.ratification.ratify(opened, staged, check_before)
    else:
        snapshot = service.loader.load(opened.objects, opened.name, checkpoints=False)
        check_before(snapshot)
        _apply_alone(service, opened, snapshot, actions)
    return _loaded(service, opened)


@_reading.delete(_TABLE, status_code=status.HTTP_204_NO_CONTENT)
def drop_managed_table(
    names: Names, service: ServiceState, catalog: _Part, schema: _Part, table: _Part
) -> Response:
    """Drop a table; a managed one can be brought back until its files are deleted."""
    drop(service, names.record(catalog, schema, table, "admin").id)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_reading.post(f"{_TABLE}/rename", status_code=status.HTTP_204_NO_CONTENT)
def rename_managed_table(
    names: Names,
    service: ServiceState,
    catalog: _Part,
    schema: _Part,
    table: _Part,
    body: RenameManagedTableRequest,
) -> Response:
    """Rename a table within its schema. Its files stay where they are."""
    record = names.record(catalog, schema, table, "maintainer")
    name = new_name(names, catalog, schema, body.new_name)
    service.tables.rename(record.id, name)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_reading.get(f"{_TABLE}/credentials")
def vend_managed_credentials(
    names: Names,
    service: ServiceState,
    catalog: _Part,
    schema: _Part,
    table: _Part,
    operation: _Operation = "READ",
) -> dict[str, Any]:
    """Issue short-lived credentials for a table's files; empty ones for local files."""
    opened = names.open(catalog, schema, table, "writer" if operation == "READ_WRITE" else "reader")
    bind_log_context(change=operation)
    service.tables.places.check_table(opened.record, names.access)
    return {"storage-credentials": table_credentials(service, names, opened, operation)}


@_reading.post(f"{_TABLE}/metrics", status_code=status.HTTP_204_NO_CONTENT)
def report_managed_metrics(names: Names, catalog: _Part, schema: _Part, table: _Part) -> Response:
    """Accept the report of a commit and discard it: the log has the metrics."""
    names.record(catalog, schema, table, "writer")
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@_reading.get("/temporary-path-credentials")
def vend_delta_path_credentials(
    names: Names, service: ServiceState, location: FilePath, operation: _Operation = "READ"
) -> dict[str, Any]:
    """Issue credentials for the place of an external table to be: empty ones, for local files."""
    return {"storage-credentials": path_credentials(service, names, location, operation)}


def path_credentials(
    service: Service, names: CatalogNames, place: str, operation: Use
) -> list[dict[str, Any]]:
    """Return credentials without configuration for a local place that the caller may use.

    Raises:
        DelvecError: it is not the caller's.
        CredentialVendingUnsupported: it is on an object store, where there is no table to confine them to.
    """
    names.access.require_place(service.tables, place, None)
    location = service.tables.within_roots(place, None)
    if not location.startswith(_LOCAL):
        raise CredentialVendingUnsupported(
            f"No credentials are issued for {location}: it is not a table yet, and its clients write the log themselves. Give the "
            "engine its own credentials, and set credentialVending.enabled=false: docs/catalog.md.",
            location=location,
        )
    return storage_credentials(service, names, location, operation)


def register_external(service: Service, names: CatalogNames, name: str, location: str) -> OpenTable:
    """Register the Delta table at a location that the client names, and return it.

    Raises:
        DelvecError: as for Delvec's own request: the place or the name is not the caller's, or there is no table.
    """
    asked = TableRequest(location=location, name=name)
    return service.tables.open(register(service, names.access, asked)[0].id)


def table_credentials(
    service: Service, names: CatalogNames, opened: OpenTable, operation: str
) -> list[dict[str, Any]]:
    """Return credentials for a registered table: those that can write only if it is managed, for commits by the catalog.

    Raises:
        CredentialVendingUnsupported: the store cannot issue them, or they would write the log of an external table.
    """
    if operation == "READ":
        return storage_credentials(service, names, opened.location, "READ")
    snapshot = service.loader.load(opened.objects, opened.name, checkpoints=False)
    if not is_catalog_managed(snapshot.protocol) and not opened.location.startswith(_LOCAL):
        raise CredentialVendingUnsupported(
            f"No credentials that can write are issued for the external table '{opened.name}': its clients write the log "
            "themselves. Give the engine its own credentials, and set credentialVending.enabled=false: docs/catalog.md.",
            table=opened.name,
        )
    return storage_credentials(service, names, opened.location, "COMMIT")


def storage_credentials(
    service: Service, names: CatalogNames, location: str, use: Use
) -> list[dict[str, Any]]:
    """Return credentials for a location in the form of the API.

    For local files, which need none, they have no configuration, as Unity Catalog's own: its Hadoop connector and kernel-rs
    take an empty list for an error.

    Raises:
        CredentialVendingUnsupported: the store cannot issue them.
    """
    if location.startswith(_LOCAL):
        expires_at, config = time.time() + service.settings.credential_seconds, {}
    else:
        vended = service.credentials.vend(location, use, names.access.name)
        expires_at, config = vended.expires_at.timestamp(), dict(vended.config)
    return [
        {
            "prefix": f"{location}/",
            "operation": "READ" if use == "READ" else "READ_WRITE",
            "expiration-time-ms": int(expires_at * 1000),
            "config": config,
        }
    ]


def new_name(names: CatalogNames, catalog: str, schema: str, table: str) -> str:
    """Return the name of a table to be, which the caller may create and no table has.

    Raises:
        DelvecError: it is not one of the catalog's, not the caller's, or taken.
    """
    names.check_schema(catalog, schema)
    name = full_name(schema, table)
    names.access.require_name(name, "maintainer")
    bind_log_context(table=name)
    if names.exists(name):
        raise TableAlreadyExists(f"Table '{name}' already exists; choose another name.", table=name)
    return name


def _loaded(service: Service, opened: OpenTable) -> dict[str, Any]:
    snapshot = service.loader.load(opened.objects, opened.name, checkpoints=False)
    return loaded(opened.record, snapshot, service.settings.catalog_maintenance)


def _check_uuid(opened: OpenTable, requirement: TableRequirement | None) -> None:
    if requirement is None or requirement.uuid is None:
        raise BadRequest(
            f"The update of table '{opened.name}' needs the requirement assert-table-uuid; send the table-uuid that the "
            "table was loaded with.",
            table=opened.name,
        )
    if requirement.uuid != opened.record.id:
        # Not 409, which clients take for a lost race, and try again.
        raise TableNotFound(
            f"Table '{opened.name}' is no longer the one with the id {requirement.uuid}: that was dropped or renamed. Load it "
            "again.",
            table=opened.name,
        )


def _by_action(opened: OpenTable, updates: list[TableUpdate]) -> dict[str, TableUpdate]:
    """Return the updates by action, after checking that they may be in one request."""
    by_action = {update.action: update for update in updates}
    if len(by_action) < len(updates):
        raise BadRequest(f"The update of table '{opened.name}' has an action twice.", table=opened.name)
    for action in by_action:
        if action not in _FROM_THE_LOG | _REPORTS | {"add-commit"}:
            raise BadRequest(
                f"The update of table '{opened.name}' has the action {action[:100]!r}, which Delvec does not know.",
                table=opened.name,
            )
    added = by_action.get("add-commit")
    if added is not None and added.commit is None:
        raise BadRequest(f"The add-commit of table '{opened.name}' has no commit.", table=opened.name)
    if added is not None:
        _check_uniform(added.uniform, opened.name)
    for setting, removing in _OPPOSITES:
        both = _keys(by_action, setting) & _keys(by_action, removing)
        if both:
            raise BadRequest(
                f"The update of table '{opened.name}' sets and removes {min(both)[:200]!r}; do one of the two.",
                table=opened.name,
            )
    return by_action


def _keys(by_action: dict[str, TableUpdate], action: str) -> set[str]:
    """Return the properties or domains that an action sets or removes."""
    update = by_action.get(action)
    return set() if update is None else {*update.updates, *update.removals, *update.domains}


def _check_uniform(uniform: Any, name: str) -> None:
    """Reject Iceberg metadata that a client has written: the service would not keep it.

    Raises:
        UnsupportedOperation: there is some.
    """
    if uniform is not None:
        raise UnsupportedOperation(
            f"Iceberg metadata of table '{name}' cannot be given to the catalog (UniForm); leave out "
            "delta.universalFormat.enabledFormats, and publish the table as Iceberg with Delvec: docs/iceberg.md.",
            table=name,
        )


def _apply_alone(
    service: Service, opened: OpenTable, snapshot: Snapshot, actions: dict[str, TableUpdate]
) -> None:
    """Make the changes of a request without a commit: none of an external table, whose log has them already.

    Raises:
        InvalidCommit: a managed table is to be changed otherwise than in its comment.
        ConcurrentModification: or a subclass: others changed the table during every attempt.
    """
    changed = _FROM_THE_LOG & actions.keys()
    if not changed or not is_catalog_managed(snapshot.protocol):
        return
    if changed != {_COMMENT}:
        raise InvalidCommit(
            f"The change of table '{opened.name}' ({', '.join(sorted(changed))}) comes without a commit; stage a commit with "
            "the new metadata, or use Delvec's own ALTER.",
            table=opened.name,
        )
    change = AlterRequest(changes=[SetComment(comment=actions[_COMMENT].comment)])
    result = alter(opened, service.loader, service.commits, service.log_maintenance, change)
    if isinstance(result, Conflict):
        raise result.error(opened.name)


def _reported(actions: dict[str, TableUpdate]) -> int | None:
    report = actions.get("set-latest-backfilled-version")
    return None if report is None else report.latest_published_version


def check_report(version: int | None, opened: OpenTable, newest: int) -> None:
    """Reject a report that versions are published which do not exist.

    Raises:
        InvalidCommit: the newest is an older one.
    """
    if version is not None and version > newest:
        raise InvalidCommit(
            f"Version {version} of table '{opened.name}' cannot have been published before the "
            f"request: the newest is {newest}.",
            table=opened.name,
            version=newest,
        )


routers: Final = (_reading, _commits)
