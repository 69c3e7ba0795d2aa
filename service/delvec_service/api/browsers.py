"""Requests that a browser sends on behalf of another site's page.

A service without tokens trusts whoever reaches its port, and every page that a user of the machine opens can reach it:
by a form or a script (a POST without a body needs no permission from the service), or by DNS rebinding, where a name of
the page's site resolves to 127.0.0.1. Browsers say where a request comes from, and other clients send none of it.
"""

from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from delvec_errors import PermissionDenied
from delvec_service.api import problems
from delvec_service.bad_requests import printable
from delvec_service.config import is_loopback

__all__ = ["BrowserGuard"]

_OTHER_SITES: Final = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site; the second is another port of the same host."""
_OF_RESOURCES: Final = ("/v1/", "/iceberg/", "/api/")
_MAX_LENGTH: Final = 100


class BrowserGuard:
    """An ASGI middleware around everything else.

    Args:
        app: the application.
        is_open: whether requests need no token now.
        hosts: host names by which an open service may be called, besides those of loopback; None for any: the
            application listens on no port.
        names: hosts of pages that may call the service, besides the one that a request is sent to.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        is_open: Callable[[], bool],
        hosts: Collection[str] | None,
        names: Collection[str],
    ) -> None:
        self._app = app
        self._is_open = is_open
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._names = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or pass the request on."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            reason = self._foreign_host(headers) or self._foreign_page(scope, headers)
            if reason is not None:
                await problems.answer(PermissionDenied(reason))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _foreign_host(self, headers: Headers) -> str | None:
        given = headers.get("host")
        if given is None or self._hosts is None or not self._is_open():
            return None
        name = _host_name(f"//{given}")
        # No DNS server answers for names below localhost.
        if is_loopback(name) or name.endswith(".localhost") or name in self._hosts or name in self._names:
            return None
        return (
            f"The request is for the host '{printable(name[:_MAX_LENGTH])}', which is not this service's. A service "
            "without tokens answers only to localhost. List the name in DELVEC_ALLOWED_HOSTS, or create a token "
            "(delvec token create)."
        )

    def _foreign_page(self, scope: Scope, headers: Headers) -> str | None:
        if "authorization" in headers or not self._is_of_another_page(scope, headers):
            return None
        return (
            "The request was sent by a page of another site, and has no token. If the page is yours, list its host in "
            "DELVEC_ALLOWED_HOSTS, or send a token."
        )

    def _is_of_another_page(self, scope: Scope, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is not None:
            return _authority(origin) != headers.get("host", "").lower() and (
                _host_name(origin) not in self._names
            )
        if headers.get("sec-fetch-site") not in _OTHER_SITES:
            return False
        # A link from elsewhere may open the dashboard.
        is_link = scope["method"] in {"GET", "HEAD"} and headers.get("sec-fetch-mode") == "navigate"
        return not is_link or scope["path"].startswith(_OF_RESOURCES)


def _authority(url: str) -> str | None:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return None


def _host_name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""
