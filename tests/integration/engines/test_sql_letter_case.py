"""Names in queries on DuckDB are compared without case, whatever the letters, as Spark does."""

import pyarrow as pa
import pytest

import delvec


@pytest.fixture
def people(lake, tmp_path):
    """The name of a table with names in Greek, Cyrillic and Latin letters."""
    home = pa.array([{"ÉTAGE": 1}, {"ÉTAGE": 2}], pa.struct([("ÉTAGE", pa.int64())]))
    rows = pa.table({"Größe": [180, 170], "имя": ["Ada", "Bob"], "home": home})
    table = lake.create_table(tmp_path / "people", rows.schema)
    table.append(rows)
    return f"delta.`{table.location}`"


def test_a_query_finds_columns_in_any_letter_case(lake, people):
    query = f"""
        SELECT p.`Имя`, home.`Étage` AS e, `GRÖßE` + 1 AS g
        FROM {people} AS p JOIN (SELECT `ИМЯ` AS other FROM {people}) AS o ON p.`имЯ` = o.other
        WHERE `ИМЯ` <> 'x' ORDER BY `größe`
    """
    rows = lake.sql(query, engine="duckdb")
    assert [list(row.values()) for row in rows.to_pylist()] == [["Bob", 2, 171], ["Ada", 1, 181]]


def test_a_name_that_no_table_has_is_unknown(lake, people):
    with pytest.raises(delvec.InvalidStatement, match="größen"):
        lake.sql(f"SELECT `größen` FROM {people}", engine="duckdb")
