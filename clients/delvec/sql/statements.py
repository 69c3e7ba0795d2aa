"""Runs SQL statements: each word that begins one, and what runs it."""

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import sqlglot
from sqlglot.errors import ParseError, SqlglotError, TokenError

from delvec.alterations import Altered
from delvec.catalog import Catalog
from delvec.sql import alter_table, creation, describe_statements, maintenance, row_statements
from delvec.sql.explanation import Explanation
from delvec.sql.queries import DIALECTS, QUERIES, Query, parse_query
from delvec.sql.refused_statements import check_known
from delvec.sql.subqueries import with_values
from delvec.sql.tokens import Cursor, TableName, invalid, parse_error
from delvec_commands.transaction import Metrics
from delvec_engines.operation import command
from delvec_errors import BadRequest, EngineUnavailable, InvalidStatement

__all__ = ["STATEMENTS", "run"]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.table import DeltaTable

_Result: TypeAlias = "pa.Table | DataFrame | Metrics | Altered"


@dataclass(frozen=True)
class _Session:
    """What statements run on."""

    lake: Catalog
    engine: Any
    functions: Collection[str]

    @property
    def spark(self) -> Any:
        """The engine if it is a Spark session, or None."""
        return self.engine if _is_spark(self.engine) else None

    def opened(self, name: TableName) -> "DeltaTable":
        return self.lake.table(name.name, engine=self.engine)

    def rows(self, query: Query) -> "pa.Table | DataFrame":
        return _rows(self.lake, query, self.engine, self.functions)

    def cursor(self, text: str) -> Cursor:
        return Cursor(text, None if self.engine in (None, "duckdb") else self.functions)

    def changed(self, text: str, change: Callable[[Cursor, "row_statements.OpenTable"], Metrics]) -> Metrics:
        """Change a table by a statement with expressions, which may have subqueries."""
        return with_values(
            text, self.opened, self.rows, lambda statement, opened: change(self.cursor(statement), opened)
        )


def _explain(cursor: Cursor, session: _Session) -> pa.Table:
    """Run EXPLAIN query, or of a statement that reads or changes rows."""
    cursor.expect("EXPLAIN")
    word, at = cursor.word(), cursor.position
    text = cursor.text[at:].rstrip().rstrip(";")
    explanation = Explanation(session.opened, on_spark=session.spark is not None)
    row_change = {"DELETE": row_statements.delete, "UPDATE": row_statements.update}.get(word)
    if word in QUERIES:
        explanation.rows(parse_query(text, "spark"))
    elif word in ("INSERT", "CREATE", "REPLACE"):
        explanation.query_in(text)
    elif word == "OPTIMIZE":
        maintenance.optimize(Cursor(text), explanation.open)
    elif word == "MERGE" or row_change is not None:
        change = row_change or (
            lambda statement, opened: row_statements.merge(
                statement, opened, explanation.source(session.rows)
            )
        )
        with_values(
            text, explanation.open, session.rows, lambda statement, opened: change(Cursor(statement), opened)
        )
    else:
        cursor.fail("a query, DELETE, UPDATE, MERGE, INSERT, CREATE TABLE ... AS or OPTIMIZE is expected")
    return explanation.table()


STATEMENTS: Final[Mapping[str, Callable[[Cursor, _Session], Any]]] = {
    "DELETE": lambda cursor, session: session.changed(cursor.text, row_statements.delete),
    "UPDATE": lambda cursor, session: session.changed(cursor.text, row_statements.update),
    "MERGE": lambda cursor, session: session.changed(
        cursor.text, lambda statement, opened: row_statements.merge(statement, opened, session.rows)
    ),
    "INSERT": lambda cursor, session: row_statements.insert(cursor, session.opened, session.rows),
    "EXPLAIN": _explain,
    "TRUNCATE": lambda cursor, session: row_statements.truncate(cursor, session.opened),
    "CREATE": lambda cursor, session: creation.create(
        session.lake, cursor, session.opened, session.rows, session.engine
    ),
    "DROP": lambda cursor, session: creation.drop(session.lake, cursor, session.spark),
    "UNDROP": lambda cursor, session: creation.undrop(session.lake, cursor, session.engine),
    "CONVERT": lambda cursor, session: creation.convert(session.lake, cursor, session.engine),
    "ALTER": lambda cursor, session: alter_table.alter(session.lake, cursor, session.opened),
    "COMMENT": lambda cursor, session: alter_table.comment(cursor, session.opened),
    "DESCRIBE": lambda cursor, session: describe_statements.describe(session.lake, cursor, session.spark),
    "SHOW": lambda cursor, session: describe_statements.show(session.lake, cursor),
    "OPTIMIZE": lambda cursor, session: maintenance.optimize(cursor, session.opened),
    "REORG": lambda cursor, session: maintenance.reorg(cursor, session.opened),
    "ANALYZE": lambda cursor, session: maintenance.analyze(cursor, session.opened),
    "VACUUM": lambda cursor, session: maintenance.vacuum(cursor, session.opened, session.rows, session.spark),
    "RESTORE": lambda cursor, session: maintenance.restore(cursor, session.opened),
    "FSCK": lambda cursor, session: maintenance.fsck(cursor, session.opened),
    "GENERATE": lambda cursor, session: maintenance.generate(cursor, session.opened),
}
_SYNONYMS: Final = {"REPLACE": "CREATE", "DESC": "DESCRIBE"}
_DML: Final = frozenset({"DELETE", "UPDATE", "MERGE", "INSERT"})
"""Statements with expressions, which are in the dialect of the call."""
_READING: Final = frozenset({"DESC", "DESCRIBE", "EXPLAIN", "SHOW"})


def run(
    lake: Catalog, text: str, engine: Any = None, dialect: str = "spark", functions: Collection[str] = ()
) -> _Result:
    """Run one statement; see :meth:`delvec.Connection.sql`."""
    if dialect not in DIALECTS:
        raise BadRequest(f"dialect must be 'spark' or 'duckdb', not {dialect!r}")
    if not isinstance(text, str):
        raise BadRequest(f"a statement must be a string, not {type(text).__name__}")
    cursor = Cursor(text)
    word = cursor.word()
    session = _Session(lake, engine, functions)
    if word in QUERIES:
        return session.rows(parse_query(text.rstrip().rstrip(";"), dialect))
    check_known(cursor)
    statement = STATEMENTS.get(_SYNONYMS.get(word, word))
    if statement is None:
        words = ", ".join(STATEMENTS)
        raise invalid(
            text,
            cursor.position,
            f"a statement must be a query (SELECT, WITH, VALUES), or begin with {words}.",
        )
    if word in _DML:
        cursor = session.cursor(text if dialect == "spark" else _translated(text, dialect))
    with nullcontext() if word in _READING else command():
        result: _Result = statement(cursor, session)
    return result


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
