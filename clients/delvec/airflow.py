"""Delvec in Airflow 3: a hook, operators, a deferrable sensor on events, and its trigger, which also watches assets.

::

    expire = DelvecDeleteOperator(task_id="expire", table="people", predicate="born < '{{ ds }}'")

An Airflow connection says where: its host and port are those of a service and its password the token, and its extras are
the other arguments of :func:`delvec.connect`; without a host a service runs in the task. docs/tools.md has examples.

Tested in `tests/integration/client/test_airflow.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from airflow.configuration import conf
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from delvec.alterations import Altered
from delvec.connection import Connection
from delvec.entry_point import connect
from delvec_commands.transaction import Metrics

__all__ = [
    "DelvecDeleteOperator",
    "DelvecEventSensor",
    "DelvecEventTrigger",
    "DelvecHook",
    "DelvecMaintainOperator",
    "DelvecOptimizeOperator",
    "DelvecSqlOperator",
    "DelvecVacuumOperator",
]

_CONNECTION: Final = "delvec_default"
_COMMITS: Final = ("delvec.commit",)


class DelvecHook(BaseHook):  # type: ignore[misc]  # Airflow is optional
    """Connects as an Airflow connection says: ``with DelvecHook().get_conn() as lake``."""

    conn_name_attr = "delvec_conn_id"
    default_conn_name = _CONNECTION
    conn_type = "http"
    hook_name = "Delvec"

    def __init__(self, delvec_conn_id: str = _CONNECTION, **options: Any) -> None:
        super().__init__(**options)
        self.delvec_conn_id = delvec_conn_id

    def get_conn(self) -> Connection:
        """Return a connection to the service, which the caller closes.

        Raises:
            DelvecError: as for :func:`delvec.connect`.
        """
        there = self.get_connection(self.delvec_conn_id)
        url = there.host or None
        if url is not None and "://" not in url:
            scheme = "https" if "https" in (there.conn_type, there.schema) else "http"
            url = f"{scheme}://{url}" + (f":{there.port}" if there.port else "")
        return connect(url, token=there.password or None, **there.extra_dejson)


class _DelvecOperator(BaseOperator):  # type: ignore[misc]  # as above
    """Runs a command; its result is the task's XCom."""

    def __init__(self, *, delvec_conn_id: str = _CONNECTION, **options: Any) -> None:
        super().__init__(**options)
        self.delvec_conn_id = delvec_conn_id

    def execute(self, context: Any) -> Any:  # noqa: ARG002 - what Airflow calls
        """Run the command."""
        with DelvecHook(self.delvec_conn_id).get_conn() as lake:
            return self.run_on(lake)

    def run_on(self, lake: Connection) -> Any:
        """Run the command on a connection; return what other tasks can read."""
        raise NotImplementedError


class DelvecSqlOperator(_DelvecOperator):
    """Runs one statement of Delvec's SQL: MERGE, UPDATE, INSERT, a query, or several between ``BEGIN;`` and ``COMMIT``.

    The XCom has the rows as dictionaries, or the metrics and the version.

    Args:
        sql: the statement, or the name of a ``.sql`` file.
        delvec_conn_id: the Airflow connection.
    """

    template_fields: Sequence[str] = ("sql",)
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: dict[str, str] = {"sql": "sql"}  # noqa: RUF012 - as in Airflow's operators

    def __init__(self, *, sql: str, **options: Any) -> None:
        super().__init__(**options)
        self.sql = sql

    def run_on(self, lake: Connection) -> Any:
        """Run the statement."""
        result: Any = lake.sql(self.sql)
        if isinstance(result, pa.Table):
            return result.to_pylist()
        if isinstance(result, Metrics):
            return _metrics(result)
        if isinstance(result, Altered):
            return asdict(result)
        return None if result is None else result.model_dump(mode="json", by_alias=True)


class DelvecDeleteOperator(_DelvecOperator):
    """Deletes the rows of a table that match a predicate; a run that is repeated finds none, and commits nothing.

    Args:
        table: name or location.
        predicate: in Spark's SQL; ``"true"`` deletes all rows.
        delvec_conn_id: the Airflow connection.
    """

    template_fields: Sequence[str] = ("table", "predicate")

    def __init__(self, *, table: str, predicate: str, **options: Any) -> None:
        super().__init__(**options)
        self.table = table
        self.predicate = predicate

    def run_on(self, lake: Connection) -> Any:
        """Delete the rows."""
        return _metrics(lake.table(self.table).delete(self.predicate))


class DelvecOptimizeOperator(_DelvecOperator):
    """Runs OPTIMIZE on a table.

    Args:
        table: name or location.
        where: a predicate over partition columns.
        z_order: columns by which to order the rows.
        purge: rewrite files with deleted rows instead.
        delvec_conn_id: the Airflow connection.
    """

    template_fields: Sequence[str] = ("table", "where")

    def __init__(
        self,
        *,
        table: str,
        where: str | None = None,
        z_order: Sequence[str] = (),
        purge: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.table = table
        self.where = where
        self.z_order = z_order
        self.purge = purge

    def run_on(self, lake: Connection) -> Any:
        """Rewrite files."""
        optimize = lake.table(self.table).optimize
        if self.purge:
            return _metrics(optimize.purge(self.where))
        return _metrics(optimize.z_order(self.z_order, self.where) if self.z_order else optimize(self.where))


class DelvecVacuumOperator(_DelvecOperator):
    """Runs VACUUM on a table.

    Args:
        table: name or location.
        retention_hours: as for :meth:`delvec.DeltaTable.vacuum`.
        dry_run: delete nothing.
        delvec_conn_id: the Airflow connection.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(
        self, *, table: str, retention_hours: float | None = None, dry_run: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.table = table
        self.retention_hours = retention_hours
        self.dry_run = dry_run

    def run_on(self, lake: Connection) -> Any:
        """Delete files that are no longer needed."""
        return lake.table(self.table).vacuum(self.retention_hours, self.dry_run)


class DelvecMaintainOperator(_DelvecOperator):
    """Runs the maintenance that policies ask for now; fails if a part of it has failed, after the rest was done.

    Args:
        tables: names or locations; by default all registered tables.
        delvec_conn_id: the Airflow connection.
    """

    template_fields: Sequence[str] = ("tables",)

    def __init__(self, *, tables: Sequence[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.tables = tables

    def run_on(self, lake: Connection) -> Any:
        """Maintain the tables."""
        results = lake.maintenance.run(self.tables)
        failures = [f"{each.table}: {each.reason}" for each in results if each.state == "failed"]
        if failures:
            raise AirflowException("maintenance failed: " + "; ".join(failures))
        return [asdict(each) for each in results]


class _Events:
    """The events of a table since a time, in several looks, each of which continues after the one before."""

    def __init__(self, delvec_conn_id: str, table: str | None, types: Sequence[str], since: datetime) -> None:
        self._hook = DelvecHook(delvec_conn_id)
        self._table, self._types, self._since = table, types, since
        self._after: str | None = None

    def look(self) -> Iterator[dict[str, Any]]:
        with self._hook.get_conn() as lake:
            for event in lake.events(self._table, types=self._types, after=self._after):
                self._after = event["sequence"]
                if event["time"] >= self._since:
                    yield {**event, "time": event["time"].isoformat()}


class DelvecEventTrigger(BaseEventTrigger):  # type: ignore[misc]  # as above
    """Fires for each event of a table: a commit, unless ``types`` says otherwise.

    The sensor defers to it, and an ``AssetWatcher`` schedules DAGs by it. As a watcher, it sees events from when the
    triggerer starts it.

    Args:
        table: name or id; by default all tables that the token may read.
        types: the types of the events.
        since: ISO 8601 text; by default the time of the start.
        poll_interval: seconds between two looks.
        delvec_conn_id: the Airflow connection.
    """

    def __init__(
        self,
        table: str | None = None,
        types: Sequence[str] = _COMMITS,
        since: str | None = None,
        poll_interval: float = 30.0,
        delvec_conn_id: str = _CONNECTION,
    ) -> None:
        super().__init__()
        self.table = table
        self.types = list(types)
        self.since = since
        self.poll_interval = poll_interval
        self.delvec_conn_id = delvec_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments, of which none is secret."""
        names = ("table", "types", "since", "poll_interval", "delvec_conn_id")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event of Airflow's for each event of the table, without end."""
        events = _Events(self.delvec_conn_id, self.table, self.types, _time(self.since))
        while True:
            for event in await sync_to_async(lambda: list(events.look()))():
                yield TriggerEvent(event)
            await asyncio.sleep(self.poll_interval)


class DelvecEventSensor(BaseSensorOperator):  # type: ignore[misc]  # as above
    """Waits for an event of a table: a commit, unless ``types`` says otherwise. Its XCom is the CloudEvent.

    Args:
        table: name or id; by default all tables that the token may read.
        types: the types of the events.
        since: ISO 8601 text: older events do not count. By default the start of the run's data interval.
        deferrable: wait in the triggerer, without a worker.
        delvec_conn_id: the Airflow connection.
    """

    template_fields: Sequence[str] = ("table", "since")

    def __init__(
        self,
        *,
        table: str | None = None,
        types: Sequence[str] = _COMMITS,
        since: str = "{{ data_interval_start | default(dag_run.run_after, true) }}",
        deferrable: bool | None = None,
        delvec_conn_id: str = _CONNECTION,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.table = table
        self.types = types
        self.since = since
        self.deferrable = (
            conf.getboolean("operators", "default_deferrable", fallback=False)
            if deferrable is None
            else deferrable
        )
        self.delvec_conn_id = delvec_conn_id
        self._events: _Events | None = None

    def poke(self, context: Any) -> PokeReturnValue:  # noqa: ARG002 - what Airflow calls
        """Look for an event."""
        if self._events is None:
            self._events = _Events(self.delvec_conn_id, self.table, self.types, _time(self.since))
        event = next(self._events.look(), None)
        return PokeReturnValue(event is not None, event)

    def execute(self, context: Any) -> Any:
        """Wait, in the worker or in the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        answer = self.poke(context)
        if answer:
            return answer.xcom_value
        self.defer(
            trigger=DelvecEventTrigger(
                self.table, self.types, self.since, self.poke_interval, self.delvec_conn_id
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        return None

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as above
        """Return the event for which the trigger fired."""
        return event


def _time(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _metrics(metrics: Metrics) -> dict[str, Any]:
    return {**metrics, "version": metrics.version}
