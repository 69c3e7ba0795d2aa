"""Maintenance policies: which there are, what they would do now, and how to change them.

Tested in `tests/integration/service/dashboard/test_policies.py`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote

from starlette.responses import Response

from delvec_maintenance.policies import PolicyType, applicable
from delvec_service.auth.principals import at_least
from delvec_service.dashboard.policy_form import DOES, InvalidField, config_from, form_fields
from delvec_service.dashboard.upcoming import attached
from delvec_service.dashboard.visit import Refused, Visit, resource

__all__ = ["drop", "edit", "plan", "save", "show"]

_NEW: Final = "new"
_MAX_PLANNED: Final = 10
_LOOKED_AT: Final = "1000"


async def show(visit: Visit, notice: str = "", refusal: Refused | None = None) -> Response:
    """List the policies."""
    policies = (await visit.get("/v1/policies"))["policies"]
    names, may_change = await asyncio.gather(_table_names(visit, policies), _may_change(visit))
    return visit.page(
        "policies.html",
        200 if refusal is None else refusal.status,
        policies=policies,
        names=names,
        does=DOES,
        may_change=may_change,
        notice=notice,
        refused=refusal,
    )


async def edit(visit: Visit, name: str) -> Response:
    """Show the form of a policy, or of a new one."""
    if name == _NEW:
        kind = visit.query.get("type", "")
        if kind not in DOES:
            return visit.page("policy_type.html", does=DOES)
        start = {"name": "", "type": kind, "content": {"enable": True, "config": {}}, "pattern": None}
        return _form(visit, start | {"table-id": None}, visit.query.get("table", ""), is_new=True)
    policy = await visit.get(f"/v1/policies/{quote(name, safe='')}")
    names, may_change = await asyncio.gather(
        _table_names(visit, [policy]), _may_change(visit, policy["table-id"])
    )
    table = names.get(policy["table-id"], policy["table-id"] or "")
    return _form(visit, policy, table, may_change=may_change)


async def save(visit: Visit) -> Response:
    """Store a policy, and show the list with it; or the form again, with what is wrong."""
    form = visit.form
    kind = form.get("type", "")
    if kind not in DOES:
        return visit.missing()
    is_new = form.get("is-new") == "yes"
    scope = form.get("scope", "all")
    policy: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "type": kind,
        "pattern": form.get("pattern", "").strip() if scope == "pattern" else None,
        "table-id": None,
        "content": {"enable": form.get("enable") == "yes", "config": {}},
    }
    table = form.get("table", "").strip() if scope == "table" else None
    if policy["pattern"] == "" or table == "":
        reason = f"Say which: give {'a pattern of names' if table is None else 'the name of a table'}, or choose all tables."
        return _form(visit, policy, "", is_new=is_new, problem=reason)
    try:
        config = config_from(cast(PolicyType, kind), form)
    except InvalidField as problem:
        return _form(visit, policy, table or "", is_new=is_new, problem=str(problem))
    policy["content"]["config"] = config
    if is_new and await visit.find(f"/v1/policies/{quote(policy['name'], safe='')}"):
        reason = "There is a policy of that name already: change it, or choose another name."
        return _form(visit, policy, table or "", is_new=True, problem=reason)
    on = (
        {"table": table} if table is not None else {"pattern": policy["pattern"]} if policy["pattern"] else {}
    )
    body = {"name": policy["name"], "type": kind, "content": policy["content"], **on}
    answer = await visit.send("POST", "/v1/policies", body)
    if isinstance(answer, Refused):
        return _form(visit, policy, table or "", is_new=is_new, problem=answer.message, status=answer.status)
    where = (
        f"table {table}"
        if table
        else f"names like {policy['pattern']}"
        if policy["pattern"]
        else "all tables"
    )
    return await show(visit, f"Policy {policy['name']} was saved, for {where}.")


async def drop(visit: Visit, name: str) -> Response:
    """Delete a policy once that is confirmed, and show the list without it."""
    path = f"/v1/policies/{quote(name, safe='')}"
    policy = await visit.get(path)
    if visit.form.get("confirmed") != "yes":
        return visit.page("policy_drop.html", policy=policy, does=DOES)
    answer = await visit.send("DELETE", path)
    if isinstance(answer, Refused):
        return await show(visit, refusal=answer)
    return await show(visit, f"Policy {name} was deleted.")


async def plan(visit: Visit, name: str) -> Response:
    """Show what a policy would do now to the tables that need most; nothing changes."""
    policy = await visit.get(f"/v1/policies/{quote(name, safe='')}")
    policies, listing = await asyncio.gather(
        visit.get("/v1/policies"), visit.get("/v1/health", **{"page-size": _LOOKED_AT})
    )
    held = attached(policies["policies"])
    plans: list[tuple[Mapping[str, Any], Any]] = []
    others = 0
    for table in listing["tables"]:
        if policy["name"] not in [one.name for one in applicable(held, table["id"], table["name"]).values()]:
            continue
        if len(plans) == _MAX_PLANNED:
            others += 1
            continue
        answer = await visit.send("GET", f"{resource(table['id'])}/maintenance-plan")
        if isinstance(answer, Refused):
            plans.append((table, answer))
            continue
        plans += [(table, one) for one in answer["planned"] if one["policy"] == policy["name"]]
    return visit.page(
        "policy_plan.html",
        policy=policy,
        does=DOES,
        planned=[(table, None if isinstance(one, Refused) else one, one) for table, one in plans],
        others=others,
        is_cut=listing["num-tables"] > len(listing["tables"]),
    )


def _form(
    visit: Visit,
    policy: Mapping[str, Any],
    table: str,
    *,
    is_new: bool = False,
    problem: str = "",
    status: int = 400,
    may_change: bool = True,
) -> Response:
    kind = cast(PolicyType, policy["type"])
    form_values = visit.form if problem else {}
    return visit.page(
        "policy.html",
        status if problem else 200,
        policy=policy,
        pattern=form_values.get("pattern", policy["pattern"] or ""),
        table=form_values.get("table", table),
        scope=form_values.get("scope")
        or ("table" if table or policy["table-id"] else "pattern" if policy["pattern"] else "all"),
        may_change=may_change,
        does=DOES[kind],
        fields=form_fields(kind, policy["content"]["config"], form_values),
        is_new=is_new,
        failed=problem,
    )


async def _may_change(visit: Visit, table: str | None = None) -> bool:
    """Whether the visitor may change the policy of a table; without one, whether any: the service decides."""
    access = table and await visit.find("/v1/access", table=table)
    if access:
        return at_least(access["role"], "maintainer")
    access = await visit.get("/v1/access")
    return not access["is-restricted"] or any(at_least(one["role"], "maintainer") for one in access["grants"])


async def _table_names(visit: Visit, policies: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of the tables that policies are attached to, by id; a table may be gone."""
    ids = sorted({one["table-id"] for one in policies if one["table-id"]})
    tables = await asyncio.gather(*(visit.find(resource(one)) for one in ids))
    return {id_: table["name"] for id_, table in zip(ids, tables, strict=True) if table}
