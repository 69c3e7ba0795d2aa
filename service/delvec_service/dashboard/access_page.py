"""Who may do what, and who did what.

Tested in `tests/integration/service/dashboard/test_access.py`.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args
from urllib.parse import quote, urlencode

from starlette.responses import Response

from delvec_contract.access import AuditOutcome, GrantScope
from delvec_service.auth.principals import ROLES
from delvec_service.dashboard.paging import Pages
from delvec_service.dashboard.visit import Refused, Visit

__all__ = ["audit", "create_token", "grant", "revoke_token", "show"]

_SCOPES: Final = get_args(GrantScope)
_TARGET_FIELDS: Final = {"table": "table", "pattern": "pattern", "namespace": "namespace"}
_LIFETIMES: Final = {"30": "30 days", "90": "90 days", "365": "a year", "": "no end"}


async def show(
    visit: Visit, notice: str = "", refusal: Refused | None = None, new_token: Mapping[str, Any] | None = None
) -> Response:
    """Show what the visitor may do, and the grants and tokens that it administers.

    Args:
        visit: the request.
        notice: what was done.
        refusal: why it was not.
        new_token: a new token, which no other page shows.
    """
    access, grants, tokens = await asyncio.gather(
        visit.get("/v1/access"), visit.get("/v1/grants"), visit.find("/v1/tokens")
    )
    return visit.page(
        "access.html",
        200 if refusal is None else refusal.status,
        access=access,
        grants=grants["grants"],
        tokens=None if tokens is None else tokens["tokens"],
        roles=ROLES,
        scopes=_SCOPES,
        lifetimes=_LIFETIMES,
        notice=notice,
        refused=refusal,
        made=new_token,
        form=visit.form if refusal else {},
    )


async def grant(visit: Visit) -> Response:
    """Grant or revoke a role, and show the grants as they are then."""
    form = visit.form
    if await _is_open(visit):
        return await show(visit)
    scope, target, grantee = (form.get(name, "").strip() for name in ("scope", "target", "grantee"))
    on: dict[str, Any] = {_TARGET_FIELDS[scope]: target} if scope in _TARGET_FIELDS else {"all-tables": True}
    where = f"on {scope} {form.get('called', target)}" if scope in _TARGET_FIELDS else "on all tables"
    if form.get("do") == "revoke":
        query = urlencode(
            {"grantee": grantee} | ({"all-tables": "true"} if scope not in _TARGET_FIELDS else on)
        )
        answer = await visit.send("DELETE", f"/v1/grants?{query}")
        notice = f"{grantee} no longer has a role {where}."
    else:
        role = form.get("role", "")
        answer = await visit.send("POST", "/v1/grants", {"grantee": grantee, "role": role, **on})
        notice = f"{grantee} now has the role {role} {where}."
    if isinstance(answer, Refused):
        return await show(visit, refusal=answer)
    return await show(visit, notice)


async def create_token(visit: Visit) -> Response:
    """Create a token, and show it this once, above the tokens as they are then."""
    if await _is_open(visit):
        return await show(visit)
    name, principal, days = (visit.form.get(field, "").strip() for field in ("name", "principal", "days"))
    if days not in _LIFETIMES:
        return visit.missing()
    until = (datetime.now(UTC) + timedelta(days=int(days))).isoformat() if days else None
    body = {"name": name, "principal": principal or None, "expires-at": until}
    answer = await visit.send("POST", "/v1/tokens", body)
    if isinstance(answer, Refused):
        return await show(visit, refusal=answer)
    return await show(visit, new_token=answer)


async def revoke_token(visit: Visit, name: str) -> Response:
    """Revoke a token once that is confirmed, and show the tokens as they are then."""
    if visit.form.get("confirmed") != "yes":
        access, tokens = await asyncio.gather(visit.get("/v1/access"), visit.get("/v1/tokens"))
        token = next((one for one in tokens["tokens"] if one["name"] == name), None)
        if token is None:
            return visit.missing()
        return visit.page("token_revoke.html", token=token, is_own=token["principal"] == access["principal"])
    answer = await visit.send("DELETE", f"/v1/tokens/{quote(name, safe='')}")
    if isinstance(answer, Refused):
        return await show(visit, refusal=answer)
    return await show(visit, f"Token {name} was revoked.")


async def _is_open(visit: Visit) -> bool:
    """Whether the service requires no token.

    Its first token or role would lock everybody out, for no admin could be made over HTTP afterwards.
    """
    access = await visit.get("/v1/access")
    return access["principal"] is None


async def audit(visit: Visit) -> Response:
    """Show the audit log: who changed what, and what was denied."""
    filters = {
        key: value[:200]
        for key in ("table", "principal", "outcome")
        if (value := visit.query.get(key, "").strip())
        and (key != "outcome" or value in get_args(AuditOutcome))
    }
    pages = Pages(visit, "/dashboard/audit", filters)
    try:
        answer, refusal = await visit.get("/v1/audit", **filters, **pages.place), None
    except Refused as problem:
        if problem.status not in (403, 404):
            raise
        answer, refusal = {"entries": [], "next-page-token": None}, problem
    return visit.page(
        "audit.html",
        entries=answer["entries"],
        refused=refusal,
        chosen=filters,
        outcomes=get_args(AuditOutcome),
        pages=pages.followed_by(answer["next-page-token"]),
    )
