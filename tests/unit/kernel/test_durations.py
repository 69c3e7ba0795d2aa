from datetime import timedelta

import pytest

from delvec_errors import CorruptTable
from delvec_kernel.table_properties import parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 30 days", timedelta(days=30)),
        ("30 days", timedelta(days=30)),
        ("INTERVAL 1 Week 2 hours", timedelta(days=7, hours=2)),
        ("interval 1 week", timedelta(days=7)),
        ("  interval   0 seconds ", timedelta(0)),
        ("interval 1.5 seconds", timedelta(seconds=1.5)),
        ("2 days -3 hours", timedelta(days=2, hours=-3)),
        ("interval 90 minutes 10 milliseconds 7 microseconds", timedelta(minutes=90, microseconds=10007)),
        ("interval 999999999999999 weeks", timedelta(days=3_650_000)),
    ],
)
def test_an_interval_is_read(text, expected):
    assert parse_duration(text, "p") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "30",
        "days",
        "30 dayz",
        "interval 1 month",
        "1 year",
        "-1 days",
        "1 day 2",
        "1.5 days",
        "P30D",
    ],
)
def test_invalid_durations_are_refused_by_name(text):
    with pytest.raises(CorruptTable, match=r"delta\.logRetentionDuration"):
        parse_duration(text, "delta.logRetentionDuration")
