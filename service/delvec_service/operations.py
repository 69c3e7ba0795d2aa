"""The operations that every command needs, for HTTP handlers and for clients in this process.

Tested in `tests/integration/contract/test_table_service.py`.
"""

import dataclasses
import json
import random
import time
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final, Literal, TypeAlias

from delvec_contract.alterations import AlterRequest
from delvec_contract.commits import (
    AllocatedDeletionVector,
    AllocatedVectorFile,
    AllocateRequest,
    AllocateResponse,
    BeginRequest,
    BeginResponse,
    CommitOutcome,
    CommitRequest,
    CommitResponse,
)
from delvec_contract.health import HealthResponse
from delvec_contract.plans import (
    AdditionsResponse,
    ChangedFile,
    ChangesResponse,
    PlanFile,
    PlanRequest,
    PlanResponse,
    StreamPosition,
)
from delvec_contract.shapes import ErrorBody
from delvec_contract.tables import (
    DetailResponse,
    HistoryResponse,
    SnapshotResponse,
    TableRequest,
    TableResource,
    TablesResponse,
)
from delvec_contract.transactions import (
    CommittedTable,
    SnapshotsResponse,
    TransactionOutcome,
    TransactionRequest,
    TransactionResponse,
)
from delvec_errors import ConcurrentWrite, DelvecError
from delvec_kernel.alter_table.changes import AddFeature
from delvec_kernel.change_feed.stream_positions import Position
from delvec_kernel.features.managed_tables import MANAGED, is_catalog_managed
from delvec_kernel.schema.column_paths import parse_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.symlink_manifest import are_kept_fresh
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.alter_table.alter import alter
from delvec_service.auth.access import Access
from delvec_service.commits import allocation
from delvec_service.commits.commit import AlreadyApplied, Committed, NothingToDo
from delvec_service.commits.commit_request import changes_of
from delvec_service.commits.commit_result import Rebased
from delvec_service.commits.idempotency import commit_hash, is_final, request_hash
from delvec_service.commits.multi_table import Participant
from delvec_service.commits.outcomes import Outcome
from delvec_service.logs import bind_log_context
from delvec_service.page_tokens import page_token, place_of
from delvec_service.scans import describe
from delvec_service.scans.change_feed_plan import PlannedChanges
from delvec_service.scans.plan import PlannedScan, plan
from delvec_service.scans.stream_plan import PlannedAdditions
from delvec_service.scans.vacuumed_versions import check_planned, naming_vacuum
from delvec_service.service import Service
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.version_marks import read_mark
from delvec_service.store.answers import StoredAnswer
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord
from delvec_service.tables.registry import NewTable

__all__ = [
    "OK",
    "additions_answer",
    "allocate",
    "begin",
    "changes_answer",
    "closed",
    "commit",
    "commit_transaction",
    "committed_response",
    "detail",
    "drop",
    "envelope",
    "find_commit",
    "find_transaction",
    "health",
    "history",
    "plan_answer",
    "plan_scan",
    "register",
    "resource",
    "snapshot",
    "snapshot_fields",
    "snapshots",
    "tables",
]

_Result: TypeAlias = Literal[
    "committed", "nothing-to-do", "already-applied", "conflict", "refused", "unknown"
]
OK: Final = 200
_ROUNDS: Final = 50
_BY_NAME: Final = "tables by name"


# --- scans ------------------------------------------------------------------------------------------------


def plan_scan(
    service: Service,
    table: OpenTable,
    asked: PlanRequest,
    *,
    at: int | None = None,
    offset: int = 0,
    limit: int | None = None,
) -> PlannedScan:
    """Plan a scan.

    Args:
        service: the service.
        table: the table.
        asked: what to plan; ``page_token`` and ``page_size`` are the caller's business.
        at: the version of the first page, for the others.
        offset: number of files to leave out.
        limit: maximum number of files; None for all.
    """

    def planned_scan(snapshot: Snapshot) -> PlannedScan:
        is_old = asked.version is not None or asked.timestamp is not None
        with (
            service.observer.plan(table.name),
            naming_vacuum(table, service.loader, snapshot) if is_old else nullcontext(),
        ):
            planned = plan(
                snapshot,
                table.name,
                predicate=asked.predicate,
                columns=asked.columns,
                stats=asked.stats,
                row_ids=asked.row_ids,
                clustering=asked.clustering,
                inline_deletion_vectors=asked.inline_deletion_vectors,
                offset=offset,
                limit=limit,
                allowed=table.roots.allows,
                turns=service.plan_queue,
                observer=service.observer,
            )
        if is_old:
            check_planned(table, service.loader, snapshot, planned.files["path"])
        return planned

    return service.loader.reading(
        table.objects,
        table.name,
        planned_scan,
        version=asked.version if at is None else at,
        timestamp=asked.timestamp if at is None else None,
    )


def plan_answer(
    table: OpenTable,
    planned: PlannedScan,
    loader: SnapshotLoader,
    *,
    offset: int = 0,
    files: list[PlanFile] | None = None,
) -> PlanResponse:
    """Return a planned scan as an answer, with one page of its files."""
    snapshot = planned.snapshot
    end = offset + len(files or ())
    more = files is not None and end < planned.num_files
    return PlanResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=snapshot.version,
        read_mark=read_mark(loader, snapshot),
        table_schema=snapshot.schema.to_json(),
        partition_columns=list(snapshot.partition_columns),
        configuration=dict(snapshot.configuration),
        protocol=snapshot.protocol.to_json(),
        files=files or [],
        num_files=planned.num_files,
        num_files_total=planned.num_files_total,
        next_page_token=f"{snapshot.version}.{end}" if more else None,
    )


def changes_answer(
    table: OpenTable, planned: PlannedChanges, files: list[ChangedFile] | None = None
) -> ChangesResponse:
    """Return a planned read of the change data feed as an answer."""
    snapshot = planned.snapshot
    return ChangesResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=snapshot.version,
        start_version=planned.start,
        end_version=planned.end,
        table_schema=snapshot.schema.to_json(),
        partition_columns=list(snapshot.partition_columns),
        configuration=dict(snapshot.configuration),
        files=files or [],
        num_files=planned.files.num_rows,
    )


def additions_answer(
    table: OpenTable, planned: PlannedAdditions, files: list[PlanFile] | None = None
) -> AdditionsResponse:
    """Return a planned step of a stream as an answer."""
    return AdditionsResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=planned.version,
        start=_stream_position(planned.start),
        end=_stream_position(planned.end),
        snapshot_timestamp=planned.snapshot_timestamp,
        files=files or [],
        num_files=planned.files.num_rows,
        num_found=planned.num_found,
    )


def _stream_position(position: Position) -> StreamPosition:
    return StreamPosition(version=position.version, index=position.index, snapshot=position.snapshot)


# --- what the log knows ------------------------------------------------------------------------------------


def history(table: OpenTable, limit: int | None = None) -> HistoryResponse:
    """Return the commits that the log still has, newest first."""
    return HistoryResponse(history=describe.history(table.objects, table.name, limit))


def detail(
    service: Service, table: OpenTable, *, version: int | None = None, timestamp: str | None = None
) -> DetailResponse:
    """Return the details of a table, with Delta's columns."""
    snapshot = service.loader.load(table.objects, table.name, version=version, timestamp=timestamp)
    return DetailResponse(detail=describe.detail(snapshot, table.name))


def health(
    service: Service,
    table: OpenTable,
    *,
    version: int | None = None,
    timestamp: str | None = None,
    files: int = 0,
    partitions: int = 0,
    failed: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> HealthResponse:
    """Return the health of a table.

    Args:
        service: the service.
        table: the table.
        version: of the table; by default the newest.
        timestamp: the same by time.
        files: how many files to list per recommendation.
        partitions: how many partitions to report on.
        failed: live files that could not be read.
        columns: in which to report how much files overlap, besides the clustering columns.
    """
    from delvec_service.iceberg.lag import iceberg_lags
    from delvec_service.maintenance.health import health as health_of

    overwritten = service.overwrite_watch.overwritten(table.location)
    is_newest = version is None and timestamp is None
    counts = service.health.counts(table.record.id) if is_newest else None
    paths = [parse_path(name) for name in columns]

    def look(snapshot: Snapshot) -> HealthResponse:
        table_health = health_of(
            snapshot,
            table.objects,
            table.name,
            vector_file_size=service.settings.deletion_vector_target_bytes,
            traced=files,
            partitions=partitions,
            columns=paths,
            problems=service.health.damage.look(table, snapshot, failed=failed) if is_newest else (),
        )
        lags = iceberg_lags(service.loader, table, snapshot) if is_newest else ()
        if is_newest:
            # Others may have committed since the last sample, or there is no sample yet.
            service.health.keep(table.record.id, snapshot, table_health.report)
        return table_health.response(overwritten, counts, lags)

    return service.loader.reading(table.objects, table.name, look, version=version, timestamp=timestamp)


# --- transactions -----------------------------------------------------------------------------------------


def begin(service: Service, table: OpenTable, asked: BeginRequest) -> BeginResponse:
    """Begin a transaction before writing data files."""
    transaction_id, snapshot = allocation.begin(
        table, service.loader, service.ledger, asked.operation, asked.table_changes
    )
    return BeginResponse(
        **snapshot_fields(table.record, snapshot, service.loader),
        transaction_id=transaction_id,
        deletion_vectors_enabled=snapshot.dv_enabled,
    )


def allocate(service: Service, table: OpenTable, asked: AllocateRequest) -> AllocateResponse:
    """Reserve files, offsets and UUIDs for deletion vectors."""
    transaction_id, places, files = allocation.allocate(
        table,
        service.loader,
        service.ledger,
        asked.sizes,
        files=asked.files,
        transaction_id=asked.transaction_id,
        target_bytes=service.settings.deletion_vector_target_bytes,
    )
    return AllocateResponse(
        transaction_id=transaction_id,
        deletion_vectors=[
            AllocatedDeletionVector(
                path_or_inline_dv=place.path_or_inline_dv,
                offset=place.offset,
                size_in_bytes=place.size_in_bytes,
                file=place.file,
            )
            for place in places
        ],
        files=[
            AllocatedVectorFile(path_or_inline_dv=file.path_or_inline_dv, file=file.path) for file in files
        ],
    )


def commit(
    service: Service, table: OpenTable, asked: CommitRequest, parsed: Any, idempotency_key: str | None = None
) -> tuple[CommitResponse, bool] | StoredAnswer:
    """Commit one transaction. Its id is the idempotency key.

    Args:
        service: the service.
        table: the table.
        asked: the commit.
        parsed: the same as JSON values, which identify it.
        idempotency_key: replaces a missing transaction id.

    Returns:
        The answer, and whether an earlier request with the same key made the commit; or the stored answer to that
        request, if the log does not have it.
    """
    bind_log_context(change=asked.operation)
    key = asked.transaction_id or idempotency_key
    if key is None:
        return commit_changes(service, table, changes_of(asked, str(uuid.uuid4()), table))
    hashed = commit_hash(table.record.id, parsed)
    stored_answer = service.answers.find(key, hashed)
    if stored_answer is not None:
        return stored_answer
    try:
        changes = dataclasses.replace(changes_of(asked, key, table), request_hash=hashed)
        answer, is_replayed = commit_changes(service, table, changes)
    except DelvecError as error:
        if is_final(error):
            service.answers.keep(key, hashed, error.status, envelope(error))
        raise
    if answer.version is None:  # it is not in the log
        service.answers.keep(key, hashed, OK, answer.model_dump_json(by_alias=True).encode())
    return answer, is_replayed


def envelope(error: DelvecError) -> bytes:
    """Return the body of an error's answer. In ASCII: an error may quote a lone surrogate from a log."""
    return json.dumps(error.to_wire(), separators=(",", ":")).encode()


def commit_changes(service: Service, table: OpenTable, changes: Changes) -> tuple[CommitResponse, bool]:
    """Commit what is found in the log under its transaction id, but whose answer nobody stores; see :func:`commit`."""
    result = service.commits.commit(table, changes)
    if isinstance(result, Committed):
        partitions = service.commits.to_compact(table, changes)
        answer = committed_response(result).model_copy(update={"auto_compact": partitions})
        return answer, result.replayed
    if isinstance(result, NothingToDo | AlreadyApplied):
        answer = CommitResponse(
            result="nothing-to-do" if isinstance(result, NothingToDo) else "already-applied",
            version=None,
            read_version=result.read_version,
            transaction_id=result.transaction_id,
            operation_metrics=dict(result.metrics) if isinstance(result, NothingToDo) else {},
        )
        return answer, False
    raise result.error(table.name)


def commit_transaction(
    service: Service,
    tables: Sequence[OpenTable],
    asked: TransactionRequest,
    idempotency_key: str | None = None,
) -> tuple[TransactionResponse, bool] | StoredAnswer:
    """Commit to several tables at one moment; see :func:`commit`.

    Args:
        service: the service.
        tables: in the order of the request.
        asked: the request.
        idempotency_key: replaces a missing transaction id.
    """
    key = asked.transaction_id or idempotency_key or str(uuid.uuid4())
    body = asked.model_dump(mode="json", by_alias=True, exclude={"transaction_id"})
    hashed = request_hash("transaction", [table.record.id for table in tables], body["tables"])
    stored_answer = service.answers.find(key, hashed)
    if stored_answer is not None:
        return stored_answer
    try:
        participants = [
            Participant(table, dataclasses.replace(changes_of(each.commit, key, table), request_hash=hashed))
            for table, each in zip(tables, asked.tables, strict=True)
        ]
        decision, is_replayed = service.multi_table.commit(participants, key, hashed)
    except DelvecError as error:
        if is_final(error):
            service.answers.keep(key, hashed, error.status, envelope(error))
        raise
    committed = [CommittedTable.model_validate(each) for each in decision.answers]
    return TransactionResponse(transaction_id=key, tables=committed), is_replayed


def find_transaction(service: Service, access: Access, transaction_id: str) -> TransactionOutcome:
    """Return the outcome of a transaction over several tables. An unknown outcome is also an answer."""
    access.is_decided = True
    decision = service.multi_table.find(transaction_id)
    committed = [] if decision is None else map(CommittedTable.model_validate, decision.answers)
    return TransactionOutcome(
        transaction_id=transaction_id,
        result="unknown" if decision is None else "committed" if decision.is_commit else "undone",
        tables=[each for each in committed if access.sees(each.table_id, each.name)],
        # It may name tables.
        reason=None if decision is None or access.is_restricted else decision.reason or None,
    )


def find_commit(
    service: Service, table: OpenTable, transaction_id: str, read_version: int | None
) -> CommitOutcome:
    """Return the outcome of a commit by its transaction id. An unknown outcome is also an answer."""
    outcome = service.outcomes.find(table, transaction_id, read_version)
    result, commit_response, error = _outcome_fields(outcome)
    return CommitOutcome(
        transaction_id=transaction_id,
        result=result,
        commit=commit_response,
        error=error,
        searched_from=outcome.searched[0],
        searched_to=outcome.searched[1],
    )


def committed_response(committed: Committed) -> CommitResponse:
    """Return a successful commit in the form of its original answer."""
    return CommitResponse(
        result="rebased" if isinstance(committed, Rebased) else "committed",
        version=committed.version,
        read_version=committed.read_version,
        transaction_id=committed.transaction_id,
        winners_passed=list(committed.winners_passed),
        operation_metrics=dict(committed.metrics),
    )


def _outcome_fields(outcome: Outcome) -> tuple[_Result, CommitResponse | None, ErrorBody | None]:
    if outcome.committed is not None:
        return "committed", committed_response(outcome.committed), None
    if outcome.answer is None:
        return "unknown", None, None
    body = json.loads(outcome.answer.body)
    if "error" in body:
        conflict = "conflict" in body["error"].get("details", {})
        return "conflict" if conflict else "refused", None, ErrorBody.model_validate(body["error"])
    response = CommitResponse.model_validate(body)
    if response.result == "already-applied":
        return "already-applied", response, None
    return "nothing-to-do", response, None


# --- tables -----------------------------------------------------------------------------------------------


def tables(
    service: Service, access: Access, namespace: str | None, page_size: int, token: str = ""
) -> TablesResponse:
    """Return a page of the registered tables that the caller may see, ordered by name."""
    page = access.page(
        lambda after, limit: service.tables.page(after, limit, namespace),
        lambda record: (record.name, record.id),
        lambda record: access.sees(record.id, record.name),
        place_of(token, _BY_NAME, str, str) if token else ("", ""),
        page_size,
    )
    more = len(page) == page_size
    return TablesResponse(
        tables=[resource(record) for record in page],
        next_page_token=page_token(_BY_NAME, page[-1].name, page[-1].id) if more else None,
    )


def register(
    service: Service, access: Access, asked: TableRequest, idempotency_key: str | None = None
) -> tuple[TableResource, bool]:
    """Register the table at a location, or create one there; return whether it is new."""
    bind_log_context(table=asked.name, change=asked.location)
    access.require_place(service.tables, asked.location, asked.name, creates=asked.table_schema is not None)
    if asked.table_schema is None:
        record, is_new = service.tables.register(asked.location, asked.name, access)
        bind_log_context(table=record.name, table_id=record.id, change=record.location)
        if asked.managed:
            access.require(record, "maintainer")
            _manage(service, record)
        return resource(record), is_new
    new = NewTable(
        schema=asked.table_schema,
        partition_columns=tuple(asked.partition_columns),
        properties=asked.properties,
        description=asked.description,
        cluster_by=tuple(asked.cluster_by),
        # In the log, where it can be found even if the database is lost.
        transaction_id=idempotency_key or str(uuid.uuid4()),
        is_managed=asked.managed,
    )
    record, version = service.tables.create(asked.location, asked.name, new, access)
    bind_log_context(table=record.name, table_id=record.id, change=record.location, version=version)
    made = service.tables.open(record.id)
    service.log_maintenance.committed(made, version, new.transaction_id)
    service.events.committed(made)
    if are_kept_fresh(new.properties):
        service.manifests.created(made)
    return resource(record, version), True


def _manage(service: Service, record: TableRecord) -> None:
    """Give a table to the catalog, unless it is the catalog's already.

    Raises:
        InvalidTableChange: it cannot be managed.
        ConcurrentModification: or a subclass: others changed the table during every attempt.
    """
    table = service.tables.opening(record)
    if is_catalog_managed(service.loader.load(table.objects, table.name, checkpoints=False).protocol):
        return
    change = AlterRequest(changes=[AddFeature(feature=MANAGED)])
    result = alter(table, service.loader, service.commits, service.log_maintenance, change, str(uuid.uuid4()))
    if isinstance(result, Conflict):
        raise result.error(table.name)


def drop(service: Service, name_or_id: str) -> None:
    """Unregister a table; a managed one can be brought back."""
    record = service.tables.forget(name_or_id)
    bind_log_context(table=record.name, table_id=record.id)
    closed(service, record)


def closed(service: Service, record: TableRecord) -> None:
    """Note that a table is no longer registered."""
    service.health.forget(record.id)
    service.directory.expire()  # Its grants may be gone.


def resource(record: TableRecord, version: int | None = None) -> TableResource:
    """Return a table in its wire form."""
    return TableResource(
        id=record.id,
        name=record.name,
        location=record.location,
        created_at=record.created_at.isoformat(),
        version=version,
    )


def snapshot(service: Service, table: OpenTable) -> SnapshotResponse:
    """Return the newest version of a table."""
    newest = service.loader.load(table.objects, table.name)
    return SnapshotResponse(**snapshot_fields(table.record, newest, service.loader))


def snapshots(service: Service, tables: Sequence[OpenTable]) -> SnapshotsResponse:
    """Return several tables at one moment.

    Each version is read twice, all of them before any of them again: one that is the same both times was the newest in
    between, so those of a round without any change were the newest at one moment.

    Raises:
        ConcurrentWrite: the tables are written so often that there was no such round.
    """
    before: list[int] = []
    for number in range(_ROUNDS):
        newest = [service.loader.load(table.objects, table.name, checkpoints=False) for table in tables]
        versions = [each.version for each in newest]
        if versions == before or len(tables) == 1:
            break
        before = versions
        time.sleep(random.uniform(0, 0.001 * number))  # noqa: S311 - spreads load
    else:
        raise ConcurrentWrite(
            f"The tables {', '.join(table.name for table in tables)} are written so often that they could not be read at one "
            "moment; try again, or with fewer tables."
        )
    return SnapshotsResponse(
        snapshots=[
            SnapshotResponse(**snapshot_fields(table.record, each, service.loader))
            for table, each in zip(tables, newest, strict=True)
        ]
    )


def snapshot_fields(record: TableRecord, snapshot: Snapshot, loader: SnapshotLoader) -> dict[str, Any]:
    """Return the fields of :class:`~delvec_contract.SnapshotResponse`."""
    return {
        "table_id": record.id,
        "name": record.name,
        "location": record.location,
        "version": snapshot.version,
        "read_mark": read_mark(loader, snapshot),
        "timestamp": snapshot.timestamp,
        "table_schema": snapshot.schema.to_json(),
        "partition_columns": list(snapshot.partition_columns),
        "configuration": dict(snapshot.configuration),
        "protocol": snapshot.protocol.to_json(),
        "metadata_id": snapshot.metadata.id,
        "num_files": snapshot.num_files,
        "size_in_bytes": snapshot.size_in_bytes,
        "num_deletion_vectors": snapshot.num_deletion_vectors,
        "num_deleted_rows": snapshot.num_deleted_rows,
        "num_rows": snapshot.num_rows,
        "app_transactions": {name: txn.version for name, txn in snapshot.txns.items()},
        "domain_metadata": {name: entry.configuration for name, entry in snapshot.domain_metadata.items()},
    }
