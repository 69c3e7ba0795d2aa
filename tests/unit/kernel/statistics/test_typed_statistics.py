"""Typed statistics of a checkpoint give the same bounds as JSON statistics."""

import datetime as dt
import json
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_kernel.log.checkpoint_reader import stats_json
from delvec_kernel.schema.types import data_type_from_json
from delvec_kernel.statistics.bounds import parsed_bounds
from delvec_kernel.statistics.typed_statistics import typed_bounds

_FIRST, _LAST = (dt.datetime.fromisoformat(day) for day in ("1900-01-01", "9999-01-01"))
COLUMNS = {
    "y": ("byte", pa.int8(), st.integers(-128, 127)),
    "h": ("short", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "i": ("integer", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "l": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": ("float", pa.float32(), st.floats(width=32)),
    "x": ("double", pa.float64(), st.floats()),
    "s": ("string", pa.string(), st.text(st.characters(codec="utf-8"), max_size=40)),
    "d": ("date", pa.date32(), st.dates(dt.date(1582, 10, 15))),
    "m": (
        "decimal(12,3)",
        pa.decimal128(12, 3),
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    ),
    "t": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        st.datetimes(_FIRST, _LAST).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    "n": (
        "timestamp_ntz",
        pa.timestamp("us"),
        st.datetimes(_FIRST).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
}
LEAVES = pa.struct([(name, kind) for name, (_, kind, _) in COLUMNS.items()])
SIDE = pa.struct([*LEAVES, ("g", pa.struct([("l", pa.int64())])), ("b", pa.bool_())])
NULLS = pa.struct(
    [*((name, pa.int64()) for name in COLUMNS), ("g", pa.struct([("l", pa.int64())])), ("b", pa.int64())]
)
PARSED = pa.struct(
    [("numRecords", pa.int64()), ("minValues", SIDE), ("maxValues", SIDE), ("nullCount", NULLS)]
)

_values = st.fixed_dictionaries(
    {name: st.none() | values for name, (_, _, values) in COLUMNS.items()}
    | {"g": st.none() | st.fixed_dictionaries({"l": st.none() | st.integers(0, 5)}), "b": st.none()}
)
_nulls = st.fixed_dictionaries(
    {name: st.none() | st.integers(0, 3) for name in COLUMNS}
    | {"g": st.none() | st.fixed_dictionaries({"l": st.none() | st.integers(0, 3)}), "b": st.none()}
)
_rows = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {
            "numRecords": st.integers(0, 3),
            "minValues": st.none() | _values,
            "maxValues": st.none() | _values,
            "nullCount": st.none() | _nulls,
        }
    ),
    min_size=1,
    max_size=4,
)


def _list(values, count):
    found = [None] * count if values is None else values.to_pylist()
    return [None if isinstance(each, float) and not math.isfinite(each) else each for each in found]


@settings(max_examples=150, deadline=None)
@given(_rows)
def test_typed_and_json_bounds_agree(rows):
    parsed = pa.array(rows, PARSED)
    num_records = pa.array([row and row["numRecords"] for row in rows], pa.int64())
    stats = stats_json(parsed)
    found = typed_bounds(parsed, stats, num_records)
    assert found.keys() == {*((name,) for name in COLUMNS), ("g", "l")}
    expected = parsed_bounds(stats, num_records, {names: kind for names, (kind, _) in found.items()})
    for names, (kind, bounds) in found.items():
        declared = "long" if names == ("g", "l") else COLUMNS[names[0]][0]
        assert kind == data_type_from_json(declared)
        for side in ("low", "high"):
            one, other = getattr(bounds, side), getattr(expected[names], side)
            assert _list(one, len(rows)) == _list(other, len(rows)), (names, side)
            assert one is None or other is None or one.type == other.type
        assert np.array_equal(bounds.nullable, expected[names].nullable)
        assert np.array_equal(bounds.only_null, expected[names].only_null)


def test_files_without_typed_statistics_are_left_to_the_text():
    parsed = pa.array([None, {"numRecords": 1}], PARSED)
    assert (
        typed_bounds(parsed, pa.array([json.dumps({"numRecords": 1}), None]), pa.nulls(2, pa.int64())) == {}
    )


def test_nan_gives_no_bounds():
    kind = pa.struct([("minValues", pa.struct([("x", pa.float64())]))])
    values = [{"minValues": {"x": each}} for each in (math.nan, -math.inf, 1.5)]
    ((_, bounds),) = typed_bounds(
        pa.array(values, kind), pa.nulls(3, pa.string()), pa.nulls(3, pa.int64())
    ).values()
    assert bounds.low.to_pylist() == [None, None, 1.5]
    assert bounds.high is None


def test_possibly_julian_timestamps_give_no_bounds():
    kind = pa.struct([("d", pa.date32()), ("t", pa.timestamp("us", "UTC"))])
    old = {"d": dt.date(1582, 10, 14), "t": dt.datetime(1899, 12, 31, tzinfo=dt.UTC)}
    new = {"d": dt.date(1582, 10, 15), "t": dt.datetime(1900, 1, 1, tzinfo=dt.UTC)}
    parsed = pa.array(
        [{"minValues": low, "maxValues": high} for low, high in [(old, old), (old, new), (new, new)]],
        pa.struct([("minValues", kind), ("maxValues", kind)]),
    )
    found = typed_bounds(parsed, pa.nulls(3, pa.string()), pa.nulls(3, pa.int64()))
    for _, bounds in found.values():
        assert bounds.low.is_valid().to_pylist() == [False, False, True]
        assert bounds.high.is_valid().to_pylist() == [False, True, True]
