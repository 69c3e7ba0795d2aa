"""SQL statements and their expected results, which must be the same on DuckDB, classic Spark and Spark Connect.

Each function creates tables in a folder, runs statements on an engine, and checks the rows.
"""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

import delvec

__all__ = ["STATEMENTS"]

_SALES = "id long, item string, price double, day date, shop struct<city: string>"


def _sales(lake, folder):
    table = lake.create_table(folder / "sales", _SALES, partition_by=["day"], engine="duckdb")
    table.append(
        [
            {
                "id": n,
                "item": f"i{n}",
                "price": n / 2,
                "day": date(2024, 1, 1 + n % 2),
                "shop": {"city": "Rome" if n % 2 else "Oslo"},
            }
            for n in range(1, 7)
        ]
    )
    return table, f"delta.`{folder}/sales`"


def _rows(lake, engine, text):
    """Return the rows of a query as sorted tuples."""
    found = lake.sql(text, engine=engine)
    found = found.toArrow() if hasattr(found, "toArrow") else found
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def delete(lake, engine, folder):
    table, sales = _sales(lake, folder)
    done = lake.sql(f"DELETE FROM {sales} AS s WHERE s.id > 4 OR s.shop.city = 'Oslo'", engine=engine)
    assert (done["numDeletedRows"], done.version) == (4, 2)
    assert _rows(lake, engine, f"SELECT id FROM {sales}") == [(1,), (3,)]
    assert lake.sql(f"DELETE FROM {sales} WHERE id = 17;", engine=engine).version is None
    lake.sql(f"delete from {sales}", engine=engine)
    assert table.count() == 0
    assert table.history(1)[0]["operation"] == "DELETE"


def update(lake, engine, folder):
    _, sales = _sales(lake, folder)
    text = f"""
        UPDATE {sales} AS s  -- raised
        SET s.price = CASE WHEN s.id > 2 THEN 0 ELSE s.price * 2 END, item = concat('a, b', item),
            shop.city = 'Bern', day = DATE'2024-02-01'
        WHERE s.id IN (2, 3)
    """
    assert lake.sql(text, engine=engine)["numUpdatedRows"] == 2
    changed = f"SELECT id, item, price, shop.city AS city, day FROM {sales} WHERE id BETWEEN 2 AND 3"
    moved = date(2024, 2, 1)
    assert _rows(lake, engine, changed) == [
        (2, "a, bi2", 2.0, "Bern", moved),
        (3, "a, bi3", 0.0, "Bern", moved),
    ]


def merge(lake, engine, folder):
    _, sales = _sales(lake, folder)
    news = lake.create_table(folder / "news", "id long, item string, price double", engine="duckdb")
    news.append(
        [
            {"id": 1, "item": "one", "price": 10.0},
            {"id": 2, "item": "gone", "price": 0.0},
            {"id": 9, "item": "new", "price": 9.0},
        ]
    )
    done = lake.sql(
        f"""
        MERGE INTO {sales} t USING delta.`{folder}/news` AS s ON t.id = s.id
        WHEN MATCHED AND s.item = 'gone' THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.item = s.item, price = t.price + s.price
        WHEN NOT MATCHED BY TARGET AND s.price > 1 THEN INSERT (id, item) VALUES (s.id, upper(s.item))
        WHEN NOT MATCHED BY SOURCE AND t.id > 5 THEN UPDATE SET price = -1
        WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN DELETE
        """,
        engine=engine,
    )
    counts = [done[f"numTargetRows{what}"] for what in ("Inserted", "Updated", "Deleted")]
    assert counts == [1, 2, 2]
    expected = [(1, "one", 10.5), (3, "i3", 1.5), (4, "i4", 2.0), (6, "i6", -1.0), (9, "NEW", None)]
    assert _rows(lake, engine, f"SELECT id, item, price FROM {sales}") == expected


def merge_of_a_query(lake, engine, folder):
    table, sales = _sales(lake, folder)
    lake.sql(
        f"MERGE INTO {sales} AS t USING (SELECT id + 5 AS id, item, price, day, shop FROM {sales} WHERE id < 3) AS s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        engine=engine,
    )
    assert _rows(lake, engine, f"SELECT id, item FROM {sales} WHERE id > 5") == [(6, "i1"), (7, "i2")]
    lake.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {sales} AS t USING (SELECT 7 AS id, 'red' AS colour) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET colour = s.colour",
        engine=engine,
    )
    assert _rows(lake, engine, f"SELECT id, colour FROM {sales} WHERE colour IS NOT NULL") == [(7, "red")]
    with pytest.raises(delvec.MultipleMatches):
        lake.sql(
            f"MERGE INTO {sales} t USING (SELECT 1 AS id UNION ALL SELECT 1) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET item = 'x'",
            engine=engine,
        )
    assert table.version() == 3


def insert(lake, engine, folder):
    table, sales = _sales(lake, folder)
    lake.sql(f"INSERT INTO {sales} (id, price) VALUES (7, 1), (8, 2.5)", engine=engine)
    lake.sql(f"INSERT INTO TABLE {sales} BY NAME SELECT 'x' AS item, 9 AS id", engine=engine)
    lake.sql(
        f"INSERT INTO {sales} SELECT id + 10, item, NULL, day, shop FROM {sales} WHERE id = 1", engine=engine
    )
    expected = [(11, "i1", None), (7, None, 1.0), (8, None, 2.5), (9, "x", None)]
    assert _rows(lake, engine, f"SELECT id, item, price FROM {sales} WHERE id > 6") == expected
    assert table.history(1)[0]["operation"] == "WRITE"
    assert _rows(
        lake, engine, f"SELECT day, shop.city AS city FROM {sales} WHERE id IN (7, 11) AND day IS NOT NULL"
    ) == [(date(2024, 1, 2), "Rome")]


def insert_in_place_of_others(lake, engine, folder):
    table, sales = _sales(lake, folder)
    lake.sql(f"INSERT INTO {sales} REPLACE WHERE id > 4 SELECT * FROM {sales} WHERE id = 6", engine=engine)
    assert _rows(lake, engine, f"SELECT id FROM {sales}") == [(1,), (2,), (3,), (4,), (6,)]
    with pytest.raises(delvec.ConstraintViolation):
        lake.sql(
            f"INSERT INTO {sales} REPLACE WHERE id > 4 SELECT * FROM {sales} WHERE id = 2", engine=engine
        )
    lake.sql(f"INSERT OVERWRITE {sales} SELECT * FROM {sales} WHERE id < 3", engine=engine)
    assert _rows(lake, engine, f"SELECT id FROM {sales}") == [(1,), (2,)]
    assert table.version() == 3


def numbers_of_other_types(lake, engine, folder):
    kinds = "i int, l long, d decimal(5,2), f double, b byte"
    table = lake.create_table(folder / "numbers", kinds, engine="duckdb")
    numbers = f"delta.`{folder}/numbers`"
    lake.sql(f"INSERT INTO {numbers} VALUES (1, 2, 3, 4, 5), (1.0, 2.0, 3.25, 4.5, NULL)", engine=engine)
    expected = [(1, 2, Decimal("3.00"), 4.0, 5), (1, 2, Decimal("3.25"), 4.5, None)]
    assert _rows(lake, engine, f"SELECT * FROM {numbers}") == expected
    for column, value in (
        ("i", "1.5"),
        ("i", "5000000000"),
        ("l", "0.1"),
        ("d", "1.125"),
        ("d", "1000"),
        ("f", "9007199254740993"),
        ("b", "128"),
    ):
        with pytest.raises(delvec.SchemaMismatch, match=f"'{column}'"):
            lake.sql(f"INSERT INTO {numbers} ({column}) VALUES ({value})", engine=engine)
    assert table.version() == 1


def nothing_of_any_type(lake, engine, folder):
    kinds = "id long, at timestamp_ntz, seen timestamp, name string, day date, parts array<timestamp_ntz>"
    lake.create_table(folder / "moments", kinds, engine="duckdb")
    moments = f"delta.`{folder}/moments`"
    lake.sql(f"INSERT INTO {moments} VALUES (1, NULL, NULL, NULL, NULL, NULL)", engine=engine)
    assert _rows(lake, engine, f"SELECT * FROM {moments}") == [(1, *[None] * 5)]


def queries(lake, engine, folder):
    table, sales = _sales(lake, folder)
    table.delete("id = 6")
    shops = lake.create_table(folder / "shops", "city string, country string", engine="duckdb")
    shops.append([{"city": "Rome", "country": "IT"}, {"city": "Oslo", "country": "NO"}])
    where = f"delta.`{folder}/shops`"
    joined = f"SELECT s.id, c.country FROM {sales} AS s JOIN {where} c ON c.city = s.shop.city WHERE s.id > 3"
    assert _rows(lake, engine, joined) == [(4, "NO"), (5, "IT")]
    outer = f"SELECT c.city, s.id FROM {where} c LEFT JOIN {sales} s ON s.shop.city = c.city AND s.id > 4"
    assert _rows(lake, engine, outer) == [("Oslo", None), ("Rome", 5)]
    totals = (
        f"WITH s AS (SELECT shop.city AS city, price FROM {sales}) SELECT city, sum(price) AS n FROM s "
        "GROUP BY city HAVING sum(price) > 1"
    )
    assert _rows(lake, engine, totals) == [("Oslo", 3.0), ("Rome", 4.5)]
    inner = f"SELECT count(*) AS n FROM {sales} WHERE shop.city IN (SELECT city FROM {where} WHERE country = 'IT')"
    assert _rows(lake, engine, inner) == [(3,)]
    ranked = (
        f"SELECT id, row_number() OVER (PARTITION BY day ORDER BY id DESC) AS n FROM {sales} QUALIFY n = 1"
    )
    assert _rows(lake, engine, ranked) == [(4, 1), (5, 1)]
    assert _rows(lake, engine, "VALUES (1, 'a'), (2, 'b')") == [(1, "a"), (2, "b")]
    # Inside its own definition, a CTE's name refers to the table.
    lake.create_table(folder / "once", "id long", name=f"once_{folder.name}", engine="duckdb").append(
        [{"id": 1}, {"id": 2}]
    )
    once = f"once_{folder.name}"
    assert _rows(
        lake, engine, f"WITH {once} AS (SELECT * FROM {once} WHERE id = 1) SELECT id FROM {once}"
    ) == [(1,)]


def time_travel(lake, engine, folder):
    table, sales = _sales(lake, folder)
    table.delete("id < 6")
    at = datetime.fromtimestamp(table.history()[1]["timestamp"] / 1000, UTC).isoformat()
    assert _rows(lake, engine, f"SELECT count(*) AS n FROM {sales}") == [(1,)]
    assert _rows(lake, engine, f"SELECT count(*) AS n FROM {sales} VERSION AS OF 1 AS old") == [(6,)]
    then = f"SELECT count(*) AS n FROM {sales} TIMESTAMP AS OF '{at}' WHERE id < 6"
    assert _rows(lake, engine, then) == [(5,)]
    both = (
        f"SELECT count(*) AS n FROM {sales} FOR VERSION AS OF 1 o LEFT JOIN {sales} n ON o.id = n.id "
        "WHERE n.id IS NULL"
    )
    assert _rows(lake, engine, both) == [(5,)]
    lake.sql(f"INSERT INTO {sales} SELECT * FROM {sales} VERSION AS OF 1 WHERE id = 2", engine=engine)
    assert _rows(lake, engine, f"SELECT id FROM {sales}") == [(2,), (6,)]
    with pytest.raises(delvec.VersionNotFound):
        lake.sql(f"SELECT * FROM {sales} VERSION AS OF 9", engine=engine)


def _dicts(answer):
    return [row.asDict() for row in answer.collect()] if hasattr(answer, "collect") else answer.to_pylist()


def descriptions(lake, engine, folder):
    table, sales = _sales(lake, folder)
    table.alter.comment_column("item", "what it is")
    described = lake.sql(f"DESCRIBE {sales}", engine=engine).to_pylist()
    assert described[:2] == [
        {"col_name": "id", "data_type": "bigint", "comment": None},
        {"col_name": "item", "data_type": "string", "comment": "what it is"},
    ]
    assert described[-1]["data_type"] == "struct<city:string>"
    history = _dicts(lake.sql(f"DESCRIBE HISTORY {sales} LIMIT 2", engine=engine))
    assert [(entry["version"], entry["operation"]) for entry in history] == [
        (2, "CHANGE COLUMN"),
        (1, "WRITE"),
    ]
    (detail,) = _dicts(lake.sql(f"DESCRIBE DETAIL {sales}", engine=engine))
    # On Spark these are delta-spark's DataFrames, elsewhere text.
    assert (detail["numFiles"], detail["partitionColumns"]) in ((2, '["day"]'), (2, ["day"]))
    assert table.location in lake.sql("SHOW TABLES", engine=engine)["location"].to_pylist()


def errors_with_a_position(lake, engine, folder):
    table, sales = _sales(lake, folder)
    for text, line, column in (
        (f"DELETE {sales}", 1, 8),
        (f"DELETE FROM {sales}\nWHERE", 2, 6),
        (f"UPDATE {sales} SET\n  id 3", 2, 6),
        (f"INSERT INTO {sales}\nVALUES (1)", 2, 1),
        (f"SELECT id\nFROM {sales} WHERE )", 2, len(f"FROM {sales} WHERE )")),
        (f"MERGE INTO {sales} USING {sales} s\nON 1 = 1", 2, 9),
        (f"SELECT * FROM {sales}\n, range(3)", 2, 3),
        ("GRANT SELECT ON sales TO ann", 1, 1),
    ):
        with pytest.raises(delvec.InvalidStatement) as caught:
            lake.sql(text, engine=engine)
        assert (caught.value.details["line"], caught.value.details["column"]) == (line, column), text
    with pytest.raises(delvec.InvalidStatement, match="nope"):
        lake.sql(f"SELECT nope FROM {sales}", engine=engine)
    with pytest.raises(delvec.UnknownColumn):
        lake.sql(f"UPDATE {sales} SET nope = 1", engine=engine)
    with pytest.raises(delvec.TableNotFound):
        lake.sql("SELECT * FROM nobody_s_table", engine=engine)
    with pytest.raises(delvec.DelvecError):
        lake.sql(f"SELECT * FROM parquet.`{folder}/sales`", engine=engine)
    assert table.version() == 1


STATEMENTS = (
    delete,
    update,
    merge,
    merge_of_a_query,
    insert,
    insert_in_place_of_others,
    numbers_of_other_types,
    nothing_of_any_type,
    queries,
    time_travel,
    descriptions,
    errors_with_a_position,
)
