"""Subqueries in the conditions and values of DELETE, UPDATE and MERGE."""

import pytest

import delvec
from delvec.sql import query_engines as on_duckdb
from delvec_errors import ConcurrentModification, InvalidStatement


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(tmp_path / "lake", database_url="sqlite://") as connection:
        connection.sql("CREATE TABLE t (id BIGINT, x INT, name STRING, day DATE)")
        connection.sql(
            "INSERT INTO t VALUES (1, 1, 'a', DATE'2024-01-01'), (2, 2, 'b', NULL), (3, 3, 'it\\'s', NULL), (4, NULL, NULL, NULL)"
        )
        connection.sql("CREATE TABLE u (k BIGINT, l INT, name STRING, day DATE)")
        connection.sql(
            "INSERT INTO u VALUES (1, 1, 'it\\'s', DATE'2024-01-01'), (2, 9, 'b', NULL), (NULL, 3, 'c', NULL)"
        )
        yield connection


def ids(lake, text="SELECT id FROM t ORDER BY id"):
    return [row["id"] for row in lake.sql(text).to_pylist()]


@pytest.mark.parametrize(
    ("condition", "rest"),
    [
        ("id IN (SELECT k FROM u)", [3, 4]),
        ("id NOT IN (SELECT k FROM u)", [1, 2, 3, 4]),  # NULL is among them
        ("id NOT IN (SELECT k FROM u WHERE k IS NOT NULL)", [1, 2]),
        ("x IN (SELECT l FROM u WHERE l > 99)", [1, 2, 3, 4]),
        ("x NOT IN (SELECT l FROM u WHERE l > 99)", []),
        ("name IN (SELECT name FROM u) OR (id = 4 AND EXISTS (SELECT 1 FROM u))", [1]),
        ("NOT EXISTS (SELECT 1, 1 FROM u WHERE l > 99) AND id < 3", [3, 4]),
        ("x = (SELECT min(l) FROM u) + 1", [1, 3, 4]),
        ("x = (SELECT l FROM u WHERE l > 99)", [1, 2, 3, 4]),
        ("day = (SELECT max(day) FROM u)", [2, 3, 4]),
        ("id IN (WITH w AS (SELECT k FROM u WHERE k IN (SELECT id FROM t)) SELECT k FROM w)", [3, 4]),
        ("id IN (SELECT k FROM u@v0)", [1, 2, 3, 4]),
        ("id > (SELECT avg(id) FROM t)", [1, 2]),
        ("EXISTS (SELECT 1 FROM u WHERE u.k = t.id AND u.l < 5)", [2, 3, 4]),
        ("NOT EXISTS (SELECT 1 FROM u WHERE t.id = u.k)", [1, 2]),
        ("EXISTS (SELECT * FROM u WHERE u.k = t.id AND u.l = t.x)", [2, 3, 4]),
        ("EXISTS (SELECT * FROM u WHERE u.k = t.id AND u.l > 99)", [1, 2, 3, 4]),
    ],
)
def test_delete(lake, condition, rest):
    lake.sql(f"DELETE FROM t WHERE {condition}")
    assert ids(lake) == rest


def test_update(lake):
    lake.sql(
        "UPDATE t AS a SET x = (SELECT max(l) FROM u) * 2, name = upper((SELECT max(name) FROM u WHERE l > 99)) "
        "WHERE EXISTS (SELECT 1 FROM u WHERE u.k = a.id)"
    )
    assert [row["x"] for row in lake.sql("SELECT x FROM t WHERE name IS NULL ORDER BY id").to_pylist()] == [
        18,
        18,
        None,
    ]


def test_merge(lake):
    done = lake.sql(
        "MERGE INTO t USING (SELECT k, l FROM u) s ON t.id = s.k AND s.k IN (SELECT id FROM t WHERE x < 2) "
        "WHEN MATCHED AND EXISTS (SELECT 1 FROM u) THEN UPDATE SET name = (SELECT max(name) FROM u) "
        "WHEN NOT MATCHED AND s.l < (SELECT max(l) FROM u) THEN INSERT (id, x) VALUES (s.l + 10, (SELECT count(*) FROM t)) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = (SELECT max(id) FROM t) THEN DELETE"
    )
    assert (done["numTargetRowsUpdated"], done["numTargetRowsInserted"], done["numTargetRowsDeleted"]) == (
        1,
        1,
        1,
    )
    assert ids(lake) == [1, 2, 3, 13]
    assert ids(lake, "SELECT id FROM t WHERE name = 'it\\'s' AND id = 1 OR x = 4 ORDER BY id") == [1, 13]


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("UPDATE t SET x = (SELECT l FROM u WHERE u.k = t.id)", 19, "write a MERGE"),
        ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k < t.id)", 29, "write a MERGE"),
        ("DELETE FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.k = t.id)", 29, "write a MERGE"),
        ("DELETE FROM t WHERE id IN (SELECT k FROM u WHERE u.l = t.x)", 28, "write a MERGE"),
        ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE k = id)", 29, "need its name before them"),
        ("DELETE FROM t WHERE x = (SELECT l FROM u)", 26, "more than one row"),
        ("DELETE FROM t WHERE x IN (SELECT * FROM u)", 27, "4 columns"),
        (
            "DELETE FROM t WHERE x IN (SELECT row_number() OVER (ORDER BY v) FROM (SELECT explode(split(space(49999), ' ')) AS v))",
            27,
            "50,000 values",
        ),
        ("DELETE FROM t name WHERE EXISTS (SELECT 1 FROM u WHERE u.k = name.id)", 34, "give that an alias"),
    ],
)
def test_what_is_refused(lake, text, column, reason):
    with pytest.raises(InvalidStatement, match=reason) as caught:
        lake.sql(text)
    assert caught.value.details["column"] == column
    assert ids(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("query", ["read_parquet('x')", "parquet.`/x`", "delta_scan"])
def test_subqueries_read_nothing_but_tables(lake, query):
    with pytest.raises(delvec.DelvecError):
        lake.sql(f"DELETE FROM t WHERE id IN (SELECT id FROM {query})")


@pytest.fixture
def after_the_query(monkeypatch):
    """Runs something once, after the next query."""

    def arrange(action):
        original = on_duckdb.query_duckdb

        def followed(*arguments):
            rows = original(*arguments)
            monkeypatch.setattr(on_duckdb, "query_duckdb", original)
            action()
            return rows

        monkeypatch.setattr(on_duckdb, "query_duckdb", followed)

    return arrange


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t WHERE id = (SELECT max(id) FROM t)",
        "UPDATE t SET id = 0 WHERE id = (SELECT max(id) FROM t)",
        (
            "MERGE INTO t USING (SELECT max(id) AS id FROM t) s ON t.id = s.id AND s.id = (SELECT max(id) FROM t) "
            "WHEN MATCHED THEN DELETE"
        ),
    ],
)
def test_a_subquery_of_the_changed_table_is_run_again_after_another_commit(lake, after_the_query, text):
    after_the_query(lambda: lake.table("t").append([{"id": 9}]))
    lake.sql(text)
    assert 4 in ids(lake)
    assert 9 not in ids(lake)


def test_a_subquery_of_the_changed_table_conflicts_with_a_change_before_the_commit(tmp_path, monkeypatch):
    from delvec_engines.duckdb.engine import DuckDBEngine

    with delvec.connect(tmp_path / "lake", database_url="sqlite://", retries=0) as lake:
        lake.sql("CREATE TABLE t AS SELECT 1 AS id UNION ALL SELECT 2")
        original, other = DuckDBEngine.find_rows, lake.table("t")

        def followed(*arguments):
            monkeypatch.setattr(DuckDBEngine, "find_rows", original)
            other.append([{"id": 9}])
            return original(*arguments)

        monkeypatch.setattr(DuckDBEngine, "find_rows", followed)
        with pytest.raises(ConcurrentModification):
            lake.sql("DELETE FROM t WHERE id = (SELECT max(id) FROM t)")
        assert ids(lake) == [1, 2, 9]


def test_other_tables_are_read_at_one_version(lake, after_the_query):
    """All subqueries of a statement see the version that was the newest when it began."""
    after_the_query(lambda: lake.sql("DELETE FROM u"))
    lake.sql("DELETE FROM t WHERE id IN (SELECT k FROM u WHERE k = 1) OR id IN (SELECT k FROM u WHERE k = 2)")
    assert ids(lake) == [3, 4]
