"""Tables described: at one version, several at one moment, and what DESCRIBE HISTORY and DESCRIBE DETAIL return.

Tested in `tests/integration/service/scans/test_history_detail_health.py`.
"""

from delvec_contract.access import Role
from delvec_contract.parameters import (
    DetailParameters,
    HealthParameters,
    HistoryParameters,
    SnapshotParameters,
)
from delvec_contract.tables import DetailResponse, HistoryResponse, SnapshotResponse
from delvec_contract.transactions import SnapshotsRequest, SnapshotsResponse, TransactionRequest
from delvec_errors import BadRequest
from delvec_service.operations.call import Call
from delvec_service.scans.describe import detail, history, snapshot_answer, snapshots_answer
from delvec_service.store.open_table import OpenTable


def get_snapshot(call: Call[SnapshotParameters]) -> SnapshotResponse:
    """Return a table's protocol, metadata and totals, at the newest version unless requested otherwise."""
    table, request = call.table, call.request
    check_moment(request)
    return snapshot_answer(
        call.service.loader,
        table,
        version=request.version,
        timestamp=request.timestamp,
        ranges=request.range or (),
    )


def get_snapshots(call: Call[SnapshotsRequest]) -> SnapshotsResponse:
    """Return several tables at one moment, as versions to read them at."""
    return snapshots_answer(
        call.service.loader, [opened_for(call, each, "reader") for each in call.request.tables]
    )


def get_history(call: Call[HistoryParameters]) -> HistoryResponse:
    """Return the commits that the log still has, newest first, with Delta's columns."""
    return HistoryResponse(history=history(call.table.objects, call.table.name, call.request.limit))


def get_detail(call: Call[DetailParameters]) -> DetailResponse:
    """Return the details of a table, with Delta's columns."""
    table = call.table
    check_moment(call.request)
    snapshot = call.service.loader.load(
        table.objects, table.name, version=call.request.version, timestamp=call.request.timestamp
    )
    return DetailResponse(detail=detail(snapshot, table.name), table_schema=snapshot.schema.to_json())


def check_moment(request: SnapshotParameters | DetailParameters | HealthParameters) -> None:
    """Reject parameters that name a version twice.

    Raises:
        BadRequest: by number, and by time.
    """
    if request.version is not None and request.timestamp is not None:
        raise BadRequest("Give either a version or a timestamp, not both.")


def opened_for(call: Call[SnapshotsRequest] | Call[TransactionRequest], table: str, role: Role) -> OpenTable:
    """Return one of the tables of a call, opened, if the caller has a role on it."""
    record = call.service.tables.find(table, call.access)
    call.access.require(record, role, table)
    return call.service.tables.opening(record)
