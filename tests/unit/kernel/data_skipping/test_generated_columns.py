"""Bounds from generated partition columns hold for every value that generates them, in every time zone."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_kernel.data_skipping.generated_columns import implied_bounds, intersected
from delvec_kernel.schema.partition_values import serialize
from delvec_kernel.schema.types import StructType, data_type_from_json
from delvec_kernel.statistics.bounds import partition_bounds


def _local(year, month, day, hour=0, minute=0):
    return dt.datetime(year, month, day, hour, minute)  # noqa: DTZ001 - a local time is told from an instant here


EPOCH = _local(1970, 1, 1)
ZONES = ["UTC", "America/Los_Angeles", "Pacific/Kiritimati", "Asia/Kolkata"]
MICROSECOND = dt.timedelta(microseconds=1)


def _schema(base, *generated):
    fields = [{"name": "b", "type": base, "nullable": True, "metadata": {}}]
    fields += [
        {"name": name, "type": kind, "nullable": True, "metadata": {"delta.generationExpression": text}}
        for name, kind, text in generated
    ]
    return StructType.from_json({"type": "struct", "fields": fields})


def _limits(schema, partition):
    """Return (low, high) of the base column in a file with these partition values; None if unknown."""
    names = list(partition)
    texts = [
        (name, value if isinstance(value, str) else serialize(value, schema.field(name).type))
        for name, value in partition.items()
    ]
    values = pa.array([texts], pa.map_(pa.string(), pa.string()))
    found = [
        bounds
        for each in implied_bounds(schema, names)
        if (
            bounds := each.bounds(
                [partition_bounds(values, name, schema.field(name).type) for name in each.partition_columns]
            )
        )
    ]
    if not found:
        return None
    both = intersected(found)
    return both.low[0].as_py(), both.high[0].as_py()


def _micros(local):
    return (local - EPOCH) // MICROSECOND


MOMENTS = {
    "timestamp": lambda local, zone: _micros(
        local.replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC).replace(tzinfo=None)
    ),
    "timestamp_ntz": lambda local, _: _micros(local),
    "date": lambda local, _: (local.date() - EPOCH.date()).days,
}
FORMS = {
    "cast": ([("g", "date", "CAST(b AS DATE)")], lambda t: {"g": t.date()}),
    "to_date": ([("g", "date", "to_date(b)")], lambda t: {"g": t.date()}),
    "year": ([("y", "integer", "YEAR(b)")], lambda t: {"y": t.year}),
    "month": (
        [("y", "integer", "year(b)"), ("m", "integer", "month(b)")],
        lambda t: {"y": t.year, "m": t.month},
    ),
    "day": (
        [("y", "long", "year(b)"), ("m", "integer", "month(b)"), ("d", "integer", "dayofmonth(b)")],
        lambda t: {"y": t.year, "m": t.month, "d": t.day},
    ),
    "format month": ([("g", "string", "date_format(b, 'yyyy-MM')")], lambda t: {"g": t.strftime("%Y-%m")}),
    "format day": (
        [("g", "string", "DATE_FORMAT(b, 'yyyy-MM-dd')")],
        lambda t: {"g": t.strftime("%Y-%m-%d")},
    ),
    "trunc": ([("g", "date", "trunc(b, 'MM')")], lambda t: {"g": t.date().replace(day=1)}),
}
HOURS = {
    "hour": (
        [
            ("y", "integer", "year(b)"),
            ("m", "integer", "month(b)"),
            ("d", "integer", "day(b)"),
            ("h", "integer", "hour(b)"),
        ],
        lambda t: {"y": t.year, "m": t.month, "d": t.day, "h": t.hour},
    ),
    "format hour": (
        [("g", "string", "date_format(b, 'yyyy-MM-dd-HH')")],
        lambda t: {"g": t.strftime("%Y-%m-%d-%H")},
    ),
    "truncated hour": (
        [("g", "timestamp_ntz", "date_trunc('HOUR', b)")],
        lambda t: {"g": t.replace(minute=0, second=0, microsecond=0)},
    ),
}
MIDNIGHT = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
TRUNCATED = {"YEAR": (366, {"month": 1, "day": 1}), "MONTH": (31, {"day": 1}), "DAY": (1, {})}
LONGEST = {"year": 366, "month": 31, "format month": 31, "trunc": 31}


@given(
    local=st.datetimes(_local(1900, 1, 1), _local(2200, 1, 1)),
    base=st.sampled_from(list(MOMENTS)),
    form=st.sampled_from(list(FORMS)),
    zone=st.sampled_from(ZONES),
)
def test_calendar_columns_bound_the_timestamp(local, base, form, zone):
    generated, partition = FORMS[form]
    low, high = _limits(_schema(base, *generated), partition(local))
    assert low <= MOMENTS[base](local, zone) <= high
    day = 1 if base == "date" else 86_400_000_000
    slack = 2 if base == "timestamp" else int(form.startswith("format"))
    assert high - low <= (LONGEST.get(form, 1) + slack) * day


@given(
    local=st.datetimes(_local(1900, 1, 1), _local(2200, 1, 1)),
    base=st.sampled_from(["timestamp", "timestamp_ntz"]),
    form=st.sampled_from(list(HOURS)),
    zone=st.sampled_from(ZONES),
)
def test_hours(local, base, form, zone):
    generated, partition = HOURS[form]
    if form == "truncated hour":
        base = "timestamp_ntz"
    low, high = _limits(_schema(base, *generated), partition(local))
    assert low <= MOMENTS[base](local, zone) <= high
    slack = 36 if base == "timestamp" else 24 if form == "format hour" else 0
    assert high - low <= (1 + slack) * 3_600_000_000


@given(
    local=st.datetimes(_local(1900, 1, 1), _local(2200, 1, 1)),
    base=st.sampled_from(["timestamp", "timestamp_ntz"]),
    unit=st.sampled_from(list(TRUNCATED)),
    zone=st.sampled_from(ZONES),
)
def test_truncated_timestamps_bound_the_timestamp(local, base, unit, zone):
    days, start = TRUNCATED[unit]
    truncated = local.replace(**MIDNIGHT, **start)
    if base == "timestamp":  # both are instants
        truncated = EPOCH + MOMENTS["timestamp"](truncated, zone) * MICROSECOND
    text = truncated.strftime("%Y-%m-%d %H:%M:%S") if base == "timestamp_ntz" else f"{truncated.isoformat()}Z"
    low, high = _limits(_schema(base, ("g", base, f"date_trunc('{unit}', b)")), {"g": text})
    assert low <= MOMENTS[base](local, zone) <= high
    # A day with a clock change is longer, and the service does not know the zone.
    assert high - low <= (days + (4 if base == "timestamp" else 0)) * 86_400_000_000


@given(
    text=st.text(st.sampled_from("ab\ud7ff\ue000\U0010ffffz"), max_size=6),
    length=st.integers(1, 4),
    form=st.sampled_from(["substring(b, 1, {})", "left(b, {})", "substr(b, 0, {})"]),
)
def test_prefixes_bound_the_string(text, length, form):
    prefix = text[:length]
    schema = _schema("string", ("g", "string", form.format(length)))
    low, high = _limits(schema, {"g": prefix})
    assert low <= text
    assert high is None or text <= high


def test_a_prefix_ends_where_the_next_begins():
    schema = _schema("string", ("g", "string", "substring(b, 1, 3)"))
    assert _limits(schema, {"g": "abc"}) == ("abc", "abd")
    assert _limits(schema, {"g": "ab\U0010ffff"}) == ("ab\U0010ffff", "ac")


@pytest.mark.parametrize(
    ("base", "generated", "value", "moment"),
    [
        # Spark 4.1's results in Paris and Samoa, where both times are skipped.
        (
            "timestamp_ntz",
            ("string", "date_format(b, 'yyyy-MM-dd-HH')"),
            "2026-03-29-03",
            _micros(_local(2026, 3, 29, 2, 30)),
        ),
        (
            "timestamp_ntz",
            ("string", "date_format(b, 'yyyy-MM-dd')"),
            "2011-12-31",
            _micros(_local(2011, 12, 30, 10)),
        ),
        (
            "date",
            ("string", "date_format(b, 'yyyy-MM-dd')"),
            "2011-12-31",
            (_local(2011, 12, 30) - EPOCH).days,
        ),
        # Midnight in New York; date_trunc turns a local time into an instant.
        (
            "timestamp_ntz",
            ("timestamp", "date_trunc('DAY', b)"),
            "2026-01-01T05:00:00.000000Z",
            _micros(_local(2026, 1, 1, 1)),
        ),
    ],
)
def test_timestamp_ntz_bounds_allow_for_the_zone_of_the_writer(base, generated, value, moment):
    low, high = _limits(_schema(base, ("g", *generated)), {"g": value})
    assert low <= moment <= high


def test_hours_stored_as_a_date_bound_only_the_day():
    schema = _schema("timestamp_ntz", ("g", "date", "date_trunc('HOUR', b)"))
    low, high = _limits(schema, {"g": dt.date(2026, 1, 1)})
    assert low <= _micros(_local(2026, 1, 1, 13)) <= high


def test_truncated_timestamps_stored_as_strings_give_no_bounds():
    schema = _schema("timestamp", ("g", "string", "date_trunc('DAY', b)"))
    assert _limits(schema, {"g": "2026-01-01 00:00:00"}) is None


def test_a_copied_column_has_the_same_bounds():
    assert _limits(_schema("long", ("g", "long", "b")), {"g": 7}) == (7, 7)


@pytest.mark.parametrize(
    ("base", "kind", "text"),
    [
        ("timestamp", "integer", "month(b)"),
        ("timestamp", "integer", "hour(b)"),
        ("timestamp", "date", "date_add(cast(b as date), 1)"),
        ("timestamp", "string", "date_format(b, 'MM-yyyy')"),
        ("timestamp", "string", "date_format(b, 'yyyy-ww')"),
        ("string", "string", "substring(b, 2, 3)"),
        ("string", "string", "upper(b)"),
        ("string", "date", "cast(b as date)"),
        ("string", "date", "to_date(b, 'yyyyMMdd')"),
        ("long", "long", "b % 10"),
        ("timestamp", "date", "try_cast(b as date)"),
        ("timestamp", "date", "not sql at all ("),
        ("timestamp", "date", "cast(missing as date)"),
        ("timestamp", "timestamp", "date_trunc('WEEK', b)"),
        ("timestamp", "integer", "date_format(b, 'yyyy')"),
        ("timestamp", "string", "year(b)"),
        ("timestamp", "double", "year(b)"),
        ("timestamp", "timestamp", "cast(b as date)"),
        ("long", "integer", "b"),
        ("long", "string", "left(b, 2)"),
        ("string", "integer", "year(b)"),
        ("string", "string", "left(upper(b), 2)"),
    ],
)
def test_unsupported_expressions_give_no_bounds(base, kind, text):
    schema = _schema(base, ("g", kind, text))
    assert implied_bounds(schema, ["g"]) == []


@pytest.mark.parametrize(
    ("generated", "partition"),
    [
        (("g", "string", "date_format(b, 'yyyy-MM')"), {"g": "2024-13"}),
        (("g", "string", "date_format(b, 'yyyy-MM')"), {"g": "NaT"}),
        (("g", "long", "year(b)"), {"g": "9223372036854775807"}),
    ],
)
def test_impossible_timestamps_give_no_bounds(generated, partition):
    assert _limits(_schema("timestamp", generated), partition) == (None, None)


def test_bounds_from_several_columns_intersect():
    schema = _schema("timestamp_ntz", ("y", "integer", "year(b)"), ("d", "date", "cast(b as date)"))
    low, high = _limits(schema, {"y": 2024, "d": dt.date(2024, 3, 1)})
    assert (low, high) == (_micros(_local(2024, 3, 1)), _micros(_local(2024, 3, 2)) - 1)
    assert len(implied_bounds(schema, ["y", "d"])) == 2


def test_nullability_stays_unknown():
    values = pa.array([[("y", None)], [("y", "2024")]], pa.map_(pa.string(), pa.string()))
    schema = _schema("date", ("y", "integer", "year(b)"))
    (implied,) = implied_bounds(schema, ["y"])
    bounds = implied.bounds([partition_bounds(values, "y", data_type_from_json("integer"))])
    assert bounds.low.to_pylist() == [None, 19723]
    assert np.array_equal(bounds.nullable, [True, True])
    assert not bounds.only_null.any()
