"""The tables of a service."""

import os
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import pyarrow as pa

from delvec.access import AccessControl
from delvec.alterations import Altered
from delvec.creation import Creation
from delvec.ddl import parse_ddl
from delvec.near_names import near_names
from delvec.table import DeltaTable
from delvec_commands.display import pairs, rows
from delvec_commands.dml.first_rows import with_columns
from delvec_commands.dml.retry import DEFAULT_RETRIES, checked
from delvec_commands.dml.table_definition import TableDefinition, location_of, property_text
from delvec_commands.maintenance import Maintenance
from delvec_commands.multi_table import (
    Isolation,
    MultiTableSnapshot,
    MultiTableTransaction,
    read_at_one_moment,
)
from delvec_commands.table_service import TableService, listed, request
from delvec_commands.transaction import Metrics
from delvec_contract import operations
from delvec_contract.tables import (
    ConvertRequest,
    DeleteDroppedRequest,
    DroppedTableResource,
    RenameRequest,
    TableRequest,
    TableResource,
    UndropRequest,
)
from delvec_engines.protocol import Engine
from delvec_errors import (
    BadRequest,
    DelvecError,
    EngineUnavailable,
    TableInUse,
    TableNotFound,
)
from delvec_kernel import locations
from delvec_kernel.schema.types import StructType, schema_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Connection"]

_EVENT_WAIT_SECONDS = 20.0
_SHOWN_TABLES = 50


class Connection:
    r"""The tables of one service. A context manager; may be shared between threads, not between processes.

    A table is given by its name or location. Text that contains ``/``, ``\\`` or ``://``, or starts with a dot, is a
    location, as is a :class:`pathlib.Path`; relative paths start from the working directory.

    Attributes:
        has_warehouse: whether a service in this process has a warehouse, where tables are created by name.
    """

    def __init__(
        self, service: TableService, retries: int = DEFAULT_RETRIES, *, has_warehouse: bool = False
    ) -> None:
        self._service = service
        self._retries = checked(retries)
        self.has_warehouse = has_warehouse
        self._lock = threading.Lock()
        self._duckdb: Engine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Connection({self.url!r})" if self.url else "Connection()"

    @property
    def url(self) -> str | None:
        """The service's URL; None for a service in this process."""
        return self._service.url

    def __reduce__(self) -> tuple[Any, ...]:
        return Connection, (self._service, self._retries)

    def _repr_html_(self) -> str:
        try:
            registered_tables = self.tables()
        except DelvecError as error:
            return pairs(repr(self), {"error": error.message})
        table_rows = [(each.name, each.location) for each in registered_tables[:_SHOWN_TABLES]]
        more = (
            f"<p>… and {len(registered_tables) - len(table_rows)} more</p>"
            if len(registered_tables) > len(table_rows)
            else ""
        )
        return rows(["table", "location"], table_rows) + more

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def close(self) -> None:
        """Close the connection, and stop a service in this process. Can be called repeatedly."""
        self._service.close()
        with self._lock:
            duckdb = self._duckdb
        if duckdb is not None:
            duckdb.close()

    def create_table(
        self,
        name_or_location: str | os.PathLike[str],
        schema: StructType | pa.Schema | Mapping[str, Any] | str | Any = None,
        partition_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        engine: Any = None,
        *,
        rows: Any = None,
        name: str | None = None,
        cluster_by: Sequence[str] | None = None,
        replace: bool = False,
        if_not_exists: bool = False,
        managed: bool = False,
        user_metadata: str | None = None,
    ) -> DeltaTable:
        """Create a Delta table, empty or with rows, with deletion vectors unless ``properties`` say otherwise.

        ::

            people = lake.create_table("people", rows=df, partition_by=["country"])

        Args:
            name_or_location: the table's location, or a name in the warehouse: ``orders`` is created in its directory
                ``orders``, ``sales.orders`` in ``sales.db/orders``. By a name of another catalog it is created there.
            schema: an Arrow, Spark or Delta schema, Delta's schema JSON, or text such as ``id long, name string``; by
                default the columns of ``rows``.
            partition_by: columns, in order.
            properties: table properties, ``delta.*`` among them; ``delta.feature.<name>`` and
                ``delta.constraints.<name>`` add table features and CHECK constraints.
            description: free text.
            engine: as for :meth:`table`.
            rows: the first rows, as for :meth:`DeltaTable.append`, written in the same version. If they cannot be
                written, there is no table. In another catalog, or with vended credentials, they are a second version.
            name: the table's name, if a location is given; by default the location's last part, unless another table
                has that name.
            cluster_by: clustering columns.
            replace: replace the columns, properties and rows of an existing table in one version; earlier versions are
                kept.
            if_not_exists: return an existing table as it is, whatever its columns.
            managed: let the catalog manage the table's commits. By name it gets a folder that no earlier table had.
            user_metadata: text for the table's history, where ``rows`` create the table.

        Raises:
            TableAlreadyExists: the location or name is taken.
            InvalidSchema: the schema has no equivalent in Delta.
            InvalidTableChange: a property, constraint or clustering column is not allowed.
            ConcurrentModification: or a subclass: other writers kept changing the replaced table.
            LocationNotAllowed: the service does not allow the location.
        """
        if schema is None:
            if rows is None:
                raise BadRequest("give the schema of the table, or its first rows")
            rows, schema = with_columns(rows)
        if isinstance(partition_by, str):
            partition_by = [partition_by]
        definition = TableDefinition(
            _schema(schema),
            partition_by or (),
            {key: property_text(value) for key, value in (properties or {}).items()},
            description,
            [cluster_by] if isinstance(cluster_by, str) else cluster_by or (),
        )
        return self.run_create(
            name_or_location,
            definition,
            rows,
            engine,
            name=name,
            replace=replace,
            if_not_exists=if_not_exists,
            managed=managed,
            user_metadata=user_metadata,
        )[0]

    def run_create(
        self,
        name_or_location: str | os.PathLike[str],
        definition: TableDefinition,
        rows: Any = None,
        engine: Any = None,
        **options: Any,
    ) -> tuple[DeltaTable, Metrics | None]:
        """Like :meth:`create_table`, but also return the metrics of writing the rows; None if none were written.

        Args:
            name_or_location: as for :meth:`create_table`.
            definition: the table's columns, partitioning, properties and comment.
            rows: as for :meth:`create_table`.
            engine: as for :meth:`table`.
            options: those of :class:`~delvec.creation.Creation`.
        """
        table_engine = self._engine(engine)
        return Creation(name_or_location, definition, rows, **options).run(
            self._service,
            table_engine,
            lambda made: DeltaTable(self._service, made, table_engine, self._retries),
        )

    def convert(
        self,
        location: str | os.PathLike[str],
        partition_by: Any = None,
        *,
        name: str | None = None,
        collect_statistics: bool = True,
        properties: Mapping[str, Any] | None = None,
        description: str | None = None,
        engine: Any = None,
    ) -> DeltaTable:
        """Convert a directory of Parquet files to a Delta table in place: writes a log, and changes no file.

        If the directory already is a Delta table, returns it as it is.

        Args:
            location: the directory.
            partition_by: the partition columns in directory names such as ``day=2026-01-31``, with their types, in that
                order: ``"day date, country string"``, or an Arrow, Spark or Delta schema.
            name: the table's name; by default the location's last part.
            collect_statistics: take statistics from file footers, so that reads can skip files.
            properties: table properties, as in :meth:`create_table`.
            description: free text.
            engine: as for :meth:`table`.

        Raises:
            BadRequest: there are no Parquet files, or the directories have other partition columns.
            InvalidTableChange: or InvalidSchema: the files contradict each other, or have columns that a table cannot
                have.
            UnsupportedOperation: it is an Iceberg table; use :meth:`import_iceberg`.
            LocationNotAllowed: the service does not allow the location.
        """
        return self.run_convert(
            location,
            partition_by,
            name=name,
            collect_statistics=collect_statistics,
            properties=properties,
            description=description,
            engine=engine,
        )[0]

    def import_iceberg(
        self,
        source: str | os.PathLike[str],
        location: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        collect_statistics: bool = True,
        properties: Mapping[str, Any] | None = None,
        description: str | None = None,
        engine: Any = None,
    ) -> DeltaTable:
        """Convert an Iceberg table to a Delta table over the same data files: writes a log, and changes no file.

        Position deletes and deletion vectors become deletion vectors of the Delta table. If the location already is a
        Delta table, returns it as it is.

        Args:
            source: the Iceberg table's directory, or its current metadata file according to its catalog.
            location: the location of the Delta table; by default the Iceberg table's directory.
            name: the table's name; by default the location's last part.
            collect_statistics: take statistics from the manifests, so that reads can skip files.
            properties: table properties, as in :meth:`create_table`.
            description: free text.
            engine: as for :meth:`table`.

        Raises:
            BadRequest: there is no Iceberg table, or only its catalog knows the current metadata file.
            UnsupportedOperation: it has equality deletes, or a column of a type that Delta does not have.
            InvalidTableChange: its files contradict each other, or are missing.
            LocationNotAllowed: the service does not work there, or a file is outside the roots.
        """
        return self.run_import_iceberg(
            source,
            location,
            name=name,
            collect_statistics=collect_statistics,
            properties=properties,
            description=description,
            engine=engine,
        )[0]

    def run_import_iceberg(
        self, source: str | os.PathLike[str], location: str | os.PathLike[str] | None = None, **options: Any
    ) -> tuple[DeltaTable, Metrics]:
        """Like :meth:`import_iceberg`, but also return Delta's metrics."""
        given = locations.absolute(os.fspath(source))
        directory = given
        if _is_iceberg_metadata(given):
            directory = given.rpartition("/")[0].removesuffix("/metadata")
        return self.run_convert(
            directory if location is None else location, source_format="iceberg", source=given, **options
        )

    def run_convert(
        self,
        location: str | os.PathLike[str],
        partition_by: Any = None,
        *,
        properties: Mapping[str, Any] | None = None,
        engine: Any = None,
        **options: Any,
    ) -> tuple[DeltaTable, Metrics]:
        """Like :meth:`convert`, but also return Delta's metrics."""
        table_engine = self._engine(engine)
        body = request(
            ConvertRequest,
            location=locations.absolute(os.fspath(location)),
            partition_schema=None if partition_by is None else _schema(partition_by).to_json(),
            properties={key: property_text(value) for key, value in (properties or {}).items()},
            engine_info=table_engine.name,
            **options,
        )
        done = self._service.call(operations.CONVERT_TO_DELTA, body)
        table = DeltaTable(self._service, done.table, table_engine, self._retries)
        return table, Metrics(done.operation_metrics, done.version)

    def table(self, name_or_location: str | os.PathLike[str], engine: Any = None) -> DeltaTable:
        """Return an existing table. A table given by location is registered if it is not yet, or no longer.

        Args:
            name_or_location: which table.
            engine: ``"duckdb"``, which is the default; a SparkSession, classic or Connect; or an Engine.

        Raises:
            TableNotFound: no table of that name is registered.
            AmbiguousTable: several tables have a directory of that name, and none has it as its name.
            NotADeltaTable: there is no Delta table at that location.
            EngineUnavailable: the engine is not installed, or unknown.
        """
        table_engine = self._engine(engine)
        location = location_of(name_or_location)
        if location is None:
            with near_names(self._service):
                named = self._service.call(operations.GET_TABLE, table=os.fspath(name_or_location))
            return DeltaTable(self._service, named, table_engine, self._retries)
        resource, body = self._service.resolve(location), request(TableRequest, location=location)
        if resource is None:
            resource = self._service.register(body)
        else:
            self._service.opened_by_location(resource, body)
        return DeltaTable(self._service, resource, table_engine, self._retries)

    def transaction(
        self, tables: Sequence[str] = (), *, isolation: Isolation = "serializable"
    ) -> MultiTableTransaction[DeltaTable]:
        """Begin a transaction over several managed tables, which changes all of them at one moment, or none.

        ::

            with lake.transaction() as tx:
                tx.table("orders").delete("id = 7")
                tx.sql("UPDATE stock SET left = left + 1 WHERE item = 3")

        Args:
            tables: tables to read at one moment; others are read as they are when the transaction first reads them.
            isolation: ``"serializable"``: also a change of a table that the transaction has only read is a conflict.
                ``"snapshot"``: only what its commands depend on.
        """
        with near_names(self._service):
            versions = read_at_one_moment(self._service, tables, self._over)[1] if tables else {}
        return MultiTableTransaction(self._service, self._over, versions, isolation)

    def snapshot(self, tables: Sequence[str]) -> MultiTableSnapshot[DeltaTable]:
        """Return several tables at one moment: ``lake.snapshot(["orders", "stock"]).table("orders").to_arrow()``.

        Every transaction over several of them is in all of these versions, or in none.

        Raises:
            TableNotFound: no table has one of the names.
            ConcurrentWrite: they are written so often that they could not be read at one moment.
        """
        with near_names(self._service):
            return read_at_one_moment(self._service, tables, self._over)[0]

    def _over(self, service: TableService) -> "Connection":
        """Return the same tables over another view of the service, whose commands are not retried."""
        lake = Connection(service, 0)
        with suppress(EngineUnavailable):
            lake._duckdb = self._engine(None)
        return lake

    def tables(self, namespace: str | None = None) -> list[TableResource]:
        """Return the registered tables, sorted by name.

        Args:
            namespace: only tables of this namespace: ``namespace.table``.
        """
        return listed(
            self._service, operations.LIST_TABLES, lambda page: page.tables, {"namespace": namespace}
        )

    def health(
        self,
        order_by: str = "score",
        *,
        min_deleted_ratio: float | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the registered tables with their newest health sample, those that need most maintenance first.

        Reads no logs. A table without commits through this service has no ``sample``; :meth:`DeltaTable.health` takes
        one.

        Args:
            order_by: ``score`` (the lowest first), or the highest ``deleted-ratio``, ``deleted-bytes``,
                ``small-files``, ``num-files``, ``size-in-bytes``, ``commits-since-checkpoint``, ``gain-bytes`` or
                ``scan-debt-seconds``.
            min_deleted_ratio: only tables with at least this share of deleted rows.
            limit: only so many.

        Returns:
            ``id``, ``name``, ``location`` and ``sample``; names are as on the wire.
        """
        return listed(
            self._service,
            operations.LIST_HEALTH,
            lambda page: [one.model_dump(by_alias=True) for one in page.tables],
            {"order-by": order_by, "min-deleted-ratio": min_deleted_ratio},
            limit=limit,
        )

    def events(
        self,
        table: str | None = None,
        *,
        namespace: str | None = None,
        types: Collection[str] = (),
        after: str | None = None,
        follow: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield the events of a running service's tables, as CloudEvents, oldest first.

        Args:
            table: only events of this table, by name or id.
            namespace: only events of the tables of this namespace.
            types: only ``delvec.commit``, ``delvec.conflict``, ``delvec.maintenance`` or ``delvec.health``.
            after: only events after the one with this ``sequence``; ``"latest"`` for new ones only. By default all that
                the service still has.
            follow: wait for new events, without end.

        Raises:
            BadRequest: the service records no events, as one in this process.
            TableNotFound: the table does not exist, or may not be read.
        """
        parameters = {
            "table": table,
            "namespace": namespace,
            "type": sorted(types) or None,
            "wait": _EVENT_WAIT_SECONDS if follow else None,
        }
        while True:
            with near_names(self._service):
                page = self._service.call(operations.LIST_EVENTS, parameters={**parameters, "cursor": after})
            if not page.complete:
                warnings.warn(f"events after {after} have expired", stacklevel=2)
            for event in page.events:
                yield event.model_dump(by_alias=True)
            after = page.cursor
            if not follow and not page.events:
                return

    @property
    def maintenance(self) -> Maintenance:
        """Maintenance by policies: ``lake.maintenance.set_policy(...)``, ``lake.maintenance.run(dry_run=True)``."""
        return Maintenance(self._service, self)

    @property
    def access(self) -> AccessControl:
        """Tokens, grants and the audit log of a running service: ``lake.access.grant("writer", "etl", namespace="sales")``."""
        return AccessControl(self._service)

    def register(
        self,
        location: str | os.PathLike[str],
        name: str | None = None,
        engine: Any = None,
        *,
        managed: bool = False,
    ) -> DeltaTable:
        """Register the Delta table at a location under a name; can be repeated.

        Args:
            location: the table's location.
            name: the table's name, optionally with namespaces; by default the location's last part, unless another
                table has that name.
            engine: as for :meth:`table`.
            managed: give the table to the catalog, in a commit of its own: from then on nobody commits to it by its path.

        Raises:
            NotADeltaTable: there is no Delta table at that location.
            InvalidTableChange: it cannot be managed.
            TableAlreadyExists: another table has the name, or the table has another name; the message has both
                locations.
        """
        body = request(
            TableRequest, location=locations.absolute(os.fspath(location)), name=name, managed=managed
        )
        return DeltaTable(self._service, self._service.register(body), self._engine(engine), self._retries)

    def rename(self, name_or_location: str | os.PathLike[str], name: str, engine: Any = None) -> DeltaTable:
        """Rename a registered table, or give it its first name. Location, id and files do not change.

        Raises:
            TableNotFound: it is not registered.
            TableAlreadyExists: another table has the name; the message has both locations.
        """
        table, body = self._registered(name_or_location), request(RenameRequest, name=name)
        with near_names(self._service):
            resource = self._service.call(operations.RENAME_TABLE, body, table=table)
        return DeltaTable(self._service, resource, self._engine(engine), self._retries)

    def drop(self, name_or_location: str | os.PathLike[str], *, purge: bool = False) -> None:
        """Unregister a table. Its files stay, so its location still is a Delta table.

        A managed table can be brought back by name (:meth:`undrop_table`) until maintenance deletes its files, after 7
        days unless the service says otherwise. A table of another catalog is dropped there.

        Args:
            name_or_location: which table.
            purge: delete all files in its folder now, for good, but for other tables there and what links lead to.

        Raises:
            TableNotFound: it is not registered.
            TableInUse: a shallow clone needs its files; with ``purge`` the table then stays.
            VacuumIncomplete: storage did not delete all files; :meth:`delete_dropped_table` continues.
            UnsupportedOperation: another catalog decides on the files that are to be purged.
            CommitOutcomeUnknown: another catalog does not tell whether it has dropped its table.
        """
        if not purge:
            with near_names(self._service):
                self._service.forget(self._registered(name_or_location))
            return
        table = self.table(name_or_location).id
        self._service.forget(table, purge=True)
        try:
            self.delete_dropped_table(table, enforce_retention=False)
        except TableInUse:
            self.undrop_table(table)
            raise

    def drop_table(self, name_or_location: str | os.PathLike[str], *, purge: bool = False) -> None:
        """Same as :meth:`drop`."""
        self.drop(name_or_location, purge=purge)

    def undrop_table(self, dropped: str, name: str | None = None, engine: Any = None) -> DeltaTable:
        """Bring a managed table back that was dropped, with its policies and grants.

        Args:
            dropped: its name, or its id: of several tables of a name, the one that was dropped last comes back.
            name: its new name, if another table has taken the old one.
            engine: as for :meth:`table`.

        Raises:
            TableNotFound: no such table was dropped, or the deletion of its files has begun.
            TableAlreadyExists: another table has the name.
            NotADeltaTable: its folder is gone.
        """
        body = request(UndropRequest, name=name)
        with near_names(self._service, among_dropped=True):
            resource = self._service.call(operations.UNDROP_TABLE, body, dropped=dropped)
        return DeltaTable(self._service, resource, self._engine(engine), self._retries)

    def dropped_tables(self) -> list[DroppedTableResource]:
        """Return the managed tables that were dropped and can be brought back, sorted by name."""
        return listed(self._service, operations.LIST_DROPPED, lambda page: page.tables, {})

    def delete_dropped_table(self, dropped: str, *, enforce_retention: bool = True) -> int:
        """Delete the files of a dropped table for good; return how many. ``maintenance.run()`` does it, too.

        Links in its folder, and other tables there, are left alone.

        Args:
            dropped: its name or id.
            enforce_retention: refuse before the time until which they are kept.

        Raises:
            TableNotFound: no such table was dropped.
            RetentionTooShort: it was dropped too recently.
            TableInUse: a shallow clone needs its files, or somebody still commits to it.
            VacuumIncomplete: storage did not delete all of them; call it again.
        """
        body = request(DeleteDroppedRequest, enforce_retention=enforce_retention)
        with near_names(self._service, among_dropped=True):
            return self._service.call(operations.DELETE_DROPPED, body, dropped=dropped).num_files

    def _registered(self, name_or_location: str | os.PathLike[str]) -> str:
        """Return the name or id of a registered table."""
        location = location_of(name_or_location)
        if location is None:
            return os.fspath(name_or_location)
        resource = self._service.resolve(location)
        if resource is None:
            raise TableNotFound(f"no table is registered at '{location}'", location=location)
        return resource.id

    @overload
    def sql(
        self,
        text: str,
        engine: Literal["duckdb"] | None = None,
        *,
        dialect: str = "spark",
        functions: Collection[str] = (),
    ) -> "pa.Table | Metrics | Altered": ...

    @overload
    def sql(
        self, text: str, engine: "SparkSession", *, dialect: str = "spark", functions: Collection[str] = ()
    ) -> "pa.Table | DataFrame | Metrics | Altered": ...

    def sql(
        self, text: str, engine: Any = None, *, dialect: str = "spark", functions: Collection[str] = ()
    ) -> "pa.Table | DataFrame | Metrics | Altered":
        """Run one SQL statement over the tables of this connection, or several between ``BEGIN;`` and ``COMMIT``.

        ::

            lake.sql("UPDATE people SET age = age + 1 WHERE id = 3")
            lake.sql("SELECT country, count(*) AS n FROM delta.`/data/people` VERSION AS OF 7 GROUP BY country")

        Refer to tables by the names that :meth:`table` takes, or by location as ``delta.`/path` ``.

        Args:
            text: a query, DELETE, UPDATE, MERGE, INSERT, CREATE, ALTER or DROP TABLE, SHOW, DESCRIBE, OPTIMIZE, VACUUM and
                others; docs/sql-grammar.md has all forms.
            engine: as for :meth:`table`; runs the statement.
            dialect: SQL dialect of the statement: ``"spark"`` or ``"duckdb"``.
            functions: functions of your Spark session, such as UDFs, that the statement may call in addition to Spark's
                own.

        Returns:
            An Arrow table for statements that return rows; on Spark a lazy DataFrame for queries, and delta-spark's
            DataFrames for DESCRIBE DETAIL and HISTORY; Metrics for statements that change rows, Altered for those that
            define or alter a table; the answer of :meth:`transaction` for a transaction.

        Raises:
            InvalidStatement: with line and column: it cannot be parsed, is not supported, or reads something other than
                tables.
            DelvecError: as for the commands of :class:`DeltaTable`.
        """
        from delvec.sql.blocks import block_of
        from delvec.sql.statements import run

        block = block_of(text) if isinstance(text, str) else None
        if block is None:
            return run(self, text, engine, dialect, functions)
        tx = self.transaction()
        for statement in block.statements:
            tx.sql(statement, engine, dialect=dialect)
        if block.commits:
            return tx.commit()
        tx.rollback()
        return None

    def register_views(self, spark: Any, tables: Sequence[str] | Mapping[str, str] | None = None) -> Any:
        """Make tables available to Spark SQL as temporary views of a session, without any JAR.

        ::

            views = lake.register_views(spark)
            spark.sql("SELECT count(*) FROM people")  # the version of when the views were made
            views.sql("SELECT count(*) FROM people")  # the newest version
            views.refresh()

        Args:
            spark: a SparkSession, classic or Connect.
            tables: table names, or a dict from view names to names or locations of tables; by default all registered
                tables. Dots in names become underscores, as temporary views have no namespaces.

        Returns:
            A :class:`delvec.sql.spark_views.SparkViews`: ``refresh()``, ``sql(text)``, ``drop()``, ``names``.

        Raises:
            TableAlreadyExists: Spark already has a table or view of that name.
            TableNotFound: or another error of a given table. By default, tables that cannot be read are skipped with a
                warning.
        """
        from delvec.sql.spark_views import SparkViews

        return SparkViews.of(self, spark, tables)

    def progress(self) -> float | None:
        """Return the progress of DuckDB's current statement for this connection; called from another thread.

        Returns:
            From 0 to 1, for the running statement; a command may run several. None if no statement reports progress;
            only statements started after the first call of this do. Spark has its own display.
        """
        return self._engine(None).progress()

    def _engine(self, engine: Any) -> Engine:
        if engine is None or engine == "duckdb":
            with self._lock:
                self._duckdb = self._duckdb or _duckdb_engine()
            return self._duckdb
        # A SparkSession, classic or Connect, is recognised by its methods: importing PySpark for a check is slow.
        if hasattr(engine, "sql") and hasattr(engine, "createDataFrame"):
            return _spark_engine(engine)
        if isinstance(engine, Engine):
            return engine
        hint = "; pass the SparkSession itself" if str(engine).lower() in ("spark", "pyspark") else ""
        raise EngineUnavailable(
            f"engine must be 'duckdb', a SparkSession or an Engine, not {engine!r}{hint}", engine=repr(engine)
        )


def _duckdb_engine() -> Engine:
    try:
        from delvec_engines.duckdb import DuckDBEngine
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the DuckDB engine needs {error.name}: pip install '.[local]' in Delvec's clone, or pass engine=spark"
        ) from error
    engine: Engine = DuckDBEngine()
    return engine


def _spark_engine(spark: Any) -> Engine:
    try:
        from delvec_engines.spark import ChoosingEngine, SparkEngine
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the Spark engine needs {error.name}: pip install '.[spark]' in Delvec's clone"
        ) from error
    engine: Engine = ChoosingEngine(SparkEngine(spark))
    return engine


def _is_iceberg_metadata(path: str) -> bool:
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def _schema(schema: Any) -> StructType:
    if isinstance(schema, str) and not schema.lstrip().startswith(("{", '"')):
        return parse_ddl(schema)
    return schema_from(schema)
