"""Authentication and authorization of every request: its token, its access rule, and whether it is allowed.

The authorizer is in front of the whole application, so that the rules also apply to whatever is added to it.

Tested in `tests/integration/service/auth/test_request_access.py` and `tests/integration/service/auth/test_rules.py`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from delvec_errors import DeadlineExceeded, DelvecError, PermissionDenied, ServiceUnavailable, Unauthorized
from delvec_service.auth.directory import Directory
from delvec_service.auth.principals import Principal
from delvec_service.auth.request_access import Access
from delvec_service.auth.rules import rule_of
from delvec_service.logs import bind_log_context
from delvec_service.store.registry import TableRecord
from delvec_service.tables.registry import Tables

if TYPE_CHECKING:
    from delvec_service.auth.oidc import (
        IdentityProvider,
    )  # imports cryptography, which only an identity provider needs

__all__ = ["ACCESS", "TABLE", "Authorizer"]

ACCESS: Final = "delvec.access"
"""The key of a request's :class:`Access` in its scope."""
TABLE: Final = "delvec.table"
"""The key of the record of the table in the path, if the authorizer looked it up."""

_Result = TypeVar("_Result")
_BEARER: Final = "'Authorization: Bearer <token>'"
_AT_ONCE: Final = 16
_PATIENCE_SECONDS: Final = 2.0
_LONGEST_TOKEN: Final = 16_384


class Authorizer:
    """Authorizes requests. For one event loop at a time.

    Args:
        directory: tokens and grants; None if everything is allowed to everybody.
        tables: resolves the table in a path.
        routes: the routes of the application: a request to one of them without a rule is denied.
        seconds: how long the database may take to find the table; 0: no limit.
        provider: an identity provider whose tokens are also accepted.
    """

    def __init__(
        self,
        directory: Directory | None,
        tables: Tables,
        routes: Callable[[], Sequence[BaseRoute]],
        seconds: float,
        provider: "IdentityProvider | None" = None,
    ) -> None:
        self._directory = directory
        self._tables = tables
        self._routes = routes
        self._seconds = seconds
        self._provider = provider
        self._threads: CapacityLimiter | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self._since = 0.0

    async def admit(self, scope: Scope, headers: Headers) -> Access:
        """Return what a request is allowed to do, and store it in its scope.

        Raises:
            Unauthorized: it has no valid token.
            PermissionDenied: the principal lacks the role that the request needs, or the request has no rule.
            TableNotFound: the table does not exist, or the principal may not read it.
            ServiceUnavailable: the database does not answer.
        """
        access = scope[ACCESS] = Access()
        if self._directory is None:
            return access
        method, path = scope["method"], scope["path"]
        rule_match = rule_of(method, path)
        if rule_match is not None and rule_match[0].on == "nothing":
            return access
        if rule_match is not None and rule_match[0].on == "table":
            bind_log_context(
                table=rule_match[1]["table"]
            )  # so that the log lines of requests denied here have it, too
        await self._refresh(self._directory)
        if not self._directory.is_required:
            return access
        principal = await self._principal(self._directory, headers)
        bind_log_context(principal=principal.name)
        access = scope[ACCESS] = Access(principal, self._directory.rights(principal))
        if rule_match is None:
            access.is_decided = True
            if any(route.matches(scope)[0] is Match.FULL for route in self._routes()):
                raise PermissionDenied(
                    f"{method} {path[:200]} has no access rule; this is a defect in Delvec."
                )
            return access  # and such a path does not exist
        rule, names = rule_match
        if rule.on == "table":
            assert rule.role is not None  # noqa: S101 - as the table of rules has it
            record = await self._table(names["table"], access)
            bind_log_context(table=record.name, table_id=record.id)
            access.require(record, rule.role, names["table"])
            scope[TABLE] = record
            access.is_decided = not rule.names_another
        elif rule.on == "service":
            assert rule.role is not None  # noqa: S101 - as the table of rules has it
            access.require_all(rule.role, "all tables")
        elif rule.on == "token":
            access.is_decided = True
        return access

    async def _principal(self, directory: Directory, headers: Headers) -> Principal:
        header = headers.get("authorization", "").strip()
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if not header:
            raise Unauthorized(
                f"The request has no token; send the header {_BEARER} (token= of connect(), DELVEC_TOKEN)."
            )
        if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            raise Unauthorized(f"The Authorization header must have the form {_BEARER}.")
        if self._provider is None or not self._provider.reads(token):
            return directory.principal(token)
        known = self._provider.known(token)
        if known is None:  # its keys may have to be fetched
            known = await self._within(
                self._in_thread(self._provider.principal, token), "the principal of the token"
            )
        return known

    async def _table(self, name: str, access: Access) -> TableRecord:
        opened = self._tables.opened(name)
        if opened is not None:
            return opened.record
        return await self._within(self._in_thread(self._tables.find, name, access), "the table")

    async def _refresh(self, directory: Directory) -> None:
        """Check for changes of tokens and grants; if the database hangs, continue with the known ones."""
        if directory.is_fresh():
            return
        loop = asyncio.get_running_loop()
        if self._refreshing is None or self._refreshing.done() or self._refreshing.get_loop() is not loop:
            self._since = time.monotonic()
            self._refreshing = asyncio.ensure_future(self._in_thread(directory.refresh))
            self._refreshing.add_done_callback(lambda done: done.cancelled() or done.exception())
        patience = self._since + _PATIENCE_SECONDS - time.monotonic()
        finished, _ = await asyncio.wait((self._refreshing,), timeout=max(patience, 0))
        if finished:
            self._refreshing.result()
        elif not directory.holds():
            raise ServiceUnavailable(
                "Tokens and grants cannot be checked because the service's database does not answer; try again."
            )

    async def _in_thread(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        if self._threads is None:
            self._threads = CapacityLimiter(_AT_ONCE)
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._threads, abandon_on_cancel=True)

    async def _within(self, work: Coroutine[Any, Any, _Result], what: str) -> _Result:
        try:
            return await asyncio.wait_for(work, self._seconds or None)
        except TimeoutError:
            late: DelvecError = DeadlineExceeded(
                f"Looking up {what} took longer than {self._seconds:g} seconds. Nothing was done.",
                seconds=self._seconds,
            )
            raise late from None
