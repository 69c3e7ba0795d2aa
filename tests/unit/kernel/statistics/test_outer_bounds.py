"""Bounds contain the values of a file, however its writer rounds them, wherever they are read from."""

import datetime as dt
import json
from decimal import Context, Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_iceberg.file_metrics import column_metrics
from delvec_iceberg.schema import Leaf
from delvec_kernel.log.checkpoint_reader import stats_json
from delvec_kernel.log.typed_columns import TypedStatistics
from delvec_kernel.schema.types import StructType, data_type_from_json
from delvec_kernel.statistics.bounds import parsed_bounds
from delvec_kernel.statistics.file_statistics import collect
from delvec_kernel.statistics.merged_statistics import merged
from delvec_kernel.statistics.outer_bounds import outer_bounds
from delvec_kernel.statistics.typed_statistics import typed_bounds

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the type says whether there is a zone
MICROSECOND = dt.timedelta(microseconds=1)


class Raw(str):
    """A number as its writer puts it into JSON."""

    __slots__ = ()


# --- writers ------------------------------------------------------------------------------------------------


def shortest(value):
    """Rust, Java, Python and JavaScript: the fewest digits that are read as the same double."""
    return Raw(repr(float(value)))


def seventeen(value):
    return Raw(f"{float(value):.17g}")


def every_digit(value):
    """BigDecimal(double) and printf: the double's exact value, rounded to the scale where it is cut."""
    return Raw(f"{float(value):.{max(0, -value.as_tuple().exponent) if isinstance(value, Decimal) else 0}f}")


def deltalake(value):
    """The unscaled value as a double, divided by a power of ten."""
    scale = -value.as_tuple().exponent
    return Raw(repr(float(int(value.scaleb(scale, WIDE))) / 10.0**scale))


def deltalake_integers(value):
    """deltalake, of a decimal without fraction: the double cast to 64 bits, as Rust does it."""
    return Raw(min(max(int(float(value)), -(2**63)), 2**63 - 1))


def exactly(value):
    return Raw(f"{value:f}") if isinstance(value, Decimal) else Raw(value)


def single(value):
    """Float.toString: 0.7, whose float is 0.699999988."""
    return Raw(str(np.float32(value)))


def as_double(value):
    return Raw(repr(float(np.float32(value))))


def _moment(micros, per, rounded):
    return (EPOCH + rounded(micros, per) * per * MICROSECOND).isoformat(timespec="microseconds") + "Z"


def down(micros):
    return _moment(micros, 1000, lambda value, per: value // per)


def to_epoch(micros):
    return _moment(micros, 1000, lambda value, per: -(-value // per) if value < 0 else value // per)


def micros(value):
    return _moment(value, 1, lambda number, _: number)


def whole(text, *, upper):
    return text


def cut(text, *, upper):
    """32 characters, and nothing that keeps a maximum above the rest."""
    return text[:32]


def cut_units(text, *, upper):
    """32 units of UTF-16, as Java's substring: half a character becomes a question mark."""
    return text.encode("utf-16-le")[:64].decode("utf-16-le", errors="ignore") + (
        "?" if 0xD800 <= int.from_bytes(text.encode("utf-16-le")[62:64], "little") < 0xDC00 else ""
    )


def cut_bytes(text, *, upper):
    """64 bytes, to the end of a character."""
    return text.encode()[:64].decode(errors="ignore")


def old_spark(text, *, upper, length=32):
    """delta-spark before 3.3: units of UTF-16, with U+FFFD above those cut off, to which it compares them one by one."""
    units = text.encode("utf-16-le")
    if len(units) <= 2 * length:
        return text
    end = length
    while upper and int.from_bytes(units[2 * end : 2 * end + 2], "little") >= 0xFFFD:
        end += 1
    return in_utf8(units[: 2 * end]) + ("\ufffd" if upper else "")


def in_utf8(units):
    """Return Java's text as its encoder writes it: half a character becomes a question mark."""
    is_half = 0xD800 <= int.from_bytes(units[-2:], "little") < 0xDC00
    return units[:-2].decode("utf-16-le") + "?" if is_half else units.decode("utf-16-le")


WIDE = Context(prec=60)


def decimals(precision, scale):
    numbers = st.integers(-(10**precision) + 1, 10**precision - 1)
    if precision > 16:  # a double holds each number of fewer digits
        numbers |= st.integers(2**53 - 10**15, 2**53 + 10**15)
    return numbers.map(lambda number: Decimal(number).scaleb(-scale, WIDE))


_LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 4, 2**53 + 4) | st.just(-(2**63))
_TEXT = st.text(st.sampled_from("aé?\ufffd😀\U0010ffff"), max_size=40) | st.text(
    st.characters(codec="utf-8"), max_size=40
)
_MICROS = st.integers(-62_000_000_000_000_000, 250_000_000_000_000_000) | st.integers(-2000, 2000)
_NUMBERS = [exactly, shortest, seventeen, every_digit]
KINDS = {
    "long": (_LONGS, pa.int64(), _NUMBERS),
    "integer": (st.integers(-(2**31), 2**31 - 1), pa.int32(), _NUMBERS),
    "date": (st.dates(dt.date(1600, 1, 1)), pa.date32(), [lambda day: day.isoformat()]),
    "float": (st.floats(width=32, allow_nan=False, allow_infinity=False), pa.float32(), [single, as_double]),
    "double": (
        st.floats(allow_nan=False, allow_infinity=False) | st.floats(0, 1, width=32),
        pa.float64(),
        [shortest, seventeen],
    ),
    "timestamp": (_MICROS, pa.timestamp("us", "UTC"), [down, to_epoch, micros]),
    "string": (_TEXT, pa.string(), [whole, cut, cut_units, cut_bytes, old_spark]),
    **{
        f"decimal({precision},{scale})": (
            decimals(precision, scale),
            pa.decimal128(precision, scale),
            [*_NUMBERS, deltalake if scale else deltalake_integers],
        )
        for precision, scale in ((15, 2), (17, 1), (20, 0), (20, 2), (38, 0), (38, 10), (38, 22), (38, 37))
    },
}


def schema_of(kind):
    return StructType.from_json(
        {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
    )


def stats_of(values, writer):
    def side(upper):
        value = (max if upper else min)(values)
        stated = writer(value, upper=upper) if isinstance(value, str) else writer(value)
        return str(stated) if isinstance(stated, Raw) else json.dumps(stated, ensure_ascii=False)

    return (
        f'{{"numRecords":{len(values)},"minValues":{{"c":{side(False)}}},"maxValues":{{"c":{side(True)}}},'
        '"nullCount":{"c":0}}'
    )


def normal(value):
    """Return a value as bounds have it."""
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def check(bounds, place, values):
    least, greatest = normal(min(values)), normal(max(values))
    low, high = (each and each[place].as_py() for each in (bounds.low, bounds.high))
    assert low is None or low <= least
    assert high is None or high >= greatest
    if bounds.exact is not None and bounds.exact[place].as_py():
        assert (low, high) == (least, greatest)


@pytest.mark.parametrize("length", [5, 32])
@pytest.mark.parametrize("end", ["😀", "b😀", "\ufffd😀", "😀😀", "\uffff😀"])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_character_of_two_units_is_above_the_one_that_old_sparks_append(length, end, kept):
    text = "a" * (length - kept) + end + "x"
    stats = stats_of([text], partial(old_spark, length=length))
    bounds = parsed_bounds(pa.array([stats]), pa.array([1]), {("c",): data_type_from_json("string")})
    check(bounds[("c",)], 0, [text])


# --- properties ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_bounds_contain_the_values_from_the_log_from_checkpoints_and_merged(kind, data):
    values, _, writers = KINDS[kind]
    files = data.draw(
        st.lists(
            st.tuples(st.lists(values, min_size=1, max_size=3), st.sampled_from(writers)),
            min_size=1,
            max_size=4,
        )
    )
    schema, data_type = schema_of(kind), data_type_from_json(kind)
    texts = [stats_of(rows, writer) for rows, writer in files]
    counts = pa.array([len(rows) for rows, _ in files], pa.int64())
    typed = TypedStatistics(schema, [], {}).parse(pa.array(texts), counts)
    from_log = parsed_bounds(pa.array(texts), counts, {("c",): data_type})[("c",)]
    from_typed = typed_bounds(typed, pa.nulls(len(texts), pa.string()), counts)[("c",)][1]
    from_text_of_typed = parsed_bounds(stats_json(typed), counts, {("c",): data_type})[("c",)]
    one = merged(texts, counts.to_pylist(), schema)
    of_all = parsed_bounds(pa.array([one]), pa.array([sum(counts.to_pylist())]), {("c",): data_type})[("c",)]
    for place, (rows, _) in enumerate(files):
        for bounds in (from_log, from_typed, from_text_of_typed):
            check(bounds, place, rows)
    check(of_all, 0, [value for rows, _ in files for value in rows])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_our_own_bounds_are_moved_by_no_more_than_a_writer_of_doubles_loses(kind, data):
    values, arrow, _ = KINDS[kind]
    rows = data.draw(st.lists(values, min_size=1, max_size=3))
    stats = collect(pa.table({"c": pa.array(rows, arrow)}), schema_of(kind))
    bounds = parsed_bounds(pa.array([stats]), pa.array([len(rows)]), {("c",): data_type_from_json(kind)})[
        ("c",)
    ]
    check(bounds, 0, rows)
    if kind in ("long", "integer", "date") or kind.startswith("decimal"):
        least, greatest = normal(min(rows)), normal(max(rows))
        for found, value in ((bounds.low[0].as_py(), least), (bounds.high[0].as_py(), greatest)):
            assert abs(Decimal(found) - Decimal(value)) <= abs(Decimal(value)) / 2**49 + 1
    if kind in ("integer", "date", "decimal(15,2)"):
        assert bounds.exact.to_pylist() == [True]


@pytest.mark.parametrize(
    ("kind", "arrow", "value"),
    [
        ("long", pa.int64(), 2**53 - 1),
        ("long", pa.int64(), 1234567890123456789),
        ("decimal(20,2)", pa.decimal128(38, 2), Decimal("123456789012345678.91")),
        ("decimal(38,0)", pa.decimal128(38, 0), Decimal(10**37 + 1)),
        ("date", pa.date32(), dt.date(2026, 1, 1)),
    ],
)
def test_what_no_writer_of_doubles_writes_is_exact(kind, arrow, value):
    for upper in (False, True):
        found = outer_bounds(pa.array([value, None], arrow), data_type_from_json(kind), upper=upper)
        assert found.values.to_pylist() == [normal(value), None]
        assert found.exact.to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("kind", "arrow", "value"),
    [
        ("long", pa.int64(), 2**53),
        ("long", pa.int64(), -(2**63)),
        ("decimal(20,2)", pa.decimal128(38, 2), Decimal("123456789012345660.00")),
        ("decimal(17,1)", pa.decimal128(38, 1), Decimal("900719925474099.2")),
        ("decimal(38,0)", pa.decimal128(38, 0), Decimal(int(1.1e37))),
        ("decimal(38,0)", pa.decimal128(38, 0), Decimal(2**63 - 1)),
        ("double", pa.float64(), 1.5),
        ("timestamp", pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("string", pa.string(), "a"),
    ],
)
def test_what_may_have_been_rounded_is_not_exact(kind, arrow, value):
    for upper in (False, True):
        found = outer_bounds(pa.array([value], arrow), data_type_from_json(kind), upper=upper)
        assert found.exact.to_pylist() == [False]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", ["decimal(38,0)", "decimal(20,2)"])
def test_bounds_at_the_end_of_a_type_stay_in_it(kind, sign):
    data_type = data_type_from_json(kind)
    most = Decimal(10**data_type.precision - 1).scaleb(-data_type.scale, WIDE)
    rounded = most.quantize(Decimal(f"1E{data_type.precision - data_type.scale - 10}"), "ROUND_DOWN", WIDE)
    stated = pa.array([rounded.copy_sign(sign)], pa.decimal128(38, data_type.scale))
    ends = [outer_bounds(stated, data_type, upper=upper).values[0].as_py() for upper in (False, True)]
    assert ends[0] < rounded.copy_sign(sign) < ends[1]
    assert all(abs(each) <= most for each in ends)


def test_a_number_of_endless_digits_is_no_bound_and_takes_no_time():
    stats = json.dumps({"numRecords": 1, "minValues": {"c": 1}, "maxValues": {"c": 2}})
    stats = stats.replace(": 2}", ": 1e999999999}")
    for kind in ("long", "decimal(20,2)"):
        bounds = parsed_bounds(pa.array([stats]), pa.array([1]), {("c",): data_type_from_json(kind)})[("c",)]
        assert bounds.low.to_pylist() == [1]
        assert bounds.high.to_pylist() == [None]


@pytest.mark.parametrize("claim", ["false", '"yes"', "0"])
def test_bounds_that_a_writer_calls_wide_are_not_exact(claim):
    stats = f'{{"numRecords":1,"minValues":{{"c":1}},"maxValues":{{"c":1}},"tightBounds":{claim}}}'
    tight = stats.replace(claim, "true")
    bounds = parsed_bounds(pa.array([stats, tight]), pa.array([1, 1]), {("c",): data_type_from_json("long")})
    assert bounds[("c",)].exact.to_pylist() == [False, True]


def test_iceberg_metrics_are_the_outer_bounds():
    stats = stats_of([Decimal("123456789012345678.91")], deltalake)
    (metrics,) = column_metrics(
        pa.array([stats]), pa.array([1]), [Leaf(1, ("c",), data_type_from_json("decimal(20,2)"))]
    )
    low, high = (
        int.from_bytes(side[0]["value"], "big", signed=True)
        for side in (metrics.lower_bounds, metrics.upper_bounds)
    )
    assert low < 12345678901234567891 < high


BEYOND = [
    ("long", [2**53 + 1, 2**53 + 2], 2**53 + 1, False),
    ("long", [-(2**53) - 1, -(2**53) - 2], -(2**53) - 1, True),
    ("long", [7, 9], 7, False),
    (
        "decimal(20,2)",
        [Decimal("123456789012345678.91"), Decimal("123456789012345680.00")],
        Decimal("123456789012345670.00"),
        False,
    ),
    ("string", ["a" * 32 + "\x7f", "a" * 32], "a" * 32 + "é", True),
    ("double", [0.6999999890123, 0.7], float(np.float32(0.7)), False),
]
"""What two files state, and a value that the second may have; whether they are maximums."""


@pytest.mark.parametrize(("kind", "stated", "value", "upper"), BEYOND)
def test_a_merged_bound_reaches_as_far_as_each_of_its_sources(kind, stated, value, upper):
    side = "maxValues" if upper else "minValues"
    texts = [
        f'{{"numRecords":1,"{side}":{{"c":{json.dumps(each) if isinstance(each, str) else each}}},"nullCount":{{"c":0}}}}'
        for each in stated
    ]
    found = merged(texts, [1, 1], schema_of(kind))
    column = {("c",): data_type_from_json(kind)}
    bounds = parsed_bounds(pa.array([found]), pa.array([2]), column)[("c",)]
    assert bounds.high[0].as_py() >= value if upper else bounds.low[0].as_py() <= value
    # A bound that was moved is no value of the file.
    is_stated = json.loads(found, parse_float=Decimal)[side]["c"] in stated
    assert json.loads(found)["tightBounds"] is is_stated


@pytest.mark.parametrize(
    ("kind", "stated", "upper", "expected"),
    [
        ("timestamp", 5_000_000, True, 5_001_000),
        ("timestamp", 5_000_000, False, 5_000_000),
        ("timestamp", 1, False, 1),
        ("timestamp", 0, False, -1000),
        ("timestamp", -5_000_000, False, -5_001_000),
        ("string", "a" * 31, True, "a" * 31),
        ("string", "a" * 33, True, "a" * 33),
        ("string", "a" * 60, True, "a" * 60),
        ("string", "a" * 65, True, "a" * 65),
        ("string", "a" * 61, True, "a" * 61 + "\U0010ffff"),
        ("string", "a" * 64, True, "a" * 64 + "\U0010ffff"),
        ("string", "a" * 32, False, "a" * 32),
        ("string", "😀" * 15, True, "😀" * 15),
        ("string", "😀" * 15 + "?", True, "😀" * 15 + "\U0010ffff"),
        ("double", 0.7, False, float(np.float32(0.7))),
        ("double", 0.3, False, 0.3),
        ("double", -1e300, False, -1e300),
        ("double", 1e-300, False, 1e-300),
        ("double", 0.1234567891, False, 0.1234567891),
        ("float", 0.7, False, float(np.float32(0.7))),
        ("long", 2**53 - 1, True, 2**53 - 1),
        ("long", 2**53, True, 2**53 + 9),
        ("long", 2**53, False, 2**53 - 9),
    ],
)
def test_a_bound_is_moved_by_what_may_be_lost_and_no_further(kind, stated, upper, expected):
    arrow = {"timestamp": pa.timestamp("us", "UTC"), "string": pa.string(), "long": pa.int64()}
    values = pa.array([stated, None], arrow.get(kind, pa.float64()))
    found = outer_bounds(values, data_type_from_json(kind), upper=upper)
    assert found.values.to_pylist() == [expected, None]
