import datetime as dt
import math
import re
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_errors import CorruptLog, InvalidSchema, SchemaMismatch
from delvec_kernel import locations
from delvec_kernel.schema.partition_values import parse, parse_column, partition_path, serialize
from delvec_kernel.schema.types import ArrayType, DecimalType, PrimitiveType, StructType

UTC = dt.UTC


def primitive(name):
    return PrimitiveType(name)


WRITTEN = [
    ("string", "a b=c/é", "a b=c/é"),
    ("byte", -128, "-128"),
    ("short", 32767, "32767"),
    ("integer", -1, "-1"),
    ("long", 2**63 - 1, "9223372036854775807"),
    ("float", 0.1, "0.1"),
    ("float", 3.4028234663852886e38, "3.4028235e+38"),
    ("float", 1.401298464324817e-45, "1.4013e-45"),
    ("double", 0.1, "0.1"),
    ("double", 1e300, "1e+300"),
    ("double", math.inf, "Infinity"),
    ("double", -math.inf, "-Infinity"),
    ("double", math.nan, "NaN"),
    ("boolean", True, "true"),
    ("boolean", False, "false"),
    ("date", dt.date(1, 2, 3), "0001-02-03"),
    ("timestamp", dt.datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00.000000Z"),
    ("timestamp", dt.datetime(2020, 1, 1, 1, 2, 3, 456, tzinfo=UTC), "2020-01-01T01:02:03.000456Z"),
    (
        "timestamp",
        dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        "2019-12-31T22:00:00.000000Z",
    ),
    ("timestamp_ntz", dt.datetime(2020, 1, 1, 1, 2, 3, 450000), "2020-01-01 01:02:03.45"),  # noqa: DTZ001
    ("timestamp_ntz", dt.datetime(20, 1, 1), "0020-01-01 00:00:00"),  # noqa: DTZ001
    ("binary", b"\x01\x02abc", "\x01\x02abc"),
    ("binary", "é".encode(), "é"),
    ("string", "", None),
    ("binary", b"", None),
    ("void", None, None),
    ("long", None, None),
]


@pytest.mark.parametrize(("name", "value", "text"), WRITTEN)
def test_values_are_serialized_as_in_delta(name, value, text):
    assert serialize(value, primitive(name)) == text


def test_decimals_are_written_at_their_scale():
    assert serialize(Decimal("1.5"), DecimalType(10, 3)) == "1.500"
    assert serialize(Decimal(10) ** 30, DecimalType(38, 2)) == "1" + "0" * 30 + ".00"
    assert serialize(Decimal("-1E-18"), DecimalType(38, 18)) == "-0.000000000000000001"


def test_arrow_scalars_are_values_too():
    assert serialize(pa.scalar(7, pa.int64()), primitive("integer")) == "7"
    assert serialize(pa.scalar(None, pa.int64()), primitive("integer")) is None


READ = [
    ("timestamp", "2020-01-01 00:00:00.123456", dt.datetime(2020, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
    ("timestamp", "2020-01-01 00:00:00", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "2020-01-01 00:00:00.5", dt.datetime(2020, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)),
    ("timestamp", "2020-01-01T00:00:00.123456Z", dt.datetime(2020, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
    ("timestamp", "2020-01-01T00:00:00Z", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "2020-01-01T00:00:00.123456000Z", dt.datetime(2020, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
    ("timestamp", "2020-01-01T02:00:00+02:00", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "2020-01-01 02:00:00+0200", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "2019-12-31 19:00:00-05", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "2020-01-01 00:00:00 UTC", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "2020-01-01", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "1883-11-18 12:03:58", dt.datetime(1883, 11, 18, 12, 3, 58, tzinfo=UTC)),
    ("timestamp_ntz", "2013-07-05 17:01:00.123456", dt.datetime(2013, 7, 5, 17, 1, 0, 123456)),  # noqa: DTZ001
    ("timestamp_ntz", "2013-07-05T17:01:00", dt.datetime(2013, 7, 5, 17, 1)),  # noqa: DTZ001
    ("timestamp_ntz", "2013-07-05T17:01:00Z", dt.datetime(2013, 7, 5, 17, 1)),  # noqa: DTZ001
    ("double", "1.0E10", 1e10),
    ("double", "-Infinity", -math.inf),
    ("float", "1.5", 1.5),
    ("boolean", "TRUE", True),
    ("binary", "\x01\x02é", b"\x01\x02" + "é".encode()),
    ("string", "2020", "2020"),
    ("void", None, None),
]


@pytest.mark.parametrize(("name", "text", "value"), READ)
def test_all_of_deltas_formats_are_parsed(name, text, value):
    assert parse(text, primitive(name)) == value


@pytest.mark.parametrize("name", sorted({name for name, _, _ in READ} | {"byte", "integer", "date"}))
def test_null_is_null_and_empty_is_null_where_it_is_no_value(name):
    # As delta-spark 4.4 and delta-kernel-rs read them.
    assert parse(None, primitive(name)) is None
    assert parse("", primitive(name)) == {"string": "", "binary": b""}.get(name)


def test_an_empty_string_is_written_as_null_unless_it_is_kept():
    for kind, value in (("string", ""), ("binary", b"")):
        assert serialize(value, primitive(kind)) is None
        assert serialize(value, primitive(kind), keeps_empty=True) == ""
        assert serialize(None, primitive(kind), keeps_empty=True) is None


# What delta-spark 4.4 reads in a session in UTC.
SPELLINGS = [
    ("integer", " 12 ", 12),
    ("integer", "+5", 5),
    ("integer", "\t7\n", 7),
    ("long", "007", 7),
    ("float", "1.5f", 1.5),
    ("double", " 2 ", 2.0),
    ("double", "1.5D", 1.5),
    ("double", "+.5e1", 5.0),
    ("double", "-inf", -math.inf),
    ("boolean", "t", True),
    ("boolean", "No", False),
    ("boolean", " 1", True),
    ("date", "2020-1-2", dt.date(2020, 1, 2)),
    ("date", "2020-1", dt.date(2020, 1, 1)),
    ("date", "2020", dt.date(2020, 1, 1)),
    ("date", " 2020-01-02 ", dt.date(2020, 1, 2)),
    ("date", "2020-01-02 11:00:00", dt.date(2020, 1, 2)),
    ("date", "2020-01-02T", dt.date(2020, 1, 2)),
    ("date", "+2020-01-02", dt.date(2020, 1, 2)),
    ("timestamp", "2020-1-2 3:4:5", dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("timestamp", "2020-1-2", dt.datetime(2020, 1, 2, tzinfo=UTC)),
    ("timestamp", "2020", dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp", "2020-01-02 03", dt.datetime(2020, 1, 2, 3, tzinfo=UTC)),
    ("timestamp", "2020-01-02 03:04:05.123456789", dt.datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
    ("timestamp", "2020-01-02 03:04:05+1", dt.datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
    ("timestamp", "2020-01-02 03:04:05+1:30", dt.datetime(2020, 1, 2, 1, 34, 5, tzinfo=UTC)),
    ("timestamp", "2020-01-02 03:04:05GMT+1", dt.datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
    ("timestamp", "2020-01-02 03:04:05 UTC+01:00", dt.datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
    ("timestamp", "2020-1-2 3:4:5 -0530", dt.datetime(2020, 1, 2, 8, 34, 5, tzinfo=UTC)),
    ("timestamp", "2020-01-02T03:04:05.", dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("timestamp", "2020-01-02T3:4:5.6Z", dt.datetime(2020, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)),
    ("timestamp", " 2020-01-02 03:04:05 Z ", dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("timestamp_ntz", "2020-1-2 3:4:5", dt.datetime(2020, 1, 2, 3, 4, 5)),  # noqa: DTZ001
    ("timestamp_ntz", "2020-01-02 03:04:05.1234567", dt.datetime(2020, 1, 2, 3, 4, 5, 123456)),  # noqa: DTZ001
    ("timestamp_ntz", "2020-1-02 03:04:05+1", dt.datetime(2020, 1, 2, 3, 4, 5)),  # noqa: DTZ001
]


@pytest.mark.parametrize(("name", "text", "value"), SPELLINGS)
def test_spellings_that_delta_spark_casts_are_read_as_it_reads_them(name, text, value):
    assert parse(text, primitive(name)) == value
    good = {"date": "2020-01-01", "boolean": "true"}.get(name, "2020-01-01" if "time" in name else "1")
    column = parse_column(pa.array([good, None, text, good]), primitive(name))
    assert column.is_valid().to_pylist() == [True, False, True, True]
    assert column[3] == column[0]
    assert column[2] == parse_column(pa.array([text]), primitive(name))[0]


def test_spellings_of_years_beyond_four_digits():
    assert parse_column(pa.array(["+12020-1-2", "2020-1-2", "-0044-3-15"]), primitive("date")).cast(
        pa.int32()
    ).to_pylist() == [3670688, 18263, -735525]


def test_decimals_may_have_spaces():
    assert parse(" 1.5 ", DecimalType(5, 2)) == Decimal("1.50")


@pytest.mark.parametrize(
    ("name", "text"),
    [("date", "2020-1-2"), ("integer", "+5"), ("boolean", "t"), ("timestamp", "2020-1-2 3:4:5")],
)
def test_writers_may_not_use_such_spellings(name, text):
    with pytest.raises(CorruptLog, match=re.escape(text)):
        parse_column(pa.array([text]), primitive(name), strict=True)


def test_decimals_are_read_at_the_scale_of_the_column():
    assert parse("12", DecimalType(10, 2)) == Decimal("12.00")
    assert parse("12.500", DecimalType(10, 2)) == Decimal("12.50")
    assert parse("1E+3", DecimalType(10, 2)) == Decimal("1000.00")


BAD = [
    ("byte", "128"),
    ("integer", "1.5"),
    ("integer", "x"),
    ("long", "9223372036854775808"),
    ("double", "one"),
    ("boolean", "maybe"),
    ("date", "2020-02-30"),
    ("date", "01.02.2020"),
    ("timestamp", "2020-01-01 25:00:00"),
    ("timestamp", "yesterday"),
    ("timestamp", "2020-01-02 03:04:05 CET"),
    ("timestamp", "03:04:05"),
    ("timestamp", "2020-01-02  03:04:05"),
    ("timestamp", "2020-01-02 24:00:00"),
    ("timestamp", "2020-1-2 3:4:60"),
    ("timestamp_ntz", "noon"),
    ("integer", "1_000"),
    ("integer", "+"),
    ("float", "0x1p3"),
    ("float", "1.5ff"),
    ("boolean", "on"),
    ("date", "20200102"),
    ("date", "2020-01-02foo"),
    ("date", "99999999-01-01"),
    ("date", "2020-1-32"),
]


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_is_a_corrupt_log_and_is_named(name, text):
    good = {"date": "2020-01-01", "boolean": "true"}.get(name, "2020-01-01" if "time" in name else "1")
    column = pa.array([good, None, "", *[good] * 5, text, good])
    with pytest.raises(CorruptLog, match=f"{re.escape(repr(text))}.*{name}"):
        parse_column(column, primitive(name))


def test_a_decimal_that_does_not_fit_is_a_corrupt_log():
    for text in ("1.505", "12345.00", "a"):
        with pytest.raises(CorruptLog, match=text):
            parse(text, DecimalType(5, 2))


def test_whole_columns_are_parsed():
    column = pa.array(["2020-01-01 00:00:00", None, "", "2020-01-01T01:00:00.000000Z"], pa.large_string())
    expected = pa.array(
        [dt.datetime(2020, 1, 1), None, None, dt.datetime(2020, 1, 1, 1)],  # noqa: DTZ001
        pa.timestamp("us", "UTC"),
    )
    assert parse_column(column, primitive("timestamp")).equals(expected)
    assert parse_column(pa.chunked_array([column]), primitive("timestamp")).equals(expected)
    assert parse_column(pa.array([], pa.string()), primitive("date")).type == pa.date32()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("byte", 128),
        ("integer", "seven"),
        ("long", 2**63),
        ("boolean", "true"),
        ("date", "2020-01-01"),
        ("binary", b"\xff"),
        ("string", 3),
    ],
)
def test_a_value_of_another_type_is_refused(name, value):
    with pytest.raises(SchemaMismatch, match=name):
        serialize(value, primitive(name))


def test_a_decimal_that_would_lose_digits_is_refused():
    with pytest.raises(SchemaMismatch):
        serialize(Decimal("1.005"), DecimalType(10, 2))


def test_nested_types_cannot_partition():
    for kind in (ArrayType(primitive("long")), StructType([])):
        with pytest.raises(InvalidSchema):
            serialize(None, kind)
        with pytest.raises(InvalidSchema):
            parse("", kind)


def singles():
    return st.floats(width=32, allow_nan=False)


VALUES = st.one_of(
    st.tuples(st.just(primitive("string")), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)),
    st.tuples(st.just(primitive("byte")), st.integers(-(2**7), 2**7 - 1)),
    st.tuples(st.just(primitive("long")), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(primitive("float")), singles()),
    st.tuples(st.just(primitive("double")), st.floats(allow_nan=False)),
    st.tuples(st.just(primitive("boolean")), st.booleans()),
    st.tuples(st.just(primitive("date")), st.dates()),
    st.tuples(
        st.just(primitive("timestamp")),
        st.datetimes(timezones=st.just(UTC)),
    ),
    st.tuples(st.just(primitive("timestamp_ntz")), st.datetimes()),
    st.tuples(
        st.just(primitive("binary")),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.encode),
    ),
    st.tuples(st.just(DecimalType(38, 10)), st.decimals(-(10**27), 10**27, places=10)),
)


@settings(deadline=None)
@given(VALUES)
def test_round_trip(typed):
    kind, value = typed
    text = serialize(value, kind)
    back = parse(text, kind)
    assert back == value
    if isinstance(value, float):
        assert struct.pack("d", back) == struct.pack("d", value)


@pytest.mark.parametrize(
    ("values", "directory"),
    [
        ({"country": "NZ", "day": "2020-01-01"}, "country=NZ/day=2020-01-01"),
        ({"c": None}, "c=__HIVE_DEFAULT_PARTITION__"),
        ({"c": ""}, "c=__HIVE_DEFAULT_PARTITION__"),
        ({"c": "a b+c&d,e;f~g|h<i>j}k$l!m(n)"}, "c=a b+c&d,e;f~g|h<i>j}k$l!m(n)"),
        (
            {"c": "\"#%'*/:=?\\\x7f{[]^\n\x01"},
            "c=%22%23%25%27%2A%2F%3A%3D%3F%5C%7F%7B%5B%5D%5E%0A%01",
        ),
        ({"n:[": "é日"}, "n%3A%5B=é日"),
        ({"t": "2020-01-01T00:00:00.000000Z"}, "t=2020-01-01T00%3A00%3A00.000000Z"),
    ],
)
def test_directories_are_escaped_as_spark_escapes_them(values, directory):
    # Directory names of Spark 4.1's partitionBy for these characters.
    assert partition_path(values) == directory


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
        st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
        min_size=1,
        max_size=3,
    )
)
def test_any_partition_has_a_directory_inside_the_table(values):
    raw = partition_path(values) + "/x.parquet"
    assert raw.count("/") == len(values)
    in_log = locations.log_path(raw)
    url = locations.resolve("file:///data/t", in_log)
    assert str(locations.local_path(url)) == "/data/t/" + raw
    assert locations.canonical_log_path(in_log, "file:///data/t") == locations.canonical_relative(raw)
