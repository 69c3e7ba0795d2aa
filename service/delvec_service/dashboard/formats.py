"""Formats numbers and times for people.

Tested in `tests/integration/service/test_dashboard.py`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from delvec_contract import HealthResponse, HealthSample
from delvec_contract.health_metrics import Metric, Spot, metrics_of
from delvec_contract.shapes import Answer
from delvec_kernel.table_properties import byte_size_text
from delvec_maintenance.health.findings import SCORE_BANDS

__all__ = ["FILTERS", "ROWS", "charts", "columns", "commit_charts"]

_HOUR: Final = 3600
_SIZE: Final = re.compile("bytes|size", re.IGNORECASE)
_NOTHING: Final = "-"
_TENTHS: Final = 10
_SPANS: Final = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "min"))


def size(value: float | None) -> str:
    """Return a number of bytes with a unit."""
    return _NOTHING if value is None else byte_size_text(value)


def count(value: float | None) -> str:
    """Return a number with separators."""
    return _NOTHING if value is None else f"{value:,.0f}"


def counted(value: float, noun: str) -> str:
    """Return a number of things, such as ``1 file`` or ``2,000 files``."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def fact(name: str, value: Any) -> str:
    """Return a value from an answer; numbers named bytes or size get a unit."""
    is_size = isinstance(value, int) and not isinstance(value, bool) and _SIZE.search(name)
    return size(value) if is_size else count(value) if type(value) is int else str(value)


def measured(value: float | None, unit: str) -> str:
    """Return a number of a table's health."""
    return {"bytes": size, "percent": percent}.get(unit, count)(value)


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return _NOTHING if value is None else f"{value * 100:.1f} %"


def moment(value: str | float | None) -> str:
    """Return a time in UTC, from ISO 8601 or milliseconds."""
    if value is None:
        return _NOTHING
    try:
        found = _time(value)
    except (ValueError, OverflowError, OSError):
        return str(value)[:40]
    return f"{found:%Y-%m-%d %H:%M:%S} UTC"


def span(value: float | None) -> str:
    """Return seconds in the largest unit that fits."""
    if value is None:
        return _NOTHING
    for seconds, unit in _SPANS:
        if value >= seconds:
            return f"{value / seconds:.0f} {unit}"
    return f"{value:.0f} s"


def took(seconds: float) -> str:
    """Return a duration."""
    return span(seconds) if seconds >= _TENTHS else f"{seconds:.1f} s"


def whole(score: float | None) -> str:
    """Return a score, rounded down so that an insufficient one does not look sufficient."""
    return _NOTHING if score is None else f"{int(score)}"


def band(score: float | None) -> str:
    """Return the label of a score."""
    if score is None:
        return "unknown"
    return next(name for name, least in SCORE_BANDS if score >= least)


def _time(value: str | float) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value).astimezone(UTC)
    return datetime.fromtimestamp(value / 1000, UTC)


FILTERS: Final = {
    "size": size,
    "count": count,
    "counted": counted,
    "fact": fact,
    "measured": measured,
    "percent": percent,
    "moment": moment,
    "span": span,
    "took": took,
    "band": band,
    "whole": whole,
}

_COMMIT_CHARTS: Final = (
    ("Commits", ("committed", "rebased"), ("successful", "of which rebased")),
    ("Conflicts", ("conflicts",), ("conflicts",)),
    ("Rows saved by rebasing", ("rows-saved",), ("rows",)),
)
_MOST_BARS: Final = 24 * 31
_FEWEST_BARS: Final = 24
_NESTED_COLUMNS: Final = 2000


def _grouped(
    shape: type[Answer], spot_of: Callable[[Metric], Spot | None]
) -> dict[str, list[tuple[str, str, str]]]:
    """Return the numbers that have a spot, by its group: label, field of the answer, unit."""
    shown = [(spot, field, each.unit) for field, each in metrics_of(shape).items() if (spot := spot_of(each))]
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for spot, field, unit in sorted(shown, key=lambda one: one[0].place):
        groups.setdefault(spot.group, []).append((spot.label, field.replace("_", "-"), unit))
    return groups


ROWS: Final = _grouped(HealthResponse, lambda each: each.row)
"""The numbers with a row of their own on the page of a table, by section."""
_PLOTS: Final = _grouped(HealthSample, lambda each: each.plot)


def charts(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the plots of health samples, oldest first: title, description, and JSON for ``dashboard.js``."""
    ordered = list(reversed(samples))
    if len(ordered) < 2:  # noqa: PLR2004 - a line has two ends
        return []
    times = [_time(one["sampled-at"]).timestamp() for one in ordered]
    return [
        _chart(
            title,
            unit,
            [label for label, _, _ in numbers],
            times,
            [[one[field] for one in ordered] for _, field, _ in numbers],
        )
        for title, numbers in _PLOTS.items()
        for unit in [numbers[0][2]]
    ]


def commit_charts(intervals: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the plots of commit outcomes, by hour or day; intervals without commits are zeros."""
    if not intervals:
        return []
    intervals_by_time = {_time(one["since"]).timestamp(): one for one in intervals}
    hours = [at for at, one in intervals_by_time.items() if one["seconds"] == _HOUR]
    days = [at for at, one in intervals_by_time.items() if one["seconds"] != _HOUR]
    # By hour, if there is at least one hour; older intervals are by day, and a plot of their own would be empty.
    chosen, step = (hours, _HOUR) if hours else (days, 24 * _HOUR)
    first, last = min(chosen), max(chosen)
    count = max(_FEWEST_BARS, min(int((last - first) // step) + 1, _MOST_BARS))
    times = [last - (count - 1 - place) * step for place in range(count)]
    nothing = dict.fromkeys(("committed", "rebased", "conflicts", "rows-saved"), 0)
    per = "hour" if step == _HOUR else "day"
    return [
        _chart(
            f"{title} per {per}",
            "",
            names,
            times,
            [[intervals_by_time.get(at, nothing)[field] for at in times] for field in fields],
            bars=step,
        )
        for title, fields, names in _COMMIT_CHARTS
    ]


def _chart(
    title: str,
    unit: str,
    names: Sequence[str],
    times: Sequence[float],
    series: Sequence[Sequence[float | None]],
    bars: int = 0,
) -> dict[str, str]:
    summaries = []
    for name, values in zip(names, series, strict=True):
        known = [value for value in values if value is not None]
        if known:
            ends = f"{measured(known[0], unit)} to {measured(known[-1], unit)}, at most {measured(max(known), unit)}"
            summaries.append(
                f"{name}: {measured(sum(known), unit)} in total" if bars else f"{name}: from {ends}"
            )
    return {
        "title": title,
        "words": f"{title}. {'; '.join(summaries)}.",
        "data": json.dumps({"names": names, "unit": unit, "bars": bars, "data": [times, *series]}),
    }


def columns(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of a schema, with the fields of structs below them: name, type, depth, nullable, comment."""
    found: list[dict[str, Any]] = []
    _add_columns(found, schema["fields"], 0)
    return found


def _add_columns(
    table_columns: list[dict[str, Any]], fields: Sequence[Mapping[str, Any]], depth: int
) -> None:
    for field in fields:
        if len(table_columns) >= _NESTED_COLUMNS:
            return
        comment = (field.get("metadata") or {}).get("comment")
        table_columns.append(
            {
                "name": field["name"],
                "type": _type_text(field["type"]),
                "depth": min(depth, 6),
                "nullable": field["nullable"],
                "comment": "" if comment is None else comment,
            }
        )
        inner = field["type"]
        while not isinstance(inner, str) and inner["type"] == "array":
            inner = inner["elementType"]
        if not isinstance(inner, str) and inner["type"] == "struct":
            _add_columns(table_columns, inner["fields"], depth + 1)


def _type_text(kind: Any) -> str:
    """Return a type in Spark's notation; the fields of a struct have their own rows."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{_type_text(kind['elementType'])}>"
        case "map":
            return f"map<{_type_text(kind['keyType'])}, {_type_text(kind['valueType'])}>"
    return "struct"
