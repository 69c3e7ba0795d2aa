"""DESCRIBE and SHOW.

Tested in `tests/integration/client/sql/test_table_definitions.py`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.catalog import Catalog
from delvec.sql.definitions import creation_text
from delvec.sql.tokens import Cursor
from delvec_commands.display import type_text
from delvec_errors import UnknownColumn
from delvec_kernel.schema.column_paths import parse_path
from delvec_kernel.schema.types import DataType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["describe", "show"]

_DETAILS: Final = {
    "Name": "name",
    "Location": "location",
    "Comment": "description",
    "Partition Columns": "partitionColumns",
    "Clustering Columns": "clusteringColumns",
    "Table Properties": "properties",
    "Table Features": "tableFeatures",
}
"""What DESCRIBE EXTENDED shows, and its names in DESCRIBE DETAIL."""


_MOMENTS: Final = frozenset({"timestamp", "createdAt", "lastModified"})
"""Columns that are milliseconds since the epoch in the service's answers."""
_MOMENT: Final = pa.timestamp("ms", "UTC")
_NAMESPACES: Final = ("SCHEMAS", "DATABASES", "NAMESPACES")


def describe(lake: Catalog, cursor: Cursor, spark: "SparkSession | None" = None) -> "pa.Table | DataFrame":
    """Run DESCRIBE [TABLE] [EXTENDED] table [column], DESCRIBE DETAIL or DESCRIBE HISTORY.

    Returns:
        Text in Arrow; of DETAIL and HISTORY on Spark the DataFrames of delta-spark.

    Raises:
        InvalidStatement: it is another statement.
    """
    if not cursor.take("DESC"):
        cursor.expect("DESCRIBE")
    if cursor.word() in ("DETAIL", "HISTORY") and (cursor.word(1) or cursor.word() == "DETAIL"):
        kind = cursor.word()
        cursor.take(kind)
        name = cursor.table()
        limit = int(cursor.literal("a number")) if kind == "HISTORY" and cursor.take("LIMIT") else None
        cursor.end()
        table = lake.table(name.name)
        answer = [table.detail()] if kind == "DETAIL" else table.history(limit)
        if spark is None:
            return _rows(answer)
        from delvec.spark.frames import detail_frame, history_frame

        return detail_frame(spark, answer[0]) if kind == "DETAIL" else history_frame(spark, answer)
    cursor.take("TABLE")
    extended = cursor.take("EXTENDED") or cursor.take("FORMATTED")
    name = cursor.table()
    column = None if cursor.at_end else cursor.column()
    cursor.end()
    table = lake.table(name.name)
    snapshot = table.snapshot(name.version, name.timestamp)
    if column is not None:
        return _texts(
            ["info_name", "info_value"],
            _column(StructType.from_json(snapshot.table_schema), column, table.name),
        )
    rows: list[tuple[str, str, str | None]] = [
        (field.name, type_text(field.type.to_json()), field.metadata.get("comment"))
        for field in StructType.from_json(snapshot.table_schema).fields
    ]
    if extended:
        detail = table.detail() | {"name": table.name}
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(shown, str(_flat(detail[key])), "") for shown, key in _DETAILS.items() if detail[key]]
    return _texts(["col_name", "data_type", "comment"], rows)


def _column(schema: StructType, column: str, table: str) -> list[tuple[str, str]]:
    """Return what DESCRIBE says of a column, or of a field of a struct.

    Raises:
        UnknownColumn: there is none.
    """
    kind: DataType = schema
    field, names = None, []
    for part in parse_path(column):
        field = kind.get(part) if isinstance(kind, StructType) else None
        if field is None:
            raise UnknownColumn(
                f"Column '{column}' does not exist; the table has {', '.join(schema.names)} (table '{table}')."
            )
        kind = field.type
        names.append(field.name)
    assert field is not None  # noqa: S101 - a path has a part
    comment = str(field.metadata.get("comment", "NULL"))
    return [
        ("col_name", ".".join(names)),
        ("data_type", type_text(field.type.to_json())),
        ("comment", comment),
    ]


def show(lake: Catalog, cursor: Cursor) -> pa.Table:
    """Run SHOW TABLES [IN namespace] [LIKE 'pattern'], SHOW SCHEMAS [LIKE 'pattern'], or SHOW COLUMNS, PARTITIONS, TBLPROPERTIES or CREATE TABLE.

    Raises:
        InvalidStatement: it is another statement.
    """
    cursor.expect("SHOW")
    if cursor.take("TABLES"):
        return _show_tables(lake, cursor)
    if any(cursor.take(word) for word in _NAMESPACES):
        return _show_namespaces(lake, cursor)
    if cursor.take("COLUMNS"):
        if not cursor.take("FROM"):
            cursor.expect("IN")
        return _texts(["col_name"], [(name,) for name in _table(lake, cursor).schema().names])
    if cursor.take("PARTITIONS"):
        partitions = _table(lake, cursor).partitions()
        return pa.Table.from_pylist(
            [{key: _flat(value) for key, value in each.items()} for each in partitions]
        )
    if cursor.take("TBLPROPERTIES"):
        return _show_properties(lake, cursor)
    if not cursor.take("CREATE", "TABLE"):
        cursor.fail("TABLES, SCHEMAS, COLUMNS, PARTITIONS, TBLPROPERTIES or CREATE TABLE is expected")
    return _texts(["createtab_stmt"], [(creation_text(_table(lake, cursor)),)])


def _show_tables(lake: Catalog, cursor: Cursor) -> pa.Table:
    namespace = cursor.table().name if cursor.take("IN") or cursor.take("FROM") else None
    matches = _pattern(cursor)
    return _texts(
        ["name", "location"],
        [(each.name, each.location) for each in lake.tables(namespace) if matches(each.name)],
    )


def _show_namespaces(lake: Catalog, cursor: Cursor) -> pa.Table:
    matches = _pattern(cursor)
    names = {each.name.rpartition(".")[0] for each in lake.tables()}
    return _texts(["namespace"], [(name,) for name in sorted(names - {""}) if matches(name)])


def _pattern(cursor: Cursor) -> Callable[[str], bool]:
    """Parse the pattern of names that may end a statement."""
    cursor.take("LIKE")
    pattern = "*" if cursor.at_end else cursor.literal("a pattern in quotes, such as 'sales*|orders'")
    cursor.end()
    parts = pattern.lower().split("|")
    return lambda name: any(fnmatchcase(name.lower(), part) for part in parts)


def _show_properties(lake: Catalog, cursor: Cursor) -> pa.Table:
    name = cursor.table()
    key = None
    if cursor.take("("):
        key = cursor.text_or_path("a property")
        cursor.expect(")")
    cursor.end()
    properties = lake.table(name.name).snapshot(name.version, name.timestamp).configuration
    rows = sorted(properties.items())
    if key is not None:
        rows = [(key, properties.get(key, f"Table {name.name} does not have property: {key}"))]
    return _texts(["key", "value"], rows)


def _table(lake: Catalog, cursor: Cursor) -> Any:
    name = cursor.table()
    cursor.end()
    return lake.table(name.name)


def _texts(columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> pa.Table:
    values = list(rows)
    return pa.table(
        {name: pa.array([row[place] for row in values], pa.string()) for place, name in enumerate(columns)}
    )


def _rows(entries: list[dict[str, Any]]) -> pa.Table:
    """Return dictionaries as rows; nested values become JSON, because their keys differ."""
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    columns = {name: [_flat(entry.get(name)) for entry in entries] for name in names}
    return pa.table(
        {
            name: pa.array(values, pa.int64()).cast(_MOMENT) if name in _MOMENTS else pa.array(values)
            for name, values in columns.items()
        }
    )


def _flat(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value
