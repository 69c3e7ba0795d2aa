"""Several tables, read or changed at one moment: what their commands would commit is collected, and committed together.

Tested in `tests/integration/client/test_multi_table.py` and `tests/integration/client/test_transaction_isolation.py`.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

import pyarrow as pa
from pydantic import BaseModel

from delvec_commands.backoff import pause
from delvec_commands.table_service import TableService, request
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
from delvec_contract.tables import SnapshotResponse, TableRequest, TableResource
from delvec_contract.transactions import (
    SnapshotsRequest,
    TableCommit,
    TransactionRequest,
    TransactionResponse,
)
from delvec_engines.operation import running_command
from delvec_errors import (
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentWrite,
    DelvecError,
    ServiceUnavailable,
    UnsupportedOperation,
)
from delvec_kernel.transaction.transaction_changes import Changes, Reads
from delvec_storage.roots import Roots

__all__ = ["Isolation", "Lake", "MultiTableSnapshot", "MultiTableTransaction", "read_at_one_moment"]

Isolation: TypeAlias = Literal["serializable", "snapshot"]
_Answer = TypeVar("_Answer")
_Table = TypeVar("_Table")
_Table_co = TypeVar("_Table_co", covariant=True)
_ATTEMPTS: Final = 6
_DESCRIPTION: Final = frozenset(
    {"table_schema", "partition_columns", "configuration", "protocol", "metadata_id"}
)
"""The fields of a snapshot that table changes change."""
_OF_NEWEST: Final = (
    operations.CHECK_TABLE,
    operations.GET_DETAIL,
    operations.GET_HEALTH,
    operations.GET_HISTORY,
)
"""Reads that tell about the newest version only."""


class Lake(Protocol[_Table_co]):
    """The tables of a service, as a connection has them."""

    def table(self, name_or_location: str, engine: Any = None) -> _Table_co:
        """Return a table."""

    def sql(self, text: str, engine: Any = None, *, dialect: str = "spark") -> Any:
        """Run one statement."""


class _PinnedService:
    """A service whose tables stay at the version at which they were first read; commits are collected, or refused.

    Args:
        service: the service.
        versions: the versions of tables that are read already, by id.
        collects: whether commits are collected.

    Attributes:
        versions: those of all tables read so far.
        commits: collected, by the table's id.
        read: the tables of which something was read, other than by a command whose commit says what it depends on; with
            the command, if it alone has read the table.
    """

    def __init__(self, service: TableService, versions: Mapping[str, int], *, collects: bool) -> None:
        self._service = service
        self._collects = collects
        self.versions = dict(versions)
        self.commits: dict[str, Changes] = {}
        self.read: dict[str, object | None] = {}
        self.roots: Roots = service.roots
        self.vends_credentials: bool = service.vends_credentials
        self.task_id: str | None = service.task_id

    @property
    def url(self) -> str | None:
        return self._service.url

    def plan(self, table: str, body: PlanRequest) -> tuple[PlanResponse, pa.Table]:
        if not self._is_current(table, body.version, body.timestamp):
            return self._service.plan(table, body)
        body = body.model_copy(update={"version": self.versions.get(table)})
        plan, files = self._service.plan(table, body)
        self._record(plan.table_id, plan.version)
        return plan, files

    def changes(self, table: str, body: ChangesRequest) -> tuple[ChangesResponse, pa.Table]:
        version = self._version(table)
        is_current = body.end_timestamp is None and (body.end_version is None or body.end_version >= version)
        if is_current:
            body = body.model_copy(update={"end_version": version})
        plan, files = self._service.changes(table, body)
        if is_current:
            self._record(plan.table_id, version)
        return plan, files

    def additions(self, table: str, body: AdditionsRequest) -> tuple[AdditionsResponse, pa.Table]:
        version = self._version(table)
        last = version if body.last_version is None else min(version, body.last_version)
        plan, files = self._service.additions(table, body.model_copy(update={"last_version": last}))
        self._record(plan.table_id, version)
        return plan, files

    def _is_current(self, table: str, version: int | None, timestamp: object) -> bool:
        """Whether a read is of the transaction's version, and not of one that the user names."""
        return timestamp is None and version in (None, self.versions.get(table))

    def _version(self, table: str) -> int:
        if table in self.versions:
            return self.versions[table]
        newest = self._service.call(operations.GET_SNAPSHOT, table=table)
        return self.versions.setdefault(newest.table_id, newest.version)

    def _record(self, table: str, version: int) -> None:
        """Note that something of a table was read."""
        self.versions.setdefault(table, version)
        command = running_command()
        if self.read.setdefault(table, command) is not command:
            self.read[table] = None

    def begin(self, table: str, body: BeginRequest) -> BeginResponse:
        """Begin at the version of the transaction: a command at a newer one would undo what came between."""
        begin_response = self._service.begin(table, body)
        version = self.versions.setdefault(begin_response.table_id, begin_response.version)
        if begin_response.version == version:
            return begin_response
        pinned = self._service.call(operations.GET_SNAPSHOT, None, {"version": version}, table=table)
        # Columns that the command adds are only in the newest version's description. If that has changed otherwise, too,
        # the commit has a conflict, as every one that changes metadata.
        described = _DESCRIPTION if body.table_changes else frozenset[str]()
        return begin_response.model_copy(
            update={name: value for name, value in pinned if name not in described}
        )

    def allocate(self, table: str, body: AllocateRequest) -> AllocateResponse:
        return self._service.allocate(table, body)

    def commit(self, table: str, body: Changes) -> CommitResponse:
        """Keep a commit for the end of the transaction.

        Raises:
            UnsupportedOperation: it cannot be part of one.
            ConcurrentWrite: it is based on a newer version than what the transaction has read.
        """
        if not self._collects:
            raise UnsupportedOperation(
                "A snapshot of several tables is only read; change them in a transaction: lake.transaction()."
            )
        if table in self.commits:
            raise UnsupportedOperation(
                f"The transaction has a command for this table already ({self.commits[table].operation}), whose changes a "
                f"second one ({body.operation}) would not see. Do both with one MERGE, or with one table.transaction().",
                table=table,
            )
        if not body.data_change:
            raise UnsupportedOperation(
                f"{body.operation} only rearranges rows, and cannot be part of a transaction over several tables; run it by "
                "itself.",
                table=table,
            )
        version = self.versions.setdefault(table, body.read_version)
        if body.read_version > version:
            raise ConcurrentWrite(
                f"The transaction has read version {version} of the table, but the changes ({body.operation}) are based on "
                f"version {body.read_version}. Nothing was committed; run the transaction again.",
                table=table,
                conflict={"winning-version": body.read_version},
            )
        if self.read.get(table) is not None and self.read[table] is running_command():
            del self.read[table]  # the commit says what this command has read
        self.commits[table] = replace(body, transaction_id="")
        return CommitResponse(
            result="committed",
            version=None,
            read_version=body.read_version,
            transaction_id=body.transaction_id,
            operation_metrics=dict(body.metrics),
        )

    def outcome(self, table: str, transaction_id: str, read_version: int | None = None) -> CommitOutcome:
        return self._service.outcome(table, transaction_id, read_version)

    def register(self, body: TableRequest) -> TableResource:
        return self._service.register(body)

    def resolve(self, location: str) -> TableResource | None:
        return self._service.resolve(location)

    def forget(self, table: str, *, purge: bool = False) -> None:  # noqa: ARG002 - as the port has it
        raise _refused(operations.FORGET_TABLE)

    def call(
        self,
        operation: Operation[_Answer],
        body: BaseModel | None = None,
        parameters: Mapping[str, Any] | None = None,
        **path: str,
    ) -> _Answer:
        """Call an operation that changes nothing.

        Raises:
            UnsupportedOperation: it changes something.
        """
        if not (operation.only_reads or operation.is_harmless):
            raise _refused(operation)
        query = dict(parameters or {})
        if operation in _OF_NEWEST:
            self.call(operations.GET_SNAPSHOT, table=path["table"])  # recorded by id: this may be a name
        is_current = operation is operations.GET_SNAPSHOT and self._is_current(
            path["table"], query.get("version"), query.get("timestamp")
        )
        if is_current:
            query["version"] = self.versions.get(path["table"])
        answer = self._service.call(operation, body, query, **path)
        if is_current and isinstance(answer, SnapshotResponse):
            self._record(answer.table_id, answer.version)
        return answer

    def opened_by_location(self, resource: TableResource, body: TableRequest) -> None:
        self._service.opened_by_location(resource, body)

    def opens(self, resource: TableResource) -> None:
        self._service.opens(resource)

    def roots_of(self, location: str) -> Roots:
        return self._service.roots_of(location)

    def wait(self, seconds: float) -> None:
        self._service.wait(seconds)

    def close(self) -> None:
        """Leave the service open: it belongs to the connection."""


class MultiTableSnapshot(Generic[_Table]):
    """Several tables at one moment; see :meth:`delvec.Connection.snapshot`.

    Attributes:
        versions: the versions of each table, by the names that were asked for.
    """

    def __init__(
        self,
        lake: Lake[_Table],
        versions: Mapping[str, int],
    ) -> None:
        self._lake = lake
        self.versions = dict(versions)

    def __repr__(self) -> str:
        return f"MultiTableSnapshot({self.versions!r})"

    def table(self, name: str, engine: Any = None) -> _Table:
        """Return one of the tables, which is read at that moment.

        Raises:
            BadRequest: it is not one of them.
            UnsupportedOperation: by whatever changes the table.
        """
        if name not in self.versions:
            raise BadRequest(f"the snapshot is of {', '.join(self.versions)}, not of {str(name)[:200]}")
        return self._lake.table(name, engine)

    def sql(self, text: str, engine: Any = None, *, dialect: str = "spark") -> Any:
        """Run a query over the tables at that moment; see :meth:`delvec.Connection.sql`. Others are read as they are now."""
        return self._lake.sql(text, engine, dialect=dialect)


class MultiTableTransaction(Generic[_Table]):
    """Changes of several managed tables that take effect at one moment, or not at all.

    A context manager, which commits at its end unless the block raises. A table stays at the version at which the transaction
    first read it, also after its own commands, whose changes show once it is committed.

    Attributes:
        transaction_id: the idempotency key.
        result: the service's answer, once committed.
    """

    def __init__(
        self,
        service: TableService,
        lake: Callable[[TableService], Lake[_Table]],
        versions: Mapping[str, int],
        isolation: Isolation,
    ) -> None:
        if isolation not in ("serializable", "snapshot"):
            raise BadRequest(f'isolation must be "serializable" or "snapshot", not {str(isolation)[:50]!r}')
        self._service = service
        self._begun_with = versions.keys()
        self._pinned = _PinnedService(service, versions, collects=True)
        self._lake = lake(self._pinned)
        self._isolation = isolation
        self._is_over = False
        self.transaction_id = str(uuid.uuid4())
        self.result: TransactionResponse | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.rollback()
        elif not self._is_over:
            self.commit()

    def table(self, name: str, engine: Any = None) -> _Table:
        """Return a table, for one command that changes it, and any number of reads.

        Commands return their metrics without a version.

        Raises:
            UnsupportedOperation: by a second command that changes the table, and by what cannot be part of a transaction,
                such as ALTER TABLE or VACUUM.
        """
        self._check_open()
        return self._lake.table(name, engine)

    def sql(self, text: str, engine: Any = None, *, dialect: str = "spark") -> Any:
        """Run one statement in the transaction, see :meth:`delvec.Connection.sql`; as :meth:`table`, for the rest."""
        self._check_open()
        return self._lake.sql(text, engine, dialect=dialect)

    def rollback(self) -> None:
        """Forget the changes. Files that were written for them are orphans, which VACUUM deletes."""
        self._is_over = True
        self._pinned.commits.clear()

    def commit(self) -> TransactionResponse | None:
        """Commit all changes; None if there are none. If sent again, the same transaction gets the same answer.

        Raises:
            ConcurrentModification: or a subclass: another writer won, and ``.conflict`` says which; nothing was committed.
            InvalidCommit: or a subclass: the changes contradict a table; nothing was committed.
            UnsupportedOperation: a table is not managed by the catalog; nothing was committed.
            CommitOutcomeUnknown: the response was lost; commit again.
        """
        if self.result is not None:
            return self.result
        commits = self._commits()
        self._is_over = True
        if commits:
            body = request(
                TransactionRequest,
                transaction_id=self.transaction_id,
                tables=[TableCommit(table=table, commit=commit) for table, commit in commits.items()],
            )
            self.result = self._sent(body)
        return self.result

    def _commits(self) -> dict[str, Changes]:
        commits = dict(self._pinned.commits)
        if self._isolation == "serializable" and commits:
            everything = Reads(whole_table=True)
            for table in sorted((self._begun_with | self._pinned.read.keys()) - commits.keys()):
                version = self._pinned.versions[table]
                commits[table] = Changes("READ", version, "", "", reads=everything)
            for table in self._pinned.read.keys() & self._pinned.commits.keys():
                commits[table] = replace(commits[table], reads=everything)
        return commits

    def _sent(self, body: TransactionRequest) -> TransactionResponse:
        """Send the transaction, again if its outcome is unknown: under its id it takes effect once."""
        lost_response: DelvecError | None = None
        for number in range(_ATTEMPTS):
            try:
                return self._service.call(operations.COMMIT_TRANSACTION, body)
            except (CommitOutcomeUnknown, ServiceUnavailable) as error:
                lost_response = error
                self._service.wait(pause(error, number))
        raise CommitOutcomeUnknown(
            f"The response to transaction {self.transaction_id} was lost: {lost_response and lost_response.message} Commit it again, or ask for "
            "its outcome.",
            transaction_id=self.transaction_id,
        ) from lost_response

    def _check_open(self) -> None:
        if self._is_over:
            raise BadRequest("the transaction is over; begin another one with lake.transaction()")


def read_at_one_moment(
    service: TableService,
    tables: Sequence[str],
    lake: Callable[[TableService], Lake[_Table]],
) -> tuple[MultiTableSnapshot[_Table], dict[str, int]]:
    """Return several tables at one moment, and their versions by id.

    Raises:
        TableNotFound: no table has one of the names.
        ConcurrentWrite: the tables are written too often.
    """
    body = request(SnapshotsRequest, tables=list(tables))
    answers = service.call(operations.GET_SNAPSHOTS, body).snapshots
    by_id = {answer.table_id: answer.version for answer in answers}
    by_name = {name: answer.version for name, answer in zip(tables, answers, strict=True)}
    pinned = _PinnedService(service, by_id, collects=False)
    return MultiTableSnapshot(lake(pinned), by_name), by_id


def _refused(operation: Operation[Any]) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"{operation.name} cannot be part of a transaction, or of a snapshot of several tables; call it by itself."
    )
