"""The pages, as middleware in front of the service: each calls the service's own HTTP API with the visitor's token.

So a page shows and does what that token allows; nothing here checks permissions or runs SQL.

Tested in `tests/integration/service/test_dashboard.py`.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, get_args
from urllib.parse import parse_qs, quote, urlencode

import httpx
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from delvec_contract import HealthSample
from delvec_contract.health_metrics import HealthOrder, metrics_of
from delvec_service.auth.principals import at_least
from delvec_service.dashboard.actions import ACTIONS, BY_ADVICE, MENU, Action
from delvec_service.dashboard.formats import FILTERS, ROWS, charts, columns, commit_charts
from delvec_service.dashboard.session import CSRF_FIELD, Session
from delvec_service.dashboard.tasks import Tasks

__all__ = ["Dashboard"]

_TYPES: Final = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "txt": "text/plain"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SIGN_IN: Final = "/dashboard/sign-in"
_SIGN_OUT: Final = "/dashboard/sign-out"
_TABLES: Final = "/dashboard/tables/"
_STATIC: Final = "/dashboard/static/"
_RUN: Final = "/run"
_UNSAID: Final = ("result", "table", "transaction-id")
"""Fields that a preview does not show: there is no transaction yet."""
_PARTS: Final = ("result", "plan", "tasks")
"""Elements that answers are inserted into: errors are shown there, not as a page."""
_LARGEST_FORM: Final = 64 * 1024
_PAGE_SIZE: Final = 50
_LABELS: Final = {field.replace("_", "-"): each.label for field, each in metrics_of(HealthSample).items()}
_ORDERS: Final = {order: _LABELS[order] for order in get_args(HealthOrder)}
"""Sort orders of the list, with their labels; tables that need most maintenance come first."""
_COLUMNS: Final = (
    ("Table", None),
    ("Health", "score"),
    ("Deleted", "deleted-ratio"),
    ("Files", "num-files"),
    ("Small files", "small-files"),
    ("Size", "size-in-bytes"),
    ("Commits since checkpoint", "commits-since-checkpoint"),
    ("Needs", None),
    ("Bytes saved in reads", "gain-bytes"),
)


class _Refused(Exception):
    """An answer of the service that a page cannot be built from."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        try:
            error = answer.json()["error"]
            self.message, self.kind = str(error["message"]), str(error["type"])
        except (ValueError, KeyError, TypeError):
            self.message, self.kind = "The service gave no answer.", "InternalError"
        super().__init__(self.message)


class Dashboard:
    """An ASGI middleware that serves ``/`` and everything below ``/dashboard/``; the rest goes to the service.

    Args:
        app: the service, including its middleware, which checks tokens.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._owner: Any = None
        self._tasks = Tasks()
        self._service = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self._inner, raise_app_exceptions=False),
            base_url="http://delvec",
            headers={"Accept-Encoding": "identity"},  # both ends are this process
            timeout=None,  # noqa: S113 - the service has deadlines of its own
            trust_env=False,
        )
        folder = files("delvec_service.dashboard") / "static"
        self._static = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
        digest = hashlib.sha256(b"".join(content for _, content in sorted(self._static.items())))
        self._templates = Environment(
            loader=PackageLoader("delvec_service.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= FILTERS
        self._templates.filters["segment"] = lambda value: quote(str(value), safe="")
        self._templates.globals |= {"build": digest.hexdigest()[:12], "csrf_field": CSRF_FIELD}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == "/" or path.startswith("/dashboard/")):
            await self._app(scope, receive, send)
            return
        self._owner = scope["app"]
        request = Request(scope, receive)
        session = Session(request)
        try:
            response = await self._answer(request, session, path)
        except _Refused as refused:
            response = self._refused(request, session, refused)
        except ClientDisconnect:
            return
        response.headers.update(
            {name: value for name, value in _HEADERS.items() if name not in response.headers}
        )
        session.keep(response)
        await response(scope, receive, send)

    async def _inner(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run our own request in the context of the browser's."""
        scope["app"] = self._owner  # set by the application for requests from outside
        await self._app(scope, receive, send)

    async def _answer(self, request: Request, session: Session, path: str) -> Response:
        if request.method in ("GET", "HEAD"):
            if path.startswith(_STATIC):
                return self._file(path.removeprefix(_STATIC))
            if path.startswith(_TABLES):
                return await self._of_table(request, session, *path.removeprefix(_TABLES).partition("/")[::2])
            if path == "/":
                return await self._tables(request, session)
            if path == _SIGN_IN:
                return self._page("sign_in.html", session, failed=None)
        elif request.method == "POST":
            return await self._posted(request, session, path)
        return self._page("error.html", session, 404, message="This page does not exist.")

    async def _of_table(self, request: Request, session: Session, name: str, part: str) -> Response:
        match part:
            case "":
                return await self._table(session, name)
            case "plan":
                return await self._plan(request, session, name)
            case "tasks":
                return await self._running(session, name)
        return self._page("error.html", session, 404, message="This page does not exist.")

    async def _posted(self, request: Request, session: Session, path: str) -> Response:
        form = await _form(request)
        if form is None or not session.permits(form.get(CSRF_FIELD, "")):
            return self._page(
                "error.html",
                session,
                403,
                message="The form has expired or belongs to another page; reload it.",
            )
        if path == _SIGN_IN:
            return await self._sign_in(session, form)
        if path == _SIGN_OUT:
            response = RedirectResponse(_SIGN_IN, 303)
            session.sign_out(response)
            return response
        if path.startswith(_TABLES) and path.endswith(_RUN):
            table = path.removeprefix(_TABLES).removesuffix(_RUN)
            return await self._run(request, session, table, form)
        return self._page("error.html", session, 404, message="This page does not exist.")

    def _file(self, name: str) -> Response:
        content = self._static.get(name)
        if content is None:
            return Response("This file does not exist.", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(content, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])

    async def _tables(self, request: Request, session: Session) -> Response:
        order = request.query_params.get("order-by", "score")
        search = request.query_params.get("search", "")[:128]
        parameters = {"order-by": order if order in _ORDERS else "score", "page-size": str(_PAGE_SIZE)}
        parameters |= {"search": search} if search else {}
        token = request.query_params.get("page-token", "")
        health_page = await self._get(
            session, "/v1/health", **parameters, **({"page-token": token} if token else {})
        )
        after = health_page["next-page-token"]
        following = {"order-by": parameters["order-by"], "search": search, "page-token": after}
        return self._page(
            "tables.html",
            session,
            tables=health_page["tables"],
            orders=_ORDERS,
            columns=_COLUMNS,
            order=parameters["order-by"],
            search=search,
            is_first=not token,
            following=f"/?{urlencode(following)}" if after else None,
        )

    async def _table(self, session: Session, name: str) -> Response:
        at = _resource(name)
        # First, to find out whether the table exists and may be seen.
        health = await self._get(session, f"{at}/health", files="20", partitions="50")
        (
            samples,
            history,
            detail,
            snapshot,
            runs,
            policies,
            access,
            conflicts,
            quarantines,
            tasks,
        ) = await asyncio.gather(
            self._get(session, f"{at}/health/samples", limit="1000"),
            self._get(session, f"{at}/history", limit="50"),
            self._get(session, f"{at}/detail"),
            self._get(session, f"{at}/snapshot"),
            self._get(session, "/v1/maintenance-runs", table=name, limit="20"),
            self._get(session, f"{at}/policies"),
            self._get(session, "/v1/access", table=name),
            self._get(session, f"{at}/conflicts", limit="50"),
            self._get_if_readable(session, f"{at}/quarantines"),
            self._get_if_readable(session, f"{at}/maintenance-tasks"),
        )
        return self._page(
            "table.html",
            session,
            name=name,
            health=health,
            rows=ROWS,
            charts=charts(samples["samples"]),
            history=history["history"],
            detail=detail["detail"],
            snapshot=snapshot,
            columns=columns(snapshot["schema"]),
            runs=runs["runs"],
            policies=policies["policies"],
            conflicts=conflicts["conflicts"],
            commit_charts=commit_charts(conflicts["intervals"]),
            quarantines=(quarantines or {}).get("quarantines", ()),
            maintains=at_least(access["role"], "maintainer"),
            actions=ACTIONS,
            menu=MENU,
            by_advice=BY_ADVICE,
            tasks=self._tasks.of_table(health["table"], (tasks or {}).get("tasks", ())),
        )

    async def _plan(self, request: Request, session: Session, name: str) -> Response:
        """Show what the policies would do now, and why."""
        answer = await self._service.get(f"{_resource(name)}/maintenance-plan", headers=session.headers)
        refused = _refusal(answer)
        planned = [] if refused is not None else answer.json()["planned"]
        table = await self._get_if_readable(session, _resource(name))
        title = name if table is None else table["name"]
        return self._result(
            request, session, "plan.html", name, title=title, refused=refused, planned=planned
        )

    async def _running(self, session: Session, name: str) -> Response:
        table = await self._get(session, _resource(name))  # checks whether it may be seen
        reports = await self._get_if_readable(session, f"{_resource(name)}/maintenance-tasks")
        tasks = self._tasks.of_table(table["name"], (reports or {}).get("tasks", ()))
        return self._page("tasks.html", session, name=name, tasks=tasks)

    async def _run(self, request: Request, session: Session, name: str, form: Mapping[str, str]) -> Response:
        action = ACTIONS.get(form.get("action", ""))
        action_request = None if action is None else action.request(form)
        if action is None or action_request is None:
            return self._page("error.html", session, 400, message="This task does not exist.")
        table = await self._get(session, _resource(name))
        label = f"{action.label} to version {form['version']}" if action.takes_version else action.label
        if action.is_confirmed:
            preview = await self._preview(session, name, action, form)
            seen = None if preview is None else preview.get("read-version")
            if form.get("confirmed") != "yes" or str(form.get("seen", "")) != str(seen):
                return self._result(
                    request,
                    session,
                    "confirm.html",
                    name,
                    title=table["name"],
                    label=label,
                    question=action.asked(preview or {}),
                    preview=preview,
                    seen=seen,
                    is_overtaken=form.get("confirmed") == "yes",
                    form={key: form[key] for key in ("action", "version", "quarantine") if key in form},
                )
        with self._tasks.running(table["name"], label) as task:
            headers = {**session.headers, "X-Request-Id": task.id}
            answer = await self._service.post(
                f"{_resource(name)}/{action_request.path}", json=action_request.body, headers=headers
            )
            refused = _refusal(answer)
            task.state = "done" if refused is None else "failed"
        values = {} if refused is not None else answer.json()
        return self._result(
            request,
            session,
            "result.html",
            name,
            title=table["name"],
            label=label,
            refused=refused,
            values={key: value for key, value in values.items() if value is not None},
        )

    async def _preview(
        self, session: Session, name: str, action: Action, form: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Return what an action would do, if known."""
        wanted = action.request(form, preview=True)
        if action.preview is None or wanted is None:
            return None
        answer = await self._service.post(
            f"{_resource(name)}/{wanted.path}", json=wanted.body, headers=session.headers
        )
        if not answer.is_success:
            raise _Refused(answer)
        found: dict[str, Any] = answer.json()
        return {key: value for key, value in found.items() if value is not None and key not in _UNSAID}

    def _result(
        self, request: Request, session: Session, template: str, name: str, **values: Any
    ) -> Response:
        """Return the result of an action: for the page that requested it, or as a page of its own.

        Args:
            request: the browser's.
            session: the visitor's.
            template: of the result.
            name: the table in the address: its name or id.
            values: of the template; ``title`` is the table's name.
        """
        outer = template if request.headers.get("hx-request") else "result_page.html"
        return self._page(outer, session, name=name, inner=template, **values)

    async def _sign_in(self, session: Session, form: Mapping[str, str]) -> Response:
        token = form.get("token", "").strip()
        header = {"Authorization": f"Bearer {token}"}
        if not token or not token.isascii() or not token.isprintable():
            return self._page("sign_in.html", session, 401, failed="This token is not valid.")
        answer = await self._service.get("/v1/health", params={"page-size": 1}, headers=header)
        if not answer.is_success:
            return self._page("sign_in.html", session, answer.status_code, failed=_Refused(answer).message)
        response = RedirectResponse("/", 303)
        session.sign_in(response, token)
        return response

    async def _get_if_readable(self, session: Session, path: str) -> Any:
        """Return an answer, or None if the service has none; the page still has its other parts."""
        try:
            return await self._get(session, path)
        except _Refused:
            return None

    async def _get(self, session: Session, path: str, **parameters: str) -> Any:
        answer = await self._service.get(path, params=parameters, headers=session.headers)
        if not answer.is_success:
            raise _Refused(answer)
        return answer.json()

    def _refused(self, request: Request, session: Session, refused: _Refused) -> Response:
        if refused.status == 401:  # noqa: PLR2004
            response: Response = RedirectResponse(_SIGN_IN, 303)
            if request.headers.get("hx-request"):
                response = Response(status_code=200, headers={"HX-Redirect": _SIGN_IN})
            if session.token is not None:
                session.sign_out(response)
            return response
        is_part = request.headers.get("hx-target") in _PARTS
        return self._page("error.html", session, refused.status, message=refused.message, is_part=is_part)

    def _page(self, template: str, session: Session, status: int = 200, **values: Any) -> Response:
        always = {"csrf": session.csrf, "is_signed_in": session.token is not None, "is_part": False}
        text = self._templates.get_template(template).render(always | values)
        # A log may contain a lone surrogate, which UTF-8 cannot encode.
        return Response(text.encode(errors="replace"), status, media_type="text/html")


def _resource(name: str) -> str:
    return f"/v1/tables/{quote(name, safe='')}"


def _refusal(answer: httpx.Response) -> _Refused | None:
    """Return why something was not done, or None if it was.

    Raises:
        _Refused: nobody is signed in any more.
    """
    refused = None if answer.is_success else _Refused(answer)
    if refused is not None and refused.status == 401:  # noqa: PLR2004
        raise refused
    return refused


async def _form(request: Request) -> dict[str, str] | None:
    """Return the fields of a form, or None if it is not a form or too large."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return None
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_FORM:
            return None
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return None
    return {name: values[0] for name, values in found.items()}
