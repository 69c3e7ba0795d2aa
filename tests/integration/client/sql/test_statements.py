"""Statements in SQL: each does what the command of the table does, and nothing else can be run."""

from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec
from delvec_errors import (
    BadRequest,
    EngineUnavailable,
    InvalidStatement,
    MissingDataFile,
    NotFound,
    SchemaMismatch,
    TableNotFound,
    UnknownColumn,
    VersionNotFound,
)


@pytest.fixture
def sales(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "sales", "id long, item string, price double, shop struct<city: string>", name="sales"
    )
    table.append(
        [
            {"id": n, "item": f"i{n}", "price": n / 2, "shop": {"city": "Rome" if n % 2 else "Oslo"}}
            for n in range(1, 7)
        ]
    )
    return table


def rows(lake, text, **options):
    return [tuple(row.values()) for row in lake.sql(text, **options).to_pylist()]


def test_delete(lake, sales):
    done = lake.sql("DELETE FROM sales WHERE sales.id > 4 OR shop.city = 'Oslo'")
    assert done["numDeletedRows"] == 4
    assert rows(lake, "SELECT id FROM sales ORDER BY id") == [(1,), (3,)]
    lake.sql("delete from sales as s where s.id = 1;")
    lake.sql("DELETE FROM sales")
    assert sales.count() == 0


def test_update(lake, sales):
    text = """
        UPDATE sales AS s  -- raised
        SET s.price = CASE WHEN s.id > 2 THEN 0 ELSE s.price * 2 END, item = concat('a, b', item)
        WHERE s.id IN (2, 3)
    """
    assert lake.sql(text)["numUpdatedRows"] == 2
    changed = "SELECT id, item, price FROM sales WHERE id BETWEEN 2 AND 3 ORDER BY id"
    assert rows(lake, changed) == [(2, "a, bi2", 2.0), (3, "a, bi3", 0.0)]


def test_merge(lake, sales, tmp_path):
    news = lake.create_table(tmp_path / "news", "id long, item string, price double", name="news")
    news.append(
        [
            {"id": 1, "item": "one", "price": 10.0},
            {"id": 2, "item": "gone", "price": 0.0},
            {"id": 9, "item": "new", "price": 9.0},
        ]
    )
    done = lake.sql(
        """
        MERGE INTO sales t USING news AS s ON t.id = s.id
        WHEN MATCHED AND s.item = 'gone' THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.item = s.item, price = t.price + s.price
        WHEN NOT MATCHED BY TARGET AND s.price > 1 THEN INSERT (id, item) VALUES (s.id, upper(s.item))
        WHEN NOT MATCHED BY SOURCE AND t.id > 5 THEN UPDATE SET price = -1
        WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN DELETE
        """
    )
    assert (done["numTargetRowsInserted"], done["numTargetRowsUpdated"], done["numTargetRowsDeleted"]) == (
        1,
        2,
        2,
    )
    expected = [(1, "one", 10.5), (3, "i3", 1.5), (4, "i4", 2.0), (6, "i6", -1.0), (9, "NEW", None)]
    assert rows(lake, "SELECT id, item, price FROM sales ORDER BY id") == expected


def test_merge_of_a_query_with_all_columns(lake, sales):
    lake.sql(
        "MERGE INTO sales USING (SELECT id + 5 AS id, item, price, shop FROM sales WHERE id < 3) AS s ON sales.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(lake, "SELECT id, item FROM sales WHERE id > 5 ORDER BY id") == [(6, "i1"), (7, "i2")]


def test_insert(lake, sales):
    lake.sql("INSERT INTO sales (id, price) VALUES (7, 1), (8, 2.5)")
    lake.sql("INSERT INTO TABLE sales BY NAME SELECT 'x' AS item, 9 AS id")
    lake.sql("INSERT INTO sales SELECT id + 10, item, NULL, shop FROM sales WHERE id = 1")
    expected = [(7, None, 1.0), (8, None, 2.5), (9, "x", None), (11, "i1", None)]
    assert rows(lake, "SELECT id, item, price FROM sales WHERE id > 6 ORDER BY id") == expected
    lake.sql("INSERT INTO sales REPLACE WHERE id > 6 SELECT * FROM sales WHERE id = 8")
    assert rows(lake, "SELECT max(id), count(*) FROM sales") == [(8, 7)]
    lake.sql("INSERT OVERWRITE sales SELECT * FROM sales WHERE id = 2")
    assert rows(lake, "SELECT id FROM sales") == [(2,)]


def test_insert_into_a_partition(lake, tmp_path):
    lake.create_table(tmp_path / "days", "id int, day date, n int", ["day", "n"], name="days")
    lake.sql("INSERT INTO days PARTITION (day = '2026-01-01', n = 1) VALUES (1), (2)")
    lake.sql("INSERT INTO days PARTITION (n = 1, day = '2026-01-02') (id) SELECT 3")
    lake.sql("INSERT INTO days PARTITION (day = NULL) SELECT 4, 2")
    lake.sql(
        "INSERT OVERWRITE TABLE days PARTITION (day = '2026-01-01') SELECT id + 10, n FROM days WHERE id = 2"
    )
    lake.sql("INSERT OVERWRITE days PARTITION (day = NULL) VALUES (5, DEFAULT)")
    found = rows(lake, "SELECT id, CAST(day AS STRING), n FROM days ORDER BY id")
    assert found == [(3, "2026-01-02", 1), (5, None, None), (12, "2026-01-01", 1)]
    for partition, reason in (
        ("(id = 1)", "PARTITION has the column id, but the table is partitioned by day, n"),
        ("(day)", "= and a value are expected"),
        ("(day = '2026-01-01') BY NAME", "neither BY NAME"),
    ):
        with pytest.raises(delvec.InvalidStatement, match=reason):
            lake.sql(f"INSERT INTO days PARTITION {partition} SELECT 1 AS id, 1 AS n")


def test_queries(lake, sales, by_country, tmp_path):
    sales.delete("id = 6")
    place = tmp_path / "sales"
    text = f"SELECT s.id, c.name FROM delta.`{place}` AS s JOIN by_country c ON c.id = s.id WHERE s.id > 3 ORDER BY 1"
    assert rows(lake, text) == [(4, "n4"), (5, "n5")]
    totals = "WITH s AS (SELECT shop.city AS city, price FROM sales) SELECT city, sum(price) AS n FROM s GROUP BY city"
    assert sorted(rows(lake, totals)) == [("Oslo", 3.0), ("Rome", 4.5)]
    assert rows(
        lake, "SELECT count(*) FROM sales WHERE id IN (SELECT id FROM by_country WHERE country = 'DE')"
    ) == [(1,)]
    assert rows(lake, "VALUES (1, 'a'), (2, 'b')") == [(1, "a"), (2, "b")]
    assert rows(lake, "SELECT 1 UNION ALL SELECT 2 ORDER BY 1") == [(1,), (2,)]
    # A name in WITH is the table itself inside of its own definition.
    assert rows(lake, "WITH sales AS (SELECT * FROM sales WHERE id = 1) SELECT id FROM sales") == [(1,)]


def test_a_name_of_with_is_told_as_the_engine_tells_it(lake, tmp_path):
    """Python makes a k of the Kelvin sign; DuckDB does not, and would look for a table that nobody showed it."""
    table = lake.create_table(tmp_path / "k", "id long", name="k")
    table.append([{"id": 1}])
    assert rows(lake, "WITH `\u212a` AS (SELECT 7 AS id) SELECT id FROM k") == [(1,)]
    assert rows(lake, "WITH `\u212a` AS (SELECT 7 AS id) SELECT id FROM `\u212a`") == [(7,)]
    assert rows(lake, "WITH K AS (SELECT 7 AS id) SELECT id FROM k") == [(7,)]


def test_time_travel(lake, sales):
    sales.delete("id < 6")
    at = sales.history()[1]["timestamp"]
    assert rows(lake, "SELECT count(*) FROM sales") == [(1,)]
    assert rows(lake, "SELECT count(*) FROM sales VERSION AS OF 1 AS old") == [(6,)]
    assert rows(lake, f"SELECT count(*) FROM sales TIMESTAMP AS OF '{at}' WHERE id < 6") == [(5,)]
    both = (
        "SELECT count(*) FROM sales FOR VERSION AS OF 1 o LEFT JOIN sales n ON o.id = n.id WHERE n.id IS NULL"
    )
    assert rows(lake, both) == [(5,)]
    with pytest.raises(VersionNotFound):
        lake.sql("SELECT * FROM sales VERSION AS OF 9")


def test_the_dialect_of_duckdb(lake, sales):
    text = "SELECT id::VARCHAR AS \"the id\" FROM sales WHERE item ILIKE 'I1'"
    assert lake.sql(text, dialect="duckdb").to_pydict() == {"the id": ["1"]}
    lake.sql("UPDATE sales SET item = \"item\" || '!' WHERE id::VARCHAR = '2'", dialect="duckdb")
    assert rows(lake, "SELECT item FROM sales WHERE id = 2") == [("i2!",)]


def test_describe_and_show(lake, sales):
    sales.alter.comment_column("item", "what it is")
    assert rows(lake, "DESCRIBE TABLE EXTENDED sales")[:2] == [
        ("id", "bigint", None),
        ("item", "string", "what it is"),
    ]
    assert rows(lake, "DESC sales")[3][1] == "struct<city:string>"
    assert lake.sql("DESCRIBE HISTORY sales LIMIT 2")["version"].to_pylist() == [2, 1]
    assert lake.sql("DESCRIBE DETAIL sales")["numFiles"].to_pylist() == [1]
    assert "sales" in lake.sql("show tables;")["name"].to_pylist()


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "empty"),
        ("EXPORT TABLE sales", 1, 1, "a statement must be"),
        ("DROP VIEW sales", 1, 6, "TABLE is expected"),
        ("CREATE TABLE more", 1, 18, "columns in parentheses"),
        ("CREATE TABLE more (id INT) USING csv", 1, 37, "USING DELTA"),
        ("CREATE TABLE more (id INT) AS SELECT 1", 1, 39, "leave out the list of columns"),
        ("ALTER TABLE sales FROB", 1, 19, "ADD COLUMNS"),
        ("ALTER TABLE sales ALTER COLUMN id FROB", 1, 35, "SET NOT NULL"),
        ("SHOW FROB", 1, 6, "is expected"),
        ("SELECT * FROM table_changes('sales')", 1, 15, "needs a table"),
        ("DELETE sales", 1, 8, "FROM is expected, not 'sales'"),
        ("DELETE FROM sales\nWHERE", 2, 6, "an expression is expected, not the end"),
        ("DELETE FROM sales WHERE (id = 1", 1, 32, "a closing"),
        ("DELETE FROM sales WHERE id = 1)", 1, 31, "end of the statement"),
        ("DELETE FROM sales VERSION AS OF 1", 1, 13, "newest version"),
        ("UPDATE sales SET\n  id 3", 2, 6, "= is expected, not '3'"),
        ("UPDATE sales SET id = 3, id = 4", 1, 26, "set twice"),
        ("UPDATE sales SET id = ", 1, 23, "an expression is expected"),
        ("MERGE INTO sales USING sales s ON 1 = 1", 1, 40, "WHEN is expected"),
        (
            "MERGE INTO sales USING sales s ON s.id = 1 WHEN MATCHED THEN INSERT *",
            1,
            62,
            "UPDATE is expected",
        ),
        (
            "MERGE INTO sales USING sales s ON 1 = 1 WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)",
            1,
            82,
            "2 values for 1 columns",
        ),
        ("INSERT INTO sales VALUES (1)", 1, 19, "1 column, but the statement fills 4"),
        ("INSERT INTO sales nonsense", 1, 19, "SELECT or VALUES"),
        ("SELECT id FROM sales WHERE", 1, 22, "cannot be parsed here: WHERE is not complete"),
        ("SELECT id\nFROM sales WHERE )", 2, 18, "cannot be parsed here"),
        ("SELECT * FROM sales; DELETE FROM sales", 1, 20, "one statement"),
        ("SELECT 'abc FROM sales", 1, 1, "cannot be parsed"),
        ("SELECT * FROM sales VERSION AS OF -1", 1, 15, "write a table's version as"),
        ("DESCRIBE sales sales", 1, 16, "end of the statement"),
        ("SELECT nope FROM sales", 1, 8, "nope"),
    ],
)
def test_errors_have_a_position(lake, sales, text, line, column, reason):
    with pytest.raises(InvalidStatement, match=reason.replace("(", r"\(")) as caught:
        lake.sql(text)
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)
    assert sales.version() == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM `{file}`",
        "SELECT * FROM parquet.`{file}`",
        "SELECT * FROM glob('{file}')",
        "SELECT (SELECT count(*) FROM read_blob('{file}')) FROM sales",
        "WITH x AS (SELECT * FROM parquet_scan('{file}')) SELECT * FROM x",
        "SELECT * FROM sales, LATERAL (SELECT * FROM read_csv('{file}'))",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM sales, LATERAL query('SELECT 1')",
        "SELECT * FROM sales CROSS JOIN LATERAL read_text('{file}')",
        "SELECT * FROM sales, LATERAL duckdb_settings()",
        "SELECT TRANSFORM(id) USING 'cat {file}' AS (x) FROM sales",
        "SELECT * FROM duckdb_settings()",
        "COPY sales TO '{file}2'",
        "COPY (SELECT 1) TO '{file}2'",
        "ATTACH '{file}2' AS other",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "EXPORT DATABASE '{file}2'",
        "CALL pragma_version()",
        "INSERT INTO sales SELECT * FROM read_parquet('{file}')",
        "MERGE INTO sales t USING (SELECT * FROM read_parquet('{file}')) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
@pytest.mark.parametrize("dialect", ["spark", "duckdb"])
def test_nothing_but_tables_is_read_and_nothing_is_written(lake, sales, tmp_path, query, dialect):
    file = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"id": [1]}), file)
    if dialect == "duckdb":
        query = query.replace("`", '"')
    with pytest.raises(delvec.DelvecError) as caught:
        lake.sql(query.format(file=file), dialect=dialect)
    assert isinstance(caught.value, InvalidStatement | NotFound)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sales", "secret.parquet"]
    assert sales.version() == 1


def test_duckdb_itself_is_locked(lake, sales, tmp_path, monkeypatch):
    """Were a query to slip through the first gate, the second holds."""
    file = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"id": [1]}), file)
    from delvec.sql import queries

    monkeypatch.setattr(queries.Query, "on", lambda *_: f"SELECT * FROM read_parquet('{file}')")
    with pytest.raises(InvalidStatement, match="Cannot access file"):
        lake.sql("SELECT * FROM sales")


@pytest.mark.parametrize(
    "call",
    ["reflect('java.lang.System', 'exit')", "`Reflect`('a', 'b')", "system.builtin.java_method('a', 'b')"],
)
def test_queries_call_no_methods_of_spark_s_process(call):
    from delvec.sql.queries import parse_query

    query = parse_query(f"SELECT 1,\n {call}", "spark")
    with pytest.raises(InvalidStatement, match=r"Line 2, column .* may not be safe"):
        query.check_functions(())


def test_queries_call_functions_of_the_session_that_are_named():
    from delvec.sql.queries import parse_query

    query = parse_query(
        "SELECT my_udf(id), rank() OVER (ORDER BY id), bool_and(true), array_size(array(1)) FROM t", "spark"
    )
    query.check_functions(["MY_UDF"])
    with pytest.raises(InvalidStatement, match=r"calls the function my_udf.*functions="):
        query.check_functions(())


@pytest.fixture
def twins(lake, tmp_path):
    """Two files; the columns ``x`` and ``s.x`` have their values in different ones."""
    table = lake.create_table(tmp_path / "twins", "id long, x long, s struct<x: long>", name="twins")
    table.append([{"id": 1, "x": 10, "s": {"x": 20}}])
    table.append([{"id": 2, "x": 20, "s": {"x": 10}}])
    return table


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM twins WHERE s.x = 10", [(2,)]),
        ("SELECT id FROM twins WHERE twins.s.x = 10", [(2,)]),
        ("SELECT id FROM twins s WHERE S.x = 10", [(1,)]),
        ("SELECT n FROM twins u (n, y, x) WHERE y = 10", [(1,)]),
        ("SELECT y FROM twins u (y, id, x) WHERE id = 20", [(2,)]),
        ("SELECT id, z FROM twins, LATERAL unnest(array(x)) u (z) WHERE id = 2", [(2, 20)]),
    ],
)
@pytest.mark.usefixtures("twins")
def test_a_condition_is_one_of_the_column_that_it_names(lake, query, expected):
    assert rows(lake, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM (twins CROSS JOIN twins u)", [(4,)]),
        ("SELECT count(*) FROM twins TABLESAMPLE (1 ROWS)", [(1,)]),
        ("SELECT count(*) FROM twins u TABLESAMPLE (1 ROWS)", [(1,)]),
        ("SELECT a, b FROM twins PIVOT (sum(x) FOR id IN (1 AS a, 2 AS b)) WHERE b = 20", [(None, 20)]),
        ("SELECT /*+ BROADCAST(u) */ u.id FROM twins JOIN twins u USING (x) WHERE u.id = 1", [(1,)]),
        ("SELECT 1 /* of */; -- the end", [(1,)]),
    ],
)
@pytest.mark.usefixtures("twins")
def test_all_of_a_query_is_run(lake, query, expected):
    assert rows(lake, query) == expected


def test_errors_of_commands_arrive_as_they_are(lake, sales):
    with pytest.raises(UnknownColumn):
        lake.sql("UPDATE sales SET nope = 1")
    with pytest.raises(TableNotFound):
        lake.sql("SELECT * FROM nobody")
    with pytest.raises(SchemaMismatch):
        lake.sql("INSERT INTO sales (id) VALUES (1.5)")
    with pytest.raises(BadRequest, match="dialect"):
        lake.sql("SELECT 1", dialect="oracle")
    with pytest.raises(EngineUnavailable):
        lake.sql("SELECT 1", engine="spark")


def test_files_that_are_missing_or_damaged_are_named(lake, sales, tmp_path):
    (file,) = (tmp_path / "sales").glob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(b"PAR1" + b"x" * (len(content) - 4))
    with pytest.raises(delvec.CorruptTable) as damaged:
        lake.sql("SELECT sum(price) FROM sales")
    file.unlink()
    with pytest.raises(MissingDataFile) as missing:
        lake.sql("SELECT a.id FROM sales a JOIN sales b USING (id)")
    assert damaged.value.details["file"] == missing.value.details["file"] == file.name


def test_conditions_leave_files_out(lake, tmp_path, monkeypatch):
    table = lake.create_table(tmp_path / "parts", "id long, day date", partition_by=["day"], name="parts")
    for n in range(3):
        table.append([{"id": n, "day": date(2024, 1, 1 + n)}])
    read = []
    from delvec.sql import query_engines as on_duckdb

    original = on_duckdb.relation
    monkeypatch.setattr(
        on_duckdb,
        "relation",
        lambda scan, *rest, **options: (read.append(len(scan)), original(scan, *rest, **options))[1],
    )
    assert rows(lake, "SELECT id FROM parts p WHERE p.day = DATE'2024-01-02'") == [(1,)]
    assert rows(lake, "SELECT id FROM parts WHERE id >= 2 AND upper(CAST(id AS STRING)) = '2'") == [(2,)]
    assert rows(lake, "SELECT count(*) FROM parts a LEFT JOIN parts b ON a.id = b.id WHERE b.id IS NULL") == [
        (0,)
    ]
    assert read == [1, 1, 3, 3]


def test_conditions_leave_out_no_file_that_the_engine_finds_rows_in(lake, tmp_path):
    table = lake.create_table(tmp_path / "floats", "id long, f float", name="floats")
    table.append(pa.table({"id": [1], "f": pa.array([0.1], pa.float32())}))
    for query in ("SELECT id FROM floats WHERE f = 0.1", "SELECT id FROM floats WHERE f <= 0.1 AND id = 1"):
        nested = query.replace("floats", "(SELECT * FROM floats)")
        # Spark compares as doubles, DuckDB as floats.
        assert rows(lake, query) == rows(lake, nested) == []
        assert rows(lake, query, dialect="duckdb") == rows(lake, nested, dialect="duckdb") == [(1,)]


def test_the_shell(sales, tmp_path, capsys):
    from delvec.cli import main

    def shell(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["sql", *arguments])
        return ended.value.code, capsys.readouterr()

    place = f"delta.`{tmp_path}/sales`"
    code, shown = shell(f"SELECT id, item FROM {place} WHERE id < 3 ORDER BY id")
    assert code == 0
    assert [line.split() for line in shown.out.splitlines()] == [["id", "item"], ["1", "i1"], ["2", "i2"]]
    code, shown = shell(f"DELETE FROM {place} WHERE id = 1", "--json")
    assert code == 0
    assert '"numDeletedRows": 1' in shown.out
    code, shown = shell("SELEC 1")
    assert code == 1
    assert "Line 1, column 1" in shown.err


@pytest.mark.parametrize(
    ("query", "line", "column", "suggestion"),
    [
        ("SELECT\n  nmae FROM located", 2, 3, "'name'"),
        ("\n\nSELECT located.nmae FROM located", 3, 16, None),
        ("SELECT 'uper', uper(name) FROM located;", 1, 16, "'upper'"),
        ("SELECT locted.id FROM located", 1, 8, "'located'"),
        ("SELECT id,\n sum(name) FROM located", 2, 2, None),
        ("SELECT name, id FROM located GROUP BY name", 1, 14, None),
    ],
)
def test_what_duckdb_refuses_is_located_in_the_query_with_near_names(
    lake, tmp_path, query, line, column, suggestion
):
    if "located" not in {table.name for table in lake.tables()}:
        lake.create_table(tmp_path / "located", "id int, name string, age int", name="located")
    with pytest.raises(InvalidStatement, match=f"^Line {line}, column") as caught:
        lake.sql(query)
    assert caught.value.details["line"] == line
    if suggestion is None:
        assert caught.value.details["column"] > 0
    else:
        assert caught.value.details["column"] == column
        assert f"did you mean {suggestion}" in caught.value.message
