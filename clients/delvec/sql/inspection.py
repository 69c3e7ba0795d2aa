"""DESCRIBE and SHOW TABLES."""

import json
from typing import Any

import pyarrow as pa

from delvec.catalog import Catalog
from delvec.sql.tokens import Cursor
from delvec_commands.display import type_text
from delvec_kernel.schema.types import StructType

__all__ = ["describe", "show"]


def describe(lake: Catalog, cursor: Cursor) -> pa.Table:
    """Run DESCRIBE [TABLE] [EXTENDED], DESCRIBE DETAIL or DESCRIBE HISTORY.

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
        return _rows([table.detail()] if kind == "DETAIL" else table.history(limit))
    cursor.take("TABLE")
    cursor.take("EXTENDED")
    name = cursor.table()
    cursor.end()
    found = lake.table(name.name).snapshot(name.version, name.timestamp)
    fields = StructType.from_json(found.table_schema).fields
    return pa.table(
        {
            "col_name": pa.array([field.name for field in fields], pa.string()),
            "data_type": pa.array([type_text(field.type.to_json()) for field in fields], pa.string()),
            "comment": pa.array([field.metadata.get("comment") for field in fields], pa.string()),
        }
    )


def show(lake: Catalog, namespace: str | None = None) -> pa.Table:
    """Run SHOW TABLES [IN namespace]."""
    found = lake.tables(namespace)
    return pa.table(
        {
            "name": pa.array([each.name for each in found], pa.string()),
            "location": pa.array([each.location for each in found], pa.string()),
        }
    )


def _rows(entries: list[dict[str, Any]]) -> pa.Table:
    """Return dictionaries as rows; nested values become JSON, because their keys differ."""
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    return pa.table({name: [_flat(entry.get(name)) for entry in entries] for name in names})


def _flat(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
