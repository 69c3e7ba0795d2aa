"""The minimum and maximum of a column: statistics give those of the rows, or None."""

import datetime as dt
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.file_index.column_bounds import known_columns, least_and_greatest
from delvec_kernel.file_index.file_rows import batch_from_adds
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.file_index.packed_files import FileChange
from delvec_kernel.schema.types import StructType

LOCATION = "file:///table"
KINDS = {
    "i": "integer",
    "l": "long",
    "d": "date",
    "s": "string",
    "x": "double",
    "f": "float",
    "m": "decimal(10,2)",
    "t": "timestamp",
    "n": "timestamp_ntz",
    "b": "boolean",
    "p": "integer",
}
SCHEMA = StructType.from_json(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS.items()
        ],
    }
)
VALUES = {
    "i": 7,
    "l": 2**62 + 1,
    "d": "2026-01-01",
    "s": "a",
    "x": 1.5,
    "f": 1.5,
    "m": 1.25,
    "t": "2026-01-01T00:00:00.000Z",
    "n": "2026-01-01T00:00:00.000",
    "b": True,
}


def found(live, name):
    (column,) = known_columns([(name,)], SCHEMA, ["p"])
    return least_and_greatest([member.chosen for member in live.members], column)


def live_files(*stats):
    adds = [
        AddFile(f"f{number}", {"p": "1"}, 1, 1, stats=text if text is None else json.dumps(text))
        for number, text in enumerate(stats)
    ]
    return LiveFiles.from_batches([batch_from_adds(adds)], LOCATION)


def statistics(values, **more):
    """Return the statistics of a file with these values in each column."""
    valued = {name: [each for each in column if each is not None] for name, column in values.items()}
    return {
        "numRecords": max(map(len, values.values())),
        "minValues": {name: min(column) for name, column in valued.items() if column},
        "maxValues": {name: max(column) for name, column in valued.items() if column},
        "nullCount": {name: len(column) - len(valued[name]) for name, column in values.items()},
        **more,
    }


_columns = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.lists(_columns, min_size=1, max_size=6), st.sets(st.integers(0, 5)))
def test_minimum_and_maximum_match_the_rows(files, gone):
    live = live_files(*(statistics({"l": values}) for values in files))
    changes = {f"f{number}": FileChange.to(None) for number in gone if number < len(files)}
    if changes:
        live = live.apply(changes)
    left = [
        value
        for number, values in enumerate(files)
        for value in values
        if number not in gone and value is not None
    ]
    expected = (min(left, default=None), max(left, default=None))
    # A program whose numbers are doubles may have rounded what is beyond 2**53.
    answers = [expected] if all(abs(each) < 2**53 for each in left) else [expected, None]
    assert found(live, "l") in answers
    assert found(live, "l") in answers  # from the cache


def test_dates_are_days():
    live = live_files(statistics({"d": ["2026-01-02"]}), statistics({"d": ["1969-12-31", "2026-01-01"]}))
    assert found(live, "d") == (-1, (dt.date(2026, 1, 2) - dt.date(1970, 1, 1)).days)


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"i", "l", "d"}))
def test_other_types_and_partition_columns_give_none(name):
    values = {each: [value] for each, value in VALUES.items()}
    assert found(live_files(statistics(values)), name) is None
    assert found(live_files(statistics(values)), "i") == (7, 7)


GOOD = statistics({"i": [1, 5]})
REFUSED = {
    "no statistics": None,
    "bounds that are not tight": statistics({"i": [2]}, tightBounds=False),
    "no column": statistics({"l": [2]}),
    "no maximum": {**GOOD, "maxValues": {}},
    "no minimum": {"numRecords": 2, "maxValues": {"i": 5}, "nullCount": {"i": 0}},
    "a text": statistics({"i": ["two"]}),
    "a fraction": statistics({"i": [2.5]}),
    "nulls that do not add up": {"numRecords": 2, "nullCount": {"i": 1}},
    "no null count": {"numRecords": 2},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_one_file_without_exact_statistics_gives_none(reason):
    assert found(live_files(GOOD, GOOD), "i") == (1, 5)
    live = live_files(GOOD, REFUSED[reason], GOOD)
    assert found(live, "i") is None
    assert found(live.apply({"f1": FileChange.to(None)}), "i") == (1, 5)


def test_explicit_tight_bounds():
    assert found(live_files(statistics({"i": [3]}, tightBounds=True)), "i") == (3, 3)
