"""The health of all tables at once, by namespace, and over time.

Tested in `tests/integration/service/api/test_fleet.py`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from delvec_contract.conflicts import CommitInterval
from delvec_contract.fleet import DamagedTable, FleetPoint, FleetResponse, FleetTotals
from delvec_maintenance.health.health_findings import score_band
from delvec_service.operations.call import Call
from delvec_service.store.fleet_store import FleetTable

_HOURS: Final = 24
_DAYS: Final = 30
_DAYS_APART: Final = 2
_MAX_DAMAGED: Final = 100
_DAMAGE_ACTION: Final = "CHECK"
"""The action that is recommended for a damaged table, and for no other."""


def get_fleet(call: Call[None]) -> FleetResponse:
    """Return sums over the newest samples of all tables that the caller may read, by namespace and over time.

    No log is read.
    """
    service, access = call.service, call.access
    service.health.flush()
    now, store, catalog = datetime.now(UTC), service.fleet, service.tables.catalog
    tables = [one for one in store.tables(catalog) if access.sees(one.id, one.name)]
    access.is_decided = True
    ids = {one.id for one in tables} if access.is_restricted else None
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=_HOURS - 1)
    outcomes = store.commits_by_table(catalog, first, ids)
    hours = store.commits_by_hour(catalog, first, ids)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    times = [today - timedelta(days=days) for days in range(_DAYS, -1, -_DAYS_APART)]
    totals = _totals("", tables, outcomes)
    past = [one for one in store.points(catalog, times, ids) if one.num_tables]
    by_namespace: dict[str, list[FleetTable]] = {}
    for one in tables:
        by_namespace.setdefault(one.name.rpartition(".")[0], []).append(one)
    namespaces = [_totals(name, some, outcomes) for name, some in by_namespace.items()]
    return FleetResponse(
        as_of=now,
        oldest_sample=min((one.sampled_at for one in tables if one.sampled_at), default=None),
        totals=totals,
        namespaces=sorted(namespaces, key=lambda one: (-one.scan_debt_seconds, one.namespace)),
        damaged=[
            DamagedTable(id=one.id, name=one.name, sampled_at=one.sampled_at)
            for one in tables
            if _is_damaged(one) and one.sampled_at
        ][:_MAX_DAMAGED],
        intervals=[
            CommitInterval(
                since=at,
                seconds=3600,
                committed=num_committed,
                rebased=rebased,
                rows_saved=saved,
                conflicts=conflicts,
            )
            for at in (first + timedelta(hours=hour) for hour in range(_HOURS))
            for num_committed, rebased, saved, conflicts in [hours.get(at, (0, 0, 0, 0))]
        ],
        points=past + ([_point(now, totals)] if tables else []),
    )


def _point(at: datetime, sums: FleetTotals) -> FleetPoint:
    return FleetPoint(
        at=at,
        num_tables=sums.num_tables,
        size_in_bytes=sums.size_in_bytes,
        deleted_bytes=sums.deleted_bytes,
        scan_debt_seconds=sums.scan_debt_seconds,
    )


def _is_damaged(table: FleetTable) -> bool:
    return _DAMAGE_ACTION in (table.actions or "").split(",")


def _totals(
    namespace: str, tables: Sequence[FleetTable], outcomes: Mapping[str, tuple[int, int]]
) -> FleetTotals:
    bands = dict.fromkeys(("good", "fair", "poor", "unknown"), 0)
    for one in tables:
        bands["unknown" if one.score is None else score_band(one.score)] += 1
    rows = sum(one.num_physical_rows or 0 for one in tables)
    num_deleted = sum(one.num_deleted_rows or 0 for one in tables if one.num_physical_rows)
    counts = [outcomes[one.id] for one in tables if one.id in outcomes]
    return FleetTotals(
        namespace=namespace,
        num_tables=len(tables),
        num_good=bands["good"],
        num_fair=bands["fair"],
        num_poor=bands["poor"],
        num_damaged=sum(map(_is_damaged, tables)),
        num_unknown=bands["unknown"],
        size_in_bytes=sum(one.size_in_bytes or 0 for one in tables),
        num_files=sum(one.num_files or 0 for one in tables),
        deleted_ratio=num_deleted / rows if rows else None,
        deleted_bytes=sum(one.deleted_bytes or 0 for one in tables),
        scan_debt_seconds=round(sum(one.scan_debt_seconds or 0.0 for one in tables), 3),
        committed=sum(committed for committed, _ in counts),
        conflicts=sum(conflicts for _, conflicts in counts),
    )
