import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delvec_errors import CorruptLog, CorruptTable, SchemaMismatch
from delvec_kernel.schema.types import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_type,
)
from delvec_kernel.statistics.file_statistics import (
    StatisticsCollector,
    collect,
    indexed_columns,
    num_records,
    widen,
)

LONG, STRING, DOUBLE = (PrimitiveType(name) for name in ("long", "string", "double"))
LAST = "\U0010ffff"


def column(kind, values, **metadata):
    """A table of one column ``x`` and its schema."""
    schema = StructType([StructField("x", kind, metadata=metadata)])
    return pa.table({"x": pa.array(values, arrow_type(kind))}), schema


def bounds(kind, values):
    """Return the statistics of one column: minimum, maximum (None if omitted) and null count, with exact decimals."""
    found = json.loads(collect(*column(kind, values)), parse_float=Decimal)
    return found["minValues"].get("x"), found["maxValues"].get("x"), found["nullCount"]["x"]


def test_statistics_are_deltas_json():
    table = pa.table({"id": [3, 1, None], "name": ["c", None, None]})
    schema = StructType([StructField("id", LONG), StructField("name", STRING)])
    assert collect(table, schema) == (
        '{"numRecords":3,"minValues":{"id":1,"name":"c"},"maxValues":{"id":3,"name":"c"},'
        '"nullCount":{"id":1,"name":2},"tightBounds":true}'
    )


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        ("byte", [-128, 127], -128, 127),
        ("integer", [5], 5, 5),
        ("long", [-(2**63), 2**63 - 1], -(2**63), 2**63 - 1),
        ("double", [1.5, -2.25], Decimal("-2.25"), Decimal("1.5")),
        ("double", [1.0, math.inf], Decimal(1), None),
        ("double", [-math.inf, 1.0], None, Decimal(1)),
        ("double", [1.0, math.nan], None, None),
        ("float", [math.nan], None, None),
        ("double", [0.0, 0.0], Decimal("-0.0"), Decimal("0.0")),
        ("string", ["b", "a"], "a", "b"),
        ("string", [""], "", ""),
        ("string", ['"\\\n\0é😀'], '"\\\n\0é😀', '"\\\n\0é😀'),
        ("string", ["\uffff", "😀"], "\uffff", "😀"),
        ("date", [dt.date(1, 1, 1), dt.date(2020, 2, 29)], "0001-01-01", "2020-02-29"),
        ("boolean", [True, False], None, None),
        ("binary", [b"a"], None, None),
    ],
)
def test_bounds_of_primitives(kind, values, low, high):
    assert bounds(PrimitiveType(kind), [*values, None]) == (low, high, 1)


def test_timestamps_are_milliseconds_that_contain_the_microseconds():
    values = [
        dt.datetime(2020, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC),
        dt.datetime(2020, 1, 1, 0, 0, 0, 123457, tzinfo=dt.UTC),
    ]
    assert bounds(PrimitiveType("timestamp"), values) == (
        "2020-01-01T00:00:00.123Z",
        "2020-01-01T00:00:00.124Z",
        0,
    )
    before_epoch = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001
    assert bounds(PrimitiveType("timestamp_ntz"), before_epoch) == (
        "1969-12-31T23:59:59.999",
        "1970-01-01T00:00:00.000",
        0,
    )
    exact = [dt.datetime(1900, 1, 1, 0, 0, 0, 5000, tzinfo=dt.UTC)]
    assert bounds(PrimitiveType("timestamp"), exact)[:2] == ("1900-01-01T00:00:00.005Z",) * 2


def test_out_of_range_dates_are_omitted():
    last = [dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)]
    assert bounds(PrimitiveType("timestamp"), last) == ("9999-12-31T23:59:59.999Z", None, 0)
    table, schema = column(PrimitiveType("date"), [2**31 - 1, 0])
    found = json.loads(collect(table, schema))
    assert (found["minValues"], found["maxValues"]) == ({"x": "1970-01-01"}, {})
    table, schema = column(PrimitiveType("timestamp"), [2**63 - 1, -(2**63)])
    found = json.loads(collect(table, schema))
    assert (found["minValues"], found["maxValues"]) == ({}, {})


def test_decimals_are_numbers_with_all_their_digits():
    value = Decimal("12345678901234567890.123456789012345678")
    stats = collect(*column(DecimalType(38, 18), [value, value.copy_negate()]))
    assert '"minValues":{"x":-12345678901234567890.123456789012345678}' in stats
    assert '"maxValues":{"x":12345678901234567890.123456789012345678}' in stats
    assert '"x":0.000000000000000001}' in collect(*column(DecimalType(38, 18), [Decimal("1E-18")]))


def test_all_null_columns_have_no_bounds():
    assert bounds(LONG, [None, None]) == (None, None, 2)
    assert bounds(PrimitiveType("void"), [None]) == (None, None, 1)
    assert bounds(LONG, []) == (None, None, 0)


NESTED = StructType(
    [
        StructField("p", LONG),
        StructField(
            "s",
            StructType([StructField("a", LONG), StructField("t", StructType([StructField("b", STRING)]))]),
        ),
        StructField("l", ArrayType(LONG)),
        StructField("m", MapType(STRING, LONG)),
    ]
)


def test_structs_have_nested_statistics_and_lists_only_null_counts():
    rows = [
        {"p": 1, "s": {"a": 5, "t": {"b": "x"}}, "l": [1], "m": None},
        {"p": 2, "s": {"a": None, "t": None}, "l": None, "m": [("k", 1)]},
        {"p": 3, "s": None, "l": [], "m": []},
    ]
    table = pa.Table.from_pylist(rows, NESTED.to_arrow())
    for data in (table, table.slice(0, 3), pa.concat_tables([table.slice(0, 1), table.slice(1)])):
        found = json.loads(collect(data, NESTED, ["p"]))
        assert found["minValues"] == {"s": {"a": 5, "t": {"b": "x"}}}
        assert found["maxValues"] == {"s": {"a": 5, "t": {"b": "x"}}}
        assert found["nullCount"] == {"s": {"a": 2, "t": {"b": 2}}, "l": 1, "m": 1}
    found = json.loads(collect(table.slice(1), NESTED, ["P"]))
    assert found["minValues"] == {}
    assert found["nullCount"]["s"] == {"a": 2, "t": {"b": 2}}


def test_column_mapping_keys_statistics_by_physical_names():
    physical = "delta.columnMapping.physicalName"
    schema = StructType(
        [
            StructField("a", LONG, metadata={physical: "b"}),
            StructField(
                "b", StructType([StructField("c", LONG, metadata={physical: "z"})]), metadata={physical: "a"}
            ),
        ]
    )
    expected = {"b": 1, "a": {"z": 2}}
    logical = pa.table({"a": [1], "b": [{"c": 2}]})
    assert json.loads(collect(logical, schema))["minValues"] == expected
    stored = pa.table({"b": [1], "a": [{"z": 2}]})
    assert json.loads(collect(stored, schema, physical_names=True))["minValues"] == expected


def test_batches_are_accumulated():
    schema = StructType([StructField("x", LONG), StructField("y", STRING)])
    collector = StatisticsCollector(schema)
    collector.update(pa.record_batch({"x": [5, None], "y": ["m", "n"]}))
    collector.update(pa.table({"y": ["a"], "x": [7]}))
    collector.update(pa.record_batch({"x": pa.array([-1], pa.int8())}))
    assert json.loads(collector.to_json()) == {
        "numRecords": 4,
        "minValues": {"x": -1, "y": "a"},
        "maxValues": {"x": 7, "y": "n"},
        "nullCount": {"x": 1, "y": 1},
        "tightBounds": True,
    }


def test_nan_in_one_batch_removes_the_bounds():
    collector = StatisticsCollector(StructType([StructField("x", DOUBLE)]))
    for values in ([1.0], [math.nan], [2.0]):
        collector.update(pa.record_batch({"x": values}))
    assert json.loads(collector.to_json())["maxValues"] == {}


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", None, "a"], pa.large_string()),
        pa.array(["b", None, "a"], pa.string_view()),
        pa.array(["b", None, "a"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays([0, 1, 2], ["b", None, "a"]),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3], ["b", None, "a"]),
    ],
)
def test_strings_in_every_encoding_of_arrow(values):
    schema = StructType([StructField("x", STRING)])
    found = json.loads(collect(pa.table({"x": values}), schema))
    assert (found["minValues"], found["maxValues"]) == ({"x": "a"}, {"x": "b"})
    assert found["nullCount"] == {"x": 1}


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        (LONG, pa.array([1, 2], pa.uint32()), 1, 2),
        (DecimalType(20, 0), pa.array([1, 2**64 - 1], pa.uint64()), 1, 2**64 - 1),
        (DecimalType(10, 2), pa.array([Decimal("1.5")], pa.decimal256(10, 1)), 1.5, 1.5),
        (PrimitiveType("float"), pa.array([1.5], pa.float16()), 1.5, 1.5),
        (PrimitiveType("date"), pa.array([dt.date(2020, 1, 1)], pa.date64()), "2020-01-01", "2020-01-01"),
        (
            PrimitiveType("timestamp"),
            pa.array([1_000_999], pa.timestamp("ns", "Asia/Tokyo")),
            "1970-01-01T00:00:00.001Z",
            "1970-01-01T00:00:00.001Z",
        ),
        (
            PrimitiveType("timestamp_ntz"),
            pa.array([1], pa.timestamp("s")),
            "1970-01-01T00:00:01.000",
            "1970-01-01T00:00:01.000",
        ),
    ],
)
def test_narrow_and_unsigned_arrow_types(kind, values, low, high):
    found = json.loads(collect(pa.table({"x": values}), StructType([StructField("x", kind)])))
    assert (found["minValues"]["x"], found["maxValues"]["x"]) == (low, high)


def test_a_column_that_the_schema_lacks_is_refused():
    schema = StructType([StructField("Id", LONG), StructField("s", StructType([StructField("a", LONG)]))])
    with pytest.raises(SchemaMismatch, match="'id'"):
        collect(pa.table({"id": [1]}), schema)
    with pytest.raises(SchemaMismatch, match="'A'"):
        collect(pa.table({"s": [{"A": 1}]}), schema)
    with pytest.raises(SchemaMismatch, match="'Id' holds string"):
        collect(pa.table({"Id": ["x"]}), schema)


# --- strings ------------------------------------------------------------------------------------------------

LETTERS = st.one_of(
    st.sampled_from(["a", "~", "\x7f", "\x80", "\ud7ff", "\ue000", "\uffff", "\U00010000", LAST]),
    st.characters(exclude_categories=["Cs"]),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.text(LETTERS, max_size=80), min_size=1, max_size=4))
@example(["a" * 32 + "\x7f"])
@example([LAST * 33])
@example([LAST * 64])
@example([LAST * 65])
@example([LAST * 66 + "a"])
@example(["a" * 31 + LAST * 40 + "b"])
def test_string_bounds_contain_every_value_by_utf8_bytes(values):
    low, high, _ = bounds(STRING, values)
    for value in values:
        assert low.encode() <= value.encode()
        assert high is None or value.encode() <= high.encode()
    assert len(low) <= 32
    assert high is None or len(high) <= 66


@pytest.mark.parametrize(
    ("value", "high"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32 + LAST),
        ("a" * 32 + "é", "a" * 32 + LAST),
        ("😀" * 40, "😀" * 32 + LAST),
        ("a" * 32 + LAST, "a" * 32 + LAST),
        ("a" * 32 + LAST + "bc", "a" * 32 + LAST + "\x7f"),
        (LAST * 100, None),
    ],
)
def test_long_maximums_are_truncated_upwards(value, high):
    assert bounds(STRING, [value])[1] == high


# --- every value is within its bounds -----------------------------------------------------------------------


def day(text):
    return dt.date.fromisoformat(text)


def instant(text):
    return dt.datetime.fromisoformat(text)


TYPED = {
    "byte": (PrimitiveType("byte"), st.integers(-(2**7), 2**7 - 1), int),
    "long": (LONG, st.integers(-(2**63), 2**63 - 1), int),
    "float": (PrimitiveType("float"), st.floats(width=32, allow_nan=False), float),
    "double": (DOUBLE, st.floats(allow_nan=False), float),
    "decimal": (DecimalType(30, 7), st.decimals(-(10**22), 10**22, places=7), Decimal),
    "date": (PrimitiveType("date"), st.dates(), day),
    "timestamp": (PrimitiveType("timestamp"), st.datetimes(timezones=st.just(dt.UTC)), instant),
    "timestamp_ntz": (PrimitiveType("timestamp_ntz"), st.datetimes(), instant),
}


@pytest.mark.parametrize("name", TYPED)
@settings(deadline=None)
@given(data=st.data())
def test_bounds_contain_every_value(name, data):
    kind, strategy, read = TYPED[name]
    values = data.draw(st.lists(st.one_of(st.none(), strategy), max_size=6))
    cut = data.draw(st.integers(0, len(values)))
    table, schema = column(kind, values)
    batches = [*table.slice(0, cut).to_batches(), *table.slice(cut).to_batches()]
    found = json.loads(collect(batches, schema), parse_float=str, parse_int=str)
    low, high = found["minValues"].get("x"), found["maxValues"].get("x")
    for value in values:
        if value is not None:
            assert low is None or read(low) <= value
            assert high is None or value <= read(high)
    assert found["numRecords"] == str(len(values))
    assert found["nullCount"]["x"] == str(values.count(None))


# --- which columns ------------------------------------------------------------------------------------------


def names(schema, partitions=(), **configuration):
    found = indexed_columns(
        schema, partitions, {f"delta.{key}": value for key, value in configuration.items()}
    )
    return [".".join(item.name for item in leaf) for leaf in found]


WIDE = StructType([StructField(f"c{i}", LONG) for i in range(40)])


def test_the_first_32_leaves_have_statistics():
    assert names(WIDE) == [f"c{i}" for i in range(32)]
    assert names(WIDE, ["c0", "C5"]) == [f"c{i}" for i in range(1, 34) if i != 5]
    assert names(WIDE, dataSkippingNumIndexedCols="2") == ["c0", "c1"]
    assert names(WIDE, dataSkippingNumIndexedCols="0") == []
    assert len(names(WIDE, dataSkippingNumIndexedCols="-1")) == 40
    assert len(names(WIDE, dataSkippingNumIndexedCols="many")) == 32
    assert names(NESTED, dataSkippingNumIndexedCols="3") == ["p", "s.a", "s.t.b"]


def test_named_columns_have_statistics_and_no_others():
    assert names(WIDE, dataSkippingStatsColumns="c39, C1", dataSkippingNumIndexedCols="0") == ["c1", "c39"]
    assert names(NESTED, dataSkippingStatsColumns="s") == ["s.a", "s.t.b"]
    assert names(NESTED, dataSkippingStatsColumns="s.t, m") == ["s.t.b", "m"]
    assert names(NESTED, dataSkippingStatsColumns="`s`.`t`.b") == ["s.t.b"]
    assert names(NESTED, dataSkippingStatsColumns="missing") == []
    odd = StructType([StructField("a.b", LONG), StructField("c,`d", LONG), StructField("e f", LONG)])
    assert names(odd, dataSkippingStatsColumns="`a.b`,`c,``d`, e f") == ["a.b", "c,`d", "e f"]


def test_statistics_follow_the_configuration():
    table = pa.table({f"c{i}": [i] for i in range(40)})
    found = json.loads(collect(table, WIDE, [], {"delta.dataSkippingNumIndexedCols": "1"}))
    assert found["nullCount"] == found["minValues"] == {"c0": 0}


# --- statistics in a log ------------------------------------------------------------------------------------


def test_widening_keeps_the_bounds_and_marks_them_as_wide():
    stats = (
        '{"numRecords":3,"minValues":{"d":1.000000000000000000000000000001,"s":{"é":"😀"}},'
        '"maxValues":{"d":12345678901234567890123456789},"nullCount":{"d":3,"s":{"é":0},"t":1},"tightBounds":true}'
    )
    widened = widen(stats)
    assert '"d":1.000000000000000000000000000001' in widened
    assert json.loads(widened) == {**json.loads(stats), "tightBounds": False}
    assert widen(widened) == widened
    assert widen('{"numRecords":3}', 3) == '{"numRecords":3,"tightBounds":false}'


def test_widening_raises_the_null_count_of_columns_that_were_null_in_all_live_rows():
    # The file has 10 rows, 4 of them deleted when these tight statistics were collected.
    stats = '{"numRecords":10,"nullCount":{"all":6,"none":0,"some":4,"s":{"all":6}},"tightBounds":true}'
    counts = json.loads(widen(stats, deleted_records=4))["nullCount"]
    assert counts == {"all": 10, "none": 0, "some": 4, "s": {"all": 10}}
    absent = stats.replace(',"tightBounds":true', "")
    assert json.loads(widen(absent, deleted_records=4))["nullCount"] == counts
    wide = stats.replace("true", "false")
    assert json.loads(widen(wide, deleted_records=4))["nullCount"] == json.loads(stats)["nullCount"]


def test_widening_needs_the_number_of_records():
    assert json.loads(widen(None, 7)) == {"numRecords": 7, "tightBounds": False}
    assert json.loads(widen('{"minValues":{"x":1}}', 7)) == {
        "numRecords": 7,
        "minValues": {"x": 1},
        "tightBounds": False,
    }
    assert json.loads(widen('{"numRecords":5}', 7))["numRecords"] == 5
    for stats in (None, "", "{}", '{"numRecords":null}'):
        with pytest.raises(CorruptTable):
            widen(stats)


def test_numbers_of_records_are_read():
    assert num_records('{"numRecords":12,"nullCount":{}}') == 12
    assert num_records('{"numRecords":12.0}') == 12
    assert num_records("{}") is None
    assert num_records("") is None
    assert num_records(None) is None


@pytest.mark.parametrize(
    "stats",
    [
        "x",
        "[]",
        "3",
        '{"numRecords":-1}',
        '{"numRecords":1.5}',
        '{"numRecords":"1"}',
        '{"numRecords":NaN}',
        '{"numRecords":true}',
        '{"numRecords":1e999999999999999999999}',
        '{"numRecords":99999999999999999999}',
        '{"numRecords":{}}',
        '{"a":' * 100_000,
    ],
)
def test_invalid_statistics_are_a_corrupt_log(stats):
    with pytest.raises(CorruptLog):
        num_records(stats)
    with pytest.raises(CorruptLog):
        widen(stats, 1)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(LETTERS, max_size=50)), max_size=5))
def test_collected_statistics_can_be_widened(values):
    stats = collect(*column(STRING, values))
    assert num_records(stats) == len(values)
    assert json.loads(widen(stats)) == {**json.loads(stats), "tightBounds": False}
