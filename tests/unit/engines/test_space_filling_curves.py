"""The Hilbert curve, and the ranges of values."""

import datetime as dt
import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from delvec_engines.space_filling_curves import CurveKeys, curve_position


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2)])
def test_the_curve_passes_every_point_once_in_steps_of_one(dimensions, bits):
    points = np.array(list(itertools.product(range(1 << bits), repeat=dimensions)), np.uint64)

    places = curve_position([points[:, axis] for axis in range(dimensions)], bits)

    assert sorted(places.tolist()) == list(range(len(points)))
    path = points[np.argsort(places)].astype(np.int64)
    assert (np.abs(np.diff(path, axis=0)).sum(axis=1) == 1).all()


VALUES = {
    "integers": pa.array([5, -7, None, 2**62, 0], pa.int64()),
    "floats": pa.array([0.5, -1e300, None, float("nan"), float("inf")]),
    "decimals": pa.array([Decimal("1.5"), Decimal(-2), None, Decimal(10), Decimal(0)], pa.decimal128(20, 2)),
    "dates": pa.array(
        [dt.date(2026, 1, 1), dt.date(1, 1, 1), None, dt.date(9999, 1, 1), dt.date(1970, 1, 1)]
    ),
    "timestamps": pa.array([0, -5, None, 10**15, 7], pa.timestamp("us", "UTC")),
    "texts": pa.array(["same beginning b", "same beginning a", None, "same beginning é", "same beginning"]),
    "bytes": pa.array([b"\x00", b"", None, b"\xff\xff", b"a"]),
    "booleans": pa.array([True, False, None, True, False]),
    "one": pa.array([1, 1, 1, 1, 1]),
    "null": pa.nulls(5, pa.int32()),
    "dictionary": pa.array(["b", "a", None, "c", ""]).dictionary_encode(),
}


@pytest.mark.parametrize("name", VALUES)
def test_by_one_column_rows_are_in_its_order_with_null_first(name):
    values = VALUES[name]
    rows = pa.table({"v": values})

    keys = CurveKeys.of(rows, [("v",)])(rows).to_numpy()

    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    texts = plain.to_pylist()
    pairs = [(a, b) for a in range(5) for b in range(5) if _before(texts[a], texts[b])]
    assert all(keys[a] <= keys[b] for a, b in pairs)
    # NaN shares the last range, and a text its own with one that has a zero byte more.
    distinct = {repr(each) for each in texts} - {"nan", r"b'\x00'"}
    assert len(set(keys.tolist())) == len(distinct)


def _before(one, other):
    if one is None or other is None:
        return one is None and other is not None
    if isinstance(one, float):
        return one < other or (math.isnan(other) and not math.isnan(one))
    if isinstance(one, str):
        return one.encode() < other.encode()
    return one < other


def test_values_outside_the_sample_and_in_structs():
    sample = pa.table({"s": [{"t": "key 5"}, {"t": "key 7"}]})
    keys = CurveKeys.of(sample, [("s", "t")])
    rows = pa.table({"s": [{"t": "a"}, {"t": "key 5"}, {"t": "key 9"}, {"t": "z"}, None, {"t": None}]})
    found = keys(rows).to_pylist()
    assert found[0] <= found[1] < found[2] <= found[3]
    assert found[4] == found[5] == min(found)
    assert keys(rows.slice(0, 0)).to_pylist() == []


def test_neighbours_on_the_curve_are_near_in_each_column():
    draw = np.random.default_rng(1)
    rows = pa.table({name: draw.normal(size=20_480) for name in "xyz"})
    order = np.argsort(CurveKeys.of(rows.slice(0, 5000), [("x",), ("y",), ("z",)])(rows).to_numpy())
    for name in "xyz":
        ranks = np.argsort(np.argsort(rows[name].to_numpy()))[order].reshape(64, -1)
        # A 64th of all rows has, of each column, about a quarter of the values.
        assert np.median(np.ptp(ranks, axis=1)) < 0.45 * 20_480
