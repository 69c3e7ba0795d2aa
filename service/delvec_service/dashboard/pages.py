"""The pages, as middleware in front of the service: each calls the service's own HTTP resources with the visitor's token.

So a page shows and does what that token allows; nothing here checks rights or runs SQL.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlencode

import httpx
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from delvec_service.auth.principals import at_least
from delvec_service.dashboard.formats import FILTERS, charts
from delvec_service.dashboard.session import CSRF_FIELD, Session

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
_LARGEST_FORM: Final = 64 * 1024
_PAGE_SIZE: Final = 50
_ORDERS: Final = {
    "score": "Health",
    "deleted-ratio": "Deleted share",
    "deleted-bytes": "Deleted bytes",
    "small-files": "Small files",
    "num-files": "Files",
    "size-in-bytes": "Size",
    "commits-since-checkpoint": "Commits since checkpoint",
    "gain-bytes": "Fewer bytes to read",
}
_ACTIONS: Final[Mapping[str, tuple[str, str, dict[str, Any]]]] = {
    "optimize": ("OPTIMIZE", "optimize", {}),
    "purge": ("PURGE", "optimize", {"purge": True}),
    "compact": ("Compact deletion vectors", "deletion-vectors/compact", {}),
    "checkpoint": ("CHECKPOINT", "checkpoint", {}),
    "vacuum-dry-run": ("VACUUM, dry run", "vacuum", {"dry-run": True}),
    "vacuum": ("VACUUM", "vacuum", {}),
}
"""What can be run: what it is called, the resource, and what is sent."""


class _Refused(Exception):
    """An answer of the service that is not what a page can be made of."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        try:
            error = answer.json()["error"]
            self.message, self.kind = str(error["message"]), str(error["type"])
        except (ValueError, KeyError, TypeError):
            self.message, self.kind = "The service gave no answer.", "InternalError"
        super().__init__(self.message)


class Dashboard:
    """An ASGI middleware: ``/`` and what is below ``/dashboard/`` are its pages, everything else is the service's.

    Args:
        app: the service, with its own middleware: what asks for tokens is part of it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._owner: Any = None
        self._service = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self._inner, raise_app_exceptions=False),
            base_url="http://delvec",
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
        """Answer one request, or hand it on."""
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
        """Run a request of ours where the browser's came from."""
        scope["app"] = self._owner  # which the application sets for those from outside
        await self._app(scope, receive, send)

    async def _answer(self, request: Request, session: Session, path: str) -> Response:
        if request.method in ("GET", "HEAD"):
            if path.startswith(_STATIC):
                return self._file(path.removeprefix(_STATIC))
            if path.startswith(_TABLES):
                return await self._table(session, path.removeprefix(_TABLES))
            if path == "/":
                return await self._tables(request, session)
            if path == _SIGN_IN:
                return self._page("sign_in.html", session, failed=None)
        elif request.method == "POST":
            return await self._posted(request, session, path)
        return self._page("error.html", session, 404, message="There is no such page.")

    async def _posted(self, request: Request, session: Session, path: str) -> Response:
        form = await _form(request)
        if form is None or not session.permits(form.get(CSRF_FIELD, "")):
            return self._page(
                "error.html", session, 403, message="The form is too old, or not of this page: load it again."
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
        return self._page("error.html", session, 404, message="There is no such page.")

    def _file(self, name: str) -> Response:
        content = self._static.get(name)
        if content is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(content, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])

    async def _tables(self, request: Request, session: Session) -> Response:
        order = request.query_params.get("order-by", "score")
        search = request.query_params.get("search", "")[:128]
        asked = {"order-by": order if order in _ORDERS else "score", "page-size": str(_PAGE_SIZE)}
        asked |= {"search": search} if search else {}
        token = request.query_params.get("page-token", "")[:200]
        found = await self._get(session, "/v1/health", **asked, **({"page-token": token} if token else {}))
        after = found["next-page-token"]
        following = {"order-by": asked["order-by"], "search": search, "page-token": after}
        return self._page(
            "tables.html",
            session,
            tables=found["tables"],
            orders=_ORDERS,
            order=asked["order-by"],
            search=search,
            is_first=not token,
            following=f"/?{urlencode(following)}" if after else None,
        )

    async def _table(self, session: Session, name: str) -> Response:
        at = f"/v1/tables/{quote(name, safe='')}"
        # First what says whether there is such a table, and whether it may be seen.
        health = await self._get(session, f"{at}/health", files="20", partitions="50")
        samples, history, detail, snapshot, runs, policies, access = await asyncio.gather(
            self._get(session, f"{at}/health/samples", limit="1000"),
            self._get(session, f"{at}/history", limit="50"),
            self._get(session, f"{at}/detail"),
            self._get(session, f"{at}/snapshot"),
            self._get(session, "/v1/maintenance-runs", table=name, limit="20"),
            self._get(session, f"{at}/policies"),
            self._get(session, "/v1/access", table=name),
        )
        return self._page(
            "table.html",
            session,
            name=name,
            health=health,
            charts=charts(samples["samples"]),
            history=history["history"],
            detail=detail["detail"],
            snapshot=snapshot,
            runs=runs["runs"],
            policies=policies["policies"],
            maintains=at_least(access["role"], "maintainer"),
            actions={key: label for key, (label, _, _) in _ACTIONS.items()},
        )

    async def _run(self, request: Request, session: Session, name: str, form: Mapping[str, str]) -> Response:
        action = _ACTIONS.get(form.get("action", ""))
        if action is None:
            return self._page("error.html", session, 400, message="There is no such task.")
        label, resource, body = action
        answer = await self._service.post(
            f"/v1/tables/{quote(name, safe='')}/{resource}", json=body, headers=session.headers
        )
        refused = None if answer.is_success else _Refused(answer)
        if refused is not None and refused.status == 401:  # noqa: PLR2004
            raise refused
        values = {} if refused is not None else answer.json()
        return self._page(
            "result.html" if request.headers.get("hx-request") else "result_page.html",
            session,
            name=name,
            label=label,
            refused=refused,
            values={key: value for key, value in values.items() if value is not None},
        )

    async def _sign_in(self, session: Session, form: Mapping[str, str]) -> Response:
        token = form.get("token", "").strip()
        header = {"Authorization": f"Bearer {token}"}
        if not token or not token.isascii() or not token.isprintable():
            return self._page("sign_in.html", session, 401, failed="This is no token.")
        answer = await self._service.get("/v1/health", params={"page-size": 1}, headers=header)
        if not answer.is_success:
            return self._page("sign_in.html", session, answer.status_code, failed=_Refused(answer).message)
        response = RedirectResponse("/", 303)
        session.sign_in(response, token)
        return response

    async def _get(self, session: Session, path: str, **asked: str) -> Any:
        answer = await self._service.get(path, params=asked, headers=session.headers)
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
        return self._page("error.html", session, refused.status, message=refused.message)

    def _page(self, template: str, session: Session, status: int = 200, **values: Any) -> Response:
        text = self._templates.get_template(template).render(
            csrf=session.csrf, is_signed_in=session.token is not None, **values
        )
        # A log may hold half a character, which UTF-8 cannot.
        return Response(text.encode(errors="replace"), status, media_type="text/html")


async def _form(request: Request) -> dict[str, str] | None:
    """Return the fields of a form; None where it is none, or too large."""
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
