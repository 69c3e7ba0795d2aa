"""Runs SQL statements, including ALTER TABLE ... SYNC IDENTITY."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import sqlglot
from sqlglot.errors import ParseError, SqlglotError, TokenError

from delvec.alterations import Altered
from delvec.catalog import Catalog
from delvec.sql import changes, creation, inspection, maintenance
from delvec.sql.queries import DIALECTS, Query, parse_query
from delvec.sql.tokens import Cursor, TableName, invalid, parse_error
from delvec_commands.transaction import Metrics
from delvec_errors import BadRequest, EngineUnavailable, InvalidStatement

__all__ = ["alter", "run"]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.sql.changes import OpenTable
    from delvec.table import DeltaTable


def alter(cursor: Cursor, opened: "OpenTable") -> Altered:
    """Run ALTER TABLE table ALTER COLUMN column SYNC IDENTITY.

    Raises:
        InvalidStatement: it is another statement.
    """
    cursor.expect("ALTER", "TABLE")
    name = cursor.table()
    if not cursor.take("CHANGE"):
        cursor.expect("ALTER")
    cursor.take("COLUMN")
    column = cursor.column()
    if not cursor.take("SYNC", "IDENTITY"):
        cursor.fail("SYNC IDENTITY is expected; make other changes with table.alter")
    cursor.end()
    done = opened(name).alter.sync_identity(column)
    assert done is not None  # noqa: S101 - None is for blocks only
    return done


_QUERIES: Final = frozenset({"SELECT", "VALUES", "WITH", "FROM", "("})
_SHOW: Final = re.compile(
    r"\s*SHOW\s+TABLES(?:\s+(?:IN|FROM)\s+(?P<namespace>[^;]+?))?\s*;?\s*", re.IGNORECASE
)
_MAINTENANCE: Final = {
    "OPTIMIZE": maintenance.optimize,
    "REORG": maintenance.reorg,
    "ANALYZE": maintenance.analyze,
    "RESTORE": maintenance.restore,
    "FSCK": maintenance.fsck,
    "GENERATE": maintenance.generate,
    "CREATE": creation.clone,
    "REPLACE": creation.clone,
}
_CHANGES: Final = frozenset({"DELETE", "UPDATE", "MERGE", "INSERT"})


def run(
    lake: Catalog, text: str, engine: Any = None, dialect: str = "spark", functions: Collection[str] = ()
) -> "pa.Table | DataFrame | Metrics | Altered":
    """Run one statement; see :meth:`delvec.Connection.sql`."""
    if dialect not in DIALECTS:
        raise BadRequest(f"dialect must be 'spark' or 'duckdb', not {dialect!r}")
    if not isinstance(text, str):
        raise BadRequest(f"a statement must be a string, not {type(text).__name__}")
    cursor = Cursor(text)
    word = cursor.word()

    if word in _QUERIES:
        return _rows(lake, parse_query(text.rstrip().rstrip(";"), dialect), engine, functions)
    if word in _CHANGES:
        return _change(
            lake, word, text if dialect == "spark" else _translated(text, dialect), engine, functions
        )
    if word == "ALTER":
        return alter(cursor, lambda name: lake.table(name.name, engine=engine))
    if word in _MAINTENANCE or word in ("VACUUM", "UNDROP"):
        return _maintain(lake, word, cursor, engine, functions)
    if word in ("DESCRIBE", "DESC", "CONVERT"):
        is_description = word != "CONVERT"
        return inspection.describe(lake, cursor) if is_description else creation.convert(lake, cursor, engine)
    shown = _SHOW.fullmatch(text)
    if shown is not None:
        namespace = shown["namespace"]
        return inspection.show(lake, namespace and Cursor(namespace).table().name)
    raise invalid(
        text,
        cursor.position,
        "a statement must be SELECT, DELETE, UPDATE, MERGE, INSERT, OPTIMIZE, REORG TABLE, ANALYZE TABLE, VACUUM, "
        "RESTORE, FSCK REPAIR TABLE, GENERATE, "
        "CREATE TABLE ... "
        "CLONE, CONVERT TO DELTA, UNDROP TABLE, DESCRIBE, SHOW TABLES or "
        "ALTER TABLE ... SYNC IDENTITY; create and alter tables with create_table() and table.alter.",
    )


def _maintain(
    lake: Catalog, word: str, cursor: Cursor, engine: Any, functions: Collection[str]
) -> pa.Table | Metrics:
    def opened(name: TableName) -> "DeltaTable":
        return lake.table(name.name, engine=engine)

    if word == "UNDROP":
        return creation.undrop(lake, cursor, engine)
    if word == "VACUUM":
        return maintenance.vacuum(cursor, opened, lambda query: _rows(lake, query, engine, functions))
    return _MAINTENANCE[word](cursor, opened)


def _change(lake: Catalog, word: str, text: str, engine: Any, functions: Collection[str]) -> Metrics:
    cursor = Cursor(text, None if engine in (None, "duckdb") else functions)

    def opened(name: TableName) -> "DeltaTable":
        return lake.table(name.name, engine=engine)

    def rows(query: Query) -> "pa.Table | DataFrame":
        return _rows(lake, query, engine, functions)

    if word == "DELETE":
        return changes.delete(cursor, opened)
    if word == "UPDATE":
        return changes.update(cursor, opened)
    return (changes.merge if word == "MERGE" else changes.insert)(cursor, opened, rows)


def _is_spark(engine: Any) -> bool:
    return hasattr(engine, "createDataFrame")


def _rows(lake: Catalog, query: Query, engine: Any, functions: Collection[str]) -> "pa.Table | DataFrame":
    if _is_spark(engine):
        from delvec.sql.query_engines import query_spark

        query.check_functions(functions)
        return query_spark(lake, query, engine)
    if engine not in (None, "duckdb"):
        raise EngineUnavailable(f"queries run on 'duckdb' or a SparkSession, not on {engine!r}")
    try:
        from delvec.sql.query_engines import query_duckdb
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"queries need {error.name}: pip install '.[local]' in Delvec's clone, or pass engine=spark"
        ) from error
    return query_duckdb(lake, query)


def _translated(text: str, dialect: str) -> str:
    try:
        statements = sqlglot.transpile(text, read=DIALECTS[dialect], write=DIALECTS["spark"])
    except (ParseError, TokenError) as error:
        raise parse_error(error, text) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError):
        raise InvalidStatement("The statement cannot be parsed.", line=1, column=1) from None
    if len(statements) != 1:
        raise InvalidStatement("Only one statement at a time is allowed.", line=1, column=1)
    return statements[0]
