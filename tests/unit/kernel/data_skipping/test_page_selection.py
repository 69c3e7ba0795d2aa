"""Which rows of a file are read: all that can match, by the bounds of pages that are understood, and few others."""

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_kernel.data_skipping.page_selection import (
    ColumnPages,
    bounds_of_pages,
    is_understood,
    joined_pages,
    rows_that_may_match,
)
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import StructType, data_type_from_json
from delvec_kernel.statistics.bounds import Bounds
from delvec_parquet.page_index import PageBounds
from delvec_parquet.primitive_columns import Column, ColumnKind

KINDS = {"a": "long", "b": "integer", "t": "string", "d": "date"}
SCHEMA = StructType.from_json(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS.items()
        ],
    }
)
MAX_RANGES = 16


def pages_of(values, starts):
    """Return the pages of a column with these values, None for NULL."""
    ends = [*starts[1:], len(values)]
    parts = [values[start:end] for start, end in zip(starts, ends, strict=True)]
    valued = [[each for each in part if each is not None] for part in parts]
    return ColumnPages(
        np.array(starts, np.int64),
        Bounds(
            pa.array([min(part, default=None) for part in valued], pa.int64()),
            pa.array([max(part, default=None) for part in valued], pa.int64()),
            np.array([None in part for part in parts]),
            np.array([not part for part in valued]),
        ),
    )


def rows_in(ranges):
    return [row for each in ranges for row in each]


def page_at(starts, row):
    return max(place for place, start in enumerate(starts) if start <= row)


# --- rows ---------------------------------------------------------------------------------------------------


@st.composite
def columns(draw, count):
    values = draw(st.lists(st.none() | st.integers(0, 30), min_size=count, max_size=count))
    starts = draw(st.sets(st.integers(1, count - 1), max_size=8)) if count > 1 else set()
    return values, [0, *sorted(starts)]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 60), st.integers(0, 30), st.integers(0, 30))
def test_exactly_the_rows_whose_pages_can_match_are_read(data, count, one, other):
    (a, a_starts), (b, b_starts) = (data.draw(columns(count)) for _ in range(2))
    pages = {("a",): pages_of(a, a_starts), ("b",): pages_of(b, b_starts)}

    ranges = rows_that_may_match(parse(f"a = {one} AND b < {other}", SCHEMA), SCHEMA, pages, count)

    def may(row):
        in_a = [each for each in _page(a, a_starts, row) if each is not None]
        in_b = [each for each in _page(b, b_starts, row) if each is not None]
        return bool(in_a) and bool(in_b) and min(in_a) <= one <= max(in_a) and min(in_b) < other

    expected = [row for row in range(count) if may(row)]
    assert rows_in(ranges) == expected
    assert all(before.stop < after.start for before, after in pairwise(ranges))


def _page(values, starts, row):
    place = page_at(starts, row)
    return values[starts[place] : [*starts[1:], len(values)][place]]


@pytest.mark.parametrize("wide", [1, 5])
def test_many_ranges_are_joined_over_the_smallest_gaps(wide):
    """Ranges of one row each; every tenth of the gaps between them is wide."""
    values, here = [], 0
    for place in range(100):
        values += [7] + [0] * (wide if place % 10 == 9 else 1)
    starts = list(range(len(values)))
    ranges = rows_that_may_match(
        parse("a = 7", SCHEMA), SCHEMA, {("a",): pages_of(values, starts)}, len(values)
    )
    assert len(ranges) == MAX_RANGES
    matching = {row for row, value in enumerate(values) if value == 7}
    assert matching <= set(rows_in(ranges))
    assert (ranges[0].start, ranges[-1].stop) == (min(matching), max(matching) + 1)
    for before, after in pairwise(ranges):
        assert before.stop < after.start
        assert {before.stop - 1, after.start} <= matching
        here += after.start - before.stop == wide
    assert here >= 9


def test_few_ranges_stay_as_they_are():
    values = [7, 0] * MAX_RANGES
    ranges = rows_that_may_match(
        parse("a = 7", SCHEMA), SCHEMA, {("a",): pages_of(values, list(range(len(values))))}, len(values)
    )
    assert ranges == [range(row, row + 1) for row in range(0, len(values), 2)]


def test_no_page_no_rows():
    pages = {("a",): pages_of([1, 2, 3], [0, 2])}
    assert rows_that_may_match(parse("a = 9", SCHEMA), SCHEMA, pages, 3) == []
    assert rows_that_may_match(parse("a >= 1", SCHEMA), SCHEMA, pages, 3) == [range(3)]


# --- values of another relation -----------------------------------------------------------------------------

OTHERS = [
    ("a", (5, 6), "b = a", True),
    ("a", (5, 6), "b <> a", True),
    ("a", (5, None), "b = a", False),
    ("a", (None, 6), "b = a", False),
    ("a", (5.0, 6.0), "b = a", False),
    ("a", (True, True), "b = a", False),
]


@pytest.mark.parametrize(("column", "ends", "text", "is_used"), OTHERS)
def test_ends_of_another_relation_select_pages(column, ends, text, is_used):
    values = [1, 5, 6, 9]
    pages = {("b",): pages_of(values, [0, 1, 2, 3])}
    ranges = rows_that_may_match(parse(text, SCHEMA), SCHEMA, pages, 4, {(column,): ends})
    expected = [range(1, 3)] if is_used and text == "b = a" else [range(4)]
    assert ranges == expected


def test_rows_of_another_relation_may_be_null():
    pages = {("b",): pages_of([None, 5], [0, 1])}
    assert rows_that_may_match(parse("b <=> a", SCHEMA), SCHEMA, pages, 2, {("a",): (5, 5)}) == [range(2)]
    assert rows_that_may_match(parse("b = a", SCHEMA), SCHEMA, pages, 2, {("a",): (5, 5)}) == [range(1, 2)]


@pytest.mark.parametrize(
    ("ends", "rows"),
    [
        ((dt.date(2026, 1, 2), dt.date(2026, 1, 2)), [1]),
        ((dt.date(1899, 12, 31), dt.date(1899, 12, 31)), [0, 1, 2]),
        ((dt.date(1900, 1, 1), dt.date(1900, 1, 1)), []),
        ((dt.datetime(2026, 1, 2), dt.datetime(2026, 1, 2)), [0, 1, 2]),  # noqa: DTZ001 - not a date
        (("2026-01-02", "2026-01-02"), [0, 1, 2]),
    ],
)
def test_days_of_another_relation_select_pages_from_1900_on(ends, rows):
    schema = StructType.from_json(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": "date", "nullable": True, "metadata": {}} for name in ("d", "e")
            ],
        }
    )
    first = (dt.date(2026, 1, 1) - dt.date(1970, 1, 1)).days
    pages = {("d",): pages_of([first, first + 1, first + 2], [0, 1, 2])}
    assert rows_in(rows_that_may_match(parse("d = e", schema), schema, pages, 3, {("e",): ends})) == rows


def test_text_of_another_relation_selects_pages():
    schema = StructType.from_json(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("t", "u")
            ],
        }
    )
    text, no = pa.array(["a", "b", "c"]), np.zeros(3, np.bool_)
    pages = {("t",): ColumnPages(np.arange(3), Bounds(text, text, no, no))}
    for ends, rows in ((("b", "b"), [1]), ((b"b", b"b"), [0, 1, 2]), ((2, 2), [0, 1, 2])):
        found = rows_that_may_match(parse("t = u", schema), schema, pages, 3, {("u",): ends})
        assert rows_in(found) == rows


# --- row groups ---------------------------------------------------------------------------------------------


def test_pages_of_row_groups_follow_one_another_and_unknown_ones_are_read():
    def known(values):
        found = pages_of(values, list(range(len(values))))
        return found.starts, found.bounds

    pages = joined_pages(
        data_type_from_json("long"), [(0, known([1, 2])), (2, None), (5, known([3, None])), (7, None)]
    )
    assert pages.starts.tolist() == [0, 1, 2, 5, 6, 7]
    assert pages.bounds.low.to_pylist() == [1, 2, None, 3, None, None]
    assert pages.bounds.high.to_pylist() == [1, 2, None, 3, None, None]
    assert pages.bounds.nullable.tolist() == [False, False, True, False, True, True]
    assert pages.bounds.only_null.tolist() == [False, False, False, False, True, False]
    for text, rows in (
        ("a = 2", [1, 2, 3, 4, 7, 8]),
        ("a IS NULL", [2, 3, 4, 6, 7, 8]),
        ("a = 3", [2, 3, 4, 5, 7, 8]),
    ):
        found = rows_that_may_match(parse(text, SCHEMA), SCHEMA, {("a",): pages}, 9)
        assert rows_in(found) == rows


# --- which columns ------------------------------------------------------------------------------------------


def column(physical, kind, length=0, *, is_ordered=True):
    return Column("c", 0, None, physical, length, kind, is_ordered)


def integer(bits=0):
    return ColumnKind("integer", bits=bits)


def decimal(precision, scale):
    return ColumnKind("decimal", precision=precision, scale=scale)


def moment(unit, *, is_utc):
    return ColumnKind("timestamp", unit=unit, is_utc=is_utc)


UNDERSTOOD = [
    ("byte", "int32", integer(8), 0),
    ("short", "int32", integer(8), 0),
    ("short", "int32", integer(16), 0),
    ("integer", "int32", integer(16), 0),
    ("integer", "int32", integer(32), 0),
    ("integer", "int32", integer(), 0),
    ("long", "int32", integer(8), 0),
    ("long", "int32", integer(), 0),
    ("long", "int64", integer(64), 0),
    ("long", "int64", integer(32), 0),
    ("long", "int64", integer(), 0),
    ("string", "binary", ColumnKind("string"), 0),
    ("date", "int32", ColumnKind("date"), 0),
    ("timestamp", "int64", moment("us", is_utc=True), 0),
    ("timestamp_ntz", "int64", moment("us", is_utc=False), 0),
    ("decimal(5,2)", "int32", decimal(5, 2), 0),
    ("decimal(7,2)", "int32", decimal(5, 2), 0),
    ("decimal(12,2)", "int64", decimal(12, 2), 0),
    ("decimal(20,2)", "fixed", decimal(20, 2), 9),
    ("decimal(38,0)", "fixed", decimal(1, 0), 1),
    ("decimal(38,2)", "fixed", decimal(38, 2), 16),
]
NOT_UNDERSTOOD = [
    ("byte", "int32", integer(16), 0),
    ("byte", "int32", integer(), 0),
    ("short", "int32", integer(32), 0),
    ("integer", "int64", integer(64), 0),
    ("integer", "int64", integer(), 0),
    ("long", "int32", integer(64), 0),
    ("long", "other", integer(), 0),
    ("long", "int32", ColumnKind("date"), 0),
    ("long", "int64", ColumnKind("other"), 0),
    ("long", "int64", moment("us", is_utc=True), 0),
    ("string", "binary", ColumnKind("none"), 0),
    ("string", "fixed", ColumnKind("string"), 4),
    ("date", "int32", integer(32), 0),
    ("date", "int64", ColumnKind("date"), 0),
    ("timestamp", "int64", moment("us", is_utc=False), 0),
    ("timestamp_ntz", "int64", moment("us", is_utc=True), 0),
    ("timestamp", "int64", moment("ms", is_utc=True), 0),
    ("timestamp", "int64", moment("ns", is_utc=True), 0),
    ("timestamp", "int32", moment("us", is_utc=True), 0),
    ("timestamp", "int64", integer(64), 0),
    ("decimal(5,2)", "int32", decimal(7, 2), 0),
    ("decimal(5,2)", "int32", decimal(5, 1), 0),
    ("decimal(5,2)", "int32", decimal(0, 2), 0),
    ("decimal(5,2)", "int32", integer(32), 0),
    ("decimal(5,2)", "binary", decimal(5, 2), 5),
    ("decimal(38,2)", "fixed", decimal(38, 2), 17),
    ("decimal(38,2)", "fixed", decimal(38, 2), 0),
    ("double", "int64", integer(64), 0),
    ("boolean", "int32", integer(32), 0),
    ("binary", "binary", ColumnKind("none"), 0),
]


@pytest.mark.parametrize(("data_type", "physical", "kind", "length"), UNDERSTOOD)
def test_bounds_of_the_tables_values_are_understood(data_type, physical, kind, length):
    kinds = data_type_from_json(data_type)
    assert is_understood(column(physical, kind, length), kinds)
    assert not is_understood(column(physical, kind, length, is_ordered=False), kinds)


@pytest.mark.parametrize(("data_type", "physical", "kind", "length"), NOT_UNDERSTOOD)
def test_bounds_of_other_values_are_not(data_type, physical, kind, length):
    assert not is_understood(column(physical, kind, length), data_type_from_json(data_type))


def test_nested_types_have_no_bounds():
    nested = data_type_from_json({"type": "array", "elementType": "long", "containsNull": True})
    assert not is_understood(column("int64", integer(64)), nested)


# --- values of bounds ---------------------------------------------------------------------------------------


def stored(minimums, maximums=None, nulls=None):
    """Return a page index; None for a page that has nothing but nulls."""
    return PageBounds(
        np.array([each is None for each in minimums]),
        [each or b"" for each in minimums],
        [each or b"" for each in (minimums if maximums is None else maximums)],
        None if nulls is None else np.array(nulls, np.int64),
    )


def number(value, size, order="little"):
    return value.to_bytes(size, order, signed=True)


VALUES = [
    ("long", column("int64", integer(64)), [-(2**63), 0, 2**63 - 1], lambda value: number(value, 8)),
    ("long", column("int32", integer(32)), [-(2**31), -1, 2**31 - 1], lambda value: number(value, 4)),
    ("byte", column("int32", integer(8)), [-128, 0, 127], lambda value: number(value, 4)),
    ("date", column("int32", ColumnKind("date")), [-1, 20454], lambda value: number(value, 4)),
    ("timestamp", column("int64", moment("us", is_utc=True)), [-1, 10**15], lambda value: number(value, 8)),
    ("string", column("binary", ColumnKind("string")), ["", "a", "é😀"], str.encode),
    (
        "decimal(5,2)",
        column("int32", decimal(5, 2)),
        [Decimal("-999.99"), Decimal("0.01"), Decimal("999.99")],
        lambda value: number(int(value * 100), 4),
    ),
    (
        "decimal(38,2)",
        column("fixed", decimal(20, 2), 9),
        [Decimal("-1.25"), Decimal("999999999999999999.99")],
        lambda value: number(int(value.scaleb(2)), 9, "big"),
    ),
]


@pytest.mark.parametrize(("data_type", "of", "values", "encode"), VALUES)
def test_bounds_are_decoded(data_type, of, values, encode):
    ends = [(low, high) for low in values for high in values if low <= high]
    pages = stored([*(encode(low) for low, _ in ends), None], [*(encode(high) for _, high in ends), None])
    found = bounds_of_pages(pages, of, data_type_from_json(data_type))
    assert found.low.to_pylist() == [*(low for low, _ in ends), None]
    assert found.high.to_pylist() == [*(high for _, high in ends), None]
    assert found.only_null.tolist() == [False] * len(ends) + [True]


def test_null_counts_say_whether_a_page_has_nulls():
    of, kind = column("int64", integer(64)), data_type_from_json("long")
    one = number(1, 8)
    counted = bounds_of_pages(stored([one, one, None], nulls=[0, 1, 0]), of, kind)
    assert counted.nullable.tolist() == [False, True, True]
    assert bounds_of_pages(stored([one, None]), of, kind).nullable.tolist() == [True, True]


def test_text_that_was_cut_inside_a_character_is_unknown():
    found = bounds_of_pages(
        stored(["é".encode()[:1], b"a"], [b"b", "é".encode()[:1]]),
        column("binary", ColumnKind("string")),
        data_type_from_json("string"),
    )
    assert found.low.to_pylist() == [None, "a"]
    assert found.high.to_pylist() == ["b", None]


INVALID = {
    "too short": ("long", column("int64", integer(64)), stored([number(1, 4)])),
    "too long": ("integer", column("int32", integer(32)), stored([number(1, 8)])),
    "too short in one page": ("long", column("int64", integer(64)), stored([number(1, 8), b"1"])),
    "in the wrong order": ("long", column("int64", integer(64)), stored([number(2, 8)], [number(1, 8)])),
    "above a byte": ("byte", column("int32", integer(8)), stored([number(128, 4)])),
    "below a byte": ("byte", column("int32", integer(8)), stored([number(-129, 4)])),
    "above its annotation": ("long", column("int32", integer(16)), stored([number(2**15, 4)])),
    "too many digits": ("decimal(5,2)", column("int32", decimal(5, 2)), stored([number(100_000, 4)])),
    "too many digits below 0": (
        "decimal(5,2)",
        column("int32", decimal(5, 2)),
        stored([number(-100_000, 4)]),
    ),
    "a decimal of another length": (
        "decimal(20,2)",
        column("fixed", decimal(20, 2), 9),
        stored([number(1, 8, "big")]),
    ),
}


@pytest.mark.parametrize("what", INVALID)
def test_bounds_that_are_no_values_of_the_column_are_refused(what):
    data_type, of, pages = INVALID[what]
    with pytest.raises(ValueError, match=r"a bound|the bounds"):
        bounds_of_pages(pages, of, data_type_from_json(data_type))
