"""``delta.dataSkippingStatsColumns`` follows the columns that it names."""

from collections.abc import Mapping, Sequence
from typing import Final

from delvec.protocol.errors import InvalidTableChange
from delvec_service.delta.table_changes.column_paths import ColumnPath, parse_path, spelled

__all__ = ["dropped_from", "renamed_in"]

_NAMES: Final = "delta.dataSkippingStatsColumns"


def dropped_from(configuration: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """Return what is set where a column is dropped: the list without it and what it held."""
    columns = _columns(configuration)
    left = [column for column in columns if not _within(column, path)]
    return {} if len(left) == len(columns) else {_NAMES: ",".join(spelled(column) for column in left)}


def renamed_in(configuration: Mapping[str, str], old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Return what is set where a column is renamed: the list with its new name."""
    columns = _columns(configuration)
    renamed = [(*new, *column[len(old) :]) if _within(column, old) else column for column in columns]
    return {} if renamed == columns else {_NAMES: ",".join(spelled(column) for column in renamed)}


def _columns(configuration: Mapping[str, str]) -> list[ColumnPath]:
    try:
        return [parse_path(text.strip()) for text in _split(configuration.get(_NAMES, ""))]
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
