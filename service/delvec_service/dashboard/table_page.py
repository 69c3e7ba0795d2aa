"""One table: advice, files, trends, maintenance, history, conflicts and schema, each a tab of its own.

Tested in `tests/integration/service/dashboard/test_table.py` and `tests/integration/service/dashboard/test_table_actions.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from delvec_maintenance.health.advice import steps
from delvec_service.auth.principals import at_least
from delvec_service.dashboard.charts import ROWS, charts, commit_charts
from delvec_service.dashboard.formats import columns
from delvec_service.dashboard.results import sentences
from delvec_service.dashboard.table_actions import ACTIONS, BY_ADVICE, CHANGES, MENU, TableAction
from delvec_service.dashboard.tasks import Tasks
from delvec_service.dashboard.visit import Refused, Visit, resource

__all__ = ["TablePage"]

_TABS: Final = {
    "advice": "Advice",
    "files": "Files",
    "trends": "Trends",
    "maintenance": "Maintenance",
    "history": "History",
    "conflicts": "Conflicts",
    "schema": "Schema",
}
_OF_VISITORS: Final = frozenset({401, 403, 429, 503})
"""Refusals that say nothing of the table: nobody is signed in, or may not, or has to wait."""
_OF_ALL: Final = "quarantines"
"""The page of all tables' quarantines, where the tab of a table's page is otherwise."""


class TablePage:
    """The pages of a table.

    Args:
        tasks: the tasks that people started in this process.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._tabs: Mapping[str, Callable[[Visit, str, str], Awaitable[dict[str, Any]]]] = {
            "advice": _advice,
            "files": _files,
            "trends": _trends,
            "maintenance": self._maintenance,
            "history": _history,
            "conflicts": _conflicts,
            "schema": _schema,
        }

    async def show(
        self, visit: Visit, name: str, tab: str = "advice", result: Mapping[str, Any] | None = None
    ) -> Response:
        """Show a tab, below the result of an action if there is one."""
        if tab not in self._tabs:
            return visit.missing()
        table = await visit.get(resource(name))  # checks whether it may be seen
        try:
            return await self._show(visit, name, tab, table, result)
        except Refused as refused:
            if refused.status in _OF_VISITORS:
                raise
            title = f"{table['name']} cannot be shown"
            return visit.page("error.html", refused.status, title=title, message=refused.message)

    async def _show(
        self, visit: Visit, name: str, tab: str, table: Mapping[str, Any], result: Mapping[str, Any] | None
    ) -> Response:
        # After an action the newest sample may be older than it: a checkpoint leaves none.
        if tab in ("advice", "files") or visit.is_part or result:
            state = await visit.get(f"{resource(name)}/health", files="20", partitions="50")
        else:
            state = await _newest(visit, name)
        advised = state.get("recommendations", ())
        access, values = await asyncio.gather(
            visit.get("/v1/access", table=name), self._tabs[tab](visit, name, table["name"])
        )
        return visit.page(
            "table.html",
            name=table["id"],
            table=table,
            state=state,
            tab=tab,
            tabs=_TABS,
            maintains=at_least(access["role"], "maintainer"),
            actions=ACTIONS,
            menu=MENU,
            by_advice=BY_ADVICE,
            steps=steps(advised),
            needed=state.get("actions") or [one["action"] for one in advised],
            rows=ROWS,
            result=result,
            **values,
        )

    async def tasks(self, visit: Visit, name: str) -> Response:
        """Show what runs, as a part of the page."""
        table = await visit.get(resource(name))  # checks whether it may be seen
        return visit.page("tasks.html", name=name, tasks=await self._list_tasks(visit, name, table["name"]))

    async def plan(self, visit: Visit, name: str) -> Response:
        """Show what the policies would do now, and why."""
        table = await visit.get(resource(name))
        answer = await visit.send("GET", f"{resource(name)}/maintenance-plan")
        refused = answer if isinstance(answer, Refused) else None
        planned = [] if isinstance(answer, Refused) else answer["planned"]
        result = {"template": "plan.html", "refused": refused, "planned": planned}
        return await self._answer(visit, name, table, "maintenance", result)

    async def run(self, visit: Visit, name: str) -> Response:
        """Perform an action, or ask whether to, and show its result above the new state."""
        form = visit.form
        action = ACTIONS.get(form.get("action", ""))
        request = None if action is None else action.request(form)
        if action is None or request is None:
            return visit.page(
                "error.html", 400, title="This could not be done", message="This task does not exist."
            )
        table = await visit.get(resource(name))
        tab = form.get("tab", "advice")
        label = f"{action.label} to version {form['version']}" if action.takes_version else action.label
        title = f"{table['name']}: {label}" if tab == _OF_ALL else label
        preview = await self._preview(visit, name, action)
        if preview and preview.get("num-files") == 0:  # nothing to ask about
            return await self._answer(visit, name, table, tab, _outcome(title, request.path, preview))
        if action.is_confirmed:
            seen = None if preview is None else preview.get("read-version")
            if form.get("confirmed") != "yes" or form.get("seen", "") != str(seen):
                result = {
                    "template": "confirm.html",
                    "label": label,
                    "title": title,
                    "question": action.asked(preview or {}),
                    "said": []
                    if preview is None
                    else sentences(request.path, preview)[action.counts_files :],
                    "files": (preview or {}).get("files", ()),
                    "seen": seen,
                    "back": "/dashboard/"
                    + (tab if tab == _OF_ALL else f"tables/{quote(table['id'], safe='')}/{tab}"),
                    "is_overtaken": form.get("confirmed") == "yes",
                    "form": {
                        key: form[key] for key in ("action", "version", "quarantine", "tab") if key in form
                    },
                }
                return await self._answer(visit, name, table, tab, result)
        with self._tasks.running(table["name"], label) as task:
            path = f"{resource(name)}/{request.path}"
            answer = await visit.send("POST", path, request.body, **{"X-Request-Id": task.id})
            task.state = "failed" if isinstance(answer, Refused) else "done"
        response = await self._answer(visit, name, table, tab, _outcome(title, request.path, answer))
        if form["action"] in CHANGES:
            response.headers["HX-Trigger"] = "table-changed"
        return response

    async def _answer(
        self, visit: Visit, name: str, table: Mapping[str, Any], tab: str, result: Mapping[str, Any]
    ) -> Response:
        """Return a result: as a part for the page that asked, or with the page around it."""
        if visit.is_part:
            return visit.page(result["template"], name=table["id"], result=result)
        tab = "maintenance" if tab == _OF_ALL else tab
        return await self.show(visit, name, tab if tab in _TABS else "advice", result)

    async def _preview(self, visit: Visit, name: str, action: TableAction) -> dict[str, Any] | None:
        """Return what an action would do, if known."""
        request = action.request(visit.form, preview=True)
        if action.is_confirmed and "quarantine" in visit.form:
            held = await visit.get(f"{resource(name)}/quarantines")
            return next(
                (
                    one
                    for one in held["quarantines"]
                    if (one["id"], one["state"]) == (visit.form["quarantine"], "quarantined")
                ),
                None,
            )
        if action.preview is None or request is None:
            return None
        answer = await visit.send("POST", f"{resource(name)}/{request.path}", request.body)
        if isinstance(answer, Refused):
            raise answer
        preview: dict[str, Any] = answer
        return preview

    async def _list_tasks(self, visit: Visit, name: str, called: str) -> Any:
        reports = await visit.find(f"{resource(name)}/maintenance-tasks")
        return self._tasks.of_table(called, (reports or {}).get("tasks", ()))

    async def _maintenance(self, visit: Visit, name: str, called: str) -> dict[str, Any]:
        runs, policies, quarantines, tasks = await asyncio.gather(
            visit.get("/v1/maintenance-runs", table=name, limit="50"),
            visit.get(f"{resource(name)}/policies"),
            visit.find(f"{resource(name)}/quarantines"),
            self._list_tasks(visit, name, called),
        )
        return {
            "runs": runs["runs"],
            "policies": policies["policies"],
            "quarantines": None if quarantines is None else quarantines["quarantines"],
            "tasks": tasks,
        }


def _outcome(title: str, path: str, answer: Any) -> dict[str, Any]:
    """Return what an action did, or why it was refused, for the page."""
    refused = answer if isinstance(answer, Refused) else None
    return {
        "template": "result.html",
        "title": title,
        "refused": refused,
        "values": {} if refused else answer,
        "said": [] if refused else sentences(path, answer),
    }


async def _newest(visit: Visit, name: str) -> Any:
    """Return the table's newest sample; without one its health is computed."""
    samples = await visit.get(f"{resource(name)}/health/samples", limit="1")
    return next(iter(samples["samples"]), None) or await visit.get(f"{resource(name)}/health")


async def _advice(_visit: Visit, _name: str, _called: str) -> dict[str, Any]:
    return {}


async def _files(_visit: Visit, _name: str, _called: str) -> dict[str, Any]:
    return {}


async def _trends(visit: Visit, name: str, _called: str) -> dict[str, Any]:
    samples = await visit.get(f"{resource(name)}/health/samples", limit="1000")
    return {"charts": charts(samples["samples"])}


async def _history(visit: Visit, name: str, _called: str) -> dict[str, Any]:
    history = await visit.get(f"{resource(name)}/history", limit="50")
    commits = history["history"]
    return {"history": commits, "newest": commits[0]["version"] if commits else 0}


async def _conflicts(visit: Visit, name: str, _called: str) -> dict[str, Any]:
    answer = await visit.get(f"{resource(name)}/conflicts", limit="50")
    return {"conflicts": answer["conflicts"], "charts": commit_charts(answer["intervals"])}


async def _schema(visit: Visit, name: str, _called: str) -> dict[str, Any]:
    described = await visit.get(f"{resource(name)}/detail")
    return {"detail": described["detail"], "columns": columns(described["schema"])}
