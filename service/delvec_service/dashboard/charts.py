"""Plots, as JSON for ``dashboard.js`` and in words.

Tested in `tests/integration/service/dashboard/test_formats.py`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from delvec_contract.health import HealthResponse, HealthSample
from delvec_contract.health_metrics import Metric, Spot, metrics_of
from delvec_contract.shapes import Answer
from delvec_service.dashboard.formats import instant, measured

__all__ = ["ROWS", "charts", "commit_charts", "fleet_charts"]

_HOUR: Final = 3600
_COMMIT_CHARTS: Final = (
    ("Commits", ("committed", "rebased"), ("successful", "of which rebased")),
    ("Conflicts", ("conflicts",), ("conflicts",)),
    ("Rows saved by rebasing", ("rows-saved",), ("rows",)),
)
_FLEET_CHARTS: Final = (
    ("Scan debt", "seconds", "sampled tables", "scan-debt-seconds"),
    ("Bytes read and discarded", "bytes", "sampled tables", "deleted-bytes"),
    ("Size", "bytes", "sampled tables", "size-in-bytes"),
)
_MAX_BARS: Final = 24 * 31
_FEWEST_BARS: Final = 24


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
    oldest_first = list(reversed(samples))
    if len(oldest_first) < 2:  # noqa: PLR2004 - a line has two ends
        return []
    times = [instant(one["sampled-at"]).timestamp() for one in oldest_first]
    return [
        _chart(
            title,
            unit,
            [label for label, _, _ in numbers],
            times,
            [[one[field] for one in oldest_first] for _, field, _ in numbers],
        )
        for title, numbers in _PLOTS.items()
        for unit in [numbers[0][2]]
    ]


def commit_charts(intervals: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the plots of commit outcomes, by hour or day; intervals without commits are zeros."""
    if not intervals:
        return []
    intervals_by_time = {instant(one["since"]).timestamp(): one for one in intervals}
    hours = [at for at, one in intervals_by_time.items() if one["seconds"] == _HOUR]
    days = [at for at, one in intervals_by_time.items() if one["seconds"] != _HOUR]
    # By hour, if there is at least one hour; older intervals are by day, and a plot of their own would be empty.
    chosen, step = (hours, _HOUR) if hours else (days, 24 * _HOUR)
    first, last = min(chosen), max(chosen)
    count = max(_FEWEST_BARS, min(int((last - first) // step) + 1, _MAX_BARS))
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


def fleet_charts(fleet: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the plots of all tables: debt and size over time, commits and conflicts by hour."""
    points, hours = fleet["points"], fleet["intervals"]
    times = [instant(one["at"]).timestamp() for one in points]
    over_time = [
        _chart(heading, unit, [name], times, [[one[field] for one in points]])
        for heading, unit, name, field in _FLEET_CHARTS
        if len(points) > 1
    ]
    times = [instant(one["since"]).timestamp() for one in hours]
    by_hour = [
        _chart(f"{heading} per hour", "", [name], times, [[one[field] for one in hours]], bars=_HOUR)
        for heading, name, field in (
            ("Commits", "committed", "committed"),
            ("Conflicts", "conflicts", "conflicts"),
        )
    ]
    return [*over_time, *by_hour]


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
