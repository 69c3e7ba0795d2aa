"""Maintenance by policies: ``lake.maintenance``."""

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol

from delvec_commands.maintained_table import MaintainedTable
from delvec_commands.maintenance_tasks import TASKS, TaskDecision, TaskOutcome
from delvec_commands.table_service import TableService, iso_time, listed, request
from delvec_contract import operations
from delvec_contract.policies import (
    LeaseRequest,
    MaintenanceRun,
    Policy,
    PolicyContent,
    PolicyRequest,
    RunState,
    config_of,
)
from delvec_contract.tables import TableResource
from delvec_errors import CorruptTable, DelvecError, MaintenanceUnderWay, NotADeltaTable, PermissionDenied
from delvec_maintenance.policies import PolicyConfig, PolicyType, applicable, is_quiet

__all__ = ["Maintenance", "MaintenanceResult"]

_LOGGER: Final = logging.getLogger(__name__)
_LEASE_SECONDS: Final = 120.0


@dataclass(frozen=True)
class MaintenanceResult:
    """The result of one policy on one table.

    Attributes:
        state: ``due`` (a dry run would do it), ``not-due``, ``done``, ``failed``, or ``elsewhere``: another replica is
            maintaining the table.
        reason: why, or what went wrong.
        predicted_gain_bytes: bytes that scans would no longer read, or that would be freed.
        measured_gain_bytes: the measured gain, only of what was done.
        cost_bytes: bytes of files that were, or would be, rewritten.
        version: the last version that was committed.
    """

    table: str
    policy: str | None
    type: PolicyType | None
    state: Literal["due", "not-due", "done", "failed", "elsewhere"]
    reason: str
    predicted_gain_bytes: int | None = None
    predicted_gain_files: int | None = None
    cost_bytes: int | None = None
    measured_gain_bytes: int | None = None
    measured_gain_files: int | None = None
    version: int | None = None


class Tables(Protocol):
    """The tables that maintenance looks up."""

    def table(self, name_or_location: str, /) -> MaintainedTable:
        """Return an existing table."""
        ...

    def tables(self) -> Sequence[TableResource]:
        """Return the registered tables."""
        ...


class Maintenance:
    """Maintenance policies and their runs: ``lake.maintenance``."""

    def __init__(self, service: TableService, lake: Tables) -> None:
        self._service = service
        self._lake = lake
        self._owner = str(uuid.uuid4())

    # --- policies ---------------------------------------------------------------------------------------

    def policies(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return all policies, or those that apply to a table, one per type. Names are as on the wire."""
        if table is None:
            found = self._service.call(operations.LIST_POLICIES).policies
        else:
            found = self._applicable(self._lake.table(table).id)
        return [one.model_dump(by_alias=True) for one in found]

    def set_policy(
        self,
        name: str,
        type: PolicyType,  # noqa: A002 - as on the wire
        config: Mapping[str, Any] | None = None,
        *,
        enable: bool = True,
        table: str | None = None,
        pattern: str | None = None,
    ) -> dict[str, Any]:
        """Set a policy; it replaces one of the same name. Without a table or pattern it applies to all tables.

        Of several policies of a type, one for the table takes precedence over one for a pattern, and that over one for
        all tables.

        Args:
            name: the name of the policy.
            type: ``system.data-compaction``, ``system.dv-purge``, ``system.dv-compaction``, ``system.checkpoint`` or
                ``system.vacuum``.
            config: thresholds, ``quiet_hours``, ``max_bytes_per_run``: defaults apply to what is not given.
            enable: False turns this type off for these tables.
            table: the table it applies to, by name or location.
            pattern: names of tables: ``sales.*``.

        Raises:
            BadRequest: the config has invalid fields or values, or both table and pattern are given.
            TableNotFound: the table does not exist.
        """
        body = request(
            PolicyRequest,
            name=name,
            type=type,
            content=PolicyContent(enable=enable, config=dict(config or {})),
            table=None if table is None else self._lake.table(table).id,
            pattern=pattern,
        )
        return self._service.call(operations.SET_POLICY, body).model_dump(by_alias=True)

    def drop_policy(self, name: str) -> None:
        """Delete a policy.

        Raises:
            PolicyNotFound: it does not exist.
        """
        self._service.call(operations.DROP_POLICY, policy=name)

    # --- runs -------------------------------------------------------------------------------------------

    def runs(
        self,
        table: str | None = None,
        *,
        since: str | datetime | None = None,
        type: PolicyType | None = None,  # noqa: A002 - as on the wire
        state: RunState | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """Return maintenance runs, newest first; names are as on the wire.

        Args:
            table: only runs on this table.
            since: only runs since this time: ISO 8601 text or a datetime, UTC unless it has a zone.
            type: only runs of policies of this type.
            state: only runs that are ``done``, or that ``failed``.
            limit: only so many.

        Raises:
            BadRequest: ``since``, the type or the state is invalid.
            TableNotFound: the table does not exist.
        """
        identifier = None if table is None else self._lake.table(table).id
        found = self._runs(identifier, since, limit, type, state)
        return [one.model_dump(by_alias=True) for one in found]

    def tasks(self, table: str) -> list[dict[str, Any]]:
        """Return OPTIMIZE and PURGE of a table that run, wherever they do, or ended less than a day ago, newest first.

        Each has ``state``, ``bytes-done`` of ``size-in-bytes``, ``files-done`` of ``num-files``, ``bytes-per-second``
        and ``seconds-left``. Those that take less than a second are not listed.

        Raises:
            TableNotFound: the table does not exist.
        """
        found = self._service.call(operations.LIST_TASKS, table=self._lake.table(table).id)
        return [one.model_dump(by_alias=True) for one in found.tasks]

    def run(self, tables: Sequence[str] | None = None, *, dry_run: bool = False) -> list[MaintenanceResult]:
        """Run the maintenance that policies ask for now, table by table; or only report it.

        Without ``tables``, it also deletes the files of dropped tables that are no longer kept.

        Of several processes, one at a time works on a table. A failure does not stop the rest: it is a result, too. The
        policies that apply are those at the time of each table's turn.

        Args:
            tables: by name or location; by default all registered ones.
            dry_run: change nothing.
        """
        policies = self._service.call(operations.LIST_POLICIES).policies
        results = [] if tables is not None else self._delete_dropped(dry_run=dry_run)
        if not policies:
            return results
        chosen = (
            [(one.id, one.name) for one in self._lake.tables()]
            if tables is None
            else [(name, name) for name in tables]
        )
        for identifier, name in chosen:
            try:
                results += self._maintain(self._lake.table(identifier), policies, dry_run=dry_run)
            except Exception as error:  # noqa: BLE001 - continue with the other tables
                results.append(MaintenanceResult(name, None, None, "failed", _message_of(error, name)))
        return results

    def _delete_dropped(self, *, dry_run: bool) -> list[MaintenanceResult]:
        """Delete the files of dropped tables that are no longer kept, of which the principal is an admin."""
        results: list[MaintenanceResult] = []
        now = datetime.now(UTC)
        for dropped in listed(self._service, operations.LIST_DROPPED, lambda page: page.tables, {}):
            if not dropped.is_being_deleted and datetime.fromisoformat(dropped.kept_until) > now:
                continue
            result = MaintenanceResult(
                dropped.name, None, None, "due", f"dropped at {dropped.dropped_at[:16]}; its files go"
            )
            if not dry_run:
                try:
                    done = self._service.call(operations.DELETE_DROPPED, dropped=dropped.id)
                    result = replace(
                        result,
                        state="done",
                        measured_gain_bytes=done.size_in_bytes,
                        measured_gain_files=done.num_files,
                    )
                except PermissionDenied:
                    continue
                except Exception as error:  # noqa: BLE001 - continue with the other tables
                    result = replace(result, state="failed", reason=_message_of(error, dropped.name))
            results.append(result)
        return results

    def _maintain(
        self, table: MaintainedTable, policies: Sequence[Policy], *, dry_run: bool
    ) -> list[MaintenanceResult]:
        if not _enabled_policies(applicable(policies, table.id, table.name)):
            return []
        if dry_run:
            return [self._one(table, policy, dry_run=True) for policy in self._applicable_policies(table)]
        try:
            with self._lease(table):
                return [
                    self._one(table, policy, dry_run=False) for policy in self._applicable_policies(table)
                ]
        except MaintenanceUnderWay as error:
            return [MaintenanceResult(table.name, None, None, "elsewhere", error.message)]

    def _applicable_policies(self, table: MaintainedTable) -> list[Policy]:
        """Return the policies that apply now: earlier tables may have taken hours."""
        return _enabled_policies({one.type: one for one in self._applicable(table.id)})

    def _applicable(self, table_id: str) -> list[Policy]:
        return self._service.call(operations.LIST_APPLICABLE_POLICIES, table=table_id).policies

    def _one(self, table: MaintainedTable, policy: Policy, *, dry_run: bool) -> MaintenanceResult:
        """Decide on one policy, and run it."""
        maintenance_result = MaintenanceResult(table.name, policy.name, policy.type, "not-due", "")
        task, started = TASKS[policy.type], datetime.now(UTC)
        try:
            config = config_of(policy.type, policy.content.config)
            waits = self._reason_to_wait(table, policy, config, started)
            if waits is not None:
                return replace(maintenance_result, reason=waits)
            decision = task.decide(table, config)
        except Exception as error:  # noqa: BLE001 - continue with the other policies
            if isinstance(error, CorruptTable | NotADeltaTable):
                with suppress(DelvecError):  # it fails as well, and thereby the fleet knows of the damage
                    table.health()
            return replace(
                maintenance_result, state="failed", reason=_message_of(error, table.name, policy.name)
            )
        maintenance_result = _predicted(maintenance_result, decision)
        if dry_run or not decision.is_due:
            return maintenance_result
        try:
            outcome = task.perform(table, config)
        except Exception as error:  # noqa: BLE001 - continue with the other policies
            message = _message_of(error, table.name, policy.name)
            unrecorded = self._record(table, maintenance_result, started, error=message)
            return replace(maintenance_result, state="failed", reason=message + unrecorded)
        unrecorded = self._record(table, maintenance_result, started, outcome)
        return replace(
            maintenance_result,
            state="done",
            reason=maintenance_result.reason + unrecorded,
            measured_gain_bytes=outcome.gain_bytes,
            measured_gain_files=outcome.gain_files,
            version=outcome.version,
        )

    def _reason_to_wait(
        self, table: MaintainedTable, policy: Policy, config: PolicyConfig, now: datetime
    ) -> str | None:
        """Return why the policy may not run now; None if it may."""
        quiet = is_quiet(config.quiet_hours, now)
        if quiet is not None:
            return f"in quiet hours {quiet} (UTC)"
        if not config.min_interval_hours:
            return None
        interval = timedelta(hours=config.min_interval_hours)
        last = self._runs(table.id, now - interval, 1, policy.type, "done")
        if not last:
            return None
        hours = config.min_interval_hours
        return f"done at {last[0].started_at:%Y-%m-%d %H:%M} (UTC), again after {hours:g} hours"

    def _runs(
        self,
        identifier: str | None,
        since: str | datetime | None,
        limit: int,
        kind: PolicyType | None,
        state: RunState | None,
    ) -> list[MaintenanceRun]:
        start = iso_time(since)
        parameters = {"table": identifier, "since": start, "type": kind, "state": state, "limit": limit}
        return self._service.call(operations.LIST_RUNS, parameters=parameters).runs

    def _record(
        self,
        table: MaintainedTable,
        maintenance_result: MaintenanceResult,
        started: datetime,
        outcome: TaskOutcome | None = None,
        *,
        error: str | None = None,
    ) -> str:
        """Record a run; if that fails, return a note for the result, as the work is done anyway."""
        measured = TaskOutcome() if outcome is None else outcome
        try:
            body = request(
                MaintenanceRun,
                id=str(uuid.uuid4()),
                policy=maintenance_result.policy,
                type=maintenance_result.type,
                state="failed" if outcome is None else "done",
                reason=maintenance_result.reason[:2000],
                started_at=started,
                ended_at=datetime.now(UTC),
                cost_bytes=maintenance_result.cost_bytes,
                predicted_gain_bytes=maintenance_result.predicted_gain_bytes,
                measured_gain_bytes=measured.gain_bytes,
                predicted_gain_files=maintenance_result.predicted_gain_files,
                measured_gain_files=measured.gain_files,
                version=measured.version,
                error=None if error is None else error[:2000],
            )
            self._service.call(operations.RECORD_RUN, body, table=table.id)
        except Exception as failure:  # noqa: BLE001 - continue with the other policies
            return f"; the run could not be recorded: {_message_of(failure, table.name, maintenance_result.policy)}"
        return ""

    @contextmanager
    def _lease(self, table: MaintainedTable) -> Iterator[None]:
        """Keep other processes from maintaining a table meanwhile.

        Raises:
            MaintenanceUnderWay: another process does.
        """

        def take() -> None:
            body = request(LeaseRequest, owner=self._owner, seconds=_LEASE_SECONDS)
            self._service.call(operations.LEASE_TABLE, body, table=table.id)

        def keep() -> None:
            while not ended.wait(_LEASE_SECONDS / 3):
                # Losing the lease costs only duplicate work: commits decide conflicts.
                with suppress(Exception):
                    take()

        take()
        ended = threading.Event()
        keeper = threading.Thread(target=keep, name="delvec-maintenance-lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
            with suppress(Exception):  # it expires by itself
                self._service.call(
                    operations.RELEASE_TABLE, parameters={"owner": self._owner}, table=table.id
                )


def _enabled_policies(held: Mapping[PolicyType, Policy]) -> list[Policy]:
    """Return the enabled policies, in the order of their runs."""
    return [held[kind] for kind in TASKS if kind in held and held[kind].content.enable]


def _message_of(error: Exception, table: str, policy: str | None = None) -> str:
    """Return the message of an error; unexpected errors are logged with a traceback."""
    if isinstance(error, DelvecError):
        return error.message
    _LOGGER.error("maintenance of table '%s' failed (policy: %s)", table, policy, exc_info=error)
    return f"{type(error).__name__}: {error}"


def _predicted(maintenance_result: MaintenanceResult, decision: TaskDecision) -> MaintenanceResult:
    return replace(
        maintenance_result,
        state="due" if decision.is_due else "not-due",
        reason=decision.reason,
        predicted_gain_bytes=decision.gain_bytes,
        predicted_gain_files=decision.gain_files,
        cost_bytes=decision.cost_bytes,
    )
