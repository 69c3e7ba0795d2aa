"""Display of tables, metrics and history in notebooks; all text is escaped.

Tested in `tests/integration/client/test_notebooks.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec_kernel.schema.types import StructType

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History", "columns_of", "moment", "pairs", "rows", "shown", "tree", "type_text"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = frozenset({"timestamp"})
_MAX_LENGTH: Final = 200
_SHOWN_ENTRIES: Final = 20
_COLUMNS: Final = ("version", "timestamp", "operation", "operationParameters", "operationMetrics")


class History(list[dict[str, Any]]):
    """The commits of a table, newest first: a list of dictionaries under Delta's names, which notebooks show as a table.

    ``timestamp`` is in milliseconds since the epoch there, as in the log; in a frame it is a timestamp in UTC.
    """

    def to_arrow(self) -> pa.Table:
        """Return one row per commit; nested values are maps of strings, as in delta-spark's history."""
        names = list(dict.fromkeys(name for entry in self for name in entry))
        return pa.table({name: _column([entry.get(name) for entry in self], name) for name in names})

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per commit, as a pandas DataFrame; nested values stay dictionaries."""
        import pandas as pd

        frame = pd.DataFrame(list(self))
        for name in _TIMES & set(frame.columns):
            frame[name] = pd.to_datetime(frame[name], unit="ms", utc=True)
        return frame

    def _repr_html_(self) -> str:
        entries = [
            [moment(entry.get(name)) if name in _TIMES else entry.get(name) for name in _COLUMNS]
            for entry in self[:_SHOWN_ENTRIES]
        ]
        more = len(self) - len(entries)
        return rows(_COLUMNS, entries) + (f"<p>… and {more} more</p>" if more > 0 else "")


def _column(values: list[Any], name: str) -> pa.Array:
    if name in _TIMES:
        return pa.array(values, pa.timestamp("ms", "UTC"))
    if any(isinstance(value, Mapping) for value in values):
        pairs_of = [
            None
            if value is None
            else [(key, None if item is None else str(item)) for key, item in value.items()]
            for value in values
        ]
        return pa.array(pairs_of, pa.map_(pa.string(), pa.string()))
    if any(isinstance(value, list) for value in values):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.array(values)


def moment(milliseconds: Any) -> Any:
    """Return milliseconds since the epoch as a datetime in UTC; other values are returned as they are."""
    return _EPOCH + timedelta(milliseconds=milliseconds) if isinstance(milliseconds, int) else milliseconds


def shown(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics that are not 0."""
    return {name: value for name, value in metrics.items() if value}


def rows(columns: Sequence[str], values: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in values)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def pairs(title: str, values: Mapping[str, Any]) -> str:
    """Return an HTML table of names and values."""
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in values.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


def columns_of(schema: StructType) -> str:
    """Return the columns in one line of Spark's DDL."""
    return ", ".join(
        f"{field.name} {type_text(field.type.to_json())}{'' if field.nullable else ' NOT NULL'}"
        for field in schema.fields
    )


def tree(schema: StructType) -> str:
    """Return one line per column: name, type as in DDL, NOT NULL, comment."""
    width = max((len(field.name) for field in schema.fields), default=0)
    lines = []
    for field in schema.fields:
        line = f"{field.name.ljust(width)}  {type_text(field.type.to_json())}"
        line += "" if field.nullable else " NOT NULL"
        comment = field.metadata.get("comment")
        lines.append(f"{line}  -- {comment}" if comment else line)
    return "\n".join(lines)


def type_text(kind: Any) -> str:
    """Return a type of Delta's schema JSON as Spark's DESCRIBE spells it."""
    if isinstance(kind, str):
        return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    match kind["type"]:
        case "array":
            return f"array<{type_text(kind['elementType'])}>"
        case "map":
            return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"
    fields = ",".join(f"{field['name']}:{type_text(field['type'])}" for field in kind["fields"])
    return f"struct<{fields}>"


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        value = value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, Mapping):
        value = ", ".join(
            f"{name}={item}" for name, item in value.items() if item not in (None, 0, "0", "[]")
        )
    text = "" if value is None else str(value)
    return escape(text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "…")
