"""Which commits conflicted, and how many commits there were over time.

Tested in `tests/integration/service/api/test_conflicts.py`.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from delvec_contract.conflicts import CommitConflict, ConflictsResponse
from delvec_contract.fleet import FleetConflict, FleetConflictsResponse
from delvec_contract.parameters import AllConflictsParameters, ConflictsParameters
from delvec_service.auth.principals import at_least
from delvec_service.operations.call import Call
from delvec_service.snapshots.time_travel import since_of
from delvec_service.store import commit_record

_DEFAULT_PERIOD: Final = timedelta(days=7)


def list_conflicts(call: Call[ConflictsParameters]) -> ConflictsResponse:
    """Return the commits that lost a race, the commits that won, and the files and rows they conflicted over.

    Also returns the outcomes of commits per hour.
    """
    table, service, request = call.table, call.service, call.request
    start = since_of(request.since)
    service.health.flush(table.record.id)
    role = call.access.rights.on_table(table.record.id, table.record.name)
    knows_principals = at_least(role, "maintainer")
    return ConflictsResponse(
        table=table.name,
        conflicts=[
            _conflict(one, knows_principals=knows_principals)
            for one in service.commit_record.conflicts(table.record.id, start, request.limit)
        ],
        intervals=list(service.commit_record.intervals(table.record.id, start)),
    )


def list_all_conflicts(call: Call[AllConflictsParameters]) -> FleetConflictsResponse:
    """Return the conflicting commits of all tables that the caller may read, newest first."""
    access, service, request = call.access, call.service, call.request
    start = since_of(request.since) or datetime.now(UTC) - _DEFAULT_PERIOD
    visible = access.sees if access.is_restricted else None
    service.health.flush()
    recorded = service.commit_record.all_conflicts(service.tables.catalog, start, request.limit, visible)
    access.is_decided = True
    return FleetConflictsResponse(
        conflicts=[
            FleetConflict(
                **_conflict(one, knows_principals=access.maintains(table_id, name)).model_dump(),
                table=name,
                table_id=table_id,
            )
            for table_id, name, one in recorded
        ]
    )


def _conflict(conflict: commit_record.CommitConflict, *, knows_principals: bool) -> CommitConflict:
    return CommitConflict(
        id=conflict.id,
        found_at=conflict.found_at,
        type=conflict.type,
        operation=conflict.operation,
        read_version=conflict.read_version,
        transaction_id=conflict.transaction_id,
        principal=conflict.principal if knows_principals else None,
        winning_version=conflict.winning_version,
        winning_operation=conflict.winning_operation,
        winning_engine=conflict.winning_engine,
        winning_transaction_id=conflict.winning_transaction_id,
        winning_principal=conflict.winning_principal if knows_principals else None,
        num_files=conflict.num_files,
        files=list(conflict.files),
        overlapping_rows=conflict.overlapping_rows,
        reason=conflict.reason,
    )
