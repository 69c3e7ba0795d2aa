"""Maintenance and conflicts of all tables.

Tested in `tests/integration/service/dashboard/test_maintenance.py`.
"""

import asyncio
from typing import Final, get_args

from starlette.responses import Response

from delvec_contract.policies import RunState
from delvec_maintenance.policies import PolicyType
from delvec_service.dashboard.charts import fleet_charts
from delvec_service.dashboard.upcoming import upcoming
from delvec_service.dashboard.visit import Visit

__all__ = ["conflicts", "running", "show"]

_MAX_TABLES: Final = "20"
_RUNS: Final = "100"


async def show(visit: Visit) -> Response:
    """Show what runs, what is next, and what ran, with predicted and measured gain."""
    filters = {
        key: value
        for key, values in (("type", get_args(PolicyType)), ("state", get_args(RunState)))
        if (value := visit.query.get(key, "")) in values
    }
    tasks, runs, neediest, policies = await asyncio.gather(
        visit.get("/v1/maintenance-tasks"),
        visit.get("/v1/maintenance-runs", limit=_RUNS, **filters),
        visit.get("/v1/health", **{"page-size": _MAX_TABLES}),
        visit.get("/v1/policies"),
    )
    return visit.page(
        "maintenance.html",
        tasks=tasks["tasks"],
        runs=runs["runs"],
        is_cut=len(runs["runs"]) == int(_RUNS),
        upcoming=upcoming(neediest["tables"], policies["policies"]),
        types=get_args(PolicyType),
        states=get_args(RunState),
        chosen=filters,
    )


async def running(visit: Visit) -> Response:
    """Show what runs, as a part of a page."""
    tasks = await visit.get("/v1/maintenance-tasks")
    return visit.page("running.html", tasks=tasks["tasks"])


async def conflicts(visit: Visit) -> Response:
    """Show who conflicted with whom in the last days."""
    answer, fleet = await asyncio.gather(
        visit.get("/v1/conflicts", limit="100"),
        visit.get("/v1/fleet"),
    )
    plots = [one for one in fleet_charts(fleet) if one["title"].endswith("per hour")]
    worst = sorted(fleet["namespaces"], key=lambda one: -one["conflicts"])[:10]
    return visit.page(
        "conflicts.html",
        conflicts=answer["conflicts"],
        totals=fleet["totals"],
        since=fleet["intervals"][0]["since"],
        worst=[one for one in worst if one["conflicts"]],
        charts=plots,
    )
