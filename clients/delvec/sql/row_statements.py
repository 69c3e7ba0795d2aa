"""DELETE, UPDATE, MERGE and INSERT as the commands of a table.

Tested in `tests/integration/client/sql/test_statements.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import duckdb
import pyarrow as pa

from delvec.sql.default_values import with_defaults
from delvec.sql.queries import Query, parse_query
from delvec.sql.tokens import Cursor, TableName, invalid, newest_version
from delvec_commands.transaction import Metrics
from delvec_engines.duckdb.assignment import FAILED, assigned
from delvec_errors import InvalidPredicate, SchemaMismatch, TableNotFound
from delvec_errors.texts import counted
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import StructType, data_type_from_arrow

if TYPE_CHECKING:
    from delvec.table import DeltaTable

__all__ = [
    "OpenTable",
    "RunQuery",
    "delete",
    "insert",
    "is_table",
    "merge",
    "truncate",
    "update",
    "with_rows",
]

_DIGITS: Final = 20
"""Digits of the largest integer."""

OpenTable: TypeAlias = "Callable[[TableName], DeltaTable]"
RunQuery: TypeAlias = Callable[[Query], Any]
"""Returns a query's rows: Arrow, or a Spark DataFrame."""


def delete(cursor: Cursor, opened: OpenTable) -> Metrics:
    """Run DELETE FROM table [WHERE condition]."""
    cursor.expect("DELETE", "FROM")
    name = newest_version(cursor)
    alias = cursor.alias("WHERE")
    where = cursor.expression() if cursor.take("WHERE") else None
    cursor.end()
    return opened(name).delete(_unqualified(where, name, alias))


def truncate(cursor: Cursor, opened: OpenTable) -> Metrics:
    """Run TRUNCATE TABLE table."""
    cursor.expect("TRUNCATE", "TABLE")
    name = newest_version(cursor)
    cursor.end()
    return opened(name).delete()


def update(cursor: Cursor, opened: OpenTable) -> Metrics:
    """Run UPDATE table SET column = value, ... [WHERE condition]."""
    cursor.expect("UPDATE")
    name = newest_version(cursor)
    alias = cursor.alias("SET")
    cursor.expect("SET")
    values = cursor.assignments("WHERE")
    where = cursor.expression() if cursor.take("WHERE") else None
    cursor.end()
    plain = {
        _text(_unqualified(key, name, alias)): _text(_unqualified(value, name, alias))
        for key, value in values.items()
    }
    return opened(name).update(plain, _unqualified(where, name, alias))


def merge(cursor: Cursor, opened: OpenTable, run: RunQuery) -> Metrics:
    """Run MERGE [WITH SCHEMA EVOLUTION] INTO table USING source ON condition WHEN ..."""
    cursor.expect("MERGE")
    evolves = cursor.take("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    name = newest_version(cursor)
    target = cursor.alias("USING") or name.last
    cursor.expect("USING")
    source, source_alias = _source(cursor)
    cursor.expect("ON")
    on = cursor.expression("WHEN")
    clauses: list[Callable[[Any], Any]] = []
    while not cursor.at_end:
        clauses.append(_clause(cursor, target))
    if not clauses:
        cursor.fail("WHEN is expected")

    def change(table: "DeltaTable", rows: Any) -> Metrics:
        builder: Any = table.merge(
            rows, on, source_alias=source_alias, target_alias=target, merge_schema=evolves
        )
        for clause in clauses:
            builder = clause(builder)
        metrics: Metrics = builder.execute()
        return metrics

    return with_rows(source, opened(name), opened, run, change)


def insert(cursor: Cursor, opened: OpenTable, run: RunQuery) -> Metrics:
    """Run INSERT INTO | OVERWRITE [TABLE] table [PARTITION (column = value, ...)] [(columns) | BY NAME] query.

    REPLACE WHERE condition may stand in place of the columns.
    """
    cursor.expect("INSERT")
    overwrites = cursor.take("OVERWRITE")
    if not overwrites:
        cursor.expect("INTO")
    cursor.take("TABLE")
    name = newest_version(cursor)
    partition = _partition(cursor)
    where = cursor.expression("SELECT", "VALUES", "WITH") if cursor.take("REPLACE", "WHERE") else None
    columns = cursor.names() if cursor.word() == "(" and cursor.word(1) not in ("SELECT", "WITH") else None
    by_name = columns is None and cursor.take("BY", "NAME")
    if cursor.word() not in ("SELECT", "VALUES", "WITH", "FROM", "("):
        cursor.fail("SELECT or VALUES is expected")
    at = cursor.position
    text, target = cursor.rest(), opened(name)
    if partition:
        if by_name or where is not None:
            raise invalid(cursor.text, at, "PARTITION goes with neither BY NAME nor REPLACE WHERE.")
        text, columns = _beside_partition(cursor, target, partition, text, columns)
        where = _is_partition(partition) if overwrites else None
    elif not by_name:
        text, columns = with_defaults(text, target, columns)

    def change(table: "DeltaTable", rows: Any) -> Metrics:
        schema = table.schema(version=table.source_version)
        if not by_name:
            rows = _named(cursor, at, rows, schema.names if columns is None else columns)
        rows = _assigned(rows, schema)
        if where is not None:
            return table.overwrite(rows, replace_where=where)
        return table.overwrite(rows) if overwrites else table.append(rows)

    return with_rows(text, target, opened, run, change)


def _named(cursor: Cursor, at: int, rows: Any, columns: list[str]) -> Any:
    """Return the rows of a query, which begins at ``at``, with the names of the columns that they fill."""
    given = list(rows.columns if _is_frame(rows) else rows.column_names)
    if len(given) != len(columns):
        count = counted(len(given), "column")
        raise invalid(
            cursor.text,
            at,
            f"the query returns {count}, but the statement fills {len(columns)}: {', '.join(columns)}.",
        )
    return rows.toDF(*columns) if _is_frame(rows) else rows.rename_columns(columns)


def _partition(cursor: Cursor) -> dict[str, str]:
    """Parse PARTITION (column = value, ...), if it is there; return the texts of the values by column."""

    def item() -> tuple[str, str]:
        name = cursor.name("a partition column")
        if not cursor.take("="):
            cursor.fail("= and a value are expected, as in PARTITION (day = '2026-01-31')")
        start = cursor.position
        if not cursor.take("NULL"):
            cursor.literal("a value")
        return name, cursor.text[start : cursor.position].strip()

    return dict(cursor.in_parentheses(item)) if cursor.take("PARTITION") else {}


def _beside_partition(
    cursor: Cursor, table: "DeltaTable", partition: dict[str, str], text: str, columns: list[str] | None
) -> tuple[str, list[str]]:
    """Return a query with the values of PARTITION, and the columns that it then fills.

    Raises:
        InvalidStatement: PARTITION has other columns than those by which the table is partitioned.
    """
    snapshot = table.snapshot()
    known = {name.lower() for name in snapshot.partition_columns}
    constants = {name.lower() for name in partition}
    wrong = [name for name in partition if name.lower() not in known]
    if wrong:
        by = ", ".join(snapshot.partition_columns) or "no column"
        raise invalid(
            cursor.text, 0, f"PARTITION has the column {wrong[0]}, but the table is partitioned by {by}."
        )
    names = StructType.from_json(snapshot.table_schema).names if columns is None else columns
    text, others = with_defaults(text, table, [name for name in names if name.lower() not in constants])
    values = ", ".join(partition.values())
    return f"SELECT *, {values} FROM ({text})", [*(others or ()), *partition]  # noqa: S608 - parsed before it runs


def _is_partition(partition: dict[str, str]) -> str:
    """Return the condition that the rows of a partition satisfy."""
    return " AND ".join(f"{backticked(name)} <=> {value}" for name, value in partition.items())


def with_rows(
    text: str,
    table: "DeltaTable",
    opened: OpenTable,
    run: RunQuery,
    change: Callable[["DeltaTable", Any], Metrics],
) -> Metrics:
    """Change a table with the rows of a query; if the query reads the table, both use the same version."""
    query = parse_query(text, "spark")
    own = [each.name for each in query.newest() if is_table(opened, each, table)]
    if not own:
        return change(table, run(query))

    def attempt(made: "DeltaTable") -> Metrics:
        assert made.source_version is not None  # noqa: S101 - it was made so
        return change(made, run(replace(query, versions=dict.fromkeys(own, made.source_version))))

    return table.change_from_itself(attempt)


def is_table(opened: OpenTable, name: TableName, table: "DeltaTable") -> bool:
    """Whether a name in a query is that of a table; a Spark session has others, which the query may read."""
    try:
        return opened(name).id == table.id
    except TableNotFound:
        return False


def _source(cursor: Cursor) -> tuple[str, str]:
    """Return the query of a MERGE's source, and its alias."""
    if cursor.word() == "(":
        start = cursor.position
        cursor.take("(")
        cursor.anything()
        cursor.expect(")")
        text = cursor.text[start : cursor.position]
        # Without the parentheses around the query.
        return text.strip()[1:-1], cursor.alias("ON") or "source"
    start = cursor.position
    name = cursor.table()
    text = cursor.text[start : cursor.position]
    return f"SELECT * FROM {text}", cursor.alias("ON") or name.last  # noqa: S608 - parsed before it runs


def _clause(cursor: Cursor, target: str) -> Callable[[Any], Any]:
    cursor.expect("WHEN")
    if not cursor.take("NOT"):
        kind = "matched"
        cursor.expect("MATCHED")
    else:
        cursor.expect("MATCHED")
        by_source = cursor.take("BY", "SOURCE")
        if not by_source:
            cursor.take("BY", "TARGET")
        kind = "not-matched-by-source" if by_source else "not-matched"
    condition = cursor.expression("THEN") if cursor.take("AND") else None
    cursor.expect("THEN")
    if kind == "not-matched":
        return _insertion(cursor, condition)
    prefix = "when_matched" if kind == "matched" else "when_not_matched_by_source"
    if cursor.take("DELETE"):
        return lambda builder: getattr(builder, f"{prefix}_delete")(condition)
    cursor.expect("UPDATE", "SET")
    if kind == "matched" and cursor.take("*"):
        return lambda builder: builder.when_matched_update_all(condition)
    given = cursor.assignments("WHEN")
    values = {_text(_without(column, target)): value for column, value in given.items()}
    return lambda builder: getattr(builder, f"{prefix}_update")(values, condition)


def _insertion(cursor: Cursor, condition: str | None) -> Callable[[Any], Any]:
    cursor.expect("INSERT")
    if cursor.take("*"):
        return lambda builder: builder.when_not_matched_insert_all(condition)
    columns = cursor.names()
    cursor.expect("VALUES")
    at = cursor.position
    values = cursor.expressions()
    if len(columns) != len(values):
        raise invalid(cursor.text, at, f"{len(values)} values for {len(columns)} columns.")
    quoted = [backticked(column) for column in columns]
    return lambda builder: builder.when_not_matched_insert(dict(zip(quoted, values, strict=True)), condition)


def _unqualified(text: str | None, name: TableName, alias: str | None) -> str | None:
    """Return an expression with the table's name removed from qualified columns."""
    return None if text is None else _without(text, alias or name.last)


def _without(text: str, alias: str) -> str:
    tokens = Cursor(text)._tokens  # noqa: SLF001 - of this package
    cuts: list[tuple[int, int]] = []
    for number, token in enumerate(tokens[:-2]):
        before = tokens[number - 1].text if number else ""
        is_name = token.text.lower() == alias.lower() and before != "."
        if is_name and tokens[number + 1].text == ".":
            cuts.append((token.start, tokens[number + 2].start))
    for start, end in reversed(cuts):
        text = text[:start] + text[end:]
    return text


def _text(text: str | None) -> str:
    assert text is not None  # noqa: S101 - it was given
    return text


# --- rows of queries as a table's ---------------------------------------------------------------------------


def _is_frame(rows: Any) -> bool:
    return hasattr(rows, "toDF")


def _assigned(rows: Any, schema: pa.Schema) -> Any:
    """Cast values to the table's types as Spark's store assignment does, but numbers only if no digit is lost.

    Raises:
        SchemaMismatch: a value does not fit.
    """
    targets = {field.name.lower(): field.type for field in schema}
    if _is_frame(rows):
        return _assigned_frame(rows, targets)
    columns = [
        _cast(name, column, targets.get(name.lower()))
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    ]
    return _stored(pa.table(columns, names=rows.column_names), targets)


def _cast(name: str, column: pa.ChunkedArray, kind: pa.DataType | None) -> pa.ChunkedArray:
    if kind is None or kind == column.type:
        return column
    if column.null_count < len(column) and not (_is_number(column.type) and _is_number(kind)):
        return column
    try:
        if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
            # Arrow demands a precision for any value of the source type, so convert by the values.
            column = column.cast(pa.decimal256(_DIGITS + kind.scale, kind.scale))
        return column.cast(kind)
    except pa.ArrowException as error:
        raise SchemaMismatch(f"A value does not fit into column '{name}': {error}", column=name) from error


def _stored(rows: pa.Table, targets: dict[str, pa.DataType]) -> pa.Table:
    """Return rows with columns of other types as Spark would store them, text as dates for example; the rest unchanged."""
    numbers = [
        number
        for number, field in enumerate(rows.schema)
        if _is_stored(field.type, targets.get(field.name.lower()))
    ]
    if not numbers:
        return rows
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as database:
        database.execute("SET TimeZone = 'UTC'")
        for number in numbers:
            name = rows.column_names[number]
            kind = targets[name.lower()]
            source = database.from_arrow(pa.table({"value": rows.column(number)}))
            try:
                value = assigned('"value"', source.types[0], data_type_from_arrow(kind), name)
                column = source.project(f"{value} AS value").to_arrow_table()["value"].cast(kind)
            except InvalidPredicate:
                continue  # the table says what it takes
            except duckdb.Error as error:
                reason = str(error).partition(FAILED)[2].partition("\n")[0] or f"'{name}': {error}"
                raise SchemaMismatch(
                    f"A value does not fit into column {reason}. Nothing was committed.", column=name
                ) from error
            rows = rows.set_column(number, name, column)
    return rows


def _is_stored(kind: pa.DataType, target: pa.DataType | None) -> bool:
    """Whether a column of an atomic type is stored as another one; numbers as numbers are cast before."""
    if target is None or kind == target or (_is_number(kind) and _is_number(target)):
        return False
    return not (pa.types.is_nested(kind) or pa.types.is_nested(target))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _assigned_frame(frame: Any, targets: dict[str, pa.DataType]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
    from pyspark.sql import types as T  # noqa: N812
    from pyspark.sql.pandas.types import from_arrow_type

    from delvec_engines.spark.store_assignment import exactly_assigned

    columns = []
    for field in frame.schema.fields:
        column = F.col(backticked(field.name))
        kind = targets.get(field.name.lower())
        if kind is not None and isinstance(field.dataType, T.NullType):
            column = column.cast(from_arrow_type(kind, prefer_timestamp_ntz=True)).alias(field.name)
        elif kind is not None and isinstance(field.dataType, T.NumericType) and _is_number(kind):
            wanted = from_arrow_type(kind)
            column = exactly_assigned(column, field.dataType, wanted, field.name).alias(field.name)
        elif kind is not None and isinstance(field.dataType, T.AtomicType) and not pa.types.is_nested(kind):
            wanted = from_arrow_type(kind, prefer_timestamp_ntz=True)
            column = _stored_in_spark(column, field, wanted)
        columns.append(column)
    return frame.select(*columns)


def _stored_in_spark(column: Any, field: Any, wanted: Any) -> Any:
    from delvec_engines.spark import store_assignment

    try:
        return store_assignment.assigned(column, field.dataType, wanted, field.name).alias(field.name)
    except SchemaMismatch:
        return column  # the table says what it takes
