"""Merged statistics of several files, never narrower than theirs."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_kernel.schema.types import StructType
from delvec_kernel.statistics.file_statistics import collect
from delvec_kernel.statistics.merged_statistics import merged

ARROW = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("d", pa.decimal128(20, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("x", pa.int32()), ("b", pa.bool_())])),
        ("l", pa.list_(pa.int32())),
    ]
)
SCHEMA = StructType.from_arrow(ARROW)
VALUES = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(allow_nan=True),
    "t": st.text(max_size=70),
    "d": st.decimals(-(10**17) + 1, 10**17 - 1, places=3),
    "day": st.dates(),
    "at": st.datetimes(),
    "s": st.fixed_dictionaries(
        {"x": st.none() | st.integers(-(2**31), 2**31 - 1), "b": st.none() | st.booleans()}
    ),
    "l": st.lists(st.integers(0, 9), max_size=2),
}
ROW = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(ROW, max_size=4), min_size=1, max_size=4))
def test_merged_statistics_cover_all_rows(files):
    tables = [pa.Table.from_pylist(rows, ARROW) for rows in files]

    found = json.loads(
        merged([collect(each, SCHEMA) for each in tables], [len(rows) for rows in files], SCHEMA)
    )

    whole = json.loads(collect(pa.concat_tables(tables), SCHEMA))
    if not any(row["f"] in (float("inf"), float("-inf")) for rows in files for row in rows):
        assert found == whole
    else:
        # A file without a bound (infinity) makes the merged bound unknown.
        assert found["nullCount"] == whole["nullCount"]


def of(**stats):
    return json.dumps({"numRecords": 2, **stats})


SIMPLE = StructType.from_json(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("i", "integer"), ("t", "timestamp"), ("day", "date"), ("f", "double"))
        ],
    }
)


@pytest.mark.parametrize(
    ("first", "second", "low"),
    [
        ({"minValues": {"i": 3}}, {"minValues": {"i": 20}}, {"i": 3}),
        ({"minValues": {"i": 3}}, {"minValues": {}}, {}),
        ({"minValues": {"i": 3}}, {"minValues": {}, "nullCount": {"i": 2}}, {"i": 3}),
        ({"minValues": {"i": 3}}, {"minValues": {"i": "x"}}, {}),
        ({"minValues": {"i": 3}}, {"minValues": None}, {}),
        ({"minValues": {"i": 3}}, {"minValues": {"i": {"x": 1}}}, {}),
        # Three formats of timestamps; one is 23:00 the day before.
        (
            {"minValues": {"t": "2020-01-01T00:00:00.000Z"}},
            {"minValues": {"t": "2020-01-01T00:00:00.000+01:00"}},
            {"t": "2020-01-01T00:00:00.000+01:00"},
        ),
        ({"minValues": {"t": "2020-01-01T00:00:00.000Z"}}, {"minValues": {"t": "2020-01-01 00:00:00"}}, {}),
        ({"minValues": {"day": "2020-01-01"}}, {"minValues": {"day": "10000-01-01"}}, {}),
        ({"minValues": {"f": 0.0}}, {"minValues": {"f": -0.0}}, {"f": -0.0}),
        ({"minValues": {"f": 1}}, {"minValues": {"f": float("nan")}}, {}),
    ],
)
def test_incomparable_bounds_are_omitted(first, second, low):
    found = json.loads(merged([of(**first), of(**second)], [2, 2], SIMPLE))

    assert found["minValues"] == low
    assert str(found["minValues"]) == str(low)
    assert found["numRecords"] == 4


def test_wide_bounds_stay_wide():
    assert json.loads(merged([of(), of(tightBounds=False)], [2, 2], SIMPLE))["tightBounds"] is False
    assert json.loads(merged([of(), of()], [2, 2], SIMPLE))["tightBounds"] is True


def test_reversed_bounds_of_one_file_leave_none():
    files = [
        {"numRecords": 2, "minValues": {"t": "\u00e9", "i": 5}, "maxValues": {"t": "a", "i": 1}},
        {"numRecords": 2, "minValues": {"t": "a", "i": 1}, "maxValues": {"t": "z", "i": 9}},
    ]
    found = json.loads(merged([json.dumps(each) for each in files], [2, 2], SCHEMA))
    assert (found["minValues"], found["maxValues"]) == ({}, {})
