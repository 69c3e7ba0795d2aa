import contextlib
import datetime as dt
import sys
import time
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_engines.duckdb.dialect import predicate_sql
from delvec_errors import InvalidPredicate, UnknownColumn
from delvec_kernel.expressions.predicate import MAX_LENGTH, Predicate, parse
from delvec_kernel.schema.types import StructType

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.string()),
        ("i", pa.int32()),
        ("b", pa.int8()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("p", pa.decimal128(10, 2)),
        ("flag", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("bin", pa.binary()),
        ("st", pa.struct([("Q", pa.string()), ("z", pa.int32())])),
        ("arr", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("weird `name. x", pa.int32()),
        ("Date", pa.int32()),
    ]
)
ROWS = [
    (0, "abc", 7, 1, 9007199254740993, 0.1, 0.1, Decimal("1.50"), True, dt.date(2020, 1, 1), 0, 0, b"\x1f"),
    (1, "a_c", -7, -1, 5, 1.5, 1.7, Decimal("-7.25"), False, dt.date(2024, 2, 29), 1, 1, b"ab"),
    (
        2,
        "a%c",
        0,
        100,
        -5,
        float("nan"),
        float("nan"),
        Decimal("2.50"),
        None,
        dt.date(1969, 12, 31),
        2,
        2,
        b"",
    ),
    (3, "a\\c", 100, None, None, -0.0, -2.5, Decimal("0.10"), True, None, 1, 2, None),
    (4, None, None, None, None, None, None, None, None, None, None, None, None),
    (
        5,
        "abc\n",
        7,
        127,
        0,
        16777216.0,
        float("inf"),
        Decimal("0.00"),
        False,
        dt.date(2024, 1, 7),
        0,
        1,
        b"\x20",
    ),
    (6, "5", 5, 5, 5, 2.0, 2.5, Decimal("5.00"), True, dt.date(2020, 1, 2), 2, 0, b"x"),
    (7, "it's", 3, 0, 1, 0.5, 0.0, Decimal("3.33"), False, dt.date(2020, 1, 3), 1, 1, b"y"),
]
INSTANTS = [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)]
INSTANTS += [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]


def _table():
    rows = []
    for row in ROWS:
        values = dict(zip(SCHEMA.names, row, strict=False))
        for name in ("ts", "n"):
            at = values[name]
            moment = None if at is None else INSTANTS[at]
            values[name] = moment if name == "ts" or moment is None else moment.replace(tzinfo=None)
        key = values["id"]
        values["st"] = None if key == 4 else {"Q": values["s"], "z": key % 3}
        values["arr"] = None if key == 4 else [key, 10]
        values["m"] = None if key == 4 else [("k", key)]
        values["weird `name. x"] = values["Date"] = key
        rows.append(values)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture(scope="module")
def schema():
    return StructType.from_arrow(SCHEMA)


@pytest.fixture(scope="module")
def select():
    """Return a function from a predicate to the ids of the rows that DuckDB finds."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", _table())

    def run(predicate: Predicate):
        rows = connection.execute(f"SELECT id FROM t WHERE {predicate_sql(predicate)}").fetchall()
        return sorted(row[0] for row in rows)

    yield run
    connection.close()


# The expected results are Spark 4's, with default settings and time zone UTC.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 7", [0, 5]),
        ("I == 7", [0, 5]),
        ("i <=> null", [4]),
        ("not (i <=> 7)", [1, 2, 3, 4, 6, 7]),
        ("i is distinct from 7", [1, 2, 3, 4, 6, 7]),
        ("i != 7", [1, 2, 3, 6, 7]),
        ("i / 2 = 3.5", [0, 5]),
        ("i div 2 = -3", [1]),
        ("p div 2 = -3", [1]),
        ("i % 4 = -3", [1]),
        ("b * 100 = 10000", [2]),
        ("b + 127 = 254", [5]),
        ("i between 0 and 7", [0, 2, 5, 6, 7]),
        ("i not in (7, 5)", [1, 2, 3, 7]),
        ("i not in (7, null)", []),
        ("i = '7'", [0, 5]),
        ("s = 5 and s rlike '^[0-9]$'", [6]),
        ("s in ('5', \"abc\")", [0, 6]),
        ("s = 'it\\'s'", [7]),
        ("s = 'a\\\\c'", [3]),
        ("s = r'a\\c'", [3]),
        ("s = 'abc\\n'", [5]),
        ("s = '\\141bc'", [0]),
        ("s = 'a' 'bc'", [0]),
        ("s like 'a_c'", [0, 1, 2, 3]),
        ("s like 'a\\_c'", [1]),
        ("s like 'a\\%c'", [2]),
        ("s like 'a\\\\\\\\c'", [3]),
        ("s like 'a/_c' escape '/'", [1]),
        ("s not like 'a%'", [6, 7]),
        ("s like any ('a\\_%', '5')", [1, 6]),
        ("s like all ('a%', '%c')", [0, 1, 2, 3]),
        ("s ilike 'ABC%'", [0, 5]),
        ("s rlike 'c$'", [0, 1, 2, 3, 5]),
        ("s rlike 'b.'", [0, 5]),
        ("s rlike 'bc.'", []),
        ("s rlike '\\\\d'", [6]),
        ("not s rlike '(?i)^A'", [6, 7]),
        ("f = 0.1", []),
        ("f = cast(0.1 as float)", [0]),
        ("f < 0.11", [0, 3]),
        ("f = 16777217", []),
        ("f in (0.1, 1.5)", [1]),
        ("g = 0.1", [0]),
        ("g > 100", [2, 5]),
        ("isnan(g)", [2]),
        ("not isnan(g)", [0, 1, 3, 4, 5, 6, 7]),
        ("f = g", [2]),
        ("f = 0", [3]),
        ("cast(cast(p as double) as int) = -7", [1]),
        ("cast(p as int) = -7", [1]),
        ("cast(p as decimal) = 3", [2, 7]),
        ("try_cast(s as int) = 5", [6]),
        ("try_cast('5.7' as int) is null and i = 3", "refused"),
        ("cast(i as string) = '7'", [0, 5]),
        ("cast(flag as int) = 1", [0, 3, 6]),
        ("cast(d as string) = '2020-01-01'", [0]),
        ("d = '2020-1-1'", [0]),
        ("d = '2020'", [0]),
        ("d > date '2020-01-01'", [1, 5, 6, 7]),
        ("d in ('2020-01-01', '2024-02-29')", [0, 1]),
        ("d + 1 = date '2020-01-02'", [0]),
        ("d - interval 1 day < '2020-01-01'", [0, 2]),
        ("ts = '2020-01-01'", [0, 5]),
        ("ts = timestamp '2020-01-01 01:00:00+01:00'", [0, 5]),
        ("ts >= timestamp '2020-01-01T00:00:01Z'", [1, 3, 7]),
        ("n < '1970-01-01'", [2, 3]),
        ("n = timestamp_ntz '2020-01-01 00:00:00'", [0, 6]),
        ("ts + interval 1 day > timestamp '2024-03-01'", [1, 3, 7]),
        ("year(d) = 2024", [1, 5]),
        ("dayofweek(d) = 1", [5]),
        ("hour(ts) = 23 and second(ts) = 59", [1, 2, 3, 6, 7]),
        ("date_sub(d, 1) = '2019-12-31'", [0]),
        ("datediff(d, date '2020-01-01') = 1", [6]),
        ("upper(s) = 'ABC'", [0]),
        ("length(bin) = 2", [1]),
        ("substring(s, 0, 2) = 'ab'", [0, 5]),
        ("startswith(s, 'ab') and endswith(s, 'c')", [0]),
        ("instr(s, 'c') = 3", [0, 1, 2, 3, 5]),
        ("concat(s, i) = '55'", [6]),
        ("concat(s, null) is null", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("coalesce(i, -1) = -1", [4]),
        ("if(flag, i, b) = 127", [5]),
        ("case when flag then 1 when i > 5 then 2 else 3 end = 2", [5]),
        ("case i when 7 then 'a' else 'b' end = 'a'", [0, 5]),
        ("greatest(i, b) = 100", [2, 3]),
        ("flag", [0, 3, 6]),
        ("not flag", [1, 5, 7]),
        ("! flag", [1, 5, 7]),
        ("flag is not true", [1, 2, 4, 5, 7]),
        ("flag = 'true'", [0, 3, 6]),
        ("i & 1 = 1 and i ^ 1 = 6", [0, 5]),
        ("~i = -8", [0, 5]),
        ("i * 1.5 > 10", [0, 3, 5]),
        ("l = 9007199254740993L", [0]),
        ("p = 1.5BD", [0]),
        ("st.q = 'abc'", [0]),
        ("ST.`Q` = 'abc' and st . Z = 0", [0]),
        ("arr[0] = 3", [3]),
        ("m['k'] = 2", [2]),
        ("bin = x'1F'", [0]),
        ("`weird ``name. X` = 3", [3]),
        ("date = 3 and date < date '2020-01-01'", "error"),
        ("date = 3", [3]),
        ("i = 7 -- the sevens", [0, 5]),
        ("i /* or s */ = 7", [0, 5]),
        ("i = 7 and not s = 'abc' or id = 4", [4, 5]),
        ("true", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("flag and null", []),
    ],
)
def test_duckdb_finds_the_rows_that_spark_finds(text, expected, schema, select):
    predicate = parse(text, schema)
    if expected == "refused":
        with pytest.raises(InvalidPredicate, match="DuckDB"):
            predicate_sql(predicate)
    elif expected == "error":
        with pytest.raises(duckdb.Error):
            select(predicate)
    else:
        assert select(predicate) == expected


@pytest.mark.parametrize(
    "text",
    [
        "i / 0 = 1",
        "7 % i = 1",
        "i div (i - 7) = 1",
        "cast(s as int) = 5",
        "s = 5",
        "s || '.7' = 6",
        "cast(l as tinyint) = 1",
        "cast(g as int) = 1",
    ],
)
def test_errors_in_spark_are_errors_in_duckdb(text, schema, select):
    with pytest.raises(duckdb.Error):
        select(parse(text, schema))


@pytest.mark.parametrize(
    "text",
    [
        "foo(i)",
        "exists(arr, x -> x > 1)",
        "s rlike 'a(?=b)'",
        "s rlike '\\\\bab'",
        "s rlike '[a-c&&[b]]'",
        "s like 'a\\\\c'",
        "cast(g as string) = '0.1'",
        "d - d = 1",
        "i = '5.7'",
        "bin = 'ab'",
        "d = 'yesterday'",
    ],
)
def test_duckdb_refuses_what_it_might_read_differently(text, schema):
    predicate = parse(text, schema)
    assert predicate.sql()
    with pytest.raises(InvalidPredicate, match=r"cannot be evaluated by the DuckDB engine: .* Spark"):
        predicate_sql(predicate)


def test_spark_gets_the_original_text_with_the_schemas_column_names(schema):
    predicate = parse("I = 7 /* seven */ and ST.q LIKE 'a\\_%' -- end", schema)
    assert predicate.sql() == "`i` = 7 and `st`.`Q` LIKE 'a\\_%'"
    assert predicate.sql({"i": "col-`1"}) == "`col-``1` = 7 and `st`.`Q` LIKE 'a\\_%'"
    assert predicate.columns == {"i", "st"}
    assert predicate.text.endswith("-- end")
    assert str(predicate) == predicate.text


@pytest.mark.parametrize(
    ("text", "deterministic"),
    [
        ("i = 1 and upper(s) = 'A'", True),
        ("isnull(i)", True),
        ("rand() < 0.5", False),
        ("d < current_date()", False),
        ("ts < now()", False),
        ("ts < current_timestamp", False),
        ("s = uuid()", False),
        ("my_udf(i)", False),
        ("s = current_user()", False),
    ],
)
def test_determinism(text, deterministic, schema):
    assert parse(text, schema).is_deterministic is deterministic


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("-- nothing", "empty"),
        ("i =", "cannot be parsed"),
        ("i = 1 and", "cannot be parsed"),
        ("(i = 1", "cannot be parsed"),
        ("i = 1)", "cannot be parsed"),
        ("s = 'x", "not closed"),
        ("i = 1; drop table t", "cannot be parsed|several"),
        ("i = 1; i = 2", "cannot be parsed|several"),
        ("i = 1;", "semicolon"),
        (";", "semicolon"),
        ("select 1", "cannot be parsed"),
        ("delete from t", "cannot be parsed"),
        ("i = 1 limit 5", "cannot be parsed"),
        ("i = 1 order by i", "cannot be parsed"),
        ("i in (select 1)", "subquery"),
        ("i = (select max(i) from t)", "subquery"),
        ("exists (select 1)", "subquery"),
        ("i in ()", "empty IN"),
        ("sum(i) > 1", "aggregate"),
        ("count(*) > 1", "aggregate"),
        ("bool_and(flag)", "aggregate"),
        ("row_number() over (order by i) = 1", "window"),
        ("rank() = 1", "aggregate|window"),
        ("explode(arr) = 1", "returns rows"),
        ("i = ?", "parameter"),
        ("i = :one", "parameter"),
        ("*", "star"),
        ("i as x", "cannot be parsed"),
        ("i", "not Boolean.*integer"),
        ("s", "not Boolean.*string"),
        ("i + 1", "not Boolean.*integer"),
        ("'true'", "not Boolean"),
        ("1", "not Boolean"),
        ("flag and i", "not Boolean.*integer"),
        ("not (flag or d)", "not Boolean.*date"),
        ("upper(s)", "not Boolean"),
        ("cast(flag as int)", "not Boolean"),
        ("null", "not Boolean"),
        ("i = b < l", "parentheses"),
        ("i = s like 'a'", "parentheses"),
        ("i | b & l = 1", "parentheses"),
        ("i between symmetric 1 and 0", "SYMMETRIC"),
        ("s = '\ud83d'", "an unpaired surrogate"),
        ("i = 1 \x00", "cannot be"),
        (None, "NoneType"),
        (b"i = 1", "bytes"),
    ],
)
def test_invalid_predicates_are_refused_in_one_sentence(text, says, schema):
    with pytest.raises(InvalidPredicate, match=says) as caught:
        parse(text, schema)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 600


@pytest.mark.parametrize(
    ("text", "says", "column"),
    [
        ("nmae = 1 or flagg", "'flagg'.*did you mean 'flag'|'nmae'", None),
        ("flagg", "uses the column 'flagg'.*did you mean 'flag'", "flagg"),
        ("flag = Wellington", "'Wellington'.*; there are .*put it in quotes: 'Wellington'", "Wellington"),
        ("st.zz = 1", "'st' has no field 'zz'.*'z'", "st.zz"),
        ("i.x = 1", "'i' is not a struct", "i.x"),
        ("t.i = 1", "uses the column 't'", "t.i"),
        ("_metadata.file_path = 'x'", "uses the column '_metadata'", "_metadata.file_path"),
        ("`st.z` = 1", "uses the column 'st.z'", "st.z"),
    ],
)
def test_unknown_columns_are_named_and_similar_ones_suggested(text, says, column, schema):
    with pytest.raises(UnknownColumn, match=says) as caught:
        parse(text, schema)
    if column:
        assert caught.value.details["column"] == column


@pytest.mark.parametrize("size", [10, 33, 100, 1000, 20_000])
@pytest.mark.parametrize(
    "nest",
    [
        lambda n: "(" * n + "i = 1" + ")" * n,
        lambda n: "(" * n,
        lambda n: "not " * n + "flag",
        lambda n: "- " * n + "i = 1",
        lambda n: "abs(" * n + "i" + ")" * n + " = 1",
        lambda n: "foo(bar(" * n + "i" + "))" * n + " = 1",
        lambda n: "case when flag then " * n + "i" + " end" * n + " = 1",
        lambda n: "+".join(["i"] * n) + " = 1",
        lambda n: "i" + "[1]" * n + " = 1",
        lambda n: "i" + " is null" * n,
        lambda n: "i" + ".i" * n + " = 1",
        lambda n: "cast(i as " + "array<" * n + "int" + ">" * n + ") is null",
        lambda n: "i in (" * n + "1" + ")" * n,
        lambda n: "i = " * n + "1",
        lambda n: "f(x -> " * n + "i" + ")" * n + " = 1",
    ],
)
def test_deep_input_is_read_or_refused_quickly(nest, size, schema):
    started = time.process_time()  # not wall clock: the machine may be busy
    try:
        predicate = parse(nest(size), schema)
        predicate.sql()
        predicate_sql(predicate)
    except (InvalidPredicate, UnknownColumn):
        pass
    assert time.process_time() - started < 60


def test_parsing_below_many_functions_and_with_a_nearly_full_stack(schema):
    text = "(" * 30 + "i = 1" + ")" * 30

    def dive(levels):
        return dive(levels - 1) if levels else predicate_sql(parse(text, schema))

    depth = 0
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    assert dive(250 - depth) == '("i" = 1)'
    with pytest.raises(InvalidPredicate, match="call stack of the program"):
        dive(sys.getrecursionlimit() - depth - 60)


def test_overlong_texts_are_refused_before_parsing(schema):
    with pytest.raises(InvalidPredicate, match="100,000 are accepted"):
        parse("i = 1" + " " * MAX_LENGTH, schema)


def test_long_chains_and_lists(schema, select):
    chain = " or ".join(f"i = {n}" for n in range(7, 1500))
    assert select(parse(chain, schema)) == [0, 3, 5]
    both = " and ".join(f"(i <> {n} or flag)" for n in range(10, 1100))
    assert select(parse(both, schema)) == [0, 1, 2, 3, 5, 6, 7]
    listed = "i in (" + ",".join(str(n) for n in range(7, 8_000)) + ")"
    assert select(parse(listed, schema)) == [0, 3, 5]


@settings(max_examples=300, deadline=None)
@given(
    st.text(
        alphabet=st.sampled_from("is flag=<>!()'\"`\\%_-+*/.,;:?@[]{}#0123456789 \nandornot"), max_size=40
    )
)
def test_any_text_is_a_predicate_or_a_typed_error(text):
    with contextlib.suppress(InvalidPredicate, UnknownColumn):
        predicate = parse(text, StructType.from_arrow(SCHEMA))
        assert predicate.sql()
        assert predicate_sql(predicate)


@pytest.fixture(scope="module")
def strings():
    with duckdb.connect() as connection:
        yield connection


@settings(max_examples=100, deadline=None)
@given(value=st.text(max_size=20))
def test_strings_reach_duckdb_unchanged(strings, value):
    schema = StructType.from_arrow(SCHEMA)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    predicate = parse(f"s = '{escaped}'", schema)
    strings.register("t", pa.table({"s": [value, value + "x", None]}))
    found = strings.execute(f"SELECT s FROM t WHERE {predicate_sql(predicate)}").fetchall()
    assert found == [(value,)]
