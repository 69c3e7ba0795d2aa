"""EXPLAIN says what a statement would read, and changes nothing."""

import pytest

import delvec
from delvec_errors import InvalidStatement, UnknownColumn


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(tmp_path / "lake", database_url="sqlite://") as connection:
        connection.sql("CREATE TABLE t (id BIGINT, day DATE) PARTITIONED BY (day)")
        connection.sql(
            "INSERT INTO t VALUES (1, DATE'2026-01-01'), (2, DATE'2026-01-02'), (3, DATE'2026-01-03')"
        )
        connection.sql("CREATE TABLE u AS SELECT 2 AS id")
        yield connection


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM t WHERE day = '2026-01-02'", [("t", "read", 1, 2)]),
        ("SELECT * FROM t@v0 JOIN u USING (id)", [("t", "read", 0, 0), ("u", "read", 1, 0)]),
        ("DELETE FROM t WHERE day > '2026-01-01'", [("t", "DELETE", 2, 1)]),
        ("UPDATE t SET id = 0 WHERE id IN (SELECT id FROM u)", [("t", "UPDATE", 1, 2)]),
        ("DELETE FROM t WHERE id = (SELECT max(id) FROM t)", [("t", "DELETE", 1, 2)]),
        (
            (
                "MERGE INTO t USING (SELECT * FROM u) s ON t.id = s.id WHEN MATCHED THEN DELETE "
                "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
            ),
            [("u", "read", 1, 0), ("t", "MERGE", 1, 2)],
        ),
        (
            "MERGE INTO t USING u ON t.id > u.id AND t.day < '2026-01-03' WHEN MATCHED THEN UPDATE SET id = 0",
            [("u", "read", 1, 0), ("t", "MERGE", 2, 1)],
        ),
        (
            "MERGE INTO t USING t s ON t.id = s.id AND t.day = '2026-01-02' WHEN MATCHED THEN DELETE",
            [("t", "read", 3, 0), ("t", "MERGE", 1, 2)],
        ),
        (
            "MERGE INTO t USING u ON t.id = u.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
            [("u", "read", 1, 0), ("t", "MERGE", 3, 0)],
        ),
        ("INSERT INTO u (id) SELECT id FROM t WHERE day = '2026-01-02'", [("t", "read", 1, 2)]),
        ("CREATE OR REPLACE TABLE u AS SELECT id FROM t", [("t", "read", 3, 0)]),
        ("OPTIMIZE t WHERE day = '2026-01-02'", [("t", "OPTIMIZE", 1, 2)]),
    ],
)
def test_files_read_and_skipped(lake, statement, expected):
    explained = lake.sql(f"EXPLAIN {statement};").to_pylist()
    assert [
        (row["table"], row["action"], row["files"], row["files_skipped"]) for row in explained
    ] == expected
    for row in explained:
        assert (
            row["bytes"] + row["bytes_skipped"]
            == lake.table(row["table"]).snapshot(row["version"]).size_in_bytes
        )
        assert "duckdb" in row["engine"]
    assert [lake.table(name).version() for name in ("t", "u")] == [1, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET nothing = 1",
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET id = u.nothing",
    ],
)
def test_a_column_that_does_not_exist_is_found(lake, statement):
    with pytest.raises(UnknownColumn, match="nothing"):
        lake.sql(f"EXPLAIN {statement}")


@pytest.mark.parametrize("statement", ["", "DROP TABLE t", "EXPLAIN SELECT 1", "DELETE t"])
def test_other_statements_are_refused(lake, statement):
    with pytest.raises(InvalidStatement):
        lake.sql(f"EXPLAIN {statement}")
