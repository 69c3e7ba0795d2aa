"""Conditions that are true for NULL, on files whose texts are all equal, where DuckDB 2.0 ignores NULLs."""

import pyarrow as pa
import pytest

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

ROWS = [
    {"id": 0, "s": None, "b": None, "x": {"s": None}, "k": 0},
    {"id": 1, "s": "c", "b": b"c", "x": {"s": "c"}, "k": 1},
    {"id": 2, "s": "c", "b": b"c", "x": None, "k": 2},
    {"id": 3, "s": None, "b": None, "x": {"s": "c"}, "k": None},
]
CONDITIONS = {
    "s IS NULL": [0, 3],
    "b IS NULL": [0, 3],
    "x.s IS NULL": [0, 2],
    "s IS NULL AND k >= 0": [0],
    "k >= 0 AND (s IS NULL)": [0],
    "NOT (s IS NOT NULL)": [0, 3],
    "NOT (s <=> 'c')": [0, 3],
    "s <=> NULL": [0, 3],
    "coalesce(s, '') = ''": [0, 3],
    "(s = 'c') IS NULL": [0, 3],
    "s IS NULL OR s = 'q'": [0, 3],
    "CASE WHEN s = 'c' THEN false ELSE true END": [0, 3],
    "s IS NOT NULL": [1, 2],
    "s = 'c'": [1, 2],
    "s NOT IN ('q')": [1, 2],
}


@pytest.fixture
def table(lake, engine, write_table, data_file):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("s", pa.string()),
            ("b", pa.binary()),
            ("x", pa.struct([("s", pa.string())])),
            ("k", pa.int64()),
        ]
    )
    others = [row | {"id": row["id"] + 10, "s": "d", "b": b"d", "x": {"s": "d"}} for row in ROWS]
    # As parquet-java writes columns for which a dictionary does not help.
    plain = {"use_dictionary": False}
    files = [data_file(pa.Table.from_pylist(rows, schema), options=plain) for rows in (ROWS, others)]
    properties = {"delta.enableDeletionVectors": "true"}
    return lake.table(
        write_table("t", schema, files, properties=properties, features=["deletionVectors"]), engine=engine
    )


def ids(rows):
    return sorted(rows["id"].to_pylist())


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_are_read_and_deleted(table, condition):
    expected = CONDITIONS[condition]
    where = f"id < 10 AND ({condition})"
    assert ids(table.to_arrow(predicate=where)) == expected
    assert ids(table.to_arrow(predicate=f"({condition}) AND id < 10")) == expected
    assert table.delete(where)["numDeletedRows"] == len(expected)
    assert ids(table.to_arrow(predicate="id < 10")) == [each for each in range(4) if each not in expected]


def test_rows_are_found_by_one_condition_alone(table):
    assert table.delete("id >= 10")["numDeletedRows"] == 4
    assert table.delete("s IS NULL")["numDeletedRows"] == 2
    assert ids(table.to_arrow()) == [1, 2]


@pytest.mark.gate
def test_rows_are_updated_and_merged(table):
    assert table.update({"k": "100"}, "s IS NULL AND id < 10")["numUpdatedRows"] == 2
    merged = (
        table.merge(pa.table({"n": [1]}), "target.x.s IS NULL AND target.id < 10")
        .when_matched_update({"k": "200"})
        .execute()
    )
    assert merged["numTargetRowsUpdated"] == 2
    merged = (
        table.merge(pa.table({"n": [0, 1, 2, 3]}), "target.id = source.n")
        .when_matched_delete("target.b IS NULL")
        .execute()
    )
    assert merged["numTargetRowsDeleted"] == 2
    rows = table.to_arrow(predicate="id < 10").to_pylist()
    assert {row["id"]: row["k"] for row in rows} == {1: 1, 2: 200}


@pytest.mark.parametrize("condition", ["s IS NULL", "coalesce(s, '') = ''", "NOT (s IS NOT NULL)"])
def test_queries_find_the_same_rows(lake, table, condition):
    found = lake.sql(f"SELECT id FROM delta.`{table.location}` WHERE {condition} AND id < 10")
    assert ids(pa.table(found)) == [0, 3]


@pytest.mark.parametrize("engine", ["duckdb"], indirect=True)
def test_relations_find_the_same_rows(lake, table, write_table, data_file):
    """Whatever the caller filters by, and however."""
    schema = table.schema()
    alone = data_file(pa.Table.from_pylist(ROWS, schema), options={"use_dictionary": False})
    relation = lake.table(write_table("alone", schema, [alone])).to_duckdb()
    found = {}
    for condition in CONDITIONS:
        spelled = condition.replace("<=>", "IS NOT DISTINCT FROM")
        found[condition] = ids(relation.filter(spelled).to_arrow_table())
        assert ids(table.to_duckdb().filter(f"({spelled}) AND id < 10").to_arrow_table()) == found[condition]
    assert found == CONDITIONS
    joined = relation.filter("s IS NULL").project("id").set_alias("a")
    others = relation.project("id AS other").set_alias("b")
    assert ids(joined.join(others, "a.id = b.other").to_arrow_table()) == [0, 3]
    assert relation.aggregate("count(*) FILTER (b IS NULL) AS n").fetchall() == [(2,)]
