"""Numbers and times as people read them."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from delvec_kernel.health.health import SCORE_BANDS

__all__ = ["FILTERS", "charts"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP: Final = 1024
_NOTHING: Final = "-"
_SPANS: Final = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "min"))


def size(value: float | None) -> str:
    """Return bytes with a unit."""
    if value is None:
        return _NOTHING
    number, unit = float(value), 0
    while abs(number) >= _STEP and unit < len(_UNITS) - 1:
        number, unit = number / _STEP, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if not unit else f"{number:.1f} {_UNITS[unit]}"


def count(value: float | None) -> str:
    """Return a number with separators."""
    return _NOTHING if value is None else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """Return a share."""
    return _NOTHING if value is None else f"{value * 100:.1f} %"


def moment(value: str | float | None) -> str:
    """Return a time in UTC, of ISO 8601 or milliseconds."""
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


def band(score: float | None) -> str:
    """Return what a score is called."""
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
    "percent": percent,
    "moment": moment,
    "span": span,
    "band": band,
}

_CHARTS: Final = (
    ("Health score", "", ("score",), ("score",)),
    ("Deleted share of the rows", "percent", ("deleted-ratio",), ("share",)),
    (
        "Files",
        "",
        ("num-files", "small-files", "num-files-with-deletion-vectors"),
        ("all", "small", "with deletion vector"),
    ),
    ("Size", "bytes", ("size-in-bytes", "deleted-bytes"), ("all", "deleted")),
    ("Commits since checkpoint", "", ("commits-since-checkpoint",), ("commits",)),
)


def charts(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the plots of health samples, oldest first: a title, and JSON for ``dashboard.js``."""
    ordered = list(reversed(samples))
    if len(ordered) < 2:  # noqa: PLR2004 - a line has two ends
        return []
    times = [_time(one["sampled-at"]).timestamp() for one in ordered]
    return [
        {
            "title": title,
            "data": json.dumps(
                {
                    "names": names,
                    "unit": unit,
                    "data": [times, *([one[field] for one in ordered] for field in fields)],
                }
            ),
        }
        for title, unit, fields, names in _CHARTS
    ]
