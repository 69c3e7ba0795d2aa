"""Predicates select the same rows on each engine as plain Python does."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

UTC = dt.UTC
NAN = float("nan")
INNER = pa.struct([("x", pa.int64()), ("t", pa.string())])
ROWS = [
    {
        "id": number,
        "byte": byte,
        "int": integer,
        "long": long,
        "float": number * 0.5,
        "double": double,
        "flag": flag,
        "text": text,
        "bytes": None if text is None else text.encode(),
        "day": day,
        "at": at,
        "wall": None if at is None else at.replace(tzinfo=None),
        "price": price,
        "big": None if price is None else price * 10**20,
        "s": None if flag is None else {"x": integer, "t": text},
        "f": {"d": double},
    }
    for number, (byte, integer, long, double, flag, text, day, at, price) in enumerate(
        [
            (
                1,
                10,
                2**40,
                1.5,
                True,
                "apple",
                dt.date(2024, 2, 29),
                dt.datetime(2024, 3, 10, 7, 30, tzinfo=UTC),
                Decimal("1.50"),
            ),
            (
                -1,
                -10,
                -(2**40),
                NAN,
                False,
                "Apple",
                dt.date(1969, 12, 31),
                dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
                Decimal("-1.50"),
            ),
            (
                127,
                2**31 - 1,
                2**63 - 1,
                float("inf"),
                True,
                "a%b_c",
                dt.date(1500, 1, 1),
                dt.datetime(1850, 6, 1, tzinfo=UTC),
                Decimal("99.99"),
            ),
            (
                0,
                0,
                0,
                -0.0,
                None,
                "",
                dt.date(9999, 12, 31),
                dt.datetime(9999, 12, 31, tzinfo=UTC),
                Decimal("0.00"),
            ),
            (None, None, None, None, None, None, None, None, None),
            (
                5,
                50,
                500,
                0.1,
                False,
                "é漢'q\\",
                dt.date(2024, 3, 1),
                dt.datetime(2024, 3, 10, 6, 59, 59, tzinfo=UTC),
                Decimal("0.01"),
            ),
            (
                6,
                60,
                600,
                1e300,
                True,
                "x" * 50,
                dt.date(2024, 3, 2),
                dt.datetime(2024, 11, 3, 5, 30, tzinfo=UTC),
                Decimal("12.34"),
            ),
        ]
    )
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("byte", pa.int8()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("price", pa.decimal128(4, 2)),
        ("big", pa.decimal128(38, 2)),
        ("s", INNER),
        ("f", pa.struct([("d", pa.float64())])),
    ]
)


def known(name, test):
    """A comparison that is false for NULL."""
    return lambda row: row[name] is not None and test(row[name])


def nested(name, test):
    return lambda row: row["s"] is not None and row["s"][name] is not None and test(row["s"][name])


def above(limit):
    """A comparison with NaN as the greatest value, as in Spark."""
    return lambda value: value != value or value > limit  # noqa: PLR0124 - NaN


CASES = {
    "byte = 127": known("byte", lambda v: v == 127),
    "byte < 1000": known("byte", lambda v: v < 1000),
    "int IN (10, 50, NULL)": known("int", lambda v: v in (10, 50)),
    "int NOT IN (10, 50)": known("int", lambda v: v not in (10, 50)),
    "int BETWEEN -10 AND 10": known("int", lambda v: -10 <= v <= 10),
    "NOT (int BETWEEN -10 AND 10)": known("int", lambda v: not -10 <= v <= 10),
    "long >= 9223372036854775807": known("long", lambda v: v == 2**63 - 1),
    "long > 10.5": known("long", lambda v: v > 10.5),
    "float = 1.5": known("float", lambda v: v == 1.5),
    "double = 0": known("double", lambda v: v == 0),
    "double > 1e200": known("double", above(1e200)),
    "double <= 1.5": known("double", lambda v: v <= 1.5),
    "double = CAST('NaN' AS DOUBLE)": known("double", lambda v: v != v),  # noqa: PLR0124
    "double > 1e301": known("double", above(1e301)),
    "double > 2 AND id = 1": lambda row: row["id"] == 1,
    "double >= 0 AND double <= 0": known("double", lambda v: v == 0),
    "NOT (f.d < 1e301)": known("double", lambda v: not v < 1e301),
    "f.d = 0": known("double", lambda v: v == 0),
    "flag": known("flag", lambda v: v),
    "NOT flag": known("flag", lambda v: not v),
    "flag <=> NULL": lambda row: row["flag"] is None,
    "text = 'apple'": known("text", lambda v: v == "apple"),
    "text > 'a'": known("text", lambda v: v > "a"),
    "text = ''": known("text", lambda v: v == ""),
    "text LIKE 'a%'": known("text", lambda v: v.startswith("a")),
    r"text LIKE 'a\\%b\\_%'": known("text", lambda v: v == "a%b_c"),
    "text NOT LIKE '%p_e'": known("text", lambda v: v not in ("apple", "Apple")),
    r"text = 'é漢\'q\\'": known("text", lambda v: v.startswith("é")),
    "length(text) = 50": known("text", lambda v: len(v) == 50),
    "bytes = X'6170706C65'": known("bytes", lambda v: v == b"apple"),
    "day = DATE '2024-02-29'": known("day", lambda v: v == dt.date(2024, 2, 29)),
    "day < DATE '1582-10-15'": known("day", lambda v: v.year == 1500),
    "day >= '2024-03-01'": known("day", lambda v: v >= dt.date(2024, 3, 1)),
    "year(day) = 2024 AND month(day) = 3": known("day", lambda v: (v.year, v.month) == (2024, 3)),
    "at >= TIMESTAMP '2024-03-10 07:00:00Z'": known(
        "at", lambda v: v >= dt.datetime(2024, 3, 10, 7, tzinfo=UTC)
    ),
    "at < TIMESTAMP '1900-01-01 00:00:00+00:00'": known("at", lambda v: v.year == 1850),
    "wall = TIMESTAMP_NTZ '2024-11-03 05:30:00'": known("wall", lambda v: v.month == 11),
    "price = 1.5": known("price", lambda v: v == Decimal("1.5")),
    "price > 0.009": known("price", lambda v: v > 0),
    "price IN (0.01, 12.34)": known("price", lambda v: v in (Decimal("0.01"), Decimal("12.34"))),
    "big = 9999000000000000000000.00": known("big", lambda v: v == Decimal("99.99") * 10**20),
    "s.x = 50 OR s.t = 'apple'": lambda row: (
        nested("x", lambda v: v == 50)(row) or nested("t", lambda v: v == "apple")(row)
    ),
    "s IS NULL": lambda row: row["s"] is None,
    "s.t IS NOT NULL": nested("t", lambda v: v is not None),
    "CAST(int AS STRING) = '10'": known("int", lambda v: v == 10),
    "CAST(text AS STRING) IS NULL": lambda row: row["text"] is None,
    "CAST(price AS DOUBLE) < 0": known("price", lambda v: v < 0),
    "CAST(at AS DATE) = DATE '2024-11-03'": known("at", lambda v: v.month == 11),
    "int IS NULL OR long = 0": lambda row: row["int"] is None or row["long"] == 0,
    "(int > 0) = flag": lambda row: None not in (row["int"], row["flag"]) and (row["int"] > 0) == row["flag"],
    "int - byte > 500": lambda row: row["int"] is not None and row["int"] - row["byte"] > 500,
    "coalesce(text, 'none') = 'none'": lambda row: row["text"] is None,
    "CASE WHEN flag THEN int ELSE byte END = 10": lambda row: (
        (row["int"] if row["flag"] else row["byte"]) == 10
    ),
}


def statistics(rows):
    """Bounds of columns with simple types, so that data skipping is tested, too."""
    bounds = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in ("byte", "int", "long", "day", "text"):
        values = [row[name] for row in rows if row[name] is not None]
        bounds["nullCount"][name] = len(rows) - len(values)
        if values:
            bounds["minValues"][name] = json.loads(json.dumps(min(values), default=str))
            bounds["maxValues"][name] = json.loads(json.dumps(max(values), default=str))
    return bounds


@pytest.fixture(scope="module")
def table(write_shared_table, data_file):
    """The rows in four files, one of which has a deleted copy of row 0."""
    parts = [[*ROWS[:2], ROWS[0]], ROWS[2:3], ROWS[3:5], ROWS[5:]]
    files = [
        data_file(
            pa.Table.from_pylist(part, SCHEMA),
            stats=statistics(part),
            deleted=[2] if len(part) == 3 else None,
        )
        for part in parts
    ]
    return write_shared_table("predicates", SCHEMA, files)


@pytest.mark.parametrize("text", CASES)
def test_predicate(table, read, text):
    wanted = [row["id"] for row in ROWS if CASES[text](row)]
    assert wanted
    assert sorted(read(table, ["id"], text)["id"].to_pylist()) == wanted


LETTERS = ["\u0130stanbul", "istanbul", "ΟΔΟΣ", "οδος", "\u212a", "k", "A_b", "a_B", "aXb", "STRASSE", None]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("name ILIKE 'ISTANBUL'", [1]),
        ("name ILIKE 'i\u0307stanbul'", [0]),
        ("name ILIKE '\u0130STAN%'", [0]),
        ("name ILIKE 'ΟΔΟΣ'", [2, 3]),
        ("name ILIKE 'οδοσ'", []),
        ("name ILIKE 'K'", [4, 5]),
        (r"name ILIKE 'a\\_B'", [6, 7]),
        ("name ILIKE 'A/_b' ESCAPE '/'", [6, 7]),
        ("name NOT ILIKE '%a%'", [2, 3, 4, 5]),
        ("name ILIKE ANY ('K', 'stra%')", [4, 5, 9]),
        ("name ILIKE concat('A', '__')", [6, 7, 8]),
    ],
)
def test_ilike_compares_small_letters_as_java_makes_them(lake, engine, tmp_path, text, wanted):
    table = lake.create_table(tmp_path / "letters", "id long, name string", engine=engine)
    table.append([{"id": number, "name": name} for number, name in enumerate(LETTERS)])
    assert sorted(table.to_arrow(columns=["id"], predicate=text)["id"].to_pylist()) == wanted


@pytest.mark.gate
def test_negative_numbers_of_many_digits_are_exact(lake, engine, tmp_path):
    table = lake.create_table(tmp_path / "t", "d decimal(38,4)", engine=engine)
    text = "-12345678901234567890123456789.1234"
    table.append([{"d": Decimal(text)}])
    assert table.to_arrow(predicate=f"d = {text}").num_rows == 1
    with pytest.raises(delvec.ConstraintViolation):
        table.alter.add_constraint("other", f"d <> {text}")
    table.alter.add_constraint("bound", f"d <= {text}")
    table.append([{"d": Decimal(text)}])
    assert table.delete(f"d = {text}")["numDeletedRows"] == 2
