"""The health of tables as metrics: only of those that a setting names, to limit the number of labels.

The lines are written directly: for a thousand tables, prometheus_client takes twice as long as a scrape may.

Tested in `tests/integration/service/test_metrics.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from delvec_contract.health import HealthSample
from delvec_contract.health_metrics import metrics_of

__all__ = ["FAMILIES", "ICEBERG_FAMILIES", "band_lines", "database_line", "iceberg_lines", "table_lines"]


_Value = Callable[[Any], float | int | None]


def _of_sample(field: str) -> _Value:
    return lambda one: getattr(one.sample, field)


FAMILIES: Final[Mapping[str, tuple[str, str, _Value]]] = {
    **{
        f"delvec_table_{each.gauge[0]}": ("gauge", each.gauge[1], _of_sample(field))
        for field, each in metrics_of(HealthSample).items()
        if each.gauge
    },
    "delvec_table_sampled_timestamp_seconds": (
        "gauge",
        "When these metrics were sampled.",
        lambda one: one.sample.sampled_at.timestamp(),
    ),
    "delvec_table_commits_total": ("counter", "Successful commits.", lambda one: one.counts.commits),
    "delvec_table_commits_rebased_total": (
        "counter",
        "Successful commits to a newer version than the one they read.",
        lambda one: one.counts.rebased,
    ),
    "delvec_table_commit_conflicts_total": (
        "counter",
        "Commits that failed with a conflict.",
        lambda one: one.counts.conflicts,
    ),
}
"""By name: type, help text, and the value for an observed table."""

ICEBERG_FAMILIES: Final[Mapping[str, tuple[str, Callable[[Any, datetime], float]]]] = {
    "delvec_table_iceberg_version": (
        "Delta version that was last converted to Iceberg.",
        lambda one, _: one.delta_version,
    ),
    "delvec_table_iceberg_lag_versions": (
        "Versions not converted to Iceberg yet.",
        lambda one, _: max(0, one.newest_version - one.delta_version),
    ),
    "delvec_table_iceberg_lag_seconds": (
        "How long the oldest version has been waiting to be converted to Iceberg.",
        lambda one, now: (
            0.0 if one.waiting_since is None else max(0.0, (now - one.waiting_since).total_seconds())
        ),
    ),
}
"""Gauges of a converted table, by name: help text, and the value at a given time."""

_TABLES: Final = "delvec_tables"
_DATABASE: Final = "delvec_database_up"


def table_lines(tables: Sequence[Any], *, openmetrics: bool = False) -> bytes:
    """Return the metrics of tables with a sample.

    Args:
        tables: see :class:`~delvec_service.store.health_samples.ObservedTable`.
        openmetrics: whether the format is OpenMetrics, where the family of a counter is its name without ``_total``.
    """
    labels = [f'{{table="{_escaped(one.name)}"}} ' for one in tables]
    lines = []
    for name, (kind, text, value) in FAMILIES.items():
        lines.append(_head(name, kind, text, openmetrics=openmetrics))
        for label, one in zip(labels, tables, strict=True):
            number = value(one)
            if number is not None:
                lines.append(f"{name}{label}{number}\n")
    return "".join(lines).encode() if tables else b""


def iceberg_lines(conversions: Sequence[Any], now: datetime) -> bytes:
    """Return the metrics of conversions to Iceberg.

    Args:
        conversions: see :class:`~delvec_service.store.iceberg_conversions.ObservedConversion`.
        now: the time.
    """
    labels = [
        f'{{table="{_escaped(one.name)}",format_version="{one.format_version}"}} ' for one in conversions
    ]
    lines = []
    for name, (text, value) in ICEBERG_FAMILIES.items():
        lines.append(_head(name, "gauge", text, openmetrics=False))
        lines += [f"{name}{label}{value(one, now)}\n" for label, one in zip(labels, conversions, strict=True)]
    return "".join(lines).encode() if conversions else b""


def band_lines(bands: Mapping[str, int], *, openmetrics: bool = False) -> bytes:
    """Return the number of tables by health."""
    lines = [_head(_TABLES, "gauge", "Registered tables by health.", openmetrics=openmetrics)]
    lines += [f'{_TABLES}{{health="{band}"}} {number}\n' for band, number in bands.items()]
    return "".join(lines).encode()


def database_line(*, is_up: bool, openmetrics: bool = False) -> bytes:
    """Return the metric for whether the database answered."""
    head = _head(_DATABASE, "gauge", "Whether the database answered: 1 or 0.", openmetrics=openmetrics)
    return f"{head}{_DATABASE} {int(is_up)}\n".encode()


def _head(name: str, kind: str, text: str, *, openmetrics: bool) -> str:
    family = name.removesuffix("_total") if openmetrics and kind == "counter" else name
    return f"# HELP {family} {text}\n# TYPE {family} {kind}\n"


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
