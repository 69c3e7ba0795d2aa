"""The console, as middleware in front of the service: each page calls the service's own HTTP API with the visitor's token.

So a page shows and does what that token allows; nothing here checks permissions or runs SQL.

Tested in `tests/integration/service/dashboard/test_access.py`.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from delvec_service.dashboard import (
    access_page,
    fleet_page,
    maintenance_page,
    policies_page,
    quarantines_page,
    tables_page,
)
from delvec_service.dashboard.session import CSRF_FIELD, BrowserSession
from delvec_service.dashboard.table_page import TablePage
from delvec_service.dashboard.tasks import Tasks
from delvec_service.dashboard.visit import Refused, Visit, templates

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
_STATIC: Final = "/dashboard/static/"
_LARGEST_FORM: Final = 64 * 1024
_FORM_SECONDS: Final = 30.0
_UNAUTHORIZED: Final = 401

_Page = Callable[..., Awaitable[Response]]


class Dashboard:
    """An ASGI middleware that serves ``/`` and everything below ``/dashboard/``; the rest goes to the service.

    Args:
        app: the service, including its middleware, which checks tokens.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._owner: Any = None
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
        self._templates = templates(digest.hexdigest()[:12])
        self._routes = _routes(TablePage(Tasks()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == "/" or path.startswith("/dashboard/")):
            await self._app(scope, receive, send)
            return
        self._owner = scope["app"]
        request = Request(scope, receive)
        session = BrowserSession(request)
        try:
            response = await self._answer(request, session, path)
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

    async def _answer(self, request: Request, session: BrowserSession, path: str) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        if method == "GET" and path.startswith(_STATIC):
            return self._file(path.removeprefix(_STATIC))
        form = await _form(request) if method == "POST" else {}
        visit = Visit(request, session, self._service, self._templates, form or {})
        if method == "POST" and (form is None or not session.permits(form.get(CSRF_FIELD, ""))):
            return visit.page(
                "error.html",
                403,
                title="This form has expired",
                message="It is too old, or belongs to another page; reload the page.",
            )
        for verb, pattern, page in self._routes:
            match = pattern.fullmatch(path) if verb == method else None
            if match:
                try:
                    return await page(visit, **match.groupdict())
                except Refused as refused:
                    return _refused(visit, refused)
        return visit.missing()

    def _file(self, name: str) -> Response:
        content = self._static.get(name)
        if content is None:
            return Response("This file does not exist.", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(content, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])


def _routes(table: TablePage) -> Sequence[tuple[str, re.Pattern[str], _Page]]:
    at, policy = "/dashboard/tables/(?P<name>[^/]+)", "/dashboard/policies/(?P<name>[^/]+)"
    pages: list[tuple[str, str, _Page]] = [
        ("GET", "/", fleet_page.show),
        ("GET", "/dashboard/tables", tables_page.show),
        ("GET", at, table.show),
        ("GET", f"{at}/plan", table.plan),
        ("GET", f"{at}/tasks", table.tasks),
        ("POST", f"{at}/run", table.run),
        ("GET", f"{at}/(?P<tab>[a-z]+)", table.show),
        ("GET", "/dashboard/maintenance", maintenance_page.show),
        ("GET", "/dashboard/running", maintenance_page.running),
        ("GET", "/dashboard/conflicts", maintenance_page.conflicts),
        ("GET", "/dashboard/quarantines", quarantines_page.show),
        ("GET", "/dashboard/policies", policies_page.show),
        ("POST", "/dashboard/policies", policies_page.save),
        ("GET", policy, policies_page.edit),
        ("POST", f"{policy}/drop", policies_page.drop),
        ("GET", f"{policy}/plan", policies_page.plan),
        ("GET", "/dashboard/access", access_page.show),
        ("POST", "/dashboard/access", access_page.grant),
        ("POST", "/dashboard/tokens", access_page.create_token),
        ("POST", "/dashboard/tokens/(?P<name>[^/]+)/revoke", access_page.revoke_token),
        ("GET", "/dashboard/audit", access_page.audit),
        ("GET", _SIGN_IN, _sign_in_page),
        ("POST", _SIGN_IN, _sign_in),
        ("POST", _SIGN_OUT, _sign_out),
    ]
    return [(method, re.compile(path), page) for method, path, page in pages]


async def _sign_in_page(visit: Visit) -> Response:
    return visit.page("sign_in.html", failed=None)


async def _sign_in(visit: Visit) -> Response:
    token = visit.form.get("token", "").strip()
    if not token or not token.isascii() or not token.isprintable():
        return visit.page("sign_in.html", 401, failed="This token is not valid.")
    visit.session.token = token
    try:
        await visit.get("/v1/access")
    except Refused as refused:
        visit.session.token = None
        return visit.page("sign_in.html", refused.status, failed=refused.message)
    response = RedirectResponse("/", 303)
    visit.session.sign_in(response, token)
    return response


async def _sign_out(visit: Visit) -> Response:
    response = RedirectResponse(_SIGN_IN, 303)
    visit.session.sign_out(response)
    return response


def _refused(visit: Visit, refused: Refused) -> Response:
    if refused.status != _UNAUTHORIZED:
        return visit.page("error.html", refused.status, title=refused.title, message=refused.message)
    response: Response = RedirectResponse(_SIGN_IN, 303)
    if visit.is_part:
        response = Response(status_code=200, headers={"HX-Redirect": _SIGN_IN})
    if visit.session.token is not None:
        visit.session.sign_out(response)
    return response


async def _form(request: Request) -> dict[str, str] | None:
    """Return the fields of a form, or None if it is not a form, too large, or arrives too slowly."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return None
    body = b""
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > _LARGEST_FORM:
                    return None
    except TimeoutError:  # strangers may send forms, and hold no connection open
        return None
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=40)
    except ValueError:
        return None
    return {name: values[0] for name, values in found.items()}
