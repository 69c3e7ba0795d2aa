"""The browser session: the token in a cookie, and proof that a form is ours."""

import secrets
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["CSRF_FIELD", "BrowserSession"]

CSRF_FIELD: Final = "csrf-token"
_TOKEN: Final = "delvec_token"  # noqa: S105 - the cookie's name
_CSRF: Final = "delvec_csrf"
_MAX_LENGTH: Final = 16_384


class BrowserSession:
    """The contents of the browser's cookies.

    The token is an ordinary bearer token. Scripts cannot read it, and requests from other sites do not carry it.

    Args:
        request: the browser's request.

    Attributes:
        token: None if nobody is signed in.
        csrf: the value that forms must contain.
    """

    def __init__(self, request: Request) -> None:
        self._is_secure = request.url.scheme == "https"
        self.token = request.cookies.get(_TOKEN, "")[:_MAX_LENGTH] or None
        given = request.cookies.get(_CSRF, "")
        self._is_new = not 20 <= len(given) <= 100  # noqa: PLR2004 - as token_urlsafe makes them
        self.csrf = secrets.token_urlsafe(32) if self._is_new else given

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the service's own requests."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def permits(self, csrf: str) -> bool:
        """Whether a form has the browser's value; the service has refused pages of other sites before."""
        return not self._is_new and secrets.compare_digest(csrf.encode(), self.csrf.encode())

    def keep(self, response: Response) -> None:
        """Store the value that forms must contain in the browser."""
        if self._is_new:
            self._set(response, _CSRF, self.csrf)

    def sign_in(self, response: Response, token: str) -> None:
        """Store a token in the browser until it is closed; forms need another value from then on."""
        self._set(response, _TOKEN, token)
        self._renew()

    def sign_out(self, response: Response) -> None:
        """Remove the token from the browser; forms need another value from then on."""
        self._renew()
        response.delete_cookie(_TOKEN, path="/", httponly=True, samesite="strict", secure=self._is_secure)

    def _renew(self) -> None:
        """Who knew the value before, such as another user of this browser, no longer does."""
        self.csrf = secrets.token_urlsafe(32)
        self._is_new = True

    def _set(self, response: Response, name: str, value: str) -> None:
        response.set_cookie(name, value, path="/", httponly=True, samesite="strict", secure=self._is_secure)
