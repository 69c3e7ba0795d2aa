"""One request of a browser: what it asked for, the service's own answers for its visitor, and the page it gets.

Tested in `tests/integration/service/dashboard/test_access.py`.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from delvec_maintenance.health.advice import needs
from delvec_service.dashboard.formats import FILTERS
from delvec_service.dashboard.session import CSRF_FIELD, BrowserSession

__all__ = ["Refused", "Visit", "resource", "templates"]

_UNAUTHORIZED: Final = 401
_TITLES: Final = {
    403: "Permission denied",
    404: "Not found",
    409: "Conflicting change",
    429: "Too many requests",
    503: "The service is busy",
}


_FIELD: Final = re.compile(r"The request is not valid: \w+ field '([\w.-]+)': ")


class Refused(Exception):
    """An answer of the service that a page cannot be built from."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self.title = _TITLES.get(self.status, "This could not be done")
        try:
            message = str(answer.json()["error"]["message"])
            # People fill in forms: "Name: …", not "The request is not valid: body field 'name': …".
            self.message = _FIELD.sub(lambda field: f"{field[1].replace('-', ' ').capitalize()}: ", message)
        except (ValueError, KeyError, TypeError):
            self.message = "The service gave no answer."
        super().__init__(self.message)


class Visit:
    """A request of a browser.

    Args:
        request: the browser's.
        session: the visitor's.
        service: the service's own HTTP resources.
        pages: the templates.
        form: the fields of a form that was sent.

    Attributes:
        query: the parameters of the address.
    """

    def __init__(
        self,
        request: Request,
        session: BrowserSession,
        service: httpx.AsyncClient,
        pages: Environment,
        form: Mapping[str, str],
    ) -> None:
        self.session = session
        self.form = form
        self.query = request.query_params
        self.is_part = bool(request.headers.get("hx-request"))
        self._pages = pages
        self._service = service

    async def get(self, path: str, **parameters: str) -> Any:
        """Return what the service answers.

        Raises:
            Refused: it has no answer for this visitor.
        """
        answer = await self._service.get(path, params=parameters, headers=self.session.headers)
        if not answer.is_success:
            raise Refused(answer)
        return answer.json()

    async def find(self, path: str, **parameters: str) -> Any:
        """Return what the service answers, or None if it has no answer: the page still has its other parts.

        Raises:
            Refused: nobody is signed in any more.
        """
        try:
            return await self.get(path, **parameters)
        except Refused as refused:
            if refused.status == _UNAUTHORIZED:
                raise
            return None

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **headers: str
    ) -> Any | Refused:
        """Send a change; return the answer, or why it was refused.

        Raises:
            Refused: nobody is signed in any more.
        """
        answer = await self._service.request(
            method, path, headers=self.session.headers | headers, json=None if body is None else dict(body)
        )
        if answer.is_success:
            return answer.json() if answer.content else {}
        refused = Refused(answer)
        if refused.status == _UNAUTHORIZED:
            raise refused
        return refused

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        always = {
            "csrf": self.session.csrf,
            "is_signed_in": self.session.token is not None,
            "is_part": self.is_part,
        }
        text = self._pages.get_template(template).render(always | values)
        # A log may contain a lone surrogate, which UTF-8 cannot encode.
        return Response(text.encode(errors="replace"), status, media_type="text/html")

    def missing(self) -> Response:
        """Return the page for an address that no page has."""
        return self.page("error.html", 404, title="Not found", message="This page does not exist.")


def resource(table: str) -> str:
    """Return the path of a table's resource, by its name or id."""
    return f"/v1/tables/{quote(table, safe='')}"


@functools.cache
def templates(build: str) -> Environment:
    """Return the templates.

    Args:
        build: changes with the files that pages load.
    """
    pages = Environment(
        loader=PackageLoader("delvec_service.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= FILTERS | {"needs": needs, "segment": lambda value: quote(str(value), safe="")}
    pages.globals |= {"build": build, "csrf_field": CSRF_FIELD}
    return pages
