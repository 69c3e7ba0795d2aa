"""Where a session starts: ``connect()`` and the tables that a service knows."""

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa

from delvec.access import AccessControl
from delvec.ddl import parse_ddl
from delvec.display import pairs, rows
from delvec.dml.retry import DEFAULT_RETRIES, checked
from delvec.dml.table_definition import TableDefinition, location_of, property_text
from delvec.engines.protocol import Engine
from delvec.http.embedded import embedded_service
from delvec.http.service_client import ServiceClient, answer, listed, request, table_path
from delvec.maintenance import Maintenance
from delvec.table import DeltaTable
from delvec.transaction import Metrics
from delvec_kernel import locations
from delvec_kernel.errors import (
    BadRequest,
    DelvecError,
    EngineUnavailable,
    NotFound,
    TableAlreadyExists,
    TableNotFound,
)
from delvec_kernel.schema.types import StructType, schema_from
from delvec_kernel.storage.roots import Roots
from delvec_kernel.wire import (
    ConvertRequest,
    ConvertResponse,
    HealthListResponse,
    RenameRequest,
    TableRequest,
    TableResource,
    TablesResponse,
)

__all__ = ["Connection", "connect"]

_EMBEDDED_URL = "http://embedded"
_REMOTE_TIMEOUT_SECONDS = 300.0
_SHOWN_TABLES = 50


def connect(
    url: str | os.PathLike[str] | None = None,
    *,
    warehouse: str | os.PathLike[str] | None = None,
    token: str | None = None,
    database_url: str | None = None,
    timeout: float | None = None,
    retries: int = DEFAULT_RETRIES,
    roots: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None = None,
    storage_credentials: Literal["environment", "vended"] = "environment",
) -> "Connection":
    """Connect to a service, or run one in this process.

    ::

        delvec.connect("http://host:8710", token="...")  # a running service
        delvec.connect("/data/lake")                     # a service in this process, with the names of that folder

    Args:
        url: a running service, ``http://host:8710``, by default ``DELVEC_URL``; without that the service runs in this
            process until the connection is closed. A folder or the URL of one is taken for ``warehouse``.
        warehouse: the folder or bucket whose names a service in this process knows, and where tables that are created by
            name go; by default ``DELVEC_WAREHOUSE``, or else the working directory. Names belong to a warehouse, and
            never mean another one's tables; locations are the same everywhere.
        token: the service's bearer token; by default ``DELVEC_TOKEN``.
        database_url: where a service in this process keeps its records, as an SQLAlchemy URL; by default an
            SQLite file under ``$XDG_STATE_HOME/delvec`` or ``~/.local/state/delvec``.
        timeout: seconds to wait for a remote service to answer; 300 by default.
        retries: how often a command that lost a race is run again, unless the command itself says.
        roots: paths or URLs that tables must lie in, and the files that their logs name. A service in this process checks
            them, and engines check again what they open, of a running service's plans, too. Without them a log may name
            any file, as those of shallow clones do: give them where tables come from others.
        storage_credentials: ``"vended"``: data files of tables on S3 are opened, by this process, with short-lived credentials
            that a running service hands out for each table; by default with those of the environment.

    Raises:
        EngineUnavailable: there is no URL and the service is not installed.
        BadRequest: the arguments contradict each other, or the URL is not one.
        InvalidLocation: the warehouse is not a location.
    """
    if url is not None and _is_place(url):
        if warehouse is not None:
            raise BadRequest("the warehouse is given twice: leave out the first argument or warehouse=")
        url, warehouse = None, url
    if storage_credentials not in ("environment", "vended"):
        raise BadRequest(
            f'storage_credentials must be "environment" or "vended", not {str(storage_credentials)[:50]!r}'
        )
    vended = storage_credentials == "vended"
    url = os.fspath(url) if url else None
    if url is None and database_url is None and warehouse is None:
        url = os.environ.get("DELVEC_URL") or None
    given = [os.fspath(root) for root in ([roots] if isinstance(roots, str | os.PathLike) else roots or ())]
    if url is None:
        if token:
            raise BadRequest("a token needs the url of a running service")
        if vended:
            raise BadRequest(
                "vended credentials need the url of a running service: a service in this process has only your own "
                "credentials"
            )
        transport = embedded_service(database_url, _warehouse(warehouse), given)
        client = ServiceClient(_EMBEDDED_URL, timeout=None, transport=transport, roots=Roots(given))
        return Connection(client, retries, has_warehouse=_is_chosen(warehouse))
    for name, value in {"database_url": database_url, "warehouse": warehouse}.items():
        if value:
            raise BadRequest(f"{name} applies only to a service in this process: leave out url")
    token = token or os.environ.get("DELVEC_TOKEN")
    client = ServiceClient(
        url, token=token, timeout=timeout or _REMOTE_TIMEOUT_SECONDS, roots=Roots(given), vended=vended
    )
    return Connection(client, retries)


def _is_place(url: str | os.PathLike[str]) -> bool:
    """Whether what ``connect()`` was given is a folder, and not a service."""
    if not isinstance(url, str):
        return True
    scheme, separator, _ = url.partition("://")
    if separator:
        return scheme.lower() not in ("http", "https")
    return url.startswith((".", "/", "~")) or "\\" in url


def _is_chosen(warehouse: str | os.PathLike[str] | None) -> bool:
    return warehouse is not None or bool(os.environ.get("DELVEC_WAREHOUSE"))


def _warehouse(warehouse: str | os.PathLike[str] | None) -> str | None:
    if warehouse is not None:
        if not os.fspath(warehouse).strip():
            raise BadRequest("the warehouse must be a directory or URL, not an empty string")
        return locations.absolute(os.fspath(warehouse))
    if os.environ.get("DELVEC_WAREHOUSE"):
        return None
    with suppress(OSError):  # the working directory may be gone
        return os.getcwd()  # noqa: PTH109 - text in, text out
    return None


class Connection:
    r"""The tables of one service. A context manager; may be shared between threads, not between processes.

    A table is called by its name or by its location. Text that contains ``/``, ``\\`` or ``://``, or starts
    with a dot, is a location, as is a :class:`pathlib.Path`; a relative path starts from the working directory.

    Attributes:
        has_warehouse: whether a service in this process was told where tables go that are created by name.
    """

    def __init__(
        self, service: ServiceClient, retries: int = DEFAULT_RETRIES, *, has_warehouse: bool = False
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
        return None if self._service.base_url == _EMBEDDED_URL else self._service.base_url

    def __reduce__(self) -> tuple[Any, ...]:
        return Connection, (self._service, self._retries)

    def _repr_html_(self) -> str:
        try:
            found = self.tables()
        except DelvecError as error:
            return pairs(repr(self), {"error": error.message})
        shown = [(each.name, each.location) for each in found[:_SHOWN_TABLES]]
        more = f"<p>… and {len(found) - len(shown)} more</p>" if len(found) > len(shown) else ""
        return rows(["table", "location"], shown) + more

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def close(self) -> None:
        """Close the connection; a service in this process ends. Closing twice is fine."""
        self._service.close()
        with self._lock:
            close = getattr(self._duckdb, "close", None)
        if close is not None:
            close()

    def create_table(
        self,
        name_or_location: str | os.PathLike[str],
        schema: StructType | pa.Schema | Mapping[str, Any] | str | Any,
        partition_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        engine: Any = None,
        *,
        name: str | None = None,
        cluster_by: Sequence[str] | None = None,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> DeltaTable:
        """Create an empty Delta table, with deletion vectors unless ``properties`` say otherwise.

        Args:
            name_or_location: where the table goes; a name alone puts it into the warehouse: ``orders`` into its folder
                ``orders``, ``sales.orders`` into ``sales.db/orders``.
            schema: an Arrow, Spark or Delta schema, Delta's schema JSON, or text such as ``id long, name string``.
            partition_by: columns, in order.
            properties: table properties, ``delta.*`` among them; ``delta.feature.<name>`` and ``delta.constraints.<name>``
                add table features and CHECK constraints.
            description: free text.
            engine: as for :meth:`table`.
            name: the table's name, where a location is given. Without one it is called by the location's last part, as
                long as no other table is.
            cluster_by: columns by which files are to be clustered.
            replace: a table that is there gets these columns and properties in place of its own, and loses its rows, in one
                version; earlier versions stay as they are.
            if_not_exists: a table that is there is returned as it is, whatever its columns.

        Raises:
            TableAlreadyExists: something is there, or has the name, and is not to be replaced.
            InvalidSchema: the schema has no equivalent in Delta.
            InvalidTableChange: a property, a constraint or a clustering column cannot be.
            ConcurrentModification: or a subclass: others changed the table that is replaced again and again.
            LocationNotAllowed: the service does not allow the location.
        """
        if replace and if_not_exists:
            raise BadRequest("give replace or if_not_exists, not both")
        chosen = self._engine(engine)
        if isinstance(partition_by, str):
            partition_by = [partition_by]
        definition = TableDefinition(
            _schema(schema),
            partition_by or (),
            {key: property_text(value) for key, value in (properties or {}).items()},
            description,
            [cluster_by] if isinstance(cluster_by, str) else cluster_by or (),
        )
        location = location_of(name_or_location)
        body = definition.creation(location, name if location else os.fspath(name_or_location))
        try:
            resource = answer(TableResource, self._service.post("/v1/tables", body))
        except TableAlreadyExists as error:
            wanted = replace or if_not_exists
            there = self._there(name_or_location, name, error, chosen) if wanted else None
            if there is None:
                raise
            if replace:
                there.replace_with(definition)
            return there
        return DeltaTable(self._service, resource, chosen, self._retries)

    def _there(
        self,
        name_or_location: str | os.PathLike[str],
        name: str | None,
        error: TableAlreadyExists,
        engine: Engine,
    ) -> DeltaTable | None:
        """Return the table that is in the way, under the name that it is to have; None where that is another's."""
        location = location_of(name_or_location)
        if location is None:
            name = os.fspath(name_or_location)
            with suppress(NotFound):
                return self.table(name, engine)
            # A log that is there, and that the service has forgotten.
            location = error.details.get("location")
        if location is None:
            return None
        resource = self._resolve(location)
        if resource is not None and name is not None and resource.name != name:
            return None
        if resource is None:
            body = request(TableRequest, location=location, name=name)
            try:
                resource = answer(TableResource, self._service.post("/v1/tables", body))
            except (NotFound, TableAlreadyExists):
                return None
        return DeltaTable(self._service, resource, engine, self._retries)

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
        """Make a Delta table of the Parquet files of a directory: a log is written that names them, and no file is changed.

        A directory that is a Delta table already is returned as it is.

        Args:
            location: the directory.
            partition_by: the columns that directories such as ``day=2026-01-31`` are named by, with their types and in that
                order: ``"day date, country string"``, or an Arrow, Spark or Delta schema.
            name: the table's name; without one it is called by the location's last part.
            collect_statistics: take statistics from the footers of the files, which makes reads skip files.
            properties: table properties, as in :meth:`create_table`.
            description: free text.
            engine: as for :meth:`table`.

        Raises:
            BadRequest: there is no Parquet file, or the directories are named by other columns.
            InvalidTableChange: or InvalidSchema: the files contradict each other, or have columns that no table has.
            UnsupportedOperation: it is an Iceberg table, which :meth:`import_iceberg` takes.
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
        """Make a Delta table of an Iceberg table: a log is written that names its data files, and no file is changed.

        Its position deletes and deletion vectors become deletion vectors of the Delta table. A location that is a Delta
        table already is returned as it is.

        Args:
            source: the Iceberg table's directory, or the metadata file that its catalog says is current.
            location: of the Delta table; without it the Iceberg table's directory.
            name: the table's name; without one it is called by the location's last part.
            collect_statistics: take statistics from the manifests, which makes reads skip files.
            properties: table properties, as in :meth:`create_table`.
            description: free text.
            engine: as for :meth:`table`.

        Raises:
            BadRequest: there is no Iceberg table, or only its catalog knows which metadata file is current.
            UnsupportedOperation: it has equality deletes, or a column of a type that Delta does not have.
            InvalidTableChange: its files contradict each other, or are missing.
            LocationNotAllowed: the service does not work there, or a file lies outside the roots.
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
        """Do the same as :meth:`import_iceberg`; return Delta's metrics, too."""
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
        """Do the same as :meth:`convert`; return Delta's metrics, too."""
        chosen = self._engine(engine)
        body = request(
            ConvertRequest,
            location=locations.absolute(os.fspath(location)),
            partition_schema=None if partition_by is None else _schema(partition_by).to_json(),
            properties={key: property_text(value) for key, value in (properties or {}).items()},
            engine_info=chosen.name,
            **options,
        )
        done = answer(ConvertResponse, self._service.post("/v1/convert", body))
        table = DeltaTable(self._service, done.table, chosen, self._retries)
        return table, Metrics(done.operation_metrics, done.version)

    def table(self, name_or_location: str | os.PathLike[str], engine: Any = None) -> DeltaTable:
        """Return an existing table. The table at a location is made known to the service where it is not yet.

        Args:
            name_or_location: which table.
            engine: ``"duckdb"``, which is the default; a SparkSession, classic or Connect; or an Engine.

        Raises:
            TableNotFound: the service knows no table of that name.
            AmbiguousTable: the folders of several tables are called so, and none was given the name.
            NotADeltaTable: there is no Delta table at that location.
            EngineUnavailable: the engine is not installed, or not known.
        """
        chosen = self._engine(engine)
        location = location_of(name_or_location)
        if location is None:
            path = table_path(os.fspath(name_or_location))
            return DeltaTable(
                self._service, answer(TableResource, self._service.get(path)), chosen, self._retries
            )
        resource = self._resolve(location)
        if resource is None:
            body = request(TableRequest, location=location)
            resource = answer(TableResource, self._service.post("/v1/tables", body))
        return DeltaTable(self._service, resource, chosen, self._retries)

    def tables(self, namespace: str | None = None) -> list[TableResource]:
        """Return the tables that are registered, in the order of their names.

        Args:
            namespace: only those that are called ``namespace.something``.
        """
        return listed(
            self._service, "/v1/tables", TablesResponse, lambda page: page.tables, {"namespace": namespace}
        )

    def health(
        self,
        order_by: str = "score",
        *,
        min_deleted_ratio: float | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the registered tables, those first that need most care, as they were after their newest commits.

        No log is read. A table to which this service's database knows no commit has no ``sample``; its own
        :meth:`DeltaTable.health` looks at it, and makes one.

        Args:
            order_by: ``score`` (the lowest first), or the highest ``deleted-ratio``, ``deleted-bytes``, ``small-files``,
                ``num-files``, ``size-in-bytes``, ``commits-since-checkpoint`` or ``gain-bytes``.
            min_deleted_ratio: only tables of which at least this share of the rows is known to be deleted.
            limit: only so many.

        Returns:
            ``id``, ``name``, ``location`` and ``sample``; names are as on the wire.
        """
        return listed(
            self._service,
            "/v1/health",
            HealthListResponse,
            lambda page: [one.model_dump(by_alias=True) for one in page.tables],
            {"order-by": order_by, "min-deleted-ratio": min_deleted_ratio},
            limit=limit,
        )

    @property
    def maintenance(self) -> Maintenance:
        """Maintenance by policies: ``lake.maintenance.set_policy(...)``, ``lake.maintenance.run(dry_run=True)``."""
        return Maintenance(self._service, self)

    @property
    def access(self) -> AccessControl:
        """Tokens, grants and the audit log of a running service: ``lake.access.grant("writer", "etl", namespace="sales")``."""
        return AccessControl(self._service)

    def register(
        self, location: str | os.PathLike[str], name: str | None = None, engine: Any = None
    ) -> DeltaTable:
        """Give the Delta table at a location a name; as often as you like.

        Args:
            location: where the table is.
            name: its name, with namespaces before it if you like; by default it is called by the location's last part, as
                long as no other table is.
            engine: as for :meth:`table`.

        Raises:
            NotADeltaTable: there is no Delta table at that location.
            TableAlreadyExists: the name is another table's, or the table was given another one; says both locations.
        """
        body = request(TableRequest, location=locations.absolute(os.fspath(location)), name=name)
        resource = answer(TableResource, self._service.post("/v1/tables", body))
        return DeltaTable(self._service, resource, self._engine(engine), self._retries)

    def rename(self, name_or_location: str | os.PathLike[str], name: str, engine: Any = None) -> DeltaTable:
        """Give a registered table a name, its first or another one. Location, id and files stay as they are.

        Raises:
            TableNotFound: it is not registered.
            TableAlreadyExists: the name is another table's; says both locations.
        """
        path = table_path(self._registered(name_or_location), "rename")
        resource = answer(TableResource, self._service.post(path, request(RenameRequest, name=name)))
        return DeltaTable(self._service, resource, self._engine(engine), self._retries)

    def drop(self, name_or_location: str | os.PathLike[str]) -> None:
        """Forget a table and its name. Its files stay where they are, and its location goes on to be a Delta table.

        Raises:
            TableNotFound: it is not registered.
        """
        self._service.delete(table_path(self._registered(name_or_location)))

    def drop_table(self, name_or_location: str | os.PathLike[str]) -> None:
        """Do the same as :meth:`drop`."""
        self.drop(name_or_location)

    def _registered(self, name_or_location: str | os.PathLike[str]) -> str:
        """Return the name, or the id, of a table that is registered."""
        location = location_of(name_or_location)
        if location is None:
            return os.fspath(name_or_location)
        resource = self._resolve(location)
        if resource is None:
            raise TableNotFound(f"no table is registered at '{location}'", location=location)
        return resource.id

    def sql(
        self, text: str, engine: Any = None, *, dialect: str = "spark", functions: Collection[str] = ()
    ) -> Any:
        """Run one SQL statement over the tables of this connection.

        ::

            lake.sql("UPDATE people SET age = age + 1 WHERE id = 3")
            lake.sql("SELECT country, count(*) AS n FROM delta.`/data/people` VERSION AS OF 7 GROUP BY country")

        Tables are called by the names that :meth:`table` takes; a location is written ``delta.`/path` ``.

        Args:
            text: SELECT, DELETE, UPDATE, MERGE, INSERT INTO or OVERWRITE, DESCRIBE [DETAIL | HISTORY], SHOW TABLES, or
                ALTER TABLE with SYNC IDENTITY.
            engine: as for :meth:`table`; what runs it.
            dialect: ``"spark"`` or ``"duckdb"``: how the statement is written.
            functions: names of functions of your Spark session, such as UDFs, that the statement may call beside Spark's own.

        Returns:
            An Arrow table for what gives rows, on Spark a lazy DataFrame for a query; what changes rows gives its
            Metrics, what alters a table Altered.

        Raises:
            InvalidStatement: with line and column: it cannot be parsed, is none of these, or reads something else
                than tables.
            DelvecError: as the commands of :class:`DeltaTable`.
        """
        from delvec.sql.statements import run

        return run(self, text, engine, dialect, functions)

    def register_views(self, spark: Any, tables: Sequence[str] | Mapping[str, str] | None = None) -> Any:
        """Make tables known by name to Spark SQL, as temporary views of a session, without any JAR.

        ::

            views = lake.register_views(spark)
            spark.sql("SELECT count(*) FROM people")  # the version of when the views were made
            views.sql("SELECT count(*) FROM people")  # the newest version
            views.refresh()

        Args:
            spark: a SparkSession, classic or Connect.
            tables: names, or a dict from names of views to names or locations of tables; by default all tables that the
                service knows. A dot in a name becomes an underscore, as temporary views have no namespaces.

        Returns:
            A :class:`delvec.sql.spark_views.SparkViews`: ``refresh()``, ``sql(text)``, ``drop()``, ``names``.

        Raises:
            TableAlreadyExists: Spark knows something by that name already.
            TableNotFound: or another error of a table that was named. Of all tables, those that cannot be read are left
                out, with a warning.
        """
        from delvec.sql.spark_views import SparkViews

        return SparkViews.of(self, spark, tables)

    def progress(self) -> float | None:
        """Return how far DuckDB is with what it does for this connection now; for another thread to ask.

        Returns:
            From 0 to 1, of the statement that runs: a command may be several. None where none runs that can tell. Those
            can that began after this was asked for the first time; Spark has its own display.
        """
        asked = getattr(self._engine(None), "progress", None)
        found: float | None = None if asked is None else asked()
        return found

    def _resolve(self, location: str) -> TableResource | None:
        found = answer(TablesResponse, self._service.get("/v1/tables", {"location": location})).tables
        return found[0] if found else None

    def _engine(self, engine: Any) -> Engine:
        if engine is None or engine == "duckdb":
            with self._lock:
                self._duckdb = self._duckdb or _duckdb_engine()
            return self._duckdb
        # A SparkSession, classic or Connect, is told by what it can do: importing PySpark to ask is slow.
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
        from delvec.engines.duckdb import DuckDBEngine
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the DuckDB engine needs {error.name}: pip install '.[local]' in Delvec's clone, or pass engine=spark"
        ) from error
    engine: Engine = DuckDBEngine()
    return engine


def _spark_engine(spark: Any) -> Engine:
    try:
        from delvec.engines.spark import SparkEngine
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the Spark engine needs {error.name}: pip install '.[spark]' in Delvec's clone"
        ) from error
    engine: Engine = SparkEngine(spark)
    return engine


def _is_iceberg_metadata(path: str) -> bool:
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def _schema(schema: Any) -> StructType:
    if isinstance(schema, str) and not schema.lstrip().startswith(("{", '"')):
        return parse_ddl(schema)
    return schema_from(schema)
