"""Data skipping checked against rows: no file in which DuckDB finds a match may be skipped."""

import datetime as dt
import itertools
import json
import math
import os
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from delvec_engines.duckdb.dialect import predicate_sql
from delvec_errors import InvalidPredicate
from delvec_kernel.data_skipping.truth import prune
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.partition_values import serialize
from delvec_kernel.schema.types import StructField, StructType, data_type_from_json

UTC = dt.UTC
ZONES = ["UTC", "America/Los_Angeles", "Pacific/Kiritimati"]
LONG = "x" * 31
DAYS = [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2024, 3, 1), dt.date(2024, 3, 2)]
INSTANTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    dt.datetime(2024, 3, 1, tzinfo=UTC),
    dt.datetime(2024, 3, 1, 0, 0, 0, 1, tzinfo=UTC),
    dt.datetime(2024, 3, 1, 12, 30, 0, 1_999, tzinfo=UTC),
]
VALUES = {
    "i": ("integer", [-(2**31), -3, 0, 1, 2, 3, 2**31 - 1]),
    "l": ("long", [-(2**63), -3, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1]),
    "f": ("float", [float("nan"), float("-inf"), -0.0, 0.0, 0.1, 0.5, 16777216.0, float("inf")]),
    "g": ("double", [float("nan"), float("-inf"), -0.0, 0.1, 0.5, 3.0, 1e300, float("inf")]),
    "p": ("decimal(20,2)", [Decimal(x) for x in ("-0.01", "0.00", "0.10", "2.00", "999999999999999999.99")]),
    "s": (
        "string",
        ["", "a", "a_", "a%b", "ab", "b", "é", "\U0001f600", LONG, LONG + "xx", LONG + "y", LONG + "é!"],
    ),
    "d": ("date", DAYS),
    "ts": ("timestamp", INSTANTS),
    "n": ("timestamp_ntz", [each.replace(tzinfo=None) for each in INSTANTS]),
    "flag": ("boolean", [True, False]),
}
# Partition columns hold one value per file.
SCHEMA = StructType(
    tuple(
        StructField(
            name, data_type_from_json(kind), metadata={"delta.columnMapping.physicalName": f"c-{name}"}
        )
        for name, kind in [(n, k) for n, (k, _) in VALUES.items()]
        + [(f"p{n}", k) for n, (k, _) in VALUES.items()]
    )
)
PARTITIONED = [f"p{name}" for name in VALUES]

LITERALS = {
    "i": [
        "0",
        "1",
        "2",
        "-3",
        "1.5",
        "2.0",
        "2e0",
        "3L",
        "'2'",
        "'02'",
        "99999999999",
        "2147483647",
        "1Y",
        "-2147483648",
        "5 - 3",
        "-(-3)",
        "7 div 2",
        "-7 % 4",
        "cast('2' as int)",
        "6 / 2",
        "1.5 * 2",
        "2147483646 + 1",
    ],
    "l": [
        "0",
        "2",
        "1.5",
        "9007199254740993",
        "9007199254740992D",
        "9.007199254740993e15",
        "'3'",
        "-3S",
        "9223372036854775807",
        "9007199254740992L + 1",
        "-(-3)",
        "7 / 2",
        "cast('3' as bigint)",
    ],
    "f": [
        "0",
        "0.1",
        "0.5",
        "0.1D",
        "16777217",
        "1e38",
        "cast(0.1 as float)",
        "-0.0",
        "cast('NaN' as double)",
        "'0.5'",
        "1 / 2",
        "0.05 * 2",
        "1D / 10",
    ],
    "g": [
        "0",
        "0.1",
        "0.5",
        "3",
        "1e300",
        "9999999",
        "cast('NaN' as double)",
        "cast('Infinity' as double)",
        "'0.1'",
        "1 / 10",
        "cast('0.1' as double)",
        "2 * 1.5",
    ],
    "p": [
        "0",
        "0.1",
        "0.10BD",
        "2",
        "0.005",
        "1e0",
        "999999999999999999.99",
        "99999999999999999999999",
        "-0.01",
        "0.05 + 0.05",
        "1 / 0.5",
        "-(0.01)",
    ],
    "s": [
        "''",
        "'a'",
        "'ab'",
        "'a_'",
        "'é'",
        f"'{LONG}'",
        f"'{LONG}x'",
        f"'{LONG}xx'",
        f"'{LONG}xy'",
        "'\\ud83d\\ude00'",
    ],
    "d": [
        "'2024-03-01'",
        "'2024-3-1'",
        "date '2024-02-29'",
        "date'1969-12-31'",
        "timestamp '2024-03-01 00:00:00'",
        "'2024-03-01 10:00:00'",
        "date '2024-02-28' + interval 1 day",
        "date '2024-03-02' - 1",
        "date '2024-01-31' + interval 1 month",
    ],
    "ts": [
        "'2024-03-01'",
        "'2024-03-01 00:00:00'",
        "timestamp '2024-03-01 12:30:00.001'",
        "timestamp '2024-03-01T00:00:00Z'",
        "timestamp '2024-03-01 00:00:00.000001+00:00'",
        "timestamp '1969-12-31T23:59:59.999500Z'",
        "date '2024-03-01'",
        "timestamp_ntz '2024-03-01 00:00:00'",
        "timestamp '2024-03-01 11:30:00.001Z' + interval 1 hour",
    ],
    "n": [
        "'2024-03-01'",
        "timestamp_ntz '2024-03-01 00:00:00.000001'",
        "timestamp_ntz '2024-03-01 12:30:00.001999'",
        "timestamp '2024-03-01 00:00:00'",
        "timestamp '2024-03-01T00:00:00Z'",
        "date '2024-03-01'",
        "timestamp_ntz '2024-02-29' + interval 1 day",
    ],
    "flag": ["true", "false", "'true'"],
}
PATTERNS = [
    "a%",
    "a\\_%",
    "%",
    "",
    "a",
    "_",
    "%b",
    "a%b",
    "é%",
    "x%",
    LONG + "%",
    LONG + "x%",
    LONG + "_",
    "ab%%",
]
OTHERS = {
    "i": [
        "{c} + 1 > 2",
        "cast({c} as string) = '2'",
        "coalesce({c}, 1) = 1",
        "abs(cast({c} as bigint)) = 3",
        "cast({c} as bigint) = 3",
        "cast({c} as bigint) >= l",
        "cast({c} as double) < 1.5D",
        "cast({c} as float) in (2, 3)",
        "cast({c} as decimal(12, 2)) = 2.5",
        "cast({c} as smallint) = 2",
        "cast({c} as bigint) is null",
    ],
    "l": [
        "cast({c} as double) = 9007199254740992D",
        "cast({c} as double) < g",
        "cast({c} as decimal(20, 0)) > 3",
        "cast(cast({c} as double) as float) <= 16777216D",
    ],
    "f": ["cast({c} as double) = 0.5", "cast({c} as double) > 0.1D"],
    "p": [
        "cast({c} as decimal(22, 3)) = 0.1",
        "cast({c} as double) = 0.1D",
        "cast({c} as decimal(3, 2)) = 2",
    ],
    "s": [
        "upper({c}) = 'A'",
        "startswith({c}, 'a')",
        "startswith({c}, 'xxxx')",
        "length({c}) > 1",
        "substring({c}, 1, 1) = 'a'",
        "left({c}, 2) in ('ab', 'b')",
        "substr({c}, 2, 1) = 'a'",
        f"left({{c}}, 31) = '{LONG}'",
        "left({c}, 1) <> 'a'",
        "cast({c} as string) like 'a%'",
    ],
    "g": ["isnan({c})", "not isnan({c})", "cast({c} as float) = 0.5D", "cast({c} as double) < 0.5D"],
    "d": [
        "year({c}) = 2024",
        "year({c}) < 2024",
        "cast({c} as timestamp) < timestamp '2024-03-01 00:00:00'",
        "cast({c} as timestamp) = ts",
        "cast({c} as timestamp_ntz) >= timestamp_ntz '2024-03-01 00:00:00'",
        "cast({c} as timestamp_ntz) = n",
    ],
    "ts": [
        "cast({c} as date) = date '2024-03-01'",
        "to_date({c}) < date '2024-03-01'",
        "date({c}) = d",
        "year({c}) = 1970",
        "year({c}) <= 1969",
        "cast({c} as timestamp_ntz) = n",
        "cast({c} as timestamp_ntz) > timestamp_ntz '2024-03-01 12:00:00'",
    ],
    "n": [
        "cast({c} as date) = date '2024-03-01'",
        "cast({c} as date) in (date '2024-02-29', date '1969-12-31')",
        "year({c}) = 1969",
        "cast({c} as timestamp) > ts",
        "not (cast({c} as date) >= date '2024-03-01')",
    ],
    "flag": ["{c}", "not {c}", "{c} is true", "{c} is not false", "if({c}, true, null)"],
}


@st.composite
def _leaf(draw):  # noqa: PLR0911 - one answer per shape
    name = draw(st.sampled_from(list(VALUES)))
    column = draw(st.sampled_from([name, "p" + name]))
    operator = draw(st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]))
    literal = st.sampled_from(LITERALS[name])
    shape = draw(
        st.sampled_from(["compare", "compare", "swap", "columns", "in", "between", "null", "like", "other"])
    )
    if shape == "swap":
        return f"{draw(literal)} {operator} {column}"
    if shape == "columns":
        other = draw(st.sampled_from([name, "p" + name, "i" if name in {"l", "g", "p"} else name]))
        return f"{column} {operator} {other}"
    if shape == "in":
        members = draw(st.lists(st.one_of(literal, st.just("null")), min_size=1, max_size=4))
        return f"{column} {draw(st.sampled_from(['in', 'not in']))} ({', '.join(members)})"
    if shape == "between":
        return f"{column} {draw(st.sampled_from(['', 'not ']))}between {draw(literal)} and {draw(literal)}"
    if shape == "null":
        return f"{column} {draw(st.sampled_from(['is null', 'is not null', '<=> null', '= null']))}"
    if shape == "like" and name == "s":
        pattern = draw(st.sampled_from(PATTERNS)).replace("\\", "\\\\")
        return f"{column} {draw(st.sampled_from(['like', 'not like']))} '{pattern}'"
    if shape == "other" and name in OTHERS:
        return draw(st.sampled_from(OTHERS[name])).format(c=column)
    return f"{column} {operator} {draw(literal)}"


def _combined(inner):
    return st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda text: f"not ({text})"),
        inner.map(lambda text: f"({text}) is null"),
        inner.map(lambda text: f"({text}) is not true"),
    )


PREDICATES = st.recursive(_leaf(), _combined, max_leaves=4)


def _values(name):
    # Few distinct values per file give bounds narrow enough for skipping.
    pool = st.sampled_from([*VALUES[name][1], None])
    return st.lists(pool, min_size=1, max_size=2)


@st.composite
def _file(draw):
    size = draw(st.integers(0, 4))
    rows = {
        name: draw(st.lists(st.sampled_from(draw(_values(name))), min_size=size, max_size=size))
        for name in VALUES
    }
    partition = {name: draw(st.sampled_from([*values, None])) for name, (_, values) in VALUES.items()}
    deleted = draw(st.sets(st.integers(0, size - 1))) if size and draw(st.booleans()) else set()
    writer = draw(st.sampled_from(["spark", "footer", "none", "partial"]))
    return rows, partition, deleted, writer


def _key(value):
    """Sort like Spark: NaN is greatest."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _json(value, name, *, upper, writer):  # noqa: PLR0911 - one answer per type
    """Return a bound as writers write it, or None if they omit it."""
    if name == "flag":
        return None
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return (
            {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)] if writer == "spark" else None
        )
    if isinstance(value, str) and len(value) > 32:
        return value[:32] + ("\U0010ffff" if upper and writer == "spark" else "")
    if isinstance(value, dt.datetime):
        local = value.replace(tzinfo=None)
        if writer == "footer" and local.year < 1970:
            local += dt.timedelta(milliseconds=1) if local.microsecond % 1000 else dt.timedelta()
        text = local.isoformat(timespec="milliseconds")
        return text + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value


def _statistics(rows, deleted, writer):
    if writer == "none":
        return None, None
    size = len(rows["i"])
    low, high, nulls = {}, {}, {}
    for name, values in rows.items():
        if writer == "partial" and name in {"i", "s", "ts"}:
            continue
        present = [each for each in values if each is not None]
        nulls[f"c-{name}"] = len(values) - len(present)
        if writer == "footer":
            present = [each for each in present if not (isinstance(each, float) and math.isnan(each))]
        if present:
            low[f"c-{name}"] = _json(min(present, key=_key), name, upper=False, writer=writer)
            high[f"c-{name}"] = _json(max(present, key=_key), name, upper=True, writer=writer)
    document = {"numRecords": size, "minValues": low, "maxValues": high, "nullCount": nulls}
    for side in ("minValues", "maxValues"):
        document[side] = {name: each for name, each in document[side].items() if each is not None}
    if deleted:
        document["tightBounds"] = False
    text = json.dumps(document, default=lambda each: f"<<{each}>>").replace('"<<', "").replace('>>"', "")
    return text, size


def _table(files):
    columns = {name: [] for name in ["file", *SCHEMA.names]}
    for number, (rows, partition, deleted, _) in enumerate(files):
        for at in range(len(rows["i"])):
            if at not in deleted:
                columns["file"].append(number)
                for name in VALUES:
                    columns[name].append(rows[name][at])
                    # The empty string has no distinct partition value.
                    columns["p" + name].append(None if partition[name] == "" else partition[name])
    return pa.table(columns, schema=pa.schema([pa.field("file", pa.int64()), *SCHEMA.to_arrow()]))


@pytest.fixture(scope="module")
def connections():
    opened = {zone: duckdb.connect() for zone in ZONES}
    for zone, connection in opened.items():
        connection.execute(f"SET TimeZone = '{zone}'")
    yield opened
    for connection in opened.values():
        connection.close()


def _live(files):
    kinds = {name: data_type_from_json(kind) for name, (kind, _) in VALUES.items()}
    parts = [
        [(f"c-p{name}", serialize(value, kinds[name])) for name, value in partition.items()]
        for _, partition, _, _ in files
    ]
    found = [_statistics(rows, deleted, writer) for rows, _, deleted, writer in files]
    return pa.table(
        {
            "partition_values": pa.array(parts, pa.map_(pa.string(), pa.string())),
            "stats": pa.array([text for text, _ in found], pa.string()),
            "num_records": pa.array([count for _, count in found], pa.int64()),
        }
    )


def _check(text, files, live, connection):
    """Compare ``prune`` with the rows; return whether DuckDB could evaluate the predicate."""
    try:
        predicate = parse(text, SCHEMA)
        tested = f"SELECT file, coalesce({predicate_sql(predicate)}, FALSE) AS m FROM t"
        query = f"SELECT file, bool_or(m), bool_and(m) FROM ({tested}) GROUP BY file"
        answers = {number: (some, every) for number, some, every in connection.execute(query).fetchall()}
    except (InvalidPredicate, duckdb.Error):
        return False
    pruned = prune(live, predicate, SCHEMA, PARTITIONED)
    verdicts = zip(pruned.may_match.to_pylist(), pruned.matches_all.to_pylist(), strict=True)
    for number, (may_match, matches_all) in enumerate(verdicts):
        some, every = answers.get(number, (False, True))
        facts = (text, number, files[number], live["stats"][number])
        assert may_match or not some, facts
        assert every or not matches_all, facts
        assert may_match or not matches_all, facts
    return True


CASES = given(
    files=st.lists(_file(), min_size=1, max_size=4),
    texts=st.lists(PREDICATES, min_size=1, max_size=6),
    zone=st.sampled_from(ZONES),
)


@settings(max_examples=50, deadline=None)
@CASES
def test_no_file_with_a_matching_row_is_skipped(files, texts, zone, connections):
    _check_all(files, texts, zone, connections)


@pytest.mark.long("thousands of random tables")
@pytest.mark.timeout(1800)
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@CASES
def test_no_file_with_a_matching_row_is_skipped_many_times(files, texts, zone, connections):
    _check_all(files, texts, zone, connections)


def _check_all(files, texts, zone, connections):
    live = _live(files)
    connections[zone].register("t", _table(files))
    tried = [_check(text, files, live, connections[zone]) for text in texts]
    assume(any(tried))


FEWER = float(os.environ.get("DELVEC_TEST_EXAMPLES", "1")) < 1
"""As for properties, ``make check`` tries some of what ``make test`` tries."""
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]


def _exhaustive(name):
    """Return every predicate that applies an operator to a column and one of its literals."""
    for operator in OPERATORS:
        yield from (f"{{c}} {operator} {literal}" for literal in LITERALS[name])
    yield from ("{c} is null", "{c} in (null)", f"{{c}} in ({', '.join(LITERALS[name][:3])})")
    yield from (f"{{c}} between {low} and {LITERALS[name][-1]}" for low in LITERALS[name][:3])
    yield from OTHERS.get(name, [])
    if name == "s":
        yield from (f"{{c}} like '{pattern.replace(chr(92), chr(92) * 2)}'" for pattern in PATTERNS)


@pytest.mark.parametrize(
    ("name", "zone"), [(name, "UTC") for name in VALUES] + [(n, z) for n in ("ts", "n") for z in ZONES[1:]]
)
def test_every_pair_of_values_against_every_literal(name, zone, connections):
    nothing = {each: [None, None] for each in VALUES}
    values = [*VALUES[name][1], None]
    pairs = [[one, other] for at, one in enumerate(values) for other in values[at:]]
    files = [
        ({**nothing, name: pair}, {each: pair[0] if each == name else None for each in VALUES}, set(), writer)
        for pair in pairs
        for writer in ("spark", "footer")
    ]
    live = _live(files)
    connections[zone].register("t", _table(files))
    tried, step = 0, 6 if FEWER else 1
    forms = itertools.cycle(["{}", "not ({})", "{}", "({}) is not true", "not ({})"])
    for text in itertools.islice(_exhaustive(name), 0, None, step):
        for column, form in zip((name, "p" + name), forms, strict=False):
            tried += _check(form.format(text.format(c=column)), files, live, connections[zone])
    assert tried > 20 // step


def test_the_comparison_is_not_vacuous():
    """Files with one value are skipped by most predicates that are false for it."""
    skipped = total = 0
    for name in ("i", "l", "p", "s", "d", "ts", "n"):
        values = VALUES[name][1]
        for value in values[1:-1]:
            rows = {each: [value if each == name else None] for each in VALUES}
            live = _live([(rows, {}, set(), "spark")])
            for literal in LITERALS[name][:4]:
                for operator, opposite in (("<", ">="), (">", "<=")):
                    both = [
                        prune(live, parse(f"{name} {each} {literal}", SCHEMA), SCHEMA, [])
                        .may_match[0]
                        .as_py()
                        for each in (operator, opposite)
                    ]
                    assert any(both)
                    total += 1
                    skipped += not all(both)
    assert skipped > 0.6 * total
