"""DELETE, UPDATE and OPTIMIZE run by the service itself, for clients without an engine: small ones, few at once.

The commands are those of every client, on any engine. They call the service as every client in its process does, so that
planning, checks, conflicts and answers are the same. They and DuckDB, which is optional, are imported for the first command.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from delvec_contract.commands import DeleteRequest, OptimizePlan, OptimizeRequest, PlannedFiles, UpdateRequest
from delvec_contract.commits import CommitResponse
from delvec_contract.plans import PlanRequest, PlanResponse
from delvec_contract.policies import PlannedMaintenance
from delvec_contract.tables import TableResource as Resource
from delvec_errors import EngineUnavailable, ReadLimitExceeded, ServiceUnavailable
from delvec_errors.texts import counted
from delvec_kernel.features.table_features import deletes_by_vector
from delvec_kernel.table_properties import byte_size_text, is_true
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import commit_answers
from delvec_service.commits.commit_request import accepted
from delvec_service.commits.idempotency import request_hash
from delvec_service.in_process import InProcessService
from delvec_service.logs import log_context
from delvec_service.service import Service
from delvec_service.store.answers import StoredAnswer
from delvec_service.store.open_table import OpenTable

__all__ = ["Limits", "RowCommands"]

_Request: TypeAlias = DeleteRequest | UpdateRequest | OptimizeRequest
_OPTIMIZE: Final = "OPTIMIZE"
_PATIENCE_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Limits:
    """Limits of commands.

    Attributes:
        read_bytes: bytes of data files, as stored, that one command may read.
        memory_bytes: DuckDB's memory for all commands together.
        at_once: how many commands may run concurrently; 0 for none.
    """

    read_bytes: int
    memory_bytes: int
    at_once: int


class RowCommands:
    """Runs DELETE, UPDATE and OPTIMIZE with DuckDB in this process; safe to share between threads.

    Args:
        service: the service.
        limits: limits of size and number.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._limits = limits
        self._places = threading.BoundedSemaphore(limits.at_once) if limits.at_once else None
        self._lock = threading.Lock()
        self._is_closed = False
        self._idle: list[Any] = []

    def close(self) -> None:
        """Release the resources of commands."""
        with self._lock:
            self._is_closed = True
            engines, self._idle = self._idle, []
        for engine in engines:
            engine.close()

    def delete(self, table: OpenTable, request: DeleteRequest, key: str | None = None) -> CommitResponse:
        """Delete the rows of a predicate.

        Args:
            table: the table.
            request: what to delete.
            key: the request's idempotency key: with it, the command takes effect once.

        Raises:
            ReadLimitExceeded: it would read more than the limit.
            EngineUnavailable: DuckDB is not installed.
            ServiceUnavailable: too many commands are running.
            DelvecError: as for the client's ``DeltaTable.delete``.
        """

        def run(target: Any) -> Any:
            from delvec_commands.dml.delete import delete

            return _retried(
                target,
                lambda: delete(
                    target.service, target, request.predicate, user_metadata=request.user_metadata
                ),
            )

        return self._run(table, request, key, run, "DELETE")

    def update(self, table: OpenTable, request: UpdateRequest, key: str | None = None) -> CommitResponse:
        """Update columns of the rows that match a predicate; arguments and errors as for :meth:`delete`."""

        def run(target: Any) -> Any:
            from delvec_commands.dml.update import update
            from delvec_commands.peer_names import assignments

            values, where = assignments(request.set, request.predicate, None, None, None)
            return _retried(
                target,
                lambda: update(target.service, target, values, where, user_metadata=request.user_metadata),
            )

        return self._run(table, request, key, run, "UPDATE")

    def optimize(self, table: OpenTable, request: OptimizeRequest, key: str | None = None) -> CommitResponse:
        """Rewrite files in one commit; arguments and errors as for :meth:`delete`."""

        def check(size: int) -> None:
            if size > self._limits.read_bytes:
                raise ReadLimitExceeded(
                    f"This OPTIMIZE of table '{table.name}' would rewrite {byte_size_text(size)}, but the service reads at "
                    f"most {byte_size_text(self._limits.read_bytes)} (DELVEC_DML_MAX_BYTES). Select partitions with a predicate, limit "
                    "it with max-bytes, or run it on your own engine: delvec.connect(url).table(name).optimize().",
                    table=table.name,
                    bytes=size,
                    limit=self._limits.read_bytes,
                )

        # One commit, so that a repeated request finds either all of the first or nothing.
        whole = max(1, 2 * self._limits.read_bytes)
        options = _optimize_options(request, may_read=check, commit_bytes=whole)
        return self._run(table, request, key, lambda target: target.optimize.run(options), _OPTIMIZE)

    def plan_optimize(self, table: OpenTable, request: OptimizeRequest) -> OptimizePlan:
        """Return what :meth:`optimize` would rewrite, and why, with at most the request's limit of files.

        Only footers are read, and a sample of 32 MiB, which tells how large the new files will be.

        Raises:
            EngineUnavailable: DuckDB is not installed.
            ServiceUnavailable: too many commands are running.
            DelvecError: as for the client's ``DeltaTable.optimize``.
        """
        with self._planning(table) as target:
            planned = target.optimize.run(_optimize_options(request, dry_run=True))
        groups: list[PlannedFiles] = []
        left = request.limit
        for paths, reason, (size, live) in zip(planned.bins, planned.reasons, planned.sizes, strict=True):
            if left <= 0:
                break
            groups.append(
                PlannedFiles(
                    reason=reason,
                    num_files=len(paths),
                    size_in_bytes=size,
                    new_size_in_bytes=live,
                    files=list(paths[:left]),
                )
            )
            left -= len(paths)
        size = planned["numRemovedBytes"]
        return OptimizePlan(
            result="dry-run",
            read_version=planned.read_version,
            num_files=planned["numRemovedFiles"],
            new_files=planned.num_new_files,
            size_in_bytes=size,
            new_size_in_bytes=size - planned.gain_bytes,
            gain_bytes=planned.gain_bytes,
            num_considered_files=planned["totalConsideredFiles"],
            exceeds_limit=size > self._limits.read_bytes,
            num_groups=len(planned.bins),
            groups=groups,
        )

    def plan_maintenance(self, table: OpenTable) -> list[PlannedMaintenance]:
        """Return what a table's policies would do now, and why; nothing changes.

        Raises:
            EngineUnavailable: DuckDB is not installed.
            ServiceUnavailable: too many commands are running.
        """
        from delvec_commands.maintenance import Maintenance

        with self._planning(table) as target:
            catalog: Any = _SingleTableCatalog(target)
            maintenance = Maintenance(target.service, catalog)
            return [
                PlannedMaintenance(
                    policy=one.policy,
                    type=one.type,
                    state=one.state,
                    reason=one.reason,
                    cost_bytes=one.cost_bytes,
                    predicted_gain_bytes=one.predicted_gain_bytes,
                    predicted_gain_files=one.predicted_gain_files,
                )
                for one in maintenance.run([target.id], dry_run=True)
            ]

    @contextmanager
    def _planning(self, table: OpenTable) -> Iterator[Any]:
        """Open a table for a dry run, which commits nothing."""
        with self._place() as engine:
            yield _opened(self._service_for(table, _OPTIMIZE), table, engine)

    def _service_for(self, table: OpenTable, operation: str) -> "_CommandService":
        return _CommandService(self._service, table, self._limits.read_bytes, operation)

    def _run(
        self,
        table: OpenTable,
        request: _Request,
        key: str | None,
        command: Callable[[Any], Any],
        operation: str,
    ) -> CommitResponse:
        with self._place() as engine:
            service = self._service_for(table, operation)
            try:
                if key is not None:
                    service.identify(request, key)
                metrics = command(_opened(service, table, engine))
            except _AlreadyCommitted as earlier:
                return earlier.answer
            if service.done is not None:
                return service.done
            return CommitResponse(
                result="nothing-to-do",
                version=None,
                read_version=service.read_version,
                transaction_id=str(uuid.uuid4()),
                operation_metrics=dict(metrics),
            )

    @contextmanager
    def _place(self) -> Iterator[Any]:
        """Take a command slot, with an engine.

        No two commands share an engine: a damaged file can end the database of DuckDB that reads it.
        """
        if self._places is None:
            raise ServiceUnavailable(
                "This service runs no commands (DELVEC_DML_AT_ONCE is 0); run the command on your own engine: "
                "delvec.connect(url).table(name)."
            )
        if not self._places.acquire(timeout=_PATIENCE_SECONDS):
            raise ServiceUnavailable(
                f"{self._limits.at_once} commands are running, the maximum of this service (DELVEC_DML_AT_ONCE); try "
                "again later, or run the command on your own engine."
            )
        try:
            with self._lock:
                engine = self._idle.pop() if self._idle else None
            if engine is None:
                engine = _engine(self._limits.memory_bytes // self._limits.at_once)
            try:
                yield engine
            finally:
                with self._lock:
                    is_closed = self._is_closed
                    if not is_closed:
                        self._idle.append(engine)
                if is_closed:
                    engine.close()
        finally:
            self._places.release()


def _opened(service: "_CommandService", table: OpenTable, engine: Any) -> Any:
    from delvec_commands.maintained_table import MaintainedTable  # with all commands

    resource = Resource(
        id=table.record.id,
        name=table.name,
        location=table.location,
        created_at=table.record.created_at.isoformat(),
    )
    return MaintainedTable(service, resource, engine)


def _retried(target: Any, command: Callable[[], Any]) -> Any:
    from delvec_commands.dml.retry import DEFAULT_RETRIES, with_retries

    return with_retries(target.service, DEFAULT_RETRIES, command)


def _optimize_options(request: OptimizeRequest, **others: Any) -> Any:
    from delvec_commands.dml.optimize_options import OptimizeOptions

    if request.max_deleted_ratio is not None:
        others["max_deleted_ratio"] = request.max_deleted_ratio
    return OptimizeOptions(
        request.predicate,
        purge=request.purge,
        min_deleted_ratio=request.min_deleted_ratio,
        max_bytes=request.max_bytes,
        zorder_by=request.zorder_by,
        full=request.full,
        target_size=request.target_size,
        user_metadata=request.user_metadata,
        rewrite=request.rewrite,
        **others,
    )


class _SingleTableCatalog:
    """A catalog with only the table being maintained."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def table(self, _name: str) -> Any:
        return self._table


def _engine(memory_bytes: int) -> Any:
    try:
        from delvec_engines.duckdb import DuckDBEngine
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"This service cannot run DELETE and UPDATE itself because {error.name} is not installed. Run pip "
            "install '.[local]' in Delvec's clone on the service's machine, or run the command on your own engine: "
            "delvec.connect(url).table(name).delete(predicate)."
        ) from error
    return DuckDBEngine(memory_limit=memory_bytes)


def _writes_change_files(planned: PlanResponse) -> bool:
    """Whether a DELETE writes change files: the table has a feed, which deletion vectors would otherwise tell of."""
    vectors = deletes_by_vector(planned.protocol.get("writerFeatures"), planned.configuration)
    return not vectors and is_true(planned.configuration, "delta.enableChangeDataFeed")


class _AlreadyCommitted(Exception):
    def __init__(self, answered: CommitResponse) -> None:
        super().__init__()
        self.answer = answered


@dataclass
class _RequestIdentity:
    """Identifies a request whose command takes effect once, however often it is sent, also while it is running.

    Each of its commits has the same transaction id, made from the request: so the log shows whether one of them
    succeeded, and creating a version settles which one. UPDATE twice would be wrong, not only useless.

    Attributes:
        transaction_id: the id.
        request_hash: tells the request from others in the log.
        since: the last version that is known not to be its commit; None: none is.
    """

    transaction_id: str
    request_hash: str
    since: int | None


class _CommandService(InProcessService):
    """The service as seen by one command: reads are limited, and commits happen once."""

    def __init__(
        self,
        service: Service,
        table: OpenTable,
        read_bytes: int,
        operation: str,
    ) -> None:
        super().__init__(service, roots=table.roots)
        self._of_command = table
        self._read_bytes = read_bytes
        self._operation = operation
        self._identity: _RequestIdentity | None = None
        # The page recognises the tasks that it started by the ids of its requests.
        self.task_id = f"{log_context().get('request_id', '')[:100]}.{uuid.uuid4().hex[:8]}"
        self.read_version = 0
        self.done: CommitResponse | None = None

    def identify(self, request: _Request, key: str) -> None:
        """Let the command take effect once for a request, however often that is sent.

        Raises:
            _AlreadyCommitted: an earlier copy of the request has committed.
            CommitOutcomeUnknown: the log no longer has all the versions in which its commit may be.
            ServiceUnavailable: the database does not store that the request begins; nothing was done.
        """
        # The key alone may be used again, for another request or by somebody else, once it was released.
        principal, table_id = log_context().get("principal"), self._of_command.record.id
        hashed = request_hash(key, principal, self._operation, table_id, request.model_dump(mode="json"))
        self._identity = _RequestIdentity(str(uuid.UUID(hex=hashed)), hashed, request.read_version)
        self._check_earlier(self._identity, self._newest_version())

    def plan(self, table: str, body: PlanRequest) -> tuple[PlanResponse, pa.Table]:
        """Plan, and reject plans that are too large to read, or outside the roots."""
        planned, files = super().plan(table, body)
        self.read_version = planned.version
        read = files
        if self._operation == "DELETE":
            in_part = files.filter(pc.invert(files["matches_all"]))
            # A DELETE removes files without reading them if all their rows match, but for change files it reads them
            # as soon as it has to read one.
            read = files if len(in_part) and _writes_change_files(planned) else in_part
        size = pc.sum(read["size"]).as_py() or 0
        if size > self._read_bytes and self._operation != _OPTIMIZE:
            raise ReadLimitExceeded(
                f"This {self._operation} of table '{self._of_command.name}' would read {counted(len(read), 'file')} with "
                f"{byte_size_text(size)}, but the service reads at most {byte_size_text(self._read_bytes)} (DELVEC_DML_MAX_BYTES). Narrow the "
                "predicate, or run the command on your own engine: delvec.connect(url).table(name), with "
                "engine=spark for large tables.",
                table=self._of_command.name,
                version=planned.version,
                files=len(read),
                bytes=size,
                limit=self._read_bytes,
            )
        return planned, files

    def commit(self, table: str, body: Changes) -> CommitResponse:
        """Commit, unless an earlier copy of the request already has."""
        if self._identity is not None:
            # The command may have read a version that an earlier copy committed while this one was beginning.
            self._check_earlier(self._identity, self._newest_version())
            body = replace(body, transaction_id=self._identity.transaction_id)
        self.done = super().commit(table, body)
        return self.done

    def _commit(
        self, table: OpenTable, body: Changes, text: str
    ) -> tuple[CommitResponse, bool] | StoredAnswer:
        if self._identity is None:
            return super()._commit(table, body, text)
        # Not commit_answers.commit: it would store a conflict as the answer of all attempts.
        changes = accepted(body, body.transaction_id, self._identity.request_hash, self._of_command)
        return commit_answers.commit_changes(self.service.commits, self._of_command, changes)

    def _check_earlier(self, identity: _RequestIdentity, newest: int) -> None:
        """Raise _AlreadyCommitted if an earlier copy of the request has committed a version up to the newest."""
        earlier = self.service.commits.log.earlier(
            self._of_command, identity.transaction_id, identity.request_hash, identity.since, newest
        )
        if earlier is not None:
            raise _AlreadyCommitted(commit_answers.committed_response(earlier[0]))
        identity.since = max(identity.since or 0, newest)

    def _newest_version(self) -> int:
        return self.service.loader.load(self._of_command.objects, self._of_command.name).version
