"""The service as commands see it: over HTTP, or in this process.

Tested in `tests/integration/contract/test_table_service.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from delvec_contract.codec import checked
from delvec_contract.commits import (
    AllocateRequest,
    AllocateResponse,
    BeginRequest,
    BeginResponse,
    CommitOutcome,
    CommitResponse,
)
from delvec_contract.operations import Operation
from delvec_contract.plans import (
    AdditionsRequest,
    AdditionsResponse,
    ChangesRequest,
    ChangesResponse,
    PlanRequest,
    PlanResponse,
)
from delvec_contract.tables import TableRequest, TableResource
from delvec_errors import BadRequest
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_storage.roots import Roots

__all__ = ["TableService", "iso_time", "listed", "request"]

_Answer = TypeVar("_Answer")
_Entry = TypeVar("_Entry")
_Body = TypeVar("_Body")

_PAGE = 1000


class TableService(Protocol):
    """A service, remote or in this process; safe to share between threads. ``table`` is a table's name or id.

    Requests that fail in passing are repeated. Those that change something take effect once. A table that was opened by
    location is registered again if the service has lost it.

    Every method raises the service's :class:`~delvec_errors.DelvecError`.

    Attributes:
        roots: locations that tables and files of plans must be under; if empty, any location is allowed.
        task_id: the id of the tasks that commands report; None for a new one each.
        vends_credentials: whether this process opens the files of each table with credentials of the service.
    """

    roots: Roots
    vends_credentials: bool
    task_id: str | None

    @property
    def url(self) -> str | None:
        """The service's root; None in this process."""

    def plan(self, table: str, body: PlanRequest) -> tuple[PlanResponse, pa.Table]:
        """Plan a scan; return the plan, and its files as an Arrow table."""

    def changes(self, table: str, body: ChangesRequest) -> tuple[ChangesResponse, pa.Table]:
        """Plan a read of the change data feed; as :meth:`plan`."""

    def additions(self, table: str, body: AdditionsRequest) -> tuple[AdditionsResponse, pa.Table]:
        """Plan a step of a stream; as :meth:`plan`."""

    def begin(self, table: str, body: BeginRequest) -> BeginResponse:
        """Begin a transaction before data files are written."""

    def allocate(self, table: str, body: AllocateRequest) -> AllocateResponse:
        """Reserve places for deletion vectors."""

    def commit(self, table: str, body: Changes) -> CommitResponse:
        """Commit a transaction; one that is sent again gets the same answer.

        Raises:
            ConcurrentModification: or a subclass: another commit won.
            CommitOutcomeUnknown: it may have taken effect.
        """

    def outcome(self, table: str, transaction_id: str, read_version: int | None = None) -> CommitOutcome:
        """Return the outcome of a commit, which may be unknown."""

    def register(self, body: TableRequest) -> TableResource:
        """Register the table at a location."""

    def resolve(self, location: str) -> TableResource | None:
        """Return the table that is registered at a location."""

    def forget(self, table: str, *, purge: bool = False) -> None:
        """Unregister a table; with ``purge`` its files are to be deleted."""

    def call(
        self,
        operation: Operation[_Answer],
        body: BaseModel | None = None,
        parameters: Mapping[str, Any] | None = None,
        **path: str,
    ) -> _Answer:
        """Call any other operation.

        Args:
            operation: one of :mod:`delvec_contract.operations`.
            body: the body of the request.
            parameters: the parameters of the query, by their names on the wire; those that are None are left out.
            path: parameters of the operation's path.
        """

    def opened_by_location(self, resource: TableResource, body: TableRequest) -> None:
        """Register a table with this request if the service later does not find it: its database may be lost."""

    def opens(self, resource: TableResource) -> None:
        """Prepare for reading and writing the files of a table."""

    def roots_of(self, location: str) -> Roots:
        """Return the locations that engines may open for a scan of the table at a canonical location; if empty, any."""

    def wait(self, seconds: float) -> None:
        """Wait between two attempts."""

    def close(self) -> None:
        """Release what the connection holds; a service that was started for it shuts down."""


def request(model: type[_Body], **values: Any) -> _Body:
    """Return the body of a request.

    Raises:
        BadRequest: a value is invalid; one sentence instead of pydantic's report.
    """
    try:
        return checked(model, **values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    # Raised outside the except block, unchained: pydantic's error may keep, invisible to the garbage collector,
    # a validator's traceback alive, and with it all objects of the caller's frames.
    field = ".".join(str(part) for part in first["loc"]).replace("_", "-")
    given = "" if not field or isinstance(first["input"], dict) else f" (given: {first['input']!r})"
    reason = first["msg"].removeprefix("Value error, ")
    raise BadRequest(f"{field}: {reason}{given}" if field else reason)


def iso_time(time: str | datetime | None) -> str | None:
    """Return a time as requests have it: users give ISO 8601 text or a datetime."""
    return time.isoformat() if isinstance(time, datetime) else time


def listed(
    service: TableService,
    operation: Operation[Any],
    entries: Callable[[Any], Iterable[_Entry]],
    parameters: Mapping[str, Any],
    *,
    limit: int | None = None,
) -> list[_Entry]:
    """Return the entries of a list that comes in pages.

    Args:
        service: to ask.
        operation: its answer has ``next_page_token``.
        entries: the entries of a page.
        parameters: query parameters, except those for pagination.
        limit: maximum number of entries; None for all.

    Raises:
        DelvecError: the service's error.
    """
    listed_entries: list[_Entry] = []
    token: str | None = None
    while limit is None or len(listed_entries) < limit:
        size = _PAGE if limit is None else min(_PAGE, limit - len(listed_entries))
        page = service.call(operation, parameters={**parameters, "page-size": size, "page-token": token})
        listed_entries.extend(entries(page))
        token = page.next_page_token
        if not token:
            break
    return listed_entries
