"""Statements of Spark's that Delvec has no use for."""

import pytest

from delvec_errors import InvalidStatement


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("USE sales", "sales.orders"),
        ("USE DATABASE sales", "sales.orders"),
        ("CREATE SCHEMA IF NOT EXISTS sales", "CREATE TABLE sales.orders"),
        ("CREATE DATABASE sales", "CREATE TABLE sales.orders"),
        ("DROP SCHEMA sales CASCADE", "nothing to do"),
        ("DESCRIBE SCHEMA sales", "nothing to do"),
        ("CREATE TEMP VIEW v AS SELECT 1", "no views"),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", "no views"),
        ("DROP VIEW v", "no views"),
        ("SHOW VIEWS", "no views"),
        ("SHOW USER FUNCTIONS", "built-in functions"),
        ("DESCRIBE FUNCTION abs", "built-in functions"),
        ("SHOW CATALOGS", "one catalog"),
        ("SET spark.sql.ansi.enabled = true", "spark.sql"),
        ("REFRESH TABLE t", "spark.sql"),
        ("MSCK REPAIR TABLE t", "FSCK REPAIR"),
    ],
)
def test_a_statement_says_what_to_write_instead(lake, text, advice):
    with pytest.raises(InvalidStatement, match=advice) as raised:
        lake.sql(text)
    assert "Line 1, column 1" in str(raised.value)


def test_tables_may_have_such_names(lake, tmp_path):
    lake.sql(f"CREATE TABLE view LOCATION '{tmp_path}/view' AS SELECT 1 AS id")
    assert lake.sql("DESCRIBE view")["col_name"].to_pylist() == ["id"]
    assert lake.sql("DESCRIBE TABLE view")["col_name"].to_pylist() == ["id"]


def test_namespaces_are_those_of_tables(lake, tmp_path):
    for name in ("sales.eu.orders", "sales.people", "alone"):
        lake.create_table(tmp_path / name.replace(".", "_"), "id int", name=name)
    for word in ("SCHEMAS", "DATABASES", "NAMESPACES"):
        found = lake.sql(f"SHOW {word}")["namespace"].to_pylist()
        assert {"sales", "sales.eu"} <= set(found)
        assert "" not in found
    assert lake.sql("SHOW SCHEMAS LIKE 'sales.*'")["namespace"].to_pylist() == ["sales.eu"]
