import json

import pyarrow as pa
import pytest

from delvec_errors import CorruptLog, InvalidPredicate
from delvec_kernel.data_skipping import truth
from delvec_kernel.data_skipping.truth import prune
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import StructType
from delvec_kernel.statistics.bounds import statistics_bounds

TYPES = {
    "i": "integer",
    "b": "byte",
    "l": "long",
    "f": "float",
    "g": "double",
    "s": "string",
    "d": "date",
    "ts": "timestamp",
    "n": "timestamp_ntz",
    "p": "decimal(20,2)",
    "flag": "boolean",
    "bin": "binary",
    "pi": "integer",
    "ps": "string",
    "pd": "date",
    "pt": "timestamp",
    "pg": "double",
    "pb": "boolean",
    "st": {
        "type": "struct",
        "fields": [{"name": "Inner x", "type": "integer", "nullable": True, "metadata": {}}],
    },
    "arr": {"type": "array", "elementType": "integer", "containsNull": True},
}
PARTITIONED = ["pi", "ps", "pd", "pt", "pg", "pb"]


def _schema(types=None):
    return StructType.from_json(
        {
            "type": "struct",
            "fields": [
                {
                    "name": name,
                    "type": kind,
                    "nullable": True,
                    "metadata": {"delta.columnMapping.physicalName": f"col-{name}"},
                }
                for name, kind in (types or TYPES).items()
            ],
        }
    )


SCHEMA = _schema()


def _physical(values):
    return {f"col-{name}": value for name, value in values.items()}


def _files(*files):
    """Build live files, each {"part": {...}, "min": {...}, "max": {...}, "nulls": {...}, "rows": n} or {"stats": text}."""
    stats, parts, rows = [], [], []
    for file in files:
        document = {"numRecords": file.get("rows", 10)}
        for key, side in (("min", "minValues"), ("max", "maxValues"), ("nulls", "nullCount")):
            if key in file:
                document[side] = _physical(file[key])
        document |= file.get("more", {})
        stats.append(file.get("stats", json.dumps(document)))
        parts.append(list(_physical(file.get("part", {})).items()))
        rows.append(file.get("rows", 10))
    return pa.table(
        {
            "partition_values": pa.array(parts, pa.map_(pa.string(), pa.string())),
            "stats": pa.array(stats, pa.string()),
            "num_records": pa.array(rows, pa.int64()),
        }
    )


def _may(text, *files):
    return prune(_files(*files), parse(text, SCHEMA), SCHEMA, PARTITIONED).may_match.to_pylist()


def _all(text, *files):
    return prune(_files(*files), parse(text, SCHEMA), SCHEMA, PARTITIONED).matches_all.to_pylist()


def _between(column, low, high, nulls=0):
    return {"min": {column: low}, "max": {column: high}, "nulls": {column: nulls}}


LOW, MIDDLE, HIGH = _between("i", 0, 9), _between("i", 10, 19), _between("i", 20, 29, nulls=3)
NOTHING_BUT_NULL = {"nulls": {"i": 10}}
UNKNOWN = {"stats": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 12", [0, 1, 0, 0, 1]),
        ("12 = i", [0, 1, 0, 0, 1]),
        ("i <> 12", [1, 1, 1, 0, 1]),
        ("i < 10", [1, 0, 0, 0, 1]),
        ("i <= 10", [1, 1, 0, 0, 1]),
        ("i > 19", [0, 0, 1, 0, 1]),
        ("i >= 19", [0, 1, 1, 0, 1]),
        ("19 < i", [0, 0, 1, 0, 1]),
        ("i > 9.5", [0, 1, 1, 0, 1]),
        ("i = 9.5", [1, 1, 0, 0, 1]),
        ("i > 1e1", [0, 1, 1, 0, 1]),
        ("i > 19L", [0, 0, 1, 0, 1]),
        ("i < -5", [0, 0, 0, 0, 1]),
        ("i < - -5", [1, 0, 0, 0, 1]),
        ("i = '12'", [0, 1, 0, 0, 1]),
        ("i = 'x'", [1, 1, 1, 1, 1]),
        ("i = 99999999999", [0, 0, 0, 0, 1]),
        ("i = 99999999999999999999999", [1, 1, 1, 1, 1]),
        ("i between 5 and 12", [1, 1, 0, 0, 1]),
        ("i not between 5 and 25", [1, 0, 1, 0, 1]),
        ("i in (1, 25)", [1, 0, 1, 0, 1]),
        ("i in ('1', 25)", [1, 0, 1, 0, 1]),
        ("i in ('01', 25)", [1, 1, 1, 1, 1]),
        ("i in (1, 25, null)", [1, 0, 1, 0, 1]),
        ("i not in (1, 25)", [1, 1, 1, 0, 1]),
        ("i not in (1, 25, null)", [0, 0, 0, 0, 0]),
        ("i in (null)", [0, 0, 0, 0, 0]),
        ("i in (1, abs(i))", [1, 1, 1, 1, 1]),
        ("i is null", [0, 0, 1, 1, 1]),
        ("isnull(i)", [0, 0, 1, 1, 1]),
        ("i is not null", [1, 1, 1, 0, 1]),
        ("i <=> null", [0, 0, 1, 1, 1]),
        ("i <=> 12", [0, 1, 0, 0, 1]),
        ("not (i <=> 12)", [1, 1, 1, 1, 1]),
        ("(i = 12) is null", [0, 0, 1, 1, 1]),
        ("(i = 12) is true", [0, 1, 0, 0, 1]),
        ("(i < 10) is not true", [0, 1, 1, 1, 1]),
        ("i = null", [0, 0, 0, 0, 0]),
        ("null = i", [0, 0, 0, 0, 0]),
        ("i = 12 or i = 25", [0, 1, 1, 0, 1]),
        ("i > 5 and i < 8", [1, 0, 0, 0, 1]),
        ("not (i < 10 or i > 19)", [0, 1, 0, 0, 1]),
        ("not i < 10", [0, 1, 1, 0, 1]),
        ("not not i < 10", [1, 0, 0, 0, 1]),
        ("i < 10 and rand() < 0.5", [1, 0, 0, 0, 1]),
        ("i < 10 or foo(i)", [1, 1, 1, 1, 1]),
        ("cast(i as bigint) = 12", [0, 1, 0, 0, 1]),
        ("cast(i as smallint) = 12", [1, 1, 1, 1, 1]),
        ("i + 1 = 12", [1, 1, 1, 1, 1]),
        ("case when i = 12 then true else false end", [1, 1, 1, 1, 1]),
        ("i < l", [1, 1, 1, 0, 1]),
        ("true", [1, 1, 1, 1, 1]),
        ("false", [0, 0, 0, 0, 0]),
        ("i = 12 and false", [0, 0, 0, 0, 0]),
        ("(null and i < 10) is null", [1, 0, 1, 1, 1]),
        ("(null or i < 10) is null", [0, 1, 1, 1, 1]),
        ("not null", [0, 0, 0, 0, 0]),
    ],
)
def test_integer_statistics(text, expected):
    assert _may(text, LOW, MIDDLE, HIGH, NOTHING_BUT_NULL, UNKNOWN) == [bool(each) for each in expected]


def test_a_null_count_below_zero_is_unknown():
    """parquet-mr counts -1 nulls where a footer says nothing, and converters put that into the log."""
    unknown, none = _between("i", 0, 9, nulls=-1), _between("i", 0, 9)
    assert _may("i is null", unknown, none) == [True, False]


@pytest.mark.parametrize("place", [0, 700, 1999])
def test_invalid_statistics_of_one_file_do_not_affect_the_others(place):
    """Texts are read all at once, bisecting around one that is not JSON."""
    files = [_between("i", number, number) for number in range(2000)]
    files[place] = {"stats": '{"numRecords": 10, "minValues": '}
    asked = [number for number in (0, 1, 699, 701, 1000, 1998, 1999) if number != place]
    for number in asked:
        expected = [each in (number, place) for each in range(2000)]
        assert _may(f"i = {number}", *files) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cast(i as decimal) = 12", [0, 1]),  # decimal(10,0), as many digits as an integer has
        ("cast(i as decimal(12,2)) = 12", [0, 1]),
        ("cast(i as decimal(38,2)) = 12", [0, 1]),
        ("cast(i as bigint) = 12", [0, 1]),
        ("cast(i as double) = 12.0", [0, 1]),
        ("cast(i as float) = 12.0", [0, 1]),
        # Overflow gives NULL or an error, so bounds are no use.
        ("cast(i as decimal(10,2)) is null", [1, 1]),
        ("cast(i as decimal(9)) = 12", [1, 1]),
        ("cast(i as smallint) is null", [1, 1]),
        ("cast(i as string) = '12'", [1, 1]),
        ("cast(i as boolean)", [1, 1]),
        ("cast(i as timestamp) = timestamp '1970-01-01 00:00:12'", [1, 1]),
        # Only strings have prefixes.
        ("left(i, 1) = '2'", [1, 1]),
        ("substring(i, 1, 1) = '2'", [1, 1]),
        ("year(i) = 12", [1, 1]),
        ("to_date(i) = date '2024-01-01'", [1, 1]),
    ],
)
def test_integer_casts(text, expected):
    assert _may(text, LOW, MIDDLE) == [bool(each) for each in expected]


def test_literals_changed_by_a_cast():
    # 11.6 is rounded to 12; 12 with one digit is NULL or an error.
    assert _may("p = cast(11.6 as decimal(2,0))", _between("p", 12, 12)) == [True]
    assert _may("p = cast(11.6 as decimal(3,1))", _between("p", 12, 12), _between("p", 11, 12)) == [
        False,
        True,
    ]
    assert _may("not (i <=> cast(12 as decimal(1,0)))", _between("i", 12, 12)) == [True]
    assert _may("not (i <=> cast(12 as decimal(2,0)))", _between("i", 12, 12)) == [False]
    assert _may("not (i <=> cast(300 as tinyint))", _between("i", 300, 300)) == [True]
    assert _may("i = cast(127 as tinyint)", LOW, _between("i", 127, 127)) == [False, True]
    assert _may("i = cast(128 as tinyint)", LOW, _between("i", -128, -128)) == [True, True]
    assert _may("i = cast(-128 as tinyint)", LOW, _between("i", -128, -128)) == [False, True]
    # The negation of the least value overflows to itself, unless ANSI is on.
    assert _may("i = -cast(-128 as tinyint)", _between("i", -128, -128)) == [True]
    assert _may("i = -cast(-127 as tinyint)", _between("i", -128, -128), _between("i", 127, 127)) == [
        False,
        True,
    ]


WIDE = {
    **dict.fromkeys("ilfgp", (-(10**9), 10**9)),
    "b": (-128, 127),
    "d": ("1900-01-01", "2100-01-01"),
    "n": ("1900-01-01T00:00:00.000", "2100-01-01T00:00:00.000"),
    "ts": ("1900-01-01T00:00:00.000Z", "2100-01-01T00:00:00.000Z"),
    "s": ("", "~"),
}


@pytest.mark.parametrize("column", WIDE)
@pytest.mark.parametrize(
    "literal",
    ["date '2024-01-01'", "timestamp '2024-01-01 00:00:00'", "'text'", "''", "true", "12", "1.5", "1e0"],
)
def test_a_literal_of_another_type_skips_no_file_that_may_match(column, literal):
    """The engine decides what the comparison means, or fails."""
    file = _between(column, *WIDE[column])
    for text in (f"{column} = {literal}", f"{literal} <=> {column}", f"{column} <> {literal}"):
        try:
            predicate = parse(text, SCHEMA)
        except InvalidPredicate:
            continue
        assert prune(_files(file), predicate, SCHEMA, PARTITIONED).may_match.to_pylist() == [True]


def test_casts_of_other_types():
    tens = [_between("p", 0.00, 9.99), _between("p", 10.00, 19.99)]
    assert _may("cast(p as decimal(21,3)) = 12", *tens) == [False, True]
    assert _may("cast(p as decimal(20,1)) = 10", *tens) == [True, True]  # 9.99 rounds to it
    assert _may("cast(p as decimal(19,2)) is null", *tens) == [True, True]
    assert _may("cast(l as decimal) is null", _between("l", 0, 9)) == [True]
    assert _may("cast(l as decimal(19,0)) = 12", _between("l", 0, 9)) == [False]
    assert _may("cast(b as decimal(3)) = 12", _between("b", 0, 9)) == [False]
    assert _may("cast(b as decimal(2)) is null", _between("b", 0, 9)) == [True]
    assert _may("cast(f as double) < 1", _between("f", 1.5, 2.0)) == [False]
    assert _may("cast(g as float) < 1", _between("g", 1.5, 2.0)) == [False]
    # A double that rounds down to 1 as a float.
    assert _may("cast(g as float) <= 1", _between("g", 1.00000001, 2.0)) == [True]
    assert _may("cast(g as int) = 1", _between("g", 2.5, 3.0)) == [True]


def test_dates_of_timestamps():
    day = _between("d", "2024-03-01", "2024-03-31")
    local = _between("n", "2024-03-01T00:00:00.000", "2024-03-02T12:00:00.000")
    at = _between("ts", "2024-03-02T00:00:00.000Z", "2024-03-02T12:00:00.000Z")
    for text in ("to_date(n)", "cast(n as date)"):
        assert _may(f"{text} = date '2024-03-02'", local) == [True]
        assert _may(f"{text} > date '2024-03-02'", local) == [False]
        assert _may(f"{text} < date '2024-03-01'", local) == [False]
    for text in ("to_date(ts)", "cast(ts as date)"):  # in any session time zone
        assert _may(f"{text} = date '2024-03-01'", at) == [True]
        assert _may(f"{text} = date '2024-03-03'", at) == [True]
        assert _may(f"{text} < date '2024-03-01'", at) == [False]
        assert _may(f"{text} > date '2024-03-03'", at) == [False]
    assert _may("to_date(d) = date '2024-04-01'", day) == [False]
    assert _may("to_date(n, 'yyyy') = date '2025-01-01'", local) == [True]
    assert _may("year(d) = 2024", day) == [True]
    assert _may("year(d) > 2024 or year(d) < 2024", day) == [False]
    assert _may("year(cast(n as date)) <> 2024", local) == [False]
    assert _may("cast(d as timestamp_ntz) > timestamp_ntz '2024-03-31 00:00:00.001'", day) == [False]
    assert _may("cast(d as timestamp_ntz) = timestamp_ntz '2024-03-31 00:00:00'", day) == [True]
    assert _may("cast(d as timestamp) > timestamp '2024-03-31T12:00:00Z'", day) == [True]
    assert _may("cast(d as timestamp) > timestamp '2024-04-02T00:00:00Z'", day) == [False]
    assert _may("cast(n as timestamp) > timestamp '2024-03-03T00:00:00Z'", local) == [True]
    assert _may("cast(n as timestamp) > timestamp '2024-03-04T00:00:00Z'", local) == [False]
    assert _may("cast(ts as timestamp_ntz) < timestamp_ntz '2024-03-01 12:00:00'", at) == [True]
    assert _may("cast(ts as timestamp_ntz) < timestamp_ntz '2024-02-29 12:00:00'", at) == [False]


def test_prefixes_of_text():
    files = [_between("s", "apple", "avocado"), _between("s", "banana", "cherry")]
    for text in (
        "left(s, 2)",
        "substring(s, 1, 2)",
        "substr(s, 0, 2)",
        "(left((s), 2))",
        "left(left(s, 3), 2)",
    ):
        assert _may(f"{text} = 'av'", *files) == [True, False], text
        assert _may(f"{text} = 'ba'", *files) == [False, True], text
        assert _may(f"{text} = 'aw'", *files) == [False, False], text
        assert _may(f"{text} like 'b%'", *files) == [False, True], text
    for text in (
        "left(s, 0) = ''",
        "left(s, i) = 'av'",
        "left(s, -1) = ''",
        "substring(s, 2, 2) = 'an'",
        "substring(s, -2, 2) = 'ry'",
        "substring(s, i, 2) = 'av'",
        "substring(s, 1) = 'an'",
        "right(s, 2) = 'an'",
    ):
        assert _may(text, *files) == [True, True], text


@pytest.mark.parametrize("bound", [{"min": {"s": "b"}}, {"max": {"s": "b"}}, {"nulls": {"s": 0}}])
@pytest.mark.parametrize(
    "text", ["s like 'b%'", "s not like 'b%'", "s like 'b'", "s not like 'b'", "s like '%b'"]
)
def test_like_with_an_unknown_bound_skips_no_matching_row(text, bound):
    assert _may(text, bound) == [True]
    assert _may(text, bound, _between("s", "a", "c"))[0]


def test_long_in_lists_and_or_chains():
    members = ",".join(str(each) for each in range(100, 40_000, 100))
    files = [
        _between("i", 101, 199),
        _between("i", 150, 200),
        _between("i", 300, 300),
        UNKNOWN,
        NOTHING_BUT_NULL,
    ]
    assert _may(f"i in ({members})", *files) == [False, True, True, True, False]
    assert _may(f"i not in ({members})", *files) == [True, True, False, True, False]
    chain = " or ".join(f"(i = {each})" for each in range(100, 40_000, 100))
    assert _may(chain, *files) == [False, True, True, True, False]
    texts = ",".join(f"'k{each:05d}'" for each in range(100, 40_000, 100))
    files = [_between("s", "k00101", "k00199"), _between("s", "k00150", "k00200"), UNKNOWN]
    assert _may(f"s in ({texts})", *files) == [False, True, True]
    parts = [{"part": {"pi": "100"}}, {"part": {"pi": "101"}}, {"part": {"pi": None}}]
    assert _all(f"pi in ({members})", *parts) == [True, False, False]
    assert _may(f"pi in ({members})", *parts) == [True, False, False]
    doubles = ",".join(f"{each}.5" for each in range(100))
    assert _may(f"g in ({doubles})", _between("g", 100.0, 200.0), _between("g", 3.0, 3.1)) == [False, True]


def _one_bound(column, *, low=None, high=None):
    sides = {"min": low, "max": high}
    return {side: {column: value} for side, value in sides.items() if value is not None} | {
        "nulls": {column: 0}
    }


def _literals(column, members):
    return ", ".join(
        f"DATE'2024-{each // 28 + 1:02}-{each % 28 + 1:02}'" if column == "d" else str(each)
        for each in members
    )


def _value(column, number):
    return f"2024-{number // 28 + 1:02}-{number % 28 + 1:02}" if column == "d" else number


@pytest.mark.parametrize("column", ["i", "l", "g", "f", "p", "d"])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside files with both bounds"])
def test_long_lists_with_one_unknown_bound_skip_no_matching_row(column, others):
    members = range(100, 200, 2)
    listed, unlisted = (f"{column} {word} ({_literals(column, members)})" for word in ("IN", "NOT IN"))
    values = [99, 100, 101, 198, 199]
    beside = [_between(column, _value(column, 0), _value(column, 250))] if others else []

    for bound, reaches in (("low", (99, 100, 101, 198)), ("high", (100, 101, 198, 199))):
        files = [_one_bound(column, **{bound: _value(column, each)}) for each in values]
        # A file whose values start or end at this member may contain any of the others, or other values.
        found = dict(zip(values, _may(listed, *beside, *files)[len(beside) :], strict=True))
        assert all(found[each] for each in reaches), bound
        assert all(_may(unlisted, *beside, *files)), bound

    assert all(_may(listed, *beside, {"nulls": {column: 0}}))
    assert all(_may(unlisted, *beside, {"nulls": {column: 0}}))


def test_a_long_list_skips_by_one_bound():
    listed = f"i IN ({_literals('i', range(100, 200, 2))})"

    assert _may(listed, LOW, *(_one_bound("i", low=low) for low in (198, 199))) == [False, True, False]
    assert _may(listed, LOW, *(_one_bound("i", high=high) for high in (99, 100))) == [False, False, True]


def test_a_file_with_a_single_value_of_a_long_list():
    unlisted = f"i NOT IN ({_literals('i', range(100, 200, 2))})"
    files = [
        _between("i", low, high) for low, high in ((100, 100), (198, 198), (100, 102), (101, 101), (99, 99))
    ]

    assert _may(unlisted, *files) == [False, False, True, True, True]
    assert _may(unlisted, *(_between("i", each, each, nulls=10) for each in (100, 101))) == [False, False]


def test_a_long_list_of_a_column_without_bounds_only_skips_files_of_nulls():
    listed = ", ".join(["true", "false"] * 50)

    for text in (f"flag IN ({listed})", f"flag NOT IN ({listed})"):
        assert _may(text, {"nulls": {"flag": 0}}, {"nulls": {"flag": 10}}, UNKNOWN) == [True, False, True]


@pytest.mark.parametrize("members", [10, 100])
def test_fractions_never_equal_integers(members):
    numbers = [f"{each}.5" for each in range(100, 100 + members)]
    chain, listed = " or ".join(f"i = {each}" for each in numbers), ", ".join(numbers)

    for text in (f"not ({chain})", f"i not in ({listed})"):
        assert _may(text, _between("i", 100, 100), _between("i", 101, 101)) == [True, True], text


def test_two_columns_are_compared():
    file = {"min": {"i": 5, "l": 0}, "max": {"i": 9, "l": 4}, "nulls": {"i": 0, "l": 0}}
    assert _may("i = l", file) == [False]
    assert _may("i < l", file) == [False]
    assert _may("i > l", file) == [True]
    assert _may("not i > l", file) == [False]
    assert _may("i = g", file) == [True]


def test_text():
    files = [_between("s", "apple", "avocado"), _between("s", "banana", "cherry"), _between("s", "ab", "ab")]
    assert _may("s = 'b'", *files) == [False, False, False]
    assert _may("s like 'ba%'", *files) == [False, True, False]
    assert _may("s like 'ba_ana'", *files) == [False, True, False]
    assert _may("s like '%a'", *files) == [True, True, True]
    assert _may("s like 'a\\\\_%'", *files, _between("s", "a_a", "a_b")) == [False, False, False, True]
    assert _may("s like 'ba/%' escape '/'", *files, _between("s", "ba%", "ba%")) == [
        False,
        False,
        False,
        True,
    ]
    assert _may("s not like 'a%'", *files) == [False, True, False]
    assert _may("s not like 'a%b'", *files) == [True, True, True]
    assert _may("s like 'ab'", *files) == [False, False, True]
    assert _may("startswith(s, 'b')", *files) == [False, True, False]
    assert _may("not startswith(s, 'a')", *files) == [False, True, False]
    assert _may("s = 5", *files) == [True, True, True]
    assert _may("s > 'é'", *files, _between("s", "z", "ê")) == [False, False, False, True]
    assert _may("s like 'a%'", {"nulls": {"s": 10}}, {"min": {"s": "b"}}, {"min": {"s": ""}}) == [
        False,
        False,
        True,
    ]


def test_truncated_strings():
    long = "x" * 40
    with_tie_breaker = _between("s", long[:32], long[:32] + "\U0010ffff")
    without = _between("s", long[:32], long[:32])
    assert _may(f"s = '{long}'", with_tie_breaker, without) == [True, True]
    assert _may("s like 'xx%'", with_tie_breaker, without) == [True, True]
    assert _may("not s = '" + "x" * 32 + "'", without) == [True]
    assert _may("s > 'y'", with_tie_breaker, without) == [False, False]


def test_float_maximums_are_ignored():
    # A Parquet footer's maximum ignores NaN, which is greater than 9.
    for column in ("f", "g"):
        file = _between(column, 1.0, 2.0)
        assert _may(f"{column} > 9", file) == [True]
        assert _may(f"{column} >= 9", file) == [True]
        assert _may(f"not {column} <= 9", file) == [True]
        assert _may(f"{column} < 1", file) == [False]
        assert _may(f"{column} = 0.5", file) == [False]
        assert _may(f"{column} > 9", {"nulls": {column: 10}}) == [False]
    # 0.1 in JSON is the FLOAT 0.100000001.
    assert _may("f = cast(0.1 as float)", _between("f", 0.1, 0.1)) == [True]
    assert _may("f <= 0.1", _between("f", 0.1, 0.1)) == [False]


def test_infinity_and_nan_in_statistics():
    file = {"stats": '{"numRecords":10,"minValues":{"col-g":"NaN","col-i":5},"maxValues":{"col-i":6}}'}
    assert _may("g = 1", file) == [True]
    assert _may("g = 1 and i = 4", file, LOW) == [False, True]
    assert _may("g = 1 and i = 5", file, MIDDLE) == [True, False]


def test_dates_and_times():
    day = _between("d", "2024-03-01", "2024-03-31")
    assert _may("d = '2024-04-01'", day) == [False]
    assert _may("d = date '2024-3-9'", day) == [True]
    assert _may("d >= '2024-04'", day) == [True]
    assert _may("d > timestamp '2024-04-01 00:00:00'", day) == [True]
    assert _may("d in ('2024-04-01', date '2024-04-02')", day) == [False]
    assert _may("d in ('2024-4-1', '2024-04-02')", day) == [True]
    at = _between("ts", "2024-03-01T00:00:00.000Z", "2024-03-02T00:00:00.000Z")
    assert _may("ts > timestamp '2024-03-02T00:00:00.000999Z'", at) == [True]
    assert _may("ts > timestamp '2024-03-02T00:00:00.001Z'", at) == [False]
    assert _may("ts > timestamp '2024-03-02T02:00:00+01:00'", at) == [False]
    assert _may("ts > timestamp '2024-03-02T10:30:00+11:00'", at) == [True]
    assert _may("ts < timestamp '2024-02-29T13:00:00-11:30'", at) == [True]
    assert _may("ts < '2024-03-01 00:00:00 UTC'", at) == [False]
    # The session's time zone determines the instant.
    assert _may("ts > timestamp '2024-03-02 12:00:00'", at) == [True]
    assert _may("ts > '2024-03-03'", at) == [False]
    assert _may("ts > date '2024-03-02'", at) == [True]
    assert _may("ts > timestamp '2024-03-05'", at) == [False]
    local = _between("n", "2024-03-01T00:00:00.000", "2024-03-02T00:00:00.000")
    assert _may("n > '2024-03-02 00:00:01'", local) == [False]
    assert _may("n > timestamp_ntz '2024-03-02 00:00:00.0005'", local) == [True]
    assert _may("n > date '2024-03-03'", local) == [False]
    assert _may("n > timestamp '2024-03-02 06:00:00'", local) == [True]
    odd = [
        _between("ts", "yesterday", "today"),
        _between("ts", "2024-03-01T00:00:00.000-08:00", "2024-99-01T00:00:00Z"),
    ]
    assert _may("ts < timestamp '2024-03-01T07:59:59Z'", *odd) == [True, False]
    assert _may("d < '2024-02-31'", _between("d", "2024-03-01", "2024-02-31")) == [True]


def test_decimals_are_compared_exactly():
    low = {
        "stats": '{"minValues":{"col-p":123456789012345678.01},"maxValues":{"col-p":123456789012345678.02}}'
    }
    assert _may("p = 123456789012345678.02", low) == [True]
    assert _may("p = 123456789012345678.03", low) == [False]
    assert _may("p > 123456789012345678.015", low) == [True]
    assert _may("p > 123456789012345678.021", low) == [False]
    assert _may("p > 123456789012345678.03", low) == [False]
    assert _may("p > 1e30", low) == [True]
    assert _may("p < 5", low) == [False]


def test_struct_fields():
    file = {"min": {"st": {"Inner x": 5}}, "max": {"st": {"Inner x": 9}}, "nulls": {"st": {"Inner x": 0}}}
    assert _may("st.`inner X` = 7", file) == [True]
    assert _may("st.`inner x` = 4", file, UNKNOWN) == [False, True]
    assert _may("st.`inner x` is null", file) == [False]
    assert _may("st is null and st.`inner x` < 10", file) == [True]


def test_columns_without_usable_statistics():
    files = [{"nulls": {"flag": 0, "bin": 0, "arr": 10}}, {"nulls": {"flag": 10, "bin": 10, "arr": 0}}, {}]
    assert _may("flag", *files) == [True, False, True]
    assert _may("not flag", *files) == [True, False, True]
    assert _may("flag = true", *files) == [True, False, True]
    assert _may("flag is null", *files) == [False, True, True]
    assert _may("bin = x'00'", *files) == [True, True, True]
    assert _may("arr is null", *files) == [True, True, True]
    assert _may("arr[0] = 1", *files) == [True, True, True]


def test_wide_bounds():
    wide = {"more": {"tightBounds": False}}
    file = _between("i", 0, 9, nulls=4) | wide
    assert _may("i is null", file) == [True]
    assert _may("i is not null", file) == [True]
    assert _may("i > 9", file) == [False]
    assert _may("i is null", _between("i", 0, 9, nulls=0) | wide) == [False]
    assert _may("i is not null", {"nulls": {"i": 10}} | wide) == [False]


@pytest.mark.parametrize(
    "stats",
    [
        "",
        "{",
        "null",
        "[]",
        '"x"',
        '{"minValues":[1]}',
        '{"minValues":{"col-i":{"a":1}},"maxValues":7}',
        '{"minValues":{"col-i":"\\ud83d","col-s":"\\ud83d"}}',
        '{"minValues":{"col-i":1e999,"col-g":1e999}}',
        '{"minValues":{"col-i":1},"minValues":{"col-i":2}}',
        '{"nullCount":{"col-i":-1}}',
        "{\n}",
        "\ufeff{}",
        "[" * 5000,
        "{} null",
        "{} {}",
        "{} null {}",
        "{}\nnull\n{}",
        '{"minValues":{"col-i":50}}{"minValues":{"col-i":60}}',
    ],
)
def test_invalid_statistics_are_ignored_and_do_not_affect_others(stats):
    files = ({"stats": stats}, LOW, MIDDLE)
    assert _may("i = 12 and (s = 'b' or g = 5)", *files) == [True, False, True]


def test_statistics_over_several_lines():
    text = '\n{\n\t"minValues" : {"col-s" : "a  b}"} ,\r\n "maxValues" : {"col-s" : "a  } b"}\n}\n'
    files = ({"stats": text}, _between("s", "x", "y"))
    assert _may("s = 'a  c'", *files) == [True, False]
    assert _may("s = 'a  ~'", *files) == [False, False]
    assert _may("s = 'a  b}'", *files) == [True, False]
    assert _may("s < 'a  b}'", *files) == [False, False]
    braces = _between("s", "} null", "} {} null {")
    assert _may("s = '} o'", braces, LOW) == [True, True]
    assert _may("s = 'a'", braces, LOW) == [False, True]


def test_alternative_number_formats():
    file = {"stats": '{\n "numRecords": 10, "minValues": {"col-i": 5.0},\n "maxValues": {"col-i": "7"}}'}
    assert _may("i = 8", file, LOW) == [False, True]
    assert _may("i = 6", file, MIDDLE) == [True, False]


def test_partition_values_can_match_all_rows():
    files = [
        {"part": {"pi": "1", "ps": "a"}},
        {"part": {"pi": "2", "ps": None}},
        {"part": {"pi": None, "ps": "b c"}},
    ]
    assert _all("pi = 1", *files) == [True, False, False]
    assert _may("pi = 1", *files) == [True, False, False]
    assert _all("pi <> 1", *files) == [False, True, False]
    assert _may("pi <> 1", *files) == [False, True, False]
    assert _all("not (pi = 1)", *files) == [False, True, False]
    assert _all("pi is null", *files) == [False, False, True]
    assert _all("pi <=> null or ps = 'a'", *files) == [True, False, True]
    assert _all("pi in (1, 2)", *files) == [True, True, False]
    assert _all("pi not in (1, null)", *files) == [False, False, False]
    assert _all("ps like 'b%'", *files) == [False, False, True]
    assert _all("pi = 1 and i < 5", *files) == [False, False, False]
    assert _all("pi = 1 or i < 5", *files) == [True, False, False]
    assert _all("pi = '1'", *files) == [True, False, False]
    assert _all("pi = '01'", *files) == [True, False, False]
    assert _all("pi in ('01')", *files) == [False, False, False]
    assert _all("cast(pi as string) = '1'", *files) == [False, False, False]
    assert _may("cast(pi as string) = '1'", *files) == [True, True, True]
    assert _all("true", *files) == [True, True, True]
    assert _all("null or pi = 1", *files) == [True, False, False]


def test_statistics_never_match_all_rows():
    file = _between("i", 5, 5) | {"part": {"pi": "1"}}
    assert _all("i = 5", file) == [False]
    assert _all("i = 5 and pi = 1", file) == [False]
    assert _all("i is not null", file) == [False]


def test_partitions_by_other_types():
    day = [{"part": {"pd": "2024-03-01"}}, {"part": {"pd": "2024-03-02"}}]
    assert _all("pd = '2024-03-02'", *day) == [False, True]
    assert _all("pd in ('2024-03-02', '2024-03-03')", *day) == [False, True]
    assert _may("pd between '2024-03-02' and '2024-03-31'", *day) == [False, True]
    flags = [{"part": {"pb": "true"}}, {"part": {"pb": "false"}}, {"part": {"pb": ""}}]
    assert _all("pb", *flags) == [True, False, False]
    assert _all("not pb", *flags) == [False, True, False]
    assert _all("pb is not true", *flags) == [False, True, True]
    numbers = [{"part": {"pg": "NaN"}}, {"part": {"pg": "1.5"}}, {"part": {"pg": "Infinity"}}]
    assert _all("pg > 9", *numbers) == [True, False, True]
    assert _may("pg <= 9", *numbers) == [False, True, False]
    assert _may("pg = 1.5", *numbers) == [False, True, False]
    zoned = [{"part": {"pt": "2024-03-01T00:00:00.000000Z"}}, {"part": {"pt": "2024-03-01 00:00:00"}}]
    assert _all("pt = timestamp '2024-03-01T00:00:00Z'", *zoned) == [True, False]
    assert _may("pt = timestamp '2024-03-01T00:00:00Z'", *zoned) == [True, True]
    assert _may("pt > timestamp '2024-03-01T00:00:00Z'", *zoned) == [False, True]
    assert _may("pt > timestamp '2024-03-02T00:00:00Z'", *zoned) == [False, False]


def test_an_invalid_partition_value_is_corrupt():
    with pytest.raises(CorruptLog, match="x1"):
        _may("pi = 1", {"part": {"pi": "x1"}})


def test_without_a_predicate_every_row_matches():
    pruned = prune(_files(LOW, UNKNOWN), None, SCHEMA, PARTITIONED)
    assert pruned.may_match.to_pylist() == pruned.matches_all.to_pylist() == [True, True]


@pytest.mark.parametrize("text", [None, "true", "i = 1 and pi = 1", "i in (1,2)", "s like 'a%'"])
def test_without_files(text):
    predicate = parse(text, SCHEMA) if text else None
    pruned = prune(_files(), predicate, SCHEMA, PARTITIONED)
    assert len(pruned.may_match) == len(pruned.matches_all) == 0


def test_files_in_several_chunks_and_an_unpartitioned_table():
    files = pa.concat_tables([_files(LOW), _files(), _files(MIDDLE, HIGH)])
    assert prune(files, parse("i = 12", SCHEMA), SCHEMA, []).may_match.to_pylist() == [False, True, False]
    part = pa.concat_tables([_files({"part": {"pi": "1"}}), _files({"part": {"pi": "2"}})])
    assert prune(part, parse("pi = 2", SCHEMA), SCHEMA, ["PI"]).matches_all.to_pylist() == [False, True]


@pytest.mark.parametrize("word", ["and", "or"])
def test_a_huge_chain_over_many_files_is_limited(monkeypatch, word):
    monkeypatch.setattr(truth, "_MAX_COMPARISONS", 200_000)
    looked_at, real = [], truth.compared
    monkeypatch.setattr(truth, "compared", lambda *sides: looked_at.append(1) or real(*sides))
    files = _files(*[LOW] * 2000)
    chain = f" {word} ".join(f"i < {each}" for each in range(-1, -1001, -1))

    for text, may_match in (
        (chain, word == "or"),
        (f"{chain} {word} i > 5", word == "or"),
        ("i < -1", False),
    ):
        looked_at.clear()
        pruned = prune(files, parse(text, SCHEMA), SCHEMA, [])
        # The last terms are not evaluated.
        assert pruned.may_match.to_pylist() == [may_match] * files.num_rows
        assert len(looked_at) <= 100


REVERSED = {
    "i": (5, 1, "i = 3"),
    "l": (5, 1, "l = 3"),
    "f": (5.5, 1.5, "f = 1.5F"),
    "g": (5.5, 1.5, "g = 2.0D"),
    # In the order of signed bytes the first is less.
    "s": ("\u00e9", "a", "s = 'b'"),
    "d": ("2024-01-02", "2024-01-01", "d = DATE '2024-01-01'"),
    "ts": ("2024-01-02T00:00:00.000Z", "2024-01-01T00:00:00.000Z", "ts = TIMESTAMP '2024-01-01 12:00:00Z'"),
    "n": ("2024-01-02T00:00:00.000", "2024-01-01T00:00:00.000", "n = TIMESTAMP_NTZ '2024-01-01 12:00:00'"),
    "p": (5.25, 1.25, "p = 3.00"),
}


@pytest.mark.parametrize("column", REVERSED)
def test_reversed_bounds_say_nothing(column):
    low, high, text = REVERSED[column]
    bounds = {"min": {column: low}, "max": {column: high}, "nulls": {column: 0}}
    good = {"min": {column: high}, "max": {column: low}, "nulls": {column: 0}}
    files = _files(bounds, good, {**bounds, "more": {"tightBounds": True}})
    for predicate in (text, f"NOT ({text})", f"{column} IS NOT NULL"):
        found = prune(files, parse(predicate, SCHEMA), SCHEMA, PARTITIONED)
        assert found.may_match.to_pylist() == [True] * 3, predicate
    assert (
        prune(files, parse(f"{column} IS NULL", SCHEMA), SCHEMA, PARTITIONED).may_match.to_pylist()
        == [False] * 3
    )
    path = (column,)
    assert statistics_bounds(files["stats"].chunk(0), files["num_records"].chunk(0), [path], SCHEMA)[
        path
    ].low.is_valid().to_pylist() == [False, True, False]


def test_files_with_nan_still_have_a_minimum():
    stats = [
        {"min": {"g": 5.5}, "max": {"g": bound}, "nulls": {"g": 0}} for bound in ("NaN", "Infinity", 7.0)
    ]
    found = prune(_files(*stats), parse("g = 2.0D", SCHEMA), SCHEMA, PARTITIONED)
    assert found.may_match.to_pylist() == [False] * 3
