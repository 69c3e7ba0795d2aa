"""delta-spark tables with constraints: Delvec refuses what delta-spark refuses, and nothing else."""

import datetime as dt

import pyarrow as pa
import pytest

import delvec

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("code", pa.string()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("home", pa.struct([("zip", pa.int32()), ("street", pa.string())])),
    ]
)
GIVEN = SCHEMA.append(pa.field("day", pa.date32()))
GOOD = {
    "id": 1,
    "code": "abcde",
    "name": "é€𝄞",
    "at": dt.datetime(2024, 1, 2, 23, 30, tzinfo=dt.UTC),
    "home": {"zip": 7, "street": None},
}
DAY = dt.date(2024, 1, 2)

RIGHT = [
    GOOD,
    {**GOOD, "code": None, "name": None, "at": None},
    {**GOOD, "name": "a  "},
]
RIGHT_WITH_DAY = [{**GOOD, "day": DAY}, {**GOOD, "at": None, "day": None}]
WRONG = {
    "a constraint that is false": {**GOOD, "id": 0},
    "a constraint that is NULL": {**GOOD, "home": {"zip": 100, "street": None}},
    "a NULL that may not be": {**GOOD, "id": None},
    "a NULL in a struct": {**GOOD, "home": {"zip": None, "street": "x"}},
    "a struct that is NULL": {**GOOD, "home": None},
    "a varchar with spaces beyond": {**GOOD, "name": "abc "},
    "a char that is too long": {**GOOD, "code": "abcdef"},
    "a day that is wrong": {**GOOD, "day": dt.date(2024, 1, 3)},
    "no day where there is a time": {**GOOD, "day": None},
}


def create(spark, location):
    spark.sql(
        f"""CREATE TABLE delta.`{location}` (
            id BIGINT NOT NULL, code CHAR(5), name VARCHAR(3), at TIMESTAMP,
            home STRUCT<zip: INT NOT NULL, street: STRING>,
            day DATE GENERATED ALWAYS AS (CAST(at AS DATE)))
        USING delta PARTITIONED BY (day)"""
    )
    spark.sql(f"ALTER TABLE delta.`{location}` ADD CONSTRAINT positive CHECK (id > 0)")
    spark.sql(
        f"ALTER TABLE delta.`{location}` ADD CONSTRAINT far CHECK (home.zip < 100 OR home.street = 'far')"
    )


def rows(*values):
    return pa.Table.from_pylist(list(values), GIVEN if "day" in values[0] else SCHEMA)


def version(location):
    return len(list((location / "_delta_log").glob("*.json"))) - 1


def test_delvec_accepts_valid_rows_and_refuses_invalid_ones(lake, delta_spark, engine, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location)
    table = lake.table(str(location), engine=engine)

    table.append(rows(*RIGHT))
    table.append(rows(*RIGHT_WITH_DAY))

    before = version(location)
    for what, values in WRONG.items():
        with pytest.raises(delvec.ConstraintViolation):
            table.append(rows(values))
        assert version(location) == before, what
    assert delta_spark.read.format("delta").load(str(location)).count() == 5


def test_delta_spark_accepts_and_refuses_the_same(delta_spark, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location)

    def append(*values):
        frame = delta_spark.createDataFrame(rows(*values)).coalesce(1)
        frame.write.format("delta").mode("append").save(str(location))

    append(*RIGHT)
    append(*RIGHT_WITH_DAY)

    before = version(location)
    for what, values in WRONG.items():
        with pytest.raises(Exception, match=r"DELTA_(VIOLATE|NOT_NULL|EXCEED)"):
            append(values)
        assert version(location) == before, what


def test_rows_written_by_delvec_pass_delta_sparks_checks(lake, delta_spark, engine, agreed, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location)
    table = lake.table(str(location), engine=engine)
    data = pa.Table.from_pylist(
        [{**GOOD, "id": i, "at": None if i % 3 else GOOD["at"]} for i in range(1, 50)], SCHEMA
    )
    table.append(data if engine == "duckdb" else engine.createDataFrame(data))

    found = agreed(location)

    assert {(row["at"] is None, row["day"]) for row in found} == {(True, None), (False, DAY)}
    # delta-spark checks all rows before it adds a constraint.
    rules = ("id > 0", "day <=> CAST(at AS DATE)", "length(name) <= 3", "home.zip IS NOT NULL")
    delta_spark.sql(f"ALTER TABLE delta.`{location}` ADD CONSTRAINT again CHECK ({' AND '.join(rules)})")
    assert table.delete("id > 40")["numDeletedRows"] == 9
    assert delta_spark.read.format("delta").load(str(location)).where("day = '2024-01-02'").count() == 13


def test_char_values_are_stored_as_by_delta_spark(lake, delta_spark, engine, tmp_path):
    location = tmp_path / "table"
    delta_spark.sql(f"CREATE TABLE delta.`{location}` (c CHAR(5)) USING delta")
    delta_spark.sql(f"INSERT INTO delta.`{location}` VALUES ('ab')").collect()
    table = lake.table(str(location), engine=engine)

    table.append(pa.table({"c": ["ab"]}))

    assert table.to_arrow(predicate="c = 'ab'")["c"].to_pylist() == ["ab", "ab"]
    found = delta_spark.sql(f"SELECT c, c = 'ab' AS same FROM delta.`{location}`").collect()
    assert [(row.c, row.same) for row in found] == [("ab   ", True)] * 2


def test_comparisons_that_depend_on_char_padding_are_refused(lake, delta_spark, engine, tmp_path):
    location = tmp_path / "table"
    delta_spark.sql(f"CREATE TABLE delta.`{location}` (c CHAR(5), v VARCHAR(5)) USING delta")
    delta_spark.sql(f"INSERT INTO delta.`{location}` VALUES ('ab', 'ab'), ('ab ', 'ab ')").collect()
    frame = delta_spark.read.format("delta").load(str(location))
    assert [frame.where(f"c = '{text}'").count() for text in ("ab", "ab ", "ab   ")] == [2, 2, 2]
    assert [frame.where(f"v = '{text}'").count() for text in ("ab", "ab ")] == [1, 1]
    table = lake.table(str(location), engine=engine)

    assert [table.count(f"v = '{text}'") for text in ("ab", "ab ")] == [1, 1]
    assert [table.count(condition) for condition in ("c = 'ab'", "rtrim(c) = 'ab'")] == [1, 2]
    for condition in (
        "c = 'ab '",
        "'ab   ' = c",
        "c IN ('x', 'ab   ')",
        "NOT (c <=> 'ab ')",
        "c BETWEEN 'a ' AND 'b'",
    ):
        with pytest.raises(delvec.InvalidPredicate, match=r"'c', a char\(n\).*rtrim\(`c`\)"):
            table.delete(condition)
    assert frame.count() == 2


# --- row ids ------------------------------------------------------------------------------------------------


def ids_of(spark, location):
    """Return each row's row id and commit version, by key."""
    frame = spark.read.format("delta").load(str(location))
    found = frame.selectExpr("k", "_metadata.row_id AS id", "_metadata.row_commit_version AS since").collect()
    assert len({row.id for row in found}) == len(found)
    return {row.k: (row.id, row.since) for row in found}


def test_row_ids_stay_and_are_unique(lake, delta_spark, tmp_path):
    location = tmp_path / "table"
    properties = "'delta.enableRowTracking'='true', 'delta.enableDeletionVectors'='true'"
    delta_spark.sql(f"CREATE TABLE delta.`{location}` (k BIGINT) USING delta TBLPROPERTIES ({properties})")
    table = lake.table(str(location), engine="duckdb")
    keys = iter(range(10_000))
    known, versions = {}, {}

    def theirs():
        frame = delta_spark.createDataFrame([(next(keys),) for _ in range(20)], "k bigint").coalesce(1)
        frame.write.format("delta").mode("append").save(str(location))

    def ours():
        added = [next(keys) for _ in range(20)]
        done = table.append(pa.table({"k": pa.array(added, pa.int64())}))
        versions.update(dict.fromkeys(added, done.version))

    def sql(text):
        delta_spark.sql(text.format(f"delta.`{location}`")).collect()

    rounds = [
        [theirs, ours, lambda: table.delete("k % 10 = 1"), lambda: sql("DELETE FROM {} WHERE k % 10 = 2")],
        [lambda: sql("OPTIMIZE {}"), ours, lambda: table.delete("k % 10 = 3")],
        [lambda: sql("UPDATE {} SET k = k WHERE k % 10 = 4"), ours],
    ]
    for steps in rounds:
        for step in steps:
            step()
        found = ids_of(delta_spark, location)
        for key, (row_id, since) in found.items():
            assert known.setdefault(key, row_id) == row_id
            assert key % 10 == 4 or since == versions.get(key, since)
    assert table.count() == len(found) == 20 * 4 - 2 * (2 + 2) - 2 * 3
    assert len(known) == len(set(known.values()))
