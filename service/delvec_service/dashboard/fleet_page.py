"""All tables at a glance: what is broken, what runs, what needs maintenance and what will do it, by namespace and over time.

Tested in `tests/integration/service/dashboard/test_fleet.py`.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import Response

from delvec_service.dashboard.charts import fleet_charts
from delvec_service.dashboard.formats import instant
from delvec_service.dashboard.upcoming import upcoming
from delvec_service.dashboard.visit import Visit

__all__ = ["show"]

_MAX: Final = "8"
_NAMESPACES: Final = 50


async def show(visit: Visit) -> Response:
    """Show the fleet."""
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    fleet, neediest, policies, tasks, failed_runs, runs = await asyncio.gather(
        visit.get("/v1/fleet"),
        visit.get("/v1/health", **{"page-size": _MAX}),
        visit.get("/v1/policies"),
        visit.get("/v1/maintenance-tasks"),
        visit.get("/v1/maintenance-runs", state="failed", since=yesterday, limit="20"),
        visit.get("/v1/maintenance-runs", limit="1"),
    )
    return visit.page(
        "fleet.html",
        fleet=fleet,
        totals=fleet["totals"],
        sampled=fleet["totals"]["num-tables"] - fleet["totals"]["num-unknown"],
        since=fleet["intervals"][0]["since"],
        hours=(instant(fleet["as-of"]) - instant(fleet["intervals"][0]["since"])) / timedelta(hours=1),
        namespaces=fleet["namespaces"][:_NAMESPACES],
        upcoming=upcoming(neediest["tables"], policies["policies"]),
        tasks=tasks["tasks"],
        failed=failed_runs["runs"],
        last_run=next(iter(runs["runs"]), None),
        has_policies=any(one["content"]["enable"] for one in policies["policies"]),
        charts=fleet_charts(fleet),
    )
