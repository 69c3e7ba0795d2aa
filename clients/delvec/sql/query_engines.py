"""Runs queries on Spark, or on a DuckDB database that can only open the files of the tables it reads.

Tested in `tests/integration/client/sql/test_statements.py`.
"""

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from delvec.catalog import Catalog
from delvec.sql.queries import Query, Total
from delvec.sql.tokens import TableName, word_start
from delvec.table import DeltaTable
from delvec_commands.failed_reads import reporting
from delvec_commands.table_service import TableService
from delvec_engines.duckdb.file_names import as_pattern, file_names, read_as_bytes
from delvec_engines.duckdb.pushed_filters import mentions_null
from delvec_engines.duckdb.relation import relation
from delvec_engines.duckdb.statement_runner import damage, rows_of
from delvec_engines.internal_names import INTERNAL
from delvec_engines.scan import Scan
from delvec_errors import (
    DelvecError,
    EngineUnavailable,
    InvalidStatement,
    StorageError,
    TableNotFound,
    UnknownColumn,
)
from delvec_kernel.expressions.source_text import located, place
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructType, arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["query_duckdb", "query_spark"]


_FLOAT: Final = PrimitiveType("float")
_NAME_IN_ERROR: Final = re.compile(
    r'column named "([^"]+)"|[Cc]olumn "([^"]+)"|with name (\w+) does|[Tt]able "([^"]+)" not|types \'(\w+)\('
)
_SUGGESTIONS: Final = re.compile(r"(?:Candidate (?:bindings|tables):|Did you mean)[^\n]*")
_QUOTED: Final = re.compile(r'"([^"]+)"')
_CONFIG: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def query_duckdb(lake: Catalog, query: Query) -> pa.Table:
    """Return the rows of a query.

    Raises:
        InvalidStatement: DuckDB cannot run it.
        TableNotFound: or another error of a table that it reads.
        CorruptTable: or a subclass: a file is damaged or missing.
        StorageError: storage did not respond.
    """
    asked = query.totals()
    totals = None if asked is None else _totals(lake, *asked, query.dialect)
    if totals is not None:
        return totals
    shields_text = mentions_null(query.text)
    joins = len(list(query.tables())) > 1
    with duckdb.connect(":memory:", config=_CONFIG) as database:
        database.execute("SET TimeZone = 'UTC'")
        scans: list[Scan] = []
        changes: list[pa.Table] = []
        services: list[TableService] = []
        schemas: dict[str, StructType] = {}

        def view(table: TableName, condition: str | None) -> str:
            source = lake.table(table.name)
            if table.changes is not None:
                name = f"{INTERNAL('changes')}_{len(changes)}"
                changes.append(source.changes(**table.changes_of()))
                database.register(name, changes[-1])
                return name
            scan = _planned(source, table, condition)
            scans.append(scan)
            services.append(source._service)  # noqa: SLF001 - of this package
            name = f"{INTERNAL('view')}_{len(scans)}"
            schemas[name] = scan.schema
            with reporting(services[-1], scan.table_id):
                rows = relation(scan, None, database, shields_text=shields_text, tells_size=joins)
                rows.create_view(name)
            return name

        try:
            text = query.on("duckdb", view, lambda name: _spelled(name, scans), schemas)
            _lock(database, scans)
            return rows_of(database, text)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for scan, service in zip(scans, services, strict=True):
                with reporting(service, scan.table_id):
                    damaged = damage(error, scan)
                    if damaged is not None:
                        raise damaged from error
            raise _explained(error, query.text) from error


def _spelled(name: str, scans: Sequence[Scan]) -> str:
    """Return a name as a column or field of the tables spells it: DuckDB compares only ASCII letters without case."""
    pending: list[DataType] = [scan.schema for scan in scans]
    while pending:
        match pending.pop(0):
            case StructType() as struct:
                if (known := struct.get(name)) is not None:
                    return known.name
                pending += [item.type for item in struct.fields]
            case ArrayType(element):
                pending.append(element)
            case MapType(key, value):
                pending += [key, value]
            case _:
                pass
    return name


def _totals(lake: Catalog, name: TableName, totals: Sequence[Total], dialect: str) -> pa.Table | None:
    """Answer aggregates from the log, as one row; None if the range of a column requires reading data files."""
    names = [each.alias or _default_name(each, dialect) for each in totals]
    if len({each.lower() for each in names}) < len(names):
        return None
    table = lake.table(name.name)
    columns = sorted({each.column for each in totals if each.column is not None})
    if not columns:
        rows = table.count(version=name.version, timestamp=name.timestamp)
        values = [pa.array([rows], pa.int64()) for _ in totals]
        return pa.Table.from_arrays(values, names)
    try:
        snapshot = table.snapshot(name.version, name.timestamp, ranges=columns)
    except UnknownColumn:
        return None  # DuckDB's error has the position in the query
    if snapshot.num_rows is None or len(snapshot.column_ranges) < len(columns):
        return None
    schema = StructType.from_json(snapshot.table_schema)
    if any(schema.field(name).name != name for name in columns):
        return None  # DuckDB would name the result as the schema spells it
    values = []
    for each in totals:
        if each.column is None:
            values.append(pa.array([snapshot.num_rows], pa.int64()))
        else:
            kind = arrow_type(schema.field(each.column).type)
            number = getattr(snapshot.column_ranges[each.column], each.kind)
            stored = pa.int32() if pa.types.is_date(kind) else kind
            values.append(pa.array([number], stored).cast(kind))
    return pa.Table.from_arrays(values, names)


def _default_name(total: Total, dialect: str) -> str:
    """Return the name of an aggregate in the result: Spark's, or for queries in its dialect DuckDB's."""
    if total.column is None:
        return "count(1)" if dialect == "spark" else "count_star()"
    is_keyword = dialect != "spark" and duckdb.tokenize(total.column)[0][1] == duckdb.token_type.keyword
    return f'{total.kind}("{total.column}")' if is_keyword else f"{total.kind}({total.column})"


def _explained(error: Exception, query: str) -> DelvecError:
    reason = str(error).partition("\n")[0]
    if isinstance(error, duckdb.OutOfMemoryException):
        return EngineUnavailable(f"DuckDB ran out of memory on the query: {reason}; use Spark.")
    if isinstance(error, OSError | duckdb.IOException):
        return StorageError(f"Reading for the query failed: {reason}; retry, or check storage.")
    return _located(reason, str(error), query)


def _located(reason: str, text: str, query: str) -> InvalidStatement:
    """Return an error with the position of the word that DuckDB's message names; DuckDB's own refers to the translation."""
    named = _NAME_IN_ERROR.search(reason)
    word = next(filter(None, named.groups()), "") if named else ""
    at = word_start(query, word) if word else None
    near = _QUOTED.findall("".join(_SUGGESTIONS.findall(text)))[:3]
    hint = f"; did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
    if at is None:
        return InvalidStatement(f"DuckDB cannot run the query: {reason}{hint}", line=1, column=1)
    line, column = place(query, at)
    error = InvalidStatement(
        f"Line {line}, column {column}: DuckDB cannot run the query: {reason.rstrip('.!')}{hint}",
        line=line,
        column=column,
        suggestions=near,
    )
    return located(error, query, at, at + len(word))


def _planned(source: DeltaTable, table: TableName, condition: str | None) -> Scan:
    if condition is not None:
        try:
            scan, predicate = source.plan(None, condition, table.version, table.timestamp)
        except DelvecError:
            # It only skips files; the engine reports errors in the query.
            pass
        else:
            # DuckDB compares FLOAT with 0.1 as FLOATs, but data skipping follows Spark and compares as DOUBLEs.
            if predicate is None or not any(
                scan.schema.field(name).type == _FLOAT for name in predicate.columns
            ):
                return scan
    return source.plan(None, None, table.version, table.timestamp)[0]


def _lock(database: Any, scans: list[Scan]) -> None:
    """Restrict the database to the files of the scans."""
    names = [
        name
        for scan in scans
        for name in file_names(scan.location, scan.files, scan.roots, as_bytes=read_as_bytes(scan.schema))
    ]
    paths = sorted({path for name in names for path in (name, as_pattern(name))})
    database.execute("SET allowed_paths = ?", [paths])
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def query_spark(lake: Catalog, query: Query, spark: Any) -> "DataFrame":
    """Return a query's rows as a lazy DataFrame; each table is pinned to one version.

    Raises:
        InvalidStatement: Spark cannot run it.
        TableNotFound: or another error of a table that it reads; neither the connection nor the session has it.
    """
    from pyspark.errors import AnalysisException, ParseException

    from delvec_engines.spark.session_properties import is_remote

    views: list[str] = []

    def view(table: TableName, condition: str | None) -> str:  # noqa: ARG001 - Spark pushes conditions itself
        views.append(f"{INTERNAL('view')}_{uuid.uuid4().hex}")
        try:
            source = lake.table(table.name, engine=spark)
        except TableNotFound:
            own = _own_name(spark, table)
            if own is None:
                raise
            spark.table(own).createOrReplaceTempView(views[-1])
            return views[-1]
        if table.changes is None:
            frame = source.to_df(version=table.version, timestamp=table.timestamp)
        else:
            frame = source.changes_df(**table.changes_of())
        frame.createOrReplaceTempView(views[-1])
        return views[-1]

    text = query.on("spark", view)
    try:
        frame = spark.sql(text)
        frame.schema  # noqa: B018 - makes Connect analyze now
    except (AnalysisException, ParseException) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidStatement(f"Spark cannot run the query: {reason}", line=1, column=1) from error
    if not is_remote(spark):
        # Classic Spark has resolved the views; Connect resolves them again with every action.
        for name in views:
            spark.catalog.dropTempView(name)
    return frame


def _own_name(spark: Any, table: TableName) -> str | None:
    """Return the quoted name of a view or table of the session; None if it has none of that name."""
    name = ".".join(map(backticked, table.name.split(".")))
    is_newest = table.is_newest and table.changes is None
    return name if is_newest and spark.catalog.tableExists(name) else None
