"""Links from a page of a list to the pages before and after it.

Tested in `tests/integration/service/dashboard/test_tables.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from delvec_service.dashboard.visit import Visit

__all__ = ["Pages"]

_MAX_LENGTH: Final = 4000
"""Characters of the tokens in an address: proxies refuse long ones."""


class Pages:
    """The place of a page in its list.

    The service's page tokens only lead forwards, so the address of a page also has the tokens of the pages before it.

    Args:
        visit: the request.
        path: the path of the list.
        chosen: what the list was asked for: its order and filters.

    Attributes:
        token: the token of this page; empty for the first.
        following: the address of the next page; None for the last. Set by :meth:`followed_by`.
    """

    def __init__(self, visit: Visit, path: str, chosen: Mapping[str, str]) -> None:
        self.token = visit.query.get("page-token", "")
        self.following: str | None = None
        self._path = path
        self._chosen = chosen
        self._before = visit.query.getlist("before") if self.token else []

    @property
    def place(self) -> dict[str, str]:
        """The parameters that ask the service for this page."""
        return {"page-token": self.token} if self.token else {}

    @property
    def here(self) -> str:
        """The address of this page."""
        return self._address(self.token, self._before)

    @property
    def first(self) -> str | None:
        """The address of the first page; None on it, and on the page after it, whose previous page it is."""
        return self._address("", ()) if self.token and self._before != [""] else None

    @property
    def previous(self) -> str | None:
        """The address of the previous page; None if there is none, or too many pages were passed to know."""
        return self._address(self._before[-1], self._before[:-1]) if self._before else None

    def followed_by(self, token: str | None) -> "Pages":
        """Return the same with the token of the next page, if there is one."""
        if token:
            before = [*self._before, self.token]
            while sum(map(len, before)) > _MAX_LENGTH:
                del before[0]
            self.following = self._address(token, before)
        return self

    def _address(self, token: str, before: Sequence[str]) -> str:
        place = [("before", one) for one in before] + [("page-token", token)] if token else []
        return f"{self._path}?{urlencode([*self._chosen.items(), *place])}".removesuffix("?")
