"""Quarantines of all tables: what VACUUM has moved away and can put back.

Tested in `tests/integration/service/dashboard/test_quarantines.py`.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from delvec_service.auth.principals import at_least
from delvec_service.dashboard.paging import Pages
from delvec_service.dashboard.visit import Visit, resource

__all__ = ["show"]

_TABLES: Final = "50"
_MAX_QUARANTINES: Final = 50
_PATIENCE_SECONDS: Final = 2.0
_AT_ONCE: Final = 8


async def show(visit: Visit) -> Response:
    """Show the quarantines of the tables from a place in their list on.

    The records are in the tables' folders, so each table is asked; a page ends where it is full, or has taken long.
    """
    namespace = visit.query.get("namespace", "").strip()[:128]
    filters = {"namespace": namespace} if namespace else {}
    pages = Pages(visit, "/dashboard/quarantines", filters)
    place, until, turns = pages.place, time.monotonic() + _PATIENCE_SECONDS, asyncio.Semaphore(_AT_ONCE)
    holding: list[dict[str, Any]] = []
    silent: list[Mapping[str, Any]] = []
    num_answered = 0
    while True:
        listing = await visit.get("/v1/tables", **filters, **place, **{"page-size": _TABLES})
        answers = await asyncio.gather(*(_held(visit, one, turns) for one in listing["tables"]))
        for table, quarantines in zip(listing["tables"], answers, strict=True):
            if quarantines is None:
                silent.append(table)
                continue
            num_answered += 1
            holding += [{"table": table, **one} for one in quarantines]
        after = listing["next-page-token"]
        if not after or len(holding) >= _MAX_QUARANTINES or time.monotonic() > until:
            break
        place = {"page-token": after}
    return visit.page(
        "quarantines.html",
        holding=holding,
        maintained=await _maintained(visit, {one["table"]["id"] for one in holding}),
        silent=silent,
        answered=num_answered,
        namespace=namespace,
        pages=pages.followed_by(after),
    )


async def _held(visit: Visit, table: Mapping[str, Any], turns: asyncio.Semaphore) -> list[Any] | None:
    """Return the quarantines of a table that hold files, newest first; None if they cannot be listed now."""
    async with turns:
        answer = await visit.find(f"{resource(table['id'])}/quarantines")
    if answer is None:
        return None
    return [one for one in answer["quarantines"] if one["state"] == "quarantined"]


async def _maintained(visit: Visit, tables: set[str]) -> set[str]:
    """Return the tables whose quarantines the visitor may empty."""
    ids = sorted(tables)
    answers = await asyncio.gather(*(visit.find("/v1/access", table=id_) for id_ in ids))
    return {
        id_
        for id_, access in zip(ids, answers, strict=True)
        if access and at_least(access["role"], "maintainer")
    }
