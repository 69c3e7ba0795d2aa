"""The forms of statements, from which `docs/sql-grammar.md` is generated (`python dev/sql_grammar.py`).

Tested in `tests/integration/client/sql/test_grammar.py`, which runs each example, in order.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["FORMS", "Form"]


@dataclass(frozen=True)
class Form:
    """A form of a statement.

    Attributes:
        subject: the heading it belongs to.
        syntax: brackets enclose what may be left out, bars separate alternatives.
        example: a statement of this form.
    """

    subject: str
    syntax: str
    example: str


_TABLES: Final = "Tables"
_ALTER: Final = "ALTER TABLE"
_ROWS: Final = "Rows"
_QUERIES: Final = "Queries"
_INSPECT: Final = "Inspecting"
_MAINTAIN: Final = "Looking after tables"
_CHANGED: Final = "ALTER TABLE t "

FORMS: Final = (
    Form(
        _TABLES,
        "CREATE TABLE [IF NOT EXISTS] t (column type [NOT NULL] [DEFAULT value | GENERATED ALWAYS AS (expression) | "
        "GENERATED { ALWAYS | BY DEFAULT } AS IDENTITY [(START WITH n INCREMENT BY m)]] [COMMENT 'text'], …) [clauses]",
        "CREATE TABLE people (id BIGINT NOT NULL, name STRING DEFAULT 'nobody' COMMENT 'in full', age INT, home "
        "STRUCT<city: STRING>) USING DELTA COMMENT 'who there is' TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    ),
    Form(
        _TABLES,
        "clauses, in any order: USING DELTA, PARTITIONED BY (column, …), CLUSTER BY (column, …), LOCATION 'path', COMMENT "
        "'text', TBLPROPERTIES ('key' = 'value', …)",
        "CREATE TABLE orders (id BIGINT, person BIGINT, day DATE) USING DELTA PARTITIONED BY (day) TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true')",
    ),
    Form(
        _TABLES,
        "CREATE TABLE [IF NOT EXISTS] t [clauses] AS query",
        "CREATE TABLE IF NOT EXISTS adults CLUSTER BY (id) AS SELECT id, name FROM people WHERE age >= 18",
    ),
    Form(
        _TABLES,
        "{ CREATE OR REPLACE | REPLACE } TABLE t { (columns) [clauses] | [clauses] AS query }",
        "CREATE OR REPLACE TABLE adults COMMENT 'from 21 on' AS SELECT id, name, age FROM people WHERE age >= 21",
    ),
    Form(
        _TABLES,
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] t LIKE s [LOCATION 'path'] [COMMENT 'text'] [TBLPROPERTIES (…)]",
        "CREATE TABLE visitors LIKE people COMMENT 'not ours'",
    ),
    Form(
        _TABLES,
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] t [SHALLOW | DEEP] CLONE s [TBLPROPERTIES (…)] [LOCATION 'path']",
        "CREATE TABLE copied SHALLOW CLONE people VERSION AS OF 0",
    ),
    Form(
        _TABLES,
        "CREATE TABLE t [USING DELTA] LOCATION 'path'",
        "CREATE TABLE found USING DELTA LOCATION '/data/existing'",
    ),
    Form(_TABLES, "DROP TABLE [IF EXISTS] t [PURGE]", "DROP TABLE IF EXISTS copied PURGE"),
    Form(_TABLES, "UNDROP TABLE t", "UNDROP TABLE parcels"),
    Form(
        _TABLES,
        "CONVERT TO DELTA parquet.`/path` [NO STATISTICS] [PARTITIONED BY (column type, …)]",
        "CONVERT TO DELTA parquet.`/data/files` NO STATISTICS",
    ),
    Form(
        _ALTER,
        _CHANGED
        + "ADD { COLUMN | COLUMNS } [(] column type [NOT NULL] [COMMENT 'text'] [FIRST | AFTER column], … [)]",
        "ALTER TABLE people ADD COLUMNS (mail STRING COMMENT 'a work address' AFTER name, home.zip STRING)",
    ),
    Form(
        _ALTER,
        _CHANGED + "DROP { COLUMN | COLUMNS } [IF EXISTS] { column, … | (column, …) }",
        "ALTER TABLE people DROP COLUMNS (home.zip)",
    ),
    Form(_ALTER, _CHANGED + "RENAME COLUMN column TO name", "ALTER TABLE people RENAME COLUMN mail TO email"),
    Form(
        _ALTER,
        _CHANGED
        + "{ ALTER | CHANGE } [COLUMN] column { COMMENT 'text' | FIRST | AFTER column | TYPE type | SET NOT NULL "
        "| DROP NOT NULL | SET DEFAULT value | DROP DEFAULT | SYNC IDENTITY }, …",
        "ALTER TABLE people ALTER COLUMN email COMMENT 'any address', name FIRST, id DROP NOT NULL, email SET DEFAULT 'none'",
    ),
    Form(
        _ALTER,
        _CHANGED + "ADD CONSTRAINT name CHECK (condition)",
        "ALTER TABLE people ADD CONSTRAINT of_age CHECK (age >= 0)",
    ),
    Form(
        _ALTER,
        _CHANGED + "DROP CONSTRAINT [IF EXISTS] name",
        "ALTER TABLE people DROP CONSTRAINT IF EXISTS of_age",
    ),
    Form(
        _ALTER,
        _CHANGED + "SET TBLPROPERTIES ('key' = 'value', …)",
        "ALTER TABLE people SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'team' = 'data')",
    ),
    Form(
        _ALTER,
        _CHANGED + "UNSET TBLPROPERTIES [IF EXISTS] ('key', …)",
        "ALTER TABLE people UNSET TBLPROPERTIES ('team')",
    ),
    Form(
        _ALTER,
        _CHANGED + "CLUSTER BY { (column, …) | NONE }",
        "ALTER TABLE people CLUSTER BY (id)",
    ),
    Form(_ALTER, _CHANGED + "ADD FEATURE feature", "ALTER TABLE people ADD FEATURE checkConstraints"),
    Form(
        _ALTER,
        _CHANGED + "DROP FEATURE feature [TRUNCATE HISTORY]",
        "ALTER TABLE people DROP FEATURE checkConstraints",
    ),
    Form(_ALTER, _CHANGED + "RENAME TO name", "ALTER TABLE visitors RENAME TO guests"),
    Form(_ALTER, "COMMENT ON TABLE t IS { 'text' | NULL }", "COMMENT ON TABLE people IS 'who there is'"),
    Form(
        _ALTER,
        "COMMENT ON COLUMN t.column IS { 'text' | NULL }",
        "COMMENT ON COLUMN people.age IS 'in years'",
    ),
    Form(
        _ROWS,
        "INSERT INTO [TABLE] t [(column, …) | BY NAME] query",
        "INSERT INTO people (id, name, age) VALUES (1, 'Ada', 36), (2, DEFAULT, 17), (3, 'Cy', 70)",
    ),
    Form(
        _ROWS,
        "INSERT INTO t REPLACE WHERE condition query",
        "INSERT INTO orders REPLACE WHERE day = '2026-01-31' VALUES (7, 1, DATE'2026-01-31')",
    ),
    Form(
        _ROWS,
        "INSERT { INTO | OVERWRITE } [TABLE] t PARTITION (column = value, …) [(column, …)] query",
        "INSERT OVERWRITE orders PARTITION (day = '2026-02-01') (id, person) VALUES (8, 1)",
    ),
    Form(
        _ROWS,
        "INSERT OVERWRITE [TABLE] t query",
        "INSERT OVERWRITE guests SELECT id, name, age, home FROM people WHERE age > 60",
    ),
    Form(
        _ROWS,
        "UPDATE t [AS a] SET column = expression, … [WHERE condition]",
        "UPDATE people AS p SET p.age = p.age + 1, email = NULL WHERE p.name = 'Ada'",
    ),
    Form(_ROWS, "DELETE FROM t [AS a] [WHERE condition]", "DELETE FROM people WHERE age < 18"),
    Form(
        _ROWS,
        "MERGE [WITH SCHEMA EVOLUTION] INTO t [AS a] USING { s | (query) } [AS b] ON condition clause …",
        "MERGE WITH SCHEMA EVOLUTION INTO people t USING guests s ON t.id = s.id WHEN MATCHED AND s.age > 90 THEN DELETE WHEN MATCHED THEN UPDATE "
        "SET t.age = s.age WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.age < 0 THEN DELETE",
    ),
    Form(
        _ROWS,
        "clause: WHEN MATCHED [AND condition] THEN { UPDATE SET * | UPDATE SET column = expression, … | DELETE } | WHEN NOT "
        "MATCHED [BY TARGET] [AND condition] THEN { INSERT * | INSERT (column, …) VALUES (expression, …) } | WHEN NOT "
        "MATCHED BY SOURCE [AND condition] THEN { UPDATE SET … | DELETE }",
        "MERGE INTO people t USING (SELECT 9 AS id, 'Io' AS name) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, name) "
        "VALUES (s.id, upper(s.name))",
    ),
    Form(
        _ROWS,
        "… WHERE column [NOT] IN (query), [NOT] EXISTS (query), column = (query): in DELETE, UPDATE and MERGE",
        "DELETE FROM people WHERE id IN (SELECT id FROM guests) OR NOT EXISTS (SELECT 1 FROM orders)",
    ),
    Form(_ROWS, "TRUNCATE TABLE t", "TRUNCATE TABLE guests"),
    Form(
        _QUERIES,
        "SELECT …, WITH …, VALUES …, in which a table is t [VERSION AS OF n | TIMESTAMP AS OF time | @vn], time being '2026-01-31' or current_timestamp() - INTERVAL 1 DAY",
        "WITH old AS (SELECT * FROM people@v0) SELECT count(*) AS n FROM people p LEFT JOIN old USING (id)",
    ),
    Form(
        _QUERIES,
        "… FROM table_changes('t', first [, last]): versions, or times in quotes",
        "SELECT _change_type, count(*) AS n FROM table_changes('orders', 0) GROUP BY _change_type",
    ),
    Form(
        _INSPECT, "SHOW TABLES [{ IN | FROM } namespace] [[LIKE] 'pattern']", "SHOW TABLES LIKE 'p*|orders'"
    ),
    Form(_INSPECT, "SHOW { SCHEMAS | DATABASES | NAMESPACES } [[LIKE] 'pattern']", "SHOW SCHEMAS"),
    Form(_INSPECT, "SHOW COLUMNS { IN | FROM } t", "SHOW COLUMNS IN people"),
    Form(_INSPECT, "SHOW PARTITIONS t", "SHOW PARTITIONS orders"),
    Form(
        _INSPECT, "SHOW TBLPROPERTIES t [('key')]", "SHOW TBLPROPERTIES people ('delta.columnMapping.mode')"
    ),
    Form(_INSPECT, "SHOW CREATE TABLE t", "SHOW CREATE TABLE people"),
    Form(_INSPECT, "{ DESCRIBE | DESC } [TABLE] [EXTENDED] t", "DESCRIBE EXTENDED people"),
    Form(_INSPECT, "{ DESCRIBE | DESC } [TABLE] [EXTENDED] t column", "DESCRIBE people name"),
    Form(
        _INSPECT,
        "EXPLAIN { query | DELETE … | UPDATE … | MERGE … | INSERT … | CREATE TABLE … AS query | OPTIMIZE … }",
        "EXPLAIN DELETE FROM orders WHERE day = '2026-01-31' AND id IN (SELECT id FROM people)",
    ),
    Form(_INSPECT, "DESCRIBE DETAIL t", "DESCRIBE DETAIL people"),
    Form(_INSPECT, "DESCRIBE HISTORY t [LIMIT n]", "DESCRIBE HISTORY people LIMIT 3"),
    Form(
        _MAINTAIN,
        "OPTIMIZE t [FULL] [WHERE condition on partition columns] [ZORDER BY (column, …)] [DRY RUN]",
        "OPTIMIZE orders WHERE day >= '2026-01-01' ZORDER BY (id)",
    ),
    Form(
        _MAINTAIN,
        "REORG TABLE t [WHERE condition on partition columns] APPLY (PURGE) [DRY RUN]",
        "REORG TABLE people APPLY (PURGE)",
    ),
    Form(
        _MAINTAIN,
        "VACUUM t [FULL | LITE] [USING INVENTORY { t2 | (query) }] [RETAIN n HOURS] [DRY RUN]",
        "VACUUM people RETAIN 168 HOURS DRY RUN",
    ),
    Form(
        _MAINTAIN,
        "ANALYZE TABLE t COMPUTE DELTA STATISTICS",
        "ANALYZE TABLE people COMPUTE DELTA STATISTICS",
    ),
    Form(
        _MAINTAIN,
        "RESTORE [TABLE] t TO { VERSION AS OF n | TIMESTAMP AS OF time }",
        "RESTORE TABLE orders TO VERSION AS OF 0",
    ),
    Form(_MAINTAIN, "FSCK REPAIR TABLE t [METADATA ONLY] [DRY RUN]", "FSCK REPAIR TABLE orders DRY RUN"),
    Form(
        _MAINTAIN,
        "GENERATE symlink_format_manifest FOR TABLE t",
        "GENERATE symlink_format_manifest FOR TABLE orders",
    ),
)
