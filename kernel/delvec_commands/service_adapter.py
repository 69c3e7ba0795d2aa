"""What the adapters of :class:`~delvec_commands.table_service.TableService` share: retries, and tables found again.

Requests are repeated with full jitter, and after ``Retry-After`` where the service gives one. Requests that change
something carry an idempotency key, the same on each attempt, so that the service recognises them; for a commit it is the
transaction id, which is also in the table's log.

Tested in `tests/integration/contract/test_table_service.py` and `tests/integration/client/http/test_service_client.py`.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from delvec_commands.backoff import pause
from delvec_contract import operations
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
from delvec_errors import (
    AtomicCreateUnsupported,
    CommitOutcomeUnknown,
    ConcurrentWrite,
    DelvecError,
    InternalError,
    ServiceUnavailable,
    StaleReadVersion,
    StorageError,
    TableNotFound,
    TooManyRequests,
    from_wire,
)
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_storage.roots import Roots

__all__ = ["RETRYABLE", "Plan", "ServiceAdapter"]

Plan = TypeVar("Plan", PlanResponse, ChangesResponse, AdditionsResponse)
_Answer = TypeVar("_Answer")

RETRYABLE: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_RETRIES: Final = 3
_COMMIT_RETRIES: Final = 6
_NOT_RETRIED: Final = (AtomicCreateUnsupported, TableNotFound, ConcurrentWrite, StaleReadVersion)
_OUTCOME_UNKNOWN: Final = (
    ServiceUnavailable,
    TooManyRequests,
    StorageError,
    CommitOutcomeUnknown,
    InternalError,
    *_NOT_RETRIED,
)


class ServiceAdapter(ABC):
    """The port, over attempts that an adapter makes once each.

    Args:
        sleep: replaces the wait between attempts.
        roots: locations that tables and files of plans must be under; if empty, any location is allowed.
    """

    vends_credentials = False
    """Whether this process opens the files of each table with credentials of the service."""

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep, roots: Roots | None = None) -> None:
        self.roots = roots or Roots()
        self.task_id: str | None = None
        self._sleep = sleep
        self._opened: dict[str, tuple[TableResource, TableRequest]] = {}

    # --- what adapters differ in --------------------------------------------------------------------------

    @property
    @abstractmethod
    def url(self) -> str | None:
        """The service's root; None in this process."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the connection is closed, so that no attempt can succeed."""

    @abstractmethod
    def close(self) -> None:
        """Release what the connection holds; a service that was started for it shuts down."""

    @abstractmethod
    def _attempt(
        self,
        operation: Operation[_Answer],
        body: BaseModel | Changes | None,
        parameters: Mapping[str, Any],
        path: Mapping[str, str],
        key: str | None,
    ) -> _Answer:
        """Call an operation once, with an idempotency key unless repeating it is harmless."""

    @abstractmethod
    def _attempt_plan(self, operation: Operation[Plan], table: str, body: BaseModel) -> tuple[Plan, pa.Table]:
        """Call an operation whose answer has files, once."""

    def roots_of(self, location: str) -> Roots:  # noqa: ARG002 - some adapters know more
        """Return the locations that engines may open for a scan of the table at a canonical location; if empty, any."""
        return self.roots

    def opens(self, resource: TableResource) -> None:  # noqa: B027 - most need none
        """Prepare for reading and writing the files of a table."""

    # --- the port -----------------------------------------------------------------------------------------

    def plan(self, table: str, body: PlanRequest) -> tuple[PlanResponse, pa.Table]:
        """Plan a scan; return the plan, and its files as an Arrow table."""
        return self._planned(operations.PLAN_SCAN, table, body)

    def changes(self, table: str, body: ChangesRequest) -> tuple[ChangesResponse, pa.Table]:
        """Plan a read of the change data feed; as :meth:`plan`."""
        return self._planned(operations.PLAN_CHANGES, table, body)

    def additions(self, table: str, body: AdditionsRequest) -> tuple[AdditionsResponse, pa.Table]:
        """Plan a step of a stream; as :meth:`plan`."""
        return self._planned(operations.PLAN_ADDITIONS, table, body)

    def begin(self, table: str, body: BeginRequest) -> BeginResponse:
        """Begin a transaction before data files are written."""
        return self.call(operations.BEGIN, body, table=table)

    def allocate(self, table: str, body: AllocateRequest) -> AllocateResponse:
        """Reserve places for deletion vectors."""
        return self.call(operations.ALLOCATE, body, table=table)

    def outcome(self, table: str, transaction_id: str, read_version: int | None = None) -> CommitOutcome:
        """Return the outcome of a commit, which may be unknown."""
        parameters = {"transaction-id": transaction_id, "read-version": read_version}
        return self.call(operations.FIND_COMMIT, None, parameters, table=table)

    def register(self, body: TableRequest) -> TableResource:
        """Register the table at a location."""
        resource = self.call(operations.REGISTER_TABLE, body)
        self.opened_by_location(resource, body)
        return resource

    def resolve(self, location: str) -> TableResource | None:
        """Return the table that is registered at a location."""
        tables = self.call(operations.LIST_TABLES, None, {"location": location}).tables
        return tables[0] if tables else None

    def forget(self, table: str, *, purge: bool = False) -> None:
        """Unregister a table; with ``purge`` its files are to be deleted."""
        for table_id, (resource, _) in list(self._opened.items()):
            if table in (table_id, resource.name):
                self._opened.pop(table_id, None)
        parameters = {"purge": "true"} if purge else {}
        self.call(operations.FORGET_TABLE, None, parameters, table=table)

    def call(
        self,
        operation: Operation[_Answer],
        body: BaseModel | None = None,
        parameters: Mapping[str, Any] | None = None,
        **path: str,
    ) -> _Answer:
        """Call any operation; takes effect once even if it is sent repeatedly."""
        key = None if operation.only_reads or operation.is_harmless else str(uuid.uuid4())
        present = {name: value for name, value in (parameters or {}).items() if value is not None}
        return self._registered(
            path.get("table"),
            lambda: self._repeat(lambda: self._attempt(operation, body, present, path, key)),
        )

    def commit(self, table: str, body: Changes) -> CommitResponse:
        """Commit; if the response is lost, ask for the outcome before sending it again.

        The service recognises its transaction id, so it takes effect once.

        Raises:
            CommitOutcomeUnknown: the request was sent, but no response came back.
        """
        lost_response: DelvecError | None = None
        transaction_id = body.transaction_id
        for number in range(_COMMIT_RETRIES + 1):
            try:
                return self._registered(
                    table,
                    lambda: self._attempt(
                        operations.COMMIT, body, {}, {"table": table}, transaction_id or None
                    ),
                )
            except _OUTCOME_UNKNOWN as error:
                failure = error
            if _is_lost(failure):
                lost_response = failure
            # While no response was lost, an error means that nothing was done. Afterwards, it says nothing about
            # the request whose response was lost, which may still be running. Not even TableNotFound does,
            # as the service may have lost its database.
            if lost_response is None and isinstance(failure, _NOT_RETRIED):
                raise failure
            if self.is_closed or (lost_response is None and number == _COMMIT_RETRIES):
                break
            self._sleep(pause(failure, number))
            if lost_response is not None:
                committed = self._committed(table, body.read_version, transaction_id)
                if committed is not None:
                    return committed
                if isinstance(lost_response, InternalError):
                    raise lost_response
        raise failure if lost_response is None else _outcome_unknown(lost_response, transaction_id)

    def opened_by_location(self, resource: TableResource, body: TableRequest) -> None:
        """Register a table with this request if the service later does not find it: its database may be lost."""
        self._opened[resource.id] = resource, body

    def wait(self, seconds: float) -> None:
        """Wait between two attempts."""
        self._sleep(seconds)

    # --- repeated and checked -----------------------------------------------------------------------------

    def _committed(self, table: str, read_version: int, transaction_id: str) -> CommitResponse | None:
        """Return the response of a commit that took effect, or None if its outcome is unknown.

        Raises:
            DelvecError: the error of a refused commit.
        """
        parameters = {"transaction-id": transaction_id, "read-version": read_version}
        try:
            outcome = self._registered(
                table,
                lambda: self._attempt(operations.FIND_COMMIT, None, parameters, {"table": table}, None),
            )
        except DelvecError:
            return None
        if outcome.error is not None and outcome.error.type != StaleReadVersion.type:
            raise from_wire({"error": outcome.error.model_dump(by_alias=True)})
        return outcome.commit

    def _planned(self, operation: Operation[Plan], table: str, body: BaseModel) -> tuple[Plan, pa.Table]:
        plan, files = self._registered(
            table, lambda: self._repeat(lambda: self._attempt_plan(operation, table, body))
        )
        if self.roots:
            vectors = files["deletion_vector"].combine_chunks()
            absolute = vectors.filter(pc.equal(pc.struct_field(vectors, "storageType"), "p"))
            self.roots.check(plan.location)
            for paths in (files["path"], pc.struct_field(absolute, "pathOrInlineDv")):
                self.roots.check_files(
                    plan.location, paths.to_pylist(), table=plan.name, version=plan.version
                )
        return plan, files

    def _registered(self, table: str | None, ask: Callable[[], _Answer]) -> _Answer:
        """Return an answer; if a table that was opened by location is not found, register it and ask once more."""
        try:
            return ask()
        except TableNotFound:
            if table is None or not self._register_again(table):
                raise
        return ask()

    def _register_again(self, table: str) -> bool:
        """Return whether the table was opened by location and could be registered."""
        if table not in self._opened:
            return False
        (_, body), key = self._opened[table], str(uuid.uuid4())
        try:
            self._repeat(lambda: self._attempt(operations.REGISTER_TABLE, body, {}, {}, key))
        except DelvecError:  # that the table is not found says more than why it cannot be registered
            return False
        return True

    def _repeat(self, attempt: Callable[[], _Answer]) -> _Answer:
        for number in range(_RETRIES):
            try:
                return attempt()
            except ServiceUnavailable as error:
                if self.is_closed:
                    raise
                failure: DelvecError = error
            except DelvecError as error:
                # HTTP: a proxy between the service and this process may have answered with a status of its own.
                if not error.retryable or error.details.get("status", error.status) not in RETRYABLE:
                    raise
                failure = error
            self._sleep(pause(failure, number))
        return attempt()


def _is_lost(failure: DelvecError) -> bool:
    """Whether a commit may have taken effect although it failed."""
    is_definite = not isinstance(failure, CommitOutcomeUnknown | InternalError)
    return bool(failure.details.pop("answer_lost", False)) or not is_definite


def _outcome_unknown(lost_response: DelvecError, transaction_id: str) -> CommitOutcomeUnknown:
    if isinstance(lost_response, CommitOutcomeUnknown):
        return lost_response
    unknown = CommitOutcomeUnknown(
        f"the response to the commit of transaction {transaction_id} was lost: {lost_response.message}; look for its txnId in "
        "the table's history before you retry",
        transaction_id=transaction_id,
    )
    unknown.__cause__ = lost_response
    return unknown
