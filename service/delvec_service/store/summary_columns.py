"""Bounds of a column as SQL columns: integers, floating point, and text (also for decimals)."""

import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from delvec_errors.texts import is_text
from delvec_kernel.file_index.segment import Bound, Summary
from delvec_service.store.snapshot_state import checksum

__all__ = ["from_columns", "to_columns"]

_MAX_INT: Final = 2**63
_COLUMN_OF: Final = {"integer": "int", "real": "real", "text": "text", "decimal": "text"}


def to_columns(segment_id: str, column: str, summary: Summary) -> dict[str, Any] | None:
    """Return a row of segment_summaries, or None for bounds that do not fit: these are computed again later."""
    known = [bound for bound in (summary.low, summary.high) if bound is not None]
    kinds = {_kind(bound) for bound in known}
    if len(kinds) > 1 or None in kinds:
        return None
    kind = kinds.pop() if kinds else None
    row: dict[str, Any] = {
        "column_key": column,
        "segment_id": segment_id,
        "kind": kind,
        "nullable": bool(summary.nullable),
        "only_null": bool(summary.only_null),
    }
    for side, bound in (("low", summary.low), ("high", summary.high)):
        row |= {f"{side}_int": None, f"{side}_real": None, f"{side}_text": None}
        if kind is not None and bound is not None:
            row[f"{side}_{_COLUMN_OF[kind]}"] = _plain(kind, bound)
    row["checksum"] = _checksum(row)
    return row


def from_columns(row: Mapping[str, Any]) -> Summary | None:
    """Return the bounds from a row of segment_summaries, or None if it is damaged."""
    kind = row["kind"]
    if (kind is not None and kind not in _COLUMN_OF) or row["checksum"] != _checksum(row):
        return None
    low = high = None
    if kind is not None:
        low, high = (row[f"{side}_{_COLUMN_OF[kind]}"] for side in ("low", "high"))
    if kind == "decimal":
        try:
            low, high = (None if bound is None else Decimal(bound) for bound in (low, high))
        except InvalidOperation:
            return None
    return Summary(low, high, nullable=row["nullable"], only_null=row["only_null"])


def _kind(bound: Bound) -> str | None:
    match bound:
        case int() if -_MAX_INT <= bound < _MAX_INT:
            return "integer"
        case float() if math.isfinite(bound):
            return "real"
        case Decimal() if bound.is_finite():
            return "decimal"
        case str() if "\0" not in bound and is_text(bound):
            return "text"
    return None


def _plain(kind: str, bound: Any) -> Any:
    match kind:
        case "integer":
            return int(bound)
        case "real":
            return float(bound) + 0.0  # SQLite does not support negative zero
        case _:
            return str(bound)


def _checksum(row: Mapping[str, Any]) -> int:
    names = ("kind", "low_int", "high_int", "low_real", "high_real", "low_text", "high_text")
    values = [repr(row[name]) for name in names]
    values += [str(bool(row[name])) for name in ("nullable", "only_null")]
    return checksum(
        "/".join(values).encode("utf-8", "backslashreplace"), row["segment_id"], row["column_key"]
    )
