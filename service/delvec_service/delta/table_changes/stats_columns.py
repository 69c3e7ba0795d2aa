"""``delta.dataSkippingStatsColumns`` follows the columns that it names."""

from collections.abc import Mapping, Sequence
from typing import Final

from delvec.protocol.errors import InvalidTableChange
from delvec.protocol.types import StructType
from delvec_service.delta.table_changes.column_paths import ColumnPath, field_at, parse_path, spelled

__all__ = ["STATS_COLUMNS", "check_stats_columns", "dropped_from", "renamed_in"]

STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


def check_stats_columns(text: str, schema: StructType) -> None:
    """Refuse a list that names what is no column.

    Raises:
        InvalidTableChange: a name is no path, or one of the list is named twice.
        UnknownColumn: there is no such column.
    """
    paths = [parse_path(each.strip()) for each in _split(text)]
    for path in paths:
        field_at(schema, path)
    if len({tuple(part.lower() for part in path) for path in paths}) < len(paths):
        raise InvalidTableChange(
            f"{STATS_COLUMNS} names a column twice: {text[:200]}.", property=STATS_COLUMNS
        )


def dropped_from(configuration: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """Return what is set where a column is dropped: the list without it and what it held."""
    columns = _columns(configuration)
    left = [column for column in columns if not _within(column, path)]
    return {} if len(left) == len(columns) else {STATS_COLUMNS: ",".join(spelled(column) for column in left)}


def renamed_in(configuration: Mapping[str, str], old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Return what is set where a column is renamed: the list with its new name."""
    columns = _columns(configuration)
    renamed = [(*new, *column[len(old) :]) if _within(column, old) else column for column in columns]
    return {} if renamed == columns else {STATS_COLUMNS: ",".join(spelled(column) for column in renamed)}


def _columns(configuration: Mapping[str, str]) -> list[ColumnPath]:
    try:
        return [parse_path(text.strip()) for text in _split(configuration.get(STATS_COLUMNS, ""))]
    except InvalidTableChange:
        return []  # no reader makes anything of it either


def _split(text: str) -> list[str]:
    parts, quoted = [""], False
    for character in text:
        quoted ^= character == "`"
        if character == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def _within(column: Sequence[str], path: Sequence[str]) -> bool:
    return [part.lower() for part in column[: len(path)]] == [part.lower() for part in path]
