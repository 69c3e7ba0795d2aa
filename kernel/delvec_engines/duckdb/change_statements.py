"""UPDATE and MERGE as SQL: the clause that applies to each row, its position, and its new values.

One statement reads a part of the scan, joined with the source if a clause needs it. Unmatched source rows are only
known after the last part, so inserts are a separate statement.

Tested in `tests/integration/client/engines/duckdb/test_row_changes.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from delvec_engines.duckdb.assignment import FAILED, assigned
from delvec_engines.duckdb.dialect import expression_sql
from delvec_engines.duckdb.file_columns import sql_type
from delvec_engines.duckdb.merge_source import SOURCE_ROW, SOURCE_TABLE
from delvec_engines.duckdb.row_expressions import refuse_inexact
from delvec_engines.duckdb.scan import FILE_HASH, FILE_INDEX, LIVE, ROW_INDEX, ScanSource, quoted
from delvec_engines.duckdb.statement_runner import ChangeExpressions, errors
from delvec_engines.internal_names import INTERNAL
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import SOURCE, TARGET, Clause, RowChange
from delvec_engines.scan import Scan
from delvec_errors import InvalidPredicate
from delvec_kernel.expressions.expression import Expression
from delvec_kernel.expressions.expression_kinds import column_type
from delvec_kernel.schema.types import StructField, StructType, has_void

__all__ = ["CLAUSE", "UNMATCHED", "ChangeStatements", "new_column", "old_column"]

CLAUSE: Final = INTERNAL("clause")
"""The number of the clause that applies, or -1."""
UNMATCHED: Final = INTERNAL("unmatched")
"""The table with the numbers of unmatched source rows."""

_NO_CLAUSE: Final = -1
_ONLY: Final = frozenset({"null", "void"})


@dataclass(frozen=True)
class _Rule:
    """A clause in SQL.

    Attributes:
        number: position among the clauses.
        clause: the clause.
        condition: in SQL; None for every row.
        values: by column of the target.
    """

    number: int
    clause: Clause
    condition: str | None
    values: Sequence[str]


class ChangeStatements:
    """The statements of one change.

    Args:
        connection: DuckDB connection that determines the types of expressions; reads no rows.
        scan: the rows that may be touched.
        change: the clauses.
        target: the table after the commit.

    Attributes:
        expressions_read: all expressions over the table's rows.
        is_joined: whether rows of the table are read, not only those of the source.

    Raises:
        InvalidPredicate: DuckDB cannot evaluate an expression as Spark does; names it.
    """

    def __init__(self, connection: Any, scan: Scan, change: RowChange, target: WriteTarget) -> None:
        self._scan = scan
        self._change = change
        self._target = target
        self._on = None if change.on is None else expression_sql(change.on, filters=True)
        self._relations = StructType(
            tuple(
                StructField(name, schema, nullable=False)
                for name, schema in (
                    (TARGET, _all_columns(scan.schema, target.schema)),
                    (SOURCE, change.source.schema if change.source else StructType(())),
                )
            )
        )
        self._kinds = self._types(connection)
        rules = [self._rule(number, clause) for number, clause in enumerate(change.clauses)]
        self._rules = [rule for rule in rules if rule.clause.match != "not-matched"]
        self._inserts = [rule for rule in rules if rule.clause.match == "not-matched"]
        read = [each for each in self._expressions() if each is not None]
        computed = [each for each in read if not _is_plain(each)]
        self.expressions_read = ChangeExpressions(
            list(dict.fromkeys(each.text for each in computed)),
            frozenset().union(*(self._target_columns(each) for each in read)) & set(scan.schema.names),
        )
        self._filtered = frozenset().union(*(self._target_columns(each) for each in computed))
        self._used = frozenset().union(*(self._target_columns(each) for each in read))
        if change.change_feed:
            self._used |= set(scan.schema.names)

    @property
    def columns(self) -> list[str]:
        """The columns of the scan that are read."""
        return [name for name in self._scan.schema.names if name in self._used]

    @property
    def filtered(self) -> list[str]:
        """The columns that expressions read."""
        return [name for name in self.columns if name in self._filtered]

    @property
    def updates(self) -> bool:
        """Whether a clause updates rows."""
        return any(rule.clause.action == "update" for rule in self._rules)

    # --- rows of the table ------------------------------------------------------------------------------------

    def changes(self, source: ScanSource, *, strictly: bool) -> str:
        """Return the statement for the rows of a part of the scan to which a clause applies.

        Its columns: the row's position (see ``scan.sources``); ``CLAUSE``; ``SOURCE_ROW`` if the change marks, and then all
        matching rows are returned; new values if there is an update; old values for the change data feed.

        Args:
            source: the part.
            strictly: evaluate expressions for live rows only, which is slower.
        """
        clause, joined = self._clause(), self._join()
        listed = [f"{TARGET}.{FILE_INDEX}", f"{TARGET}.{FILE_HASH}", f"{TARGET}.{ROW_INDEX}"]
        listed.append(f"CAST({clause} AS SMALLINT) AS {CLAUSE}")
        if self._change.marks:
            listed.append(f"{SOURCE}.{SOURCE_ROW}")
        if self.updates:
            listed += self._new_values(clause)
        if self._change.change_feed:
            listed += [
                f"{TARGET}.{quoted(name)} AS {old_column(number)}"
                for number, name in enumerate(self._scan.schema.names)
            ]
        where = self._where(clause)
        scanned = None if strictly else self._filtered_scan(source)
        if scanned is not None:
            where = None
        elif strictly and self._on is None and source.live is not None and where is not None:
            where = f"CASE WHEN {TARGET}.{LIVE} THEN ({where}) END"
        rows = self._rows(source, scanned or source.sql, strictly=strictly)
        condition = "" if where is None else f" WHERE {where}"
        return f"SELECT {', '.join(listed)} FROM ({rows}) AS {TARGET}{joined}{condition}"  # noqa: S608 - of quoted parts

    def _filtered_scan(self, source: ScanSource) -> str | None:
        """Return the scan with the only clause's condition pushed into it; None if that is not possible."""
        conditions = [rule.clause.condition for rule in self._rules]
        if self._on is not None or len(conditions) != 1 or conditions[0] is None:
            return None
        return source.filtered(
            expression_sql(conditions[0], over=TARGET, filters=True), self._target_columns(conditions[0])
        )

    def _rows(self, source: ScanSource, scanned: str, *, strictly: bool) -> str:
        hides = strictly and source.live is not None and self._on is not None
        listed = []
        for name in self.columns:
            column = quoted(name)
            listed.append(f"CASE WHEN {LIVE} THEN {column} END AS {column}" if hides else column)
        listed += [
            f"CAST(NULL AS {sql_type(item.type, has_mapping=False)}) AS {quoted(item.name)}"
            for item in self._target.schema.fields
            if item.name in self._used and item.name not in self._scan.schema
        ]
        if source.live is None and len(listed) == len(self.columns):
            return scanned  # a SELECT around it would bind every column once more
        listed += [FILE_INDEX, FILE_HASH, ROW_INDEX]
        listed += [] if source.live is None else [LIVE]
        where = "" if source.live is None else f" WHERE {source.live}"
        return f"SELECT {', '.join(listed)} FROM ({scanned}) AS {INTERNAL('scan')}{where}"  # noqa: S608

    def _join(self) -> str:
        if self._on is None:
            return ""
        matches = {rule.clause.match for rule in self._rules}
        if self._change.marks or matches == {"matched", "not-matched-by-source"}:
            kind = "LEFT" if "not-matched-by-source" in matches else "INNER"
        elif matches == {"not-matched-by-source"}:
            kind = "ANTI"
        else:
            # For deletes alone, one match is enough.
            kind = "SEMI" if self._change.may_match_twice else "INNER"
        return f" {kind} JOIN {SOURCE_TABLE} AS {SOURCE} ON {self._on}"

    def _clause(self) -> str:
        """Return the number of the clause that applies to a row."""
        matched = _first(rule for rule in self._rules if rule.clause.match == "matched")
        missing = _first(rule for rule in self._rules if rule.clause.match == "not-matched-by-source")
        if " LEFT JOIN " not in self._join():
            return (
                matched if "not-matched-by-source" not in {r.clause.match for r in self._rules} else missing
            )
        return f"CASE WHEN {SOURCE}.{SOURCE_ROW} IS NOT NULL THEN {matched} ELSE {missing} END"

    def _where(self, clause: str) -> str | None:
        if self._change.marks:
            found = f"{SOURCE}.{SOURCE_ROW} IS NOT NULL OR ({clause}) >= 0"
            return found if " LEFT JOIN " in self._join() else None
        if len(self._rules) == 1:
            condition = self._rules[0].clause.condition
            return None if condition is None else expression_sql(condition, filters=True)
        return f"({clause}) >= 0"

    def _new_values(self, clause: str) -> list[str]:
        updates = [rule for rule in self._rules if rule.clause.action == "update"]
        is_only = len(self._rules) == 1 and not self._change.marks
        listed = []
        for number in range(len(self._target.schema.fields)):
            values = [rule.values[number] for rule in updates]
            plain = all(_is_plain(rule.clause.values[number]) for rule in updates)
            # Values may fail, so they are evaluated for the rows of their clause only.
            if is_only or (plain and len(set(values)) == 1 and FAILED not in values[0]):
                value = values[0]
            else:
                cases = (f"WHEN {rule.number} THEN {rule.values[number]}" for rule in updates)
                value = f"CASE {clause} {' '.join(cases)} END"
            listed.append(f"{value} AS {new_column(number)}")
        return listed

    # --- rows of the source -----------------------------------------------------------------------------------

    def inserts(self) -> str:
        """Return the statement for the rows inserted for source rows in the table :data:`UNMATCHED`.

        Its columns: ``CLAUSE``; new values.
        """
        clause = _first(self._inserts)
        listed = [f"CAST({clause} AS SMALLINT) AS {CLAUSE}"]
        for number in range(len(self._target.schema.fields)):
            if len(self._inserts) == 1:
                value = self._inserts[0].values[number]
            else:
                cases = (f"WHEN {rule.number} THEN {rule.values[number]}" for rule in self._inserts)
                value = f"CASE {clause} {' '.join(cases)} END"
            listed.append(f"{value} AS {new_column(number)}")
        where = self._inserts[0].condition if len(self._inserts) == 1 else f"({clause}) >= 0"
        condition = "" if where is None else f" WHERE {where}"
        return (
            f"SELECT {', '.join(listed)} FROM {SOURCE_TABLE} AS {SOURCE} "  # noqa: S608 - of quoted parts
            f"SEMI JOIN {UNMATCHED} AS u ON {SOURCE}.{SOURCE_ROW} = u.{SOURCE_ROW}{condition}"
        )

    # --- expressions ------------------------------------------------------------------------------------------

    def _expressions(self) -> Iterable[Expression | None]:
        yield self._change.on
        for clause in self._change.clauses:
            yield clause.condition
            yield from clause.values

    def _target_columns(self, expression: Expression) -> frozenset[str]:
        return expression.columns.get(TARGET, frozenset())

    def _rule(self, number: int, clause: Clause) -> _Rule:
        condition = None if clause.condition is None else expression_sql(clause.condition)
        return _Rule(
            number,
            clause,
            condition,
            [
                self._value(value, item)
                for value, item in zip(clause.values, self._target.schema.fields, strict=bool(clause.values))
            ],
        )

    def _value(self, value: Expression | None, item: StructField) -> str:
        if value is None:
            return f"CAST(NULL AS {sql_type(item.type, has_mapping=False)})"
        if value.kind in _ONLY:
            return assigned("NULL", None, item.type, item.name)
        sql = expression_sql(value)
        return sql if self._fits(value, item) else assigned(sql, self._kinds[sql], item.type, item.name)

    def _fits(self, value: Expression, item: StructField) -> bool:
        """Whether a value is a column of that very type."""
        if value.path is None or column_type(value.path, self._relations) != item.type:
            return False
        return not has_void(item.type)

    def _types(self, connection: Any) -> Mapping[str, Any]:
        """Return the DuckDB types of all values, by their SQL, without reading rows."""
        values: dict[str, Expression] = {}
        read: dict[str, set[str]] = {}
        for clause in self._change.clauses:
            # A delete has no values.
            for value, item in zip(clause.values, self._target.schema.fields, strict=False):
                if value is None or value.kind in _ONLY or self._fits(value, item):
                    continue
                self._check_exact(value)
                values.setdefault(expression_sql(value), value)
                for name, columns in value.columns.items():
                    read.setdefault(name, set()).update(columns)
        if not values:
            return {}
        relations = ", ".join(
            f"(SELECT {_empty_columns(item.type.select(sorted(read.get(item.name, ()))))}) AS {item.name}"
            for item in self._relations.fields
            if isinstance(item.type, StructType)
        )
        try:
            return dict(zip(values, _types_of(connection, values, relations), strict=True))
        except duckdb.Error:
            # One by one, to name the value.
            kinds: dict[str, Any] = {}
            for sql, value in values.items():
                with errors(self._scan, None, ChangeExpressions([value.text], frozenset())):
                    kinds[sql] = _types_of(connection, [sql], relations)[0]
            return kinds

    def _check_exact(self, value: Expression) -> None:
        try:
            refuse_inexact(value.root, self._relations)
        except InvalidPredicate as error:
            raise InvalidPredicate(
                f"The value {value.text!r} cannot be evaluated by the DuckDB engine exactly as in Spark: "
                f"{error.message}, or run the command on Spark."
            ) from error


def new_column(number: int) -> str:
    """Return the alias of the new value of a column of the target."""
    return f"{INTERNAL('new')}_{number}"


def old_column(number: int) -> str:
    """Return the alias of the old value of a column of the scan."""
    return f"{INTERNAL('old')}_{number}"


def _types_of(connection: Any, values: Iterable[str], relations: str) -> Sequence[Any]:
    listed = ", ".join(f"{sql} AS v{number}" for number, sql in enumerate(values))
    return list(connection.sql(f"SELECT {listed} FROM {relations}").types)  # noqa: S608 - of quoted parts


def _first(rules: Iterable[_Rule]) -> str:
    """Return the number of the first rule whose condition is true."""
    cases: list[str] = []
    for rule in rules:
        if rule.condition is None:
            return f"CASE {' '.join(cases)} ELSE {rule.number} END" if cases else str(rule.number)
        cases.append(f"WHEN {rule.condition} THEN {rule.number}")
    return f"CASE {' '.join(cases)} ELSE {_NO_CLAUSE} END" if cases else f"({_NO_CLAUSE})"


def _is_plain(expression: Expression | None) -> bool:
    """Whether an expression is None or a plain column."""
    if expression is None:
        return True
    return expression.path is not None and len(expression.path) == 2  # noqa: PLR2004 - relation and column


def _all_columns(scan: StructType, target: StructType) -> StructType:
    return StructType((*scan.fields, *(item for item in target.fields if item.name not in scan)))


def _empty_columns(schema: StructType) -> str:
    nulls = (
        f"CAST(NULL AS {sql_type(item.type, has_mapping=False)}) AS {quoted(item.name)}"
        for item in schema.fields
    )
    return ", ".join(nulls) or f"NULL AS {INTERNAL('none')}"
