"""Who may do what, and who did what.

Tested in `tests/integration/service/dashboard/test_access.py`.
"""

import asyncio
from typing import Any, Final, get_args
from urllib.parse import urlencode

from starlette.responses import Response

from delvec_contract.access import AuditOutcome, GrantScope
from delvec_service.auth.principals import ROLES
from delvec_service.dashboard.visit import Refused, Visit

__all__ = ["audit", "grant", "show"]

_SCOPES: Final = get_args(GrantScope)
_ON: Final = {"table": "table", "pattern": "pattern", "namespace": "namespace"}


async def show(visit: Visit, notice: str = "", refused: Refused | None = None) -> Response:
    """Show what the visitor may do, and the grants and tokens that it administers."""
    access, grants, tokens = await asyncio.gather(
        visit.get("/v1/access"), visit.get("/v1/grants"), visit.find("/v1/tokens")
    )
    return visit.page(
        "access.html",
        200 if refused is None else refused.status,
        access=access,
        grants=grants["grants"],
        tokens=None if tokens is None else tokens["tokens"],
        roles=ROLES,
        scopes=_SCOPES,
        notice=notice,
        refused=refused,
        form=visit.form if refused else {},
    )


async def grant(visit: Visit) -> Response:
    """Grant or revoke a role, and show the grants as they are then."""
    form = visit.form
    scope, target, grantee = (form.get(name, "").strip() for name in ("scope", "target", "grantee"))
    on: dict[str, Any] = {_ON[scope]: target} if scope in _ON else {"all-tables": True}
    where = f"on {scope} {form.get('called', target)}" if scope in _ON else "on all tables"
    if form.get("do") == "revoke":
        query = urlencode({"grantee": grantee} | ({"all-tables": "true"} if scope not in _ON else on))
        answer = await visit.send("DELETE", f"/v1/grants?{query}")
        notice = f"{grantee} no longer has a role {where}."
    else:
        role = form.get("role", "")
        answer = await visit.send("POST", "/v1/grants", {"grantee": grantee, "role": role, **on})
        notice = f"{grantee} now has the role {role} {where}."
    if isinstance(answer, Refused):
        return await show(visit, refused=answer)
    return await show(visit, notice)


async def audit(visit: Visit) -> Response:
    """Show the audit log: who changed what, and what was denied."""
    chosen = {
        key: value[:200]
        for key in ("table", "principal", "outcome")
        if (value := visit.query.get(key, "").strip())
        and (key != "outcome" or value in get_args(AuditOutcome))
    }
    token = visit.query.get("page-token", "")
    place = {"page-token": token} if token else {}
    try:
        answer, refused = await visit.get("/v1/audit", **chosen, **place), None
    except Refused as problem:
        if problem.status not in (403, 404):
            raise
        answer, refused = {"entries": [], "next-page-token": None}, problem
    after = answer["next-page-token"]
    return visit.page(
        "audit.html",
        entries=answer["entries"],
        refused=refused,
        chosen=chosen,
        outcomes=get_args(AuditOutcome),
        following=f"/dashboard/audit?{urlencode(chosen | {'page-token': after})}" if after else None,
    )
