"""Subqueries in the conditions and values of DELETE, UPDATE and MERGE.

Each is run once, at a fixed version of each table it reads, and its values take its place in the statement, so that
both engines, data skipping and conflict checks see ordinary values.

Tested in `tests/integration/client/sql/test_subqueries.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from sqlglot import exp

from delvec.sql.queries import Query, parse_query
from delvec.sql.tokens import Cursor, TableName, invalid, newest_version
from delvec_errors import InvalidStatement, TableNotFound
from delvec_kernel.expressions.literals import literal
from delvec_kernel.expressions.spark_dialect import SPARK

if TYPE_CHECKING:
    from delvec.sql.row_statements import OpenTable, RunQuery
    from delvec.table import DeltaTable

__all__ = ["with_values"]

_Result = TypeVar("_Result")
_MAX_CHARACTERS: Final = 90_000
"""Of values in place of a subquery: the service takes conditions of 100,000 characters."""
_NO_VALUE: Final = "__delvec_no_value__"
_NOT_ONE_BLOCK: Final = (
    "group",
    "having",
    "limit",
    "offset",
    "qualify",
    "windows",
    "with_",
    "with",
    "laterals",
)
"""Clauses of a SELECT with which a condition in its WHERE cannot be taken out."""


@dataclass(frozen=True)
class _Subquery:
    """A subquery in a statement.

    Attributes:
        start: offset of what its values replace.
        end: offset behind it.
        at: offset of the query.
        kind: what the statement asks of it.
        query: the query.
        keys: for a correlated EXISTS, the columns of the changed table that must equal the columns of the query.
    """

    start: int
    end: int
    at: int
    kind: Literal["in", "exists", "scalar"]
    query: Query
    keys: Sequence[str] = ()


def with_values(
    text: str, open_table: "OpenTable", run: "RunQuery", execute: Callable[[str, "OpenTable"], _Result]
) -> _Result:
    """Run a DELETE, UPDATE or MERGE with the values of its subqueries.

    If one of them reads the changed table, it reads the version that is changed, and the whole statement is run again if
    another writer was faster. Other tables are read at their newest versions when the statement begins.

    Args:
        text: the statement.
        open_table: opens tables.
        run: runs queries.
        execute: runs a statement without subqueries, with what opens its tables.

    Raises:
        InvalidStatement: a subquery depends on rows of the changed table in a way that is not supported, or returns too
            many values.
    """
    target, aliases = _target(text)
    subqueries = _subqueries(text, aliases)
    if not subqueries:
        return execute(text, open_table)
    table = open_table(target)
    versions: dict[str, int] = {}
    own: list[str] = []
    for each in subqueries:
        for name in each.query.newest():
            try:
                read = open_table(name)
            except TableNotFound:  # perhaps a view of the Spark session
                continue
            now = read.snapshot()
            if each.keys and aliases & {column["name"].lower() for column in now.table_schema["fields"]}:
                raise invalid(
                    text,
                    each.at,
                    f"'{name.name}' has a column with the name of the table that is changed; give that an alias.",
                )
            if read.id == table.id:
                own.append(name.name)
            else:
                versions.setdefault(name.name, now.version)

    def attempt(changed: "DeltaTable", fixed: Mapping[str, int]) -> Any:
        statement = _filled(text, subqueries, fixed, run)
        return execute(statement, lambda name: changed if name == target else open_table(name))

    if not own:
        result: _Result = attempt(table, versions)
        return result

    def of_itself(changed: "DeltaTable") -> Any:
        assert changed.source_version is not None  # noqa: S101 - it was made so
        return attempt(changed, versions | dict.fromkeys(own, changed.source_version))

    metrics: Any = table.change_from_itself(of_itself)
    return metrics  # type: ignore[no-any-return]


def _target(text: str) -> tuple[TableName, frozenset[str]]:
    """Return the changed table, and the names by which subqueries may refer to rows outside."""
    cursor = Cursor(text)
    is_merge = cursor.take("MERGE")
    if is_merge:
        cursor.take("WITH", "SCHEMA", "EVOLUTION")
        cursor.expect("INTO")
    elif not cursor.take("UPDATE"):
        cursor.expect("DELETE", "FROM")
    name = newest_version(cursor)
    names = [cursor.alias("WHERE", "SET", "USING") or name.last]
    if is_merge and cursor.take("USING"):
        if cursor.take("("):
            cursor.anything()
            cursor.expect(")")
            names.append(cursor.alias("ON") or "source")
        else:
            source = cursor.table()
            names.append(cursor.alias("ON") or source.last)
    return name, frozenset(each.lower() for each in names)


def _subqueries(text: str, outer: frozenset[str]) -> list[_Subquery]:
    """Find the outermost subqueries; the source of a MERGE is none."""
    tokens = Cursor(text)._tokens  # noqa: SLF001 - of this package
    words = [token.text.upper() for token in tokens]
    subqueries: list[_Subquery] = []
    place = 0
    while place < len(tokens) - 1:
        before = words[place - 1] if place else ""
        if words[place] != "(" or words[place + 1] not in ("SELECT", "WITH", "VALUES"):
            place += 1
            continue
        if before == "VALUES":  # of a MERGE's INSERT
            place += 1
            continue
        end = _closing(words, place)
        if before != "USING":
            start = tokens[place - 1 if before == "EXISTS" else place].start
            at = tokens[place + 1].start
            query = parse_query(text[at : tokens[end].start], "spark")
            kind: Literal["in", "exists", "scalar"] = (
                "in" if before == "IN" else "exists" if before == "EXISTS" else "scalar"
            )
            subqueries.append(
                _decorrelated(text, _Subquery(start, tokens[end].end + 1, at, kind, query), outer)
            )
        place = end + 1
    return subqueries


def _closing(words: Sequence[str], opening: int) -> int:
    depth = 0
    for place in range(opening, len(words)):
        depth += (words[place] == "(") - (words[place] == ")")
        if depth == 0:
            return place
    return len(words) - 1


def _decorrelated(text: str, subquery: _Subquery, outer: frozenset[str]) -> _Subquery:
    """Return a subquery that can be run on its own.

    Raises:
        InvalidStatement: it depends on rows of the changed table other than by EXISTS and equal columns.
    """
    if not _outer_columns(subquery.query.tree, subquery.query.tree, outer):
        return subquery
    tree_and_keys = _with_keys(subquery.query.tree, outer) if subquery.kind == "exists" else None
    if tree_and_keys is None:
        raise invalid(
            text,
            subquery.at,
            "the subquery depends on each row that is changed, which is only possible with EXISTS and equal columns "
            "(WHERE s.id = t.id AND ...); write a MERGE whose source is the query.",
        )
    tree, keys = tree_and_keys
    return replace(subquery, query=Query(tree.sql(dialect=SPARK), tree), keys=keys)


def _outer_columns(node: exp.Expr, tree: exp.Expr, outer: frozenset[str]) -> list[exp.Column]:
    inner = {each.alias_or_name.lower() for each in tree.find_all(exp.Table, exp.Subquery, exp.CTE)}
    return [
        column
        for column in node.find_all(exp.Column)
        if len(column.parts) > 1 and column.parts[0].name.lower() in outer - inner
    ]


def _with_keys(tree: exp.Expr, outer: frozenset[str]) -> tuple[exp.Expr, list[str]] | None:
    """Take ``inner = outer`` out of a WHERE; return the query of the inner columns, and the outer ones."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in _NOT_ONE_BLOCK):
        return None
    where = tree.args.get("where")
    if where is None or any(each.find(exp.AggFunc) for each in tree.expressions):
        return None
    inner: list[exp.Expr] = []
    keys: list[str] = []
    rest: list[exp.Expr] = []
    for condition in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        if not _outer_columns(condition, tree, outer):
            rest.append(condition.copy())
            continue
        if not isinstance(condition, exp.EQ):
            return None
        sides = [condition.left, condition.right]
        depends = [bool(_outer_columns(side, tree, outer)) for side in sides]
        own = sides[depends.index(True)]
        if all(depends) or not isinstance(own, exp.Column):
            return None
        inner.append(sides[depends.index(False)].copy())
        keys.append(own.sql(dialect=SPARK))
    query = tree.copy()
    query.set("expressions", [exp.alias_(each, f"key_{place}") for place, each in enumerate(inner)])
    query.set("distinct", exp.Distinct())
    query.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
    return None if _outer_columns(query, tree, outer) else (query, keys)


def _filled(text: str, subqueries: Sequence[_Subquery], versions: Mapping[str, int], run: "RunQuery") -> str:
    """Return the statement with values in place of its subqueries."""
    is_empty = False
    for each in reversed(subqueries):
        query = replace(each.query, versions=versions)
        if each.kind == "exists" and not each.keys:
            query = parse_query(f"SELECT 1 AS one FROM ({query.text}) LIMIT 1", "spark")  # noqa: S608 - parsed
            query = replace(query, versions=versions)
        try:
            columns = _columns(run(query))
        except InvalidStatement as error:
            raise invalid(
                text,
                each.at,
                f"the subquery cannot be run: {error.message.partition(chr(10))[0]} Columns of the table that is changed "
                "need its name before them.",
            ) from error
        values = _values(text, each, columns)
        if len(values) > _MAX_CHARACTERS:
            raise invalid(
                text,
                each.at,
                f"the subquery returns {len(columns[0]):,} values, which are too many for a condition; write a MERGE whose "
                "source is the query.",
            )
        is_empty = is_empty or _NO_VALUE in values
        text = text[: each.start] + values + text[each.end :]
    return _without_empty_lists(text) if is_empty else text


def _columns(rows: Any) -> list[list[Any]]:
    """Return the values of each column of Arrow rows or a Spark DataFrame."""
    table = rows.limit(_MAX_CHARACTERS).toArrow() if hasattr(rows, "toArrow") else rows
    return [column.to_pylist() for column in table.columns]


def _values(text: str, subquery: _Subquery, columns: Sequence[Sequence[Any]]) -> str:
    """Return what takes the place of a subquery."""
    if subquery.keys:
        return _any_of(subquery.keys, list(zip(*columns, strict=True)))
    if subquery.kind == "exists":
        return "TRUE" if columns[0] else "FALSE"
    if len(columns) != 1:
        raise invalid(text, subquery.at, f"the subquery returns {len(columns)} columns, but one is needed.")
    if subquery.kind == "in":
        return f"({', '.join(map(literal, dict.fromkeys(columns[0]))) or literal(_NO_VALUE)})"
    if len(columns[0]) > 1:
        raise invalid(text, subquery.at, "the subquery returns more than one row; aggregate it, or use IN.")
    return f"({literal(columns[0][0] if columns[0] else None)})"


def _any_of(keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return the condition that columns equal one of these rows; NULL equals nothing."""
    rows = [row for row in rows if None not in row]
    if not rows:
        return "FALSE"
    if len(keys) == 1:
        return f"({keys[0]} IS NOT NULL AND {keys[0]} IN ({', '.join(literal(row[0]) for row in rows)}))"
    parts = [
        f"({' AND '.join(f'{key} <=> {literal(value)}' for key, value in zip(keys, row, strict=True))})"
        for row in rows
    ]
    while len(parts) > 1:  # In pairs, because the depth of expressions is limited.
        parts = [f"({' OR '.join(parts[place : place + 2])})" for place in range(0, len(parts), 2)]
    return parts[0]


def _without_empty_lists(text: str) -> str:
    """Replace ``x IN ()`` by FALSE, which it is even if x is NULL."""
    (tree,) = SPARK.parse(text)
    assert tree is not None  # noqa: S101 - the text is not empty
    for node in list(tree.find_all(exp.In)):
        if any(each.name == _NO_VALUE for each in node.expressions):
            node.replace(exp.false())
    return tree.sql(dialect=SPARK, comments=False)
