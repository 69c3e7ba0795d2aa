"""Partition columns of every type, in every serialization that writers use."""

import datetime as dt
import re
from decimal import Decimal

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

NOTHING = "__HIVE_DEFAULT_PARTITION__"
UTC = dt.UTC
DAY = 86_400_000_000


def moment(*parts):
    return dt.datetime(*parts, tzinfo=UTC)


def wall(*parts):
    return dt.datetime(*parts, tzinfo=UTC).replace(tzinfo=None)


# Delta type, Arrow type, and pairs of serialized and parsed values.
COLUMNS = {
    "string": (pa.string(), {"a/b %=é": "a/b %=é", "\x01\n'\"": "\x01\n'\"", NOTHING: NOTHING, " ": " "}),
    "byte": (pa.int8(), {"-128": -128, "127": 127, NOTHING: None}),
    "short": (pa.int16(), {"-32768": -32768, "32767": 32767}),
    "integer": (pa.int32(), {"-2147483648": -(2**31), "7": 7, NOTHING: None}),
    "long": (pa.int64(), {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    "float": (
        pa.float32(),
        {"NaN": float("nan"), "-0.0": -0.0, "1.5E10": 1.5e10, "-Infinity": float("-inf")},
    ),
    "double": (
        pa.float64(),
        {"NaN": float("nan"), "-0.0": -0.0, "Infinity": float("inf"), "4.9E-324": 5e-324},
    ),
    "boolean": (pa.bool_(), {"true": True, "FALSE": False, "True": True, NOTHING: None}),
    "date": (
        pa.date32(),
        {"0001-01-01": -719162, "1582-10-10": -141432, "+10000-01-01": 2932897, "-0044-03-15": -735525},
    ),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        {
            "2024-03-10 02:30:00.123456": moment(2024, 3, 10, 2, 30, 0, 123456),
            "2024-03-10T02:30:00.123456Z": moment(2024, 3, 10, 2, 30, 0, 123456),
            "1850-01-01 00:00:00": moment(1850, 1, 1),
            "2024-03-10T02:30:00+05:30": moment(2024, 3, 9, 21),
            "+10000-01-01 00:00:00.5": 2932897 * DAY + 500_000,
            "-0001-01-01T00:00:00Z": -719893 * DAY,
        },
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        {
            "2024-03-10 02:30:00.5": wall(2024, 3, 10, 2, 30, 0, 500000),
            "2024-03-10T02:30:00": wall(2024, 3, 10, 2, 30),
            "+12345-06-07 08:09:10": 3789548 * DAY + 29_350_000_000,
        },
    ),
    "decimal(5,2)": (
        pa.decimal128(5, 2),
        {"-999.99": Decimal("-999.99"), "1": Decimal(1), "1E+2": Decimal(100)},
    ),
    "decimal(38,18)": (
        pa.decimal128(38, 18),
        {"99999999999999999999.999999999999999999": Decimal("9" * 20 + "." + "9" * 18), "0": Decimal(0)},
    ),
    "binary": (pa.binary(), {"\x01\x02": b"\x01\x02", "é": "é".encode()}),
}
ROWS = max(len(pairs) for _, pairs in COLUMNS.values())


def partition_name(kind):
    return f"p_{kind.partition('(')[0]}{kind.count('38')}"


def as_column(values, kind):
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        epoch = moment(1970, 1, 1)
        microseconds = [
            (value.replace(tzinfo=UTC) - epoch) // dt.timedelta(microseconds=1)
            if isinstance(value, dt.datetime)
            else value
            for value in values
        ]
        return pa.array(microseconds, pa.int64()).cast(kind)
    return pa.array(values, kind)


@pytest.fixture(scope="module")
def partitioned(write_shared_table, data_file):
    """A file per row of COLUMNS, one with NULLs, one with empty strings; two rows each, one of which may be deleted."""
    names = [partition_name(kind) for kind in COLUMNS]
    texts = {
        name: [*pairs, *[None] * (ROWS - len(pairs)), None, ""]
        for name, (_, pairs) in zip(names, COLUMNS.values(), strict=True)
    }
    files, ids = [], []
    for number in range(ROWS + 2):
        rows = pa.table({"id": [2 * number, 2 * number + 1]})
        values = {name: texts[name][number] for name in names}
        folder = f"p_string0={NOTHING}" if number == ROWS else f"p_string0=elsewhere%2F{number}"
        deleted = [0] if number % 2 else None
        ids.append([2 * number + 1] if number % 2 else [2 * number, 2 * number + 1])
        files.append(data_file(rows, values=values, name=f"{folder}/{number}.parquet", deleted=deleted))
    expected = {"id": pa.array([each for group in ids for each in group], pa.int64())}
    for name, (kind, pairs) in zip(names, COLUMNS.values(), strict=True):
        empty = {pa.string(): "", pa.binary(): b""}.get(kind)
        values = [*pairs.values(), *[None] * (ROWS + 1 - len(pairs)), empty]
        repeated = [value for value, group in zip(values, ids, strict=True) for _ in group]
        expected[name] = as_column(repeated, kind)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [("id", "long"), *zip(names, COLUMNS, strict=True)]
    ]
    schema = {"type": "struct", "fields": fields}
    return write_shared_table("partitioned", schema, files, partition_by=names), pa.table(expected)


def test_partition_values_of_every_type(partitioned, read, same):
    folder, expected = partitioned
    same(read(folder), expected)


PREDICATES = [
    ("p_string0 = 'a/b %=é'", lambda row: row["p_string0"] == "a/b %=é"),
    (
        f"p_string0 = '{NOTHING}' OR p_byte0 = -128",
        lambda row: row["p_string0"] == NOTHING or row["p_byte0"] == -128,
    ),
    (
        "p_long0 = 9223372036854775807 OR p_short0 < 0",
        lambda row: row["p_long0"] == 2**63 - 1 or row["p_short0"] == -32768,
    ),
    ("p_float0 = CAST('NaN' AS FLOAT)", lambda row: row["p_float0"] == "NaN"),
    ("p_double0 = 0.0D", lambda row: row["p_double0"] == "-0.0"),
    ("p_double0 > 1e300", lambda row: row["p_double0"] in ("NaN", "inf")),
    ("NOT p_boolean0", lambda row: row["p_boolean0"] is False),
    ("p_date0 < DATE '1582-10-15'", lambda row: row["p_date0"] is not None and row["p_date0"] < -141427),
    ("p_date0 > DATE '9999-12-31'", lambda row: row["p_date0"] == 2932897),
    (
        "p_timestamp0 = TIMESTAMP '2024-03-10 02:30:00.123456Z'",
        lambda row: row["p_timestamp0"] == 1710037800123456,
    ),
    (
        "p_timestamp0 < TIMESTAMP '1900-01-01 00:00:00Z'",
        lambda row: row["p_timestamp0"] is not None and row["p_timestamp0"] < -2208988800000000,
    ),
    (
        "p_timestamp_ntz0 >= TIMESTAMP_NTZ '2024-03-10 02:30:00'",
        lambda row: row["p_timestamp_ntz0"] is not None,
    ),
    ("p_decimal0 BETWEEN 1 AND 99", lambda row: row["p_decimal0"] == 1),
    (
        "p_decimal1 > 99999999999999999999",
        lambda row: row["p_decimal1"] is not None and row["p_decimal1"] > 1,
    ),
    ("p_binary0 = X'0102'", lambda row: row["p_binary0"] == b"\x01\x02"),
    ("p_string0 = ''", lambda row: row["p_string0"] == ""),
    ("p_string0 IS NULL", lambda row: row["p_string0"] is None),
    ("p_string0 < 'a'", lambda row: row["p_string0"] is not None and row["p_string0"] < "a"),
    ("p_binary0 = X''", lambda row: row["p_binary0"] == b""),
    (
        "p_integer0 IS NULL AND p_date0 IS NULL",
        lambda row: row["p_integer0"] is None and row["p_date0"] is None,
    ),
]


@pytest.mark.parametrize("text", [text for text, _ in PREDICATES])
def test_predicates_on_partition_columns(partitioned, read, rows, text):
    folder, expected = partitioned
    matches = dict(PREDICATES)[text]
    wanted = sorted(row["id"] for row in rows(expected) if matches(row))
    assert wanted
    assert sorted(read(folder, ["id"], text)["id"].to_pylist()) == wanted


@pytest.mark.gate
def test_dates_without_zeros_are_read_and_found(write_table, data_file, read):
    files = [data_file(pa.table({"id": [1]}), values={"p": "2020-1-2"})]
    files.append(data_file(pa.table({"id": [2]}), values={"p": "2020-01-02"}))
    files.append(data_file(pa.table({"id": [3]}), values={"p": " 2021-01-02 "}))
    folder = write_table("dates", schema_of("date"), files, partition_by=["p"])
    found = {row["id"]: row["p"] for row in read(folder).to_pylist()}
    assert found == {1: dt.date(2020, 1, 2), 2: dt.date(2020, 1, 2), 3: dt.date(2021, 1, 2)}
    assert sorted(read(folder, ["id"], "p = DATE '2020-01-02'")["id"].to_pylist()) == [1, 2]


def schema_of(kind):
    fields = [("id", "long"), ("p", kind)]
    return {
        "type": "struct",
        "fields": [{"name": name, "type": each, "nullable": True, "metadata": {}} for name, each in fields],
    }


@pytest.mark.gate
def test_a_partition_column_that_is_no_column_is_named(write_table, data_file, lake, engine):
    files = [data_file(pa.table({"id": [1]}), values={"gone": "a"})]
    folder = write_table("absent", pa.schema([("id", pa.int64())]), files, partition_by=["gone"])
    with pytest.raises(delvec.CorruptLog, match=r"version 0.*'gone' is not among the columns"):
        lake.table(str(folder), engine=engine)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "x"),
        ("byte", "128"),
        ("date", "2024-13-01"),
        ("boolean", "maybe"),
        ("decimal(5,2)", "1000"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused(write_table, data_file, read, kind, text):
    files = [data_file(pa.table({"id": [1]}), values={"p": None})]
    files.append(data_file(pa.table({"id": [1]}), values={"p": text}, name="culprit.parquet"))
    folder = write_table("bad", schema_of(kind), files, partition_by=["p"])
    for predicate in (None, "p IS NOT NULL"):
        with pytest.raises(delvec.CorruptLog, match=re.escape(text)) as raised:
            read(folder, predicate=predicate)
        details = raised.value.details
        place = {name: details[name] for name in ("version", "file", "column", "value")}
        assert place == {"version": 0, "file": "culprit.parquet", "column": "p", "value": text}
        assert "bad" in details["table"]


def merged(table):
    source = pa.table({"id": [1, 9], "p": ["", ""]})
    statement = table.merge(source, "target.id = source.id")
    statement.when_matched_update({"id": "target.id + 10"}).when_not_matched_insert_all().execute()


EMPTY = {
    "update": (lambda table: table.update({"id": "id + 10"}, "id = 1"), [(0, ""), (11, ""), (3, "")]),
    "merge": (merged, [(0, ""), (11, ""), (3, ""), (9, "")]),
    "optimize": (lambda table: table.optimize(), [(0, ""), (1, ""), (3, "")]),
    "z-order": (lambda table: table.optimize.z_order(["id"]), [(0, ""), (1, ""), (3, "")]),
    "delete": (lambda table: table.delete("id = 1"), [(0, ""), (3, "")]),
    "replace": (
        lambda table: table.overwrite(pa.table({"id": [1], "p": ["b"]}), replace_where="id = 1"),
        [(0, ""), (1, "b"), (3, "")],
    ),
    # As by Spark's writer.
    "append": (
        lambda table: table.append(pa.table({"id": [5], "p": [""]})),
        [(0, ""), (1, ""), (3, ""), (5, None)],
    ),
}


@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "copies"])
@pytest.mark.parametrize("command", EMPTY)
def test_rows_keep_an_empty_string(write_table, data_file, lake, engine, command, vectors):
    files = [
        data_file(pa.table({"id": ids}), values={"p": value}, name=f"{ids[0]}.parquet")
        for ids, value in [([0, 1], ""), ([3], ""), ([2], None)]
    ]
    folder = write_table(
        "empty",
        schema_of("string"),
        files,
        partition_by=["p"],
        properties={"delta.enableDeletionVectors": str(vectors).lower()},
        features=["deletionVectors"],
    )
    table = lake.table(str(folder), engine=engine)
    change, expected = EMPTY[command]
    change(table)
    rows = [(row["id"], row["p"]) for row in table.to_arrow().to_pylist()]
    assert sorted(rows, key=repr) == sorted([*expected, (2, None)], key=repr)
