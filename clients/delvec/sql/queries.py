"""Parses queries: finds the tables they read, and checks that they read nothing else.

Tested in `tests/integration/client/sql/test_statements.py` and `tests/integration/contract/test_sql.py`.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from sqlglot import exp
from sqlglot.dialects import DuckDB
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, TokenError

from delvec.sql.constant_times import constant_time
from delvec.sql.function_definitions import define_functions
from delvec.sql.spark_values import name_results, sort_results, write_values
from delvec.sql.tokens import NOT_A_PATH, Cursor, TableName, invalid, is_path, parse_error
from delvec_errors import InvalidStatement
from delvec_kernel.expressions.spark_dialect import AGGREGATES, GENERATORS, SPARK, STATEMENTS, WINDOW_ONLY
from delvec_kernel.expressions.table_expressions import NAMED
from delvec_kernel.schema.types import StructType

__all__ = ["DIALECTS", "QUERIES", "Query", "Total", "parse_query"]

QUERIES: Final = frozenset({"SELECT", "VALUES", "WITH", "FROM", "("})
"""The words with which a query begins."""

DIALECTS: Final[dict[str, Dialect]] = {"spark": SPARK, "duckdb": DuckDB()}
_NOT_IN_QUERIES: Final = (
    exp.DDL,
    exp.DML,
    exp.Command,
    exp.Into,
    exp.Parameter,
    exp.Placeholder,
    exp.QueryTransform,  # runs a program
)
_KNOWN: Final = STATEMENTS | AGGREGATES | GENERATORS | WINDOW_ONLY
_SOURCES: Final = (exp.Table, exp.Subquery, exp.Values, exp.Unnest, exp.Lateral)
_OF_LATERAL: Final = (exp.Subquery, exp.Unnest, exp.Explode, exp.Inline)
_PLAIN_TABLE: Final = frozenset({"this", "db", "catalog", "alias", "version"})
_OF_TOTALS: Final = frozenset({"expressions", "from", "from_"})
_WORD: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_COMPARISONS: Final = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Is)
_BOUNDS: Final = (1, 2)
_SMALL: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_CONSTANT: Final = (*_COMPARISONS, exp.Identifier, exp.Literal, exp.Null, exp.Neg, exp.Boolean, exp.DataType)


@dataclass(frozen=True)
class Total:
    """An aggregate over a whole table.

    Attributes:
        kind: ``count``, ``min`` or ``max``.
        column: its column in lower case; None for ``count(*)``.
        alias: its alias in the query, if any.
    """

    kind: str
    column: str | None
    alias: str | None


@dataclass(frozen=True)
class Query:
    """A query that only reads tables.

    Attributes:
        text: the original SQL.
        tree: the parsed query.
        dialect: in which it is written.
        versions: pinned versions of tables without a version in the text, by name.
    """

    text: str
    tree: exp.Expr
    dialect: str = "spark"
    versions: Mapping[str, int] = field(default_factory=dict)

    def tables(self) -> Iterator[exp.Table]:
        """Yield the tables it reads, without CTEs."""
        for each in self.tree.find_all(exp.Table):
            if each.find_ancestor(exp.Hint) is None and not _is_cte(each):
                yield each

    def newest(self) -> list[TableName]:
        """Return the distinct names of tables read at their newest version."""
        names = dict.fromkeys(table_name(self.text, each) for each in self.tables())
        return [each for each in names if each.is_newest]

    def _pinned(self, table: TableName) -> TableName:
        return replace(table, version=self.versions.get(table.name)) if table.is_newest else table

    def totals(self) -> tuple[TableName, list[Total]] | None:
        """Return table and aggregates of ``SELECT count(*), min(a), max(b) FROM table``; None for other queries."""
        tree = self.tree
        if not isinstance(tree, exp.Select) or any(
            tree.args[name] for name in tree.args if name not in _OF_TOTALS
        ):
            return None
        source = tree.args.get("from_") or tree.args.get("from")
        if source is None or not _is_plain(source.this):
            return None
        found = [_total(column) for column in tree.expressions]
        totals = [each for each in found if each is not None]
        if not totals or len(totals) < len(found):
            return None
        table = table_name(self.text, source.this)
        if table.changes is not None:
            return None
        return self._pinned(table), totals

    def check_functions(self, function_names: Collection[str]) -> None:
        """Refuse functions that are neither built into Spark nor in ``function_names``, the session's functions.

        Raises:
            InvalidStatement: names the function.
        """
        known = _KNOWN | {name.lower() for name in function_names}
        for node in self.tree.walk():
            if isinstance(node.parent, exp.Table) and node.name.lower() in _FUNCTIONS:
                continue  # it stands for a table
            if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and (
                node.name.lower() not in known or isinstance(node.parent, exp.Dot)
            ):
                raise invalid(
                    self.text,
                    max(0, self.text.lower().find(node.name.lower())),
                    f"the query calls the function {node.name}, which may not be safe. {NAMED}.",
                )

    def on(
        self,
        dialect: str,
        rename: Callable[[TableName, str | None], str],
        spelled: Callable[[str], str] | None = None,
        schemas: Mapping[str, StructType] | None = None,
    ) -> str:
        """Return the query in another dialect, with other table names.

        Args:
            dialect: the dialect of the engine.
            rename: returns the new name of a table, given a condition in Spark SQL that its rows must satisfy to
                affect the result, if known.
            spelled: returns a column's or field's name as its table spells it; called for names that are not ASCII, after
                all tables were renamed. None if the engine compares all letters without case, as Spark does.
            schemas: for DuckDB, the schemas of the tables by their new names, once all were renamed.
        """
        copy = Query(self.text, self.tree.copy(), self.dialect)
        if self.dialect == "spark":
            # Spark names its results itself, but by what sqlglot calls their functions.
            name_results(copy.tree, self.text, only_renamed=dialect == "spark")
        if dialect == "duckdb":
            if self.dialect == "spark":
                sort_results(copy.tree)
            for hint in list(copy.tree.find_all(exp.Hint)):
                hint.pop()  # it has none
        self._rename(copy, rename)
        if spelled is not None:
            for part in copy.tree.find_all(exp.Identifier):
                if not part.name.isascii() and isinstance(part.parent, exp.Column | exp.Dot):
                    part.set("this", spelled(part.name))
        if self.dialect == "spark" and schemas is not None:
            define_functions(copy.tree)
            write_values(copy.tree, schemas, self.text)
        return copy.tree.sql(dialect=DIALECTS[dialect], comments=False)

    def _rename(self, copy: "Query", rename: Callable[[TableName, str | None], str]) -> None:
        for table in list(copy.tables()):
            relation_name = table_name(self.text, table)
            name = rename(self._pinned(relation_name), _condition(copy.tree, table))
            # Keep the node, to which joins in its parentheses, PIVOT and TABLESAMPLE are attached.
            for key in ("db", "catalog", "version"):
                table.set(key, None)
            table.set("this", exp.to_identifier(name, quoted=True))
            if table.args.get("alias") is None:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(relation_name.last, quoted=True)))


def parse_query(text: str, dialect: str) -> Query:
    """Parse a SELECT, VALUES or WITH.

    Raises:
        InvalidStatement: it is another statement, or reads anything but tables.
    """
    try:
        parsed = DIALECTS[dialect].parse(text)
    except (ParseError, TokenError) as error:
        raise parse_error(error, text) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError):
        raise InvalidStatement("The query cannot be parsed.", line=1, column=1) from None
    found = [each for each in parsed if each is not None and not isinstance(each, exp.Semicolon)]
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        raise InvalidStatement("Expected one query: SELECT, VALUES or WITH.", line=1, column=1)
    tree = found[0]
    for node in tree.walk():
        if isinstance(node, _NOT_IN_QUERIES) and not isinstance(node, exp.Query):
            raise InvalidStatement(
                f"A query can only read; {node.sql()[:60]!r} is not allowed.", line=1, column=1
            )
        if not _is_source(node):
            raise InvalidStatement(
                f"Queries can only read tables, not {node.sql()[:60]!r}; table functions are not supported.",
                line=1,
                column=1,
            )
        if isinstance(node, exp.Table) and node.find_ancestor(exp.Hint) is None:
            table_name(text, node)
    return Query(text, tree, dialect)


def _is_source(node: exp.Expr) -> bool:
    """Whether the source of a clause is a table, a query, or the elements of a value; true for other nodes."""
    if isinstance(node, exp.From | exp.Join):
        return isinstance(node.this, _SOURCES)
    if isinstance(node, exp.Lateral) and not node.args.get(
        "view"
    ):  # LATERAL VIEW only expands values of its row
        return isinstance(node.this, _OF_LATERAL)
    return True


def table_name(text: str, table: exp.Table) -> TableName:
    """Return the name of a table in a query.

    Raises:
        InvalidStatement: it is a function or a file, or a version is not a constant.
    """
    at = int(table.this.meta.get("start", 0)) if isinstance(table.this, exp.Expr) else 0
    if isinstance(table.this, exp.Anonymous) and (read := _FUNCTIONS.get(table.this.name.lower())):
        return read(text, table.this)
    if not isinstance(table.this, exp.Identifier):
        raise invalid(text, at, "queries can only read tables; table functions are not supported.")
    parts = [part.name for part in table.parts]
    if text[at : at + 1] == "'":
        if len(parts) > 1 or not is_path(parts[0]):
            raise invalid(text, at, NOT_A_PATH)
    elif "/" in parts[-1] and len(parts) > 1 and parts[0].lower() != "delta":
        raise invalid(
            text,
            at,
            f"queries can read Delta tables, not {parts[0]} files; write a table's path as delta.`/path`.",
        )
    relation_name = TableName.at(parts[0]) if len(parts) == 1 and is_path(parts[0]) else TableName.of(parts)
    version = table.args.get("version")
    if version is None:
        return relation_name
    value = version.expression
    time = constant_time(value) if version.name == "TIMESTAMP" and isinstance(value, exp.Expr) else None
    if version.args.get("kind") != "AS OF" or (time is None and not isinstance(value, exp.Literal)):
        raise invalid(
            text,
            at,
            "write a table's version as VERSION AS OF 3, TIMESTAMP AS OF '2026-01-31' or TIMESTAMP AS OF current_timestamp() - "
            "INTERVAL 1 DAY.",
        )
    if time is not None:
        return replace(relation_name, timestamp=time)
    if not value.name.isdecimal():
        raise invalid(text, at, "a version must be a whole number.")
    return replace(relation_name, version=int(value.name))


def _scanned(text: str, function: exp.Anonymous) -> TableName:
    """Return the table of ``delta_scan('/path')``, the syntax of DuckDB's Delta extension."""
    given = function.expressions
    if len(given) != 1 or not isinstance(given[0], exp.Literal) or not given[0].is_string:
        at = int(function.meta.get("start", 0))
        raise invalid(text, at, "delta_scan needs the path of a table as a string.")
    return TableName.at(given[0].name)


def _changed(text: str, function: exp.Anonymous) -> TableName:
    """Return the table of ``table_changes('name', first, last)``, with the versions or times of the changes."""
    at = int(function.meta.get("start", 0))
    name, *bounds = function.expressions or [None]
    literals = [each for each in (name, *bounds) if isinstance(each, exp.Literal)]
    if len(literals) <= len(bounds) or len(bounds) not in _BOUNDS or not literals[0].is_string:
        raise invalid(
            text,
            at,
            f"{function.name} needs a table, the first version or time, and maybe the last: table_changes('t', 3, 5).",
        )
    first, last = ([each.name if each.is_string else int(each.name) for each in literals[1:]] + [None])[:2]
    assert first is not None  # noqa: S101 - there is at least one bound
    if is_path(name.name):
        return replace(TableName.at(name.name), changes=(first, last))
    relation_name = Cursor(name.name).table()
    return replace(relation_name, changes=(first, last))


_FUNCTIONS: Final = {"delta_scan": _scanned, "table_changes": _changed, "table_changes_by_path": _changed}
"""Table functions that read tables."""


def _is_plain(source: exp.Expr) -> bool:
    """Whether a FROM clause reads exactly one table, unsampled and unpivoted."""
    if not isinstance(source, exp.Table) or any(
        value and name not in _PLAIN_TABLE for name, value in source.args.items()
    ):
        return False
    alias = source.args.get("alias")
    return alias is None or not alias.columns


def _total(column: exp.Expr) -> Total | None:
    """Return a select-list entry as an aggregate if it is ``count(*)``, or min or max of a column; else None."""
    value = column.unalias()
    if value.args.get("expressions"):
        return None
    alias = column.alias if isinstance(column, exp.Alias) else None
    if (
        isinstance(value, exp.Count)
        and isinstance(value.this, exp.Star)
        and not any(value.this.args.values())
    ):
        return Total("count", None, alias)
    if not isinstance(value, exp.Min | exp.Max) or not isinstance(value.this, exp.Column):
        return None
    named = value.this
    if len(named.parts) > 1 or not isinstance(named.this, exp.Identifier) or not _WORD.fullmatch(named.name):
        return None
    return Total("min" if isinstance(value, exp.Min) else "max", named.name, alias)


def _folded(name: str) -> str:
    """Return a name with ASCII letters in lower case, as DuckDB compares names; there, the Kelvin sign is not k."""
    return name.translate(_SMALL)


def _is_cte(table: exp.Table) -> bool:
    """Whether a name refers to a CTE; inside a WITH, only to an earlier one."""
    if len(table.parts) != 1 or table.args.get("version") is not None:
        return False
    name = _folded(table.name)
    inside: exp.Expr = table
    node = table.parent
    while node is not None:
        if isinstance(node, exp.With):
            at = next(number for number, each in enumerate(node.expressions) if each is inside)
            known = node.expressions[: at + 1 if node.args.get("recursive") else at]
            if any(_folded(each.alias) == name for each in known):
                return True
            # A CTE cannot see itself.
            node = node.parent
            inside = node if node is not None else inside
        else:
            clause = node.args.get("with_") or node.args.get("with")
            if clause is not None and any(_folded(each.alias) == name for each in clause.expressions):
                return True
            inside = node
        node = node.parent if node is not None else None
    return False


def _condition(tree: exp.Expr, table: exp.Table) -> str | None:
    """Return a condition on rows made of the simple comparisons of a query over one table."""
    if (
        not isinstance(tree, exp.Select)
        or not isinstance(table.parent, exp.From)
        or table.parent.parent is not tree
    ):
        return None
    where, alias = tree.args.get("where"), table.args.get("alias")
    if where is None or any(tree.args.get(name) for name in ("joins", "laterals", "sample")):
        return None
    if not _is_plain(table):
        return None
    known = _folded(alias.name if alias is not None else table_name("", table).last)
    parts = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    kept = [
        each.sql(dialect=SPARK)
        for each in (part.unnest().copy() for part in parts)
        if isinstance(each, _COMPARISONS) and _is_simple(each, known)
    ]
    return " AND ".join(f"({each})" for each in kept) or None


def _is_simple(comparison: exp.Expr, table: str) -> bool:
    """Whether a comparison has one column and constants; removes the column's table qualifier."""
    columns = 0
    for node in comparison.walk():
        if isinstance(node, exp.Column):
            columns += 1
            if _folded(node.table) not in ("", table) or node.args.get("db"):
                return False  # a struct field
            node.set("table", None)
        elif isinstance(node, exp.Cast):
            if not isinstance(node.this, exp.Literal):
                return False
        elif not isinstance(node, _CONSTANT):
            return False
    return columns == 1
