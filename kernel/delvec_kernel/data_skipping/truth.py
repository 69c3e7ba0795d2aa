"""Data skipping: which files of a table can hold rows that satisfy a predicate.

A predicate is evaluated once for all files over the bounds of their columns. SQL has three truth values, and the
result says which of them may occur in each file; without bounds all three may. Every step keeps a superset, so a
file is dropped only if TRUE cannot occur, and fully matches only if nothing else can.

Tested in `tests/unit/kernel/data_skipping/test_skipping.py` and
`tests/unit/kernel/data_skipping/test_skipping_rows.py`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from sqlglot import exp

from delvec_kernel.data_skipping.comparisons import FEW, LikePattern, Truth, compared, matched, one_of
from delvec_kernel.data_skipping.monotone import monotone_bounds
from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES, column_path, column_type
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructType
from delvec_kernel.statistics.bounds import Bounds, Path, partition_bounds, statistics_bounds
from delvec_kernel.statistics.literal_bounds import in_equals_comparisons, literal_bounds

__all__ = ["Folded", "Pruned", "columns_of", "prune", "truth_of"]

_MAX_COMPARISONS: Final = 200_000_000
"""Limit of comparisons (terms times files) for one AND or OR chain: about a second."""


@dataclass(frozen=True)
class Pruned:
    """The result for each file, in file order.

    Attributes:
        may_match: false where no row of the file can satisfy the predicate. Boolean, no nulls.
        matches_all: true where the partition values alone make the predicate TRUE, not NULL, for every row.
            Boolean, no nulls; implies ``may_match``.
    """

    may_match: pa.BooleanArray
    matches_all: pa.BooleanArray


def prune(
    files: pa.Table, predicate: Predicate | None, schema: StructType, partition_columns: Sequence[str]
) -> Pruned:
    """Decide for every file whether it can be skipped.

    Args:
        files: live files, columns ``partition_values``, ``stats`` and ``num_records`` of ``files.FILES_SCHEMA``.
        predicate: parsed against ``schema``; None means every row.
        schema: the schema of the table; its physical names key partition values and statistics.
        partition_columns: logical names.

    Raises:
        CorruptLog: a partition value cannot be parsed as its column's type.
    """
    count = files.num_rows
    if predicate is None:
        everything = pa.array(np.ones(count, dtype=np.bool_))
        return Pruned(everything, everything)
    predicate_columns = columns_of(predicate)
    partition_names = {name.lower() for name in partition_columns}
    column_bounds = _partition_bounds(
        files, [path for path in predicate_columns if path[0].lower() in partition_names], schema
    )
    truth = truth_of(predicate, schema, column_bounds, count)
    may_match, matches_all = truth.true, truth.true & ~truth.false & ~truth.null
    rest = [path for path in predicate_columns if path[0].lower() not in partition_names]
    # Parse statistics only for files that partition values leave undecided.
    undecided_files = np.flatnonzero(may_match & ~matches_all)
    if rest and len(undecided_files):
        left = files if len(undecided_files) == count else files.take(pa.array(undecided_files))
        column_bounds = (
            _partition_bounds(left, list(column_bounds), schema) if left is not files else column_bounds
        )
        column_bounds = {**column_bounds, **_statistics(left, rest, schema)}
        undecided_truth = truth_of(predicate, schema, column_bounds, left.num_rows)
        may_match = may_match.copy()
        may_match[undecided_files] = undecided_truth.true
    return Pruned(pa.array(may_match), pa.array(matches_all))


class Folded(Protocol):
    """A predicate, or a Boolean expression over relations."""

    @property
    def folded(self) -> exp.Expr:
        """The expression after constant folding."""


def truth_of(predicate: Folded, schema: StructType, known: Mapping[Path, Bounds], count: int) -> Truth:
    """Return the possible truth values of a predicate in each of ``count`` files, given the known bounds."""
    return _Evaluation(schema, known, count).truth(predicate.folded)


def columns_of(predicate: Folded) -> list[Path]:
    """Return the columns and struct fields that occur, full paths only."""
    paths: dict[Path, None] = {}
    for node in predicate.folded.find_all(exp.Column):
        outer: exp.Expr = node
        while isinstance(outer.parent, exp.Dot) and outer.parent.this is outer:
            outer = outer.parent
        path = column_path(outer)
        if path is not None:
            paths[path] = None
    return list(paths)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _partition_bounds(files: pa.Table, paths: Sequence[Path], schema: StructType) -> dict[Path, Bounds]:
    if not paths or not files.num_rows:
        return {}
    values = _one_chunk(files["partition_values"])
    return {
        path: partition_bounds(values, schema.field(path[0]).physical_name, schema.field(path[0]).type)
        for path in paths
    }


def _statistics(files: pa.Table, paths: Sequence[Path], schema: StructType) -> Mapping[Path, Bounds]:
    return statistics_bounds(_one_chunk(files["stats"]), _one_chunk(files["num_records"]), paths, schema)


class _Evaluation:
    """One predicate over one set of files; the parser limits the recursion depth."""

    def __init__(self, schema: StructType, known: Mapping[Path, Bounds], count: int) -> None:
        self._schema = schema
        self._known = known
        self._count = count
        self._never = np.zeros(count, dtype=np.bool_)
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], Truth]] = {
            exp.And: self._all,
            exp.Or: self._any,
            exp.Not: lambda node: self.truth(node.this).negated(),
            exp.Paren: lambda node: self.truth(node.this),
            exp.Boolean: lambda node: self._constant(true=bool(node.this), false=not node.this),
            exp.Null: lambda _: self._constant(null=True),
            exp.Is: self._is,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.Escape: self._escape,
            exp.StartsWith: self._starts_with,
            exp.Anonymous: self._anonymous,
            exp.Column: self._boolean_column,
            exp.Dot: self._boolean_column,
            exp.NullSafeEQ: self._null_safe,
            exp.NullSafeNEQ: lambda node: self._null_safe(node).negated(),
        }
        for cls in (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE):
            self._rules[cls] = self._comparison

    def truth(self, node: exp.Expr) -> Truth:
        """Return the possible truth values of ``node``: all three if it has no rule."""
        rule = self._rules.get(type(node))
        return rule(node) if rule else self._unknown()

    def _constant(self, *, true: bool = False, false: bool = False, null: bool = False) -> Truth:
        return Truth(*(np.full(self._count, each, dtype=np.bool_) for each in (true, false, null)))

    def _unknown(self) -> Truth:
        return self._constant(true=True, false=True, null=True)

    # --- operands -------------------------------------------------------------------------------------------

    def _column(self, node: exp.Expr) -> tuple[Bounds, DataType] | None:
        """Return bounds and type of a column, or of a monotone expression of one."""
        return monotone_bounds(node, self._stored)

    def _stored(self, node: exp.Expr) -> tuple[Bounds, DataType] | None:
        path = column_path(node)
        data_type = column_type(path, self._schema) if path else None
        bounds = self._known.get(path) if path else None
        return (bounds, data_type) if bounds is not None and data_type is not None else None

    def _literal(self, node: exp.Expr, data_type: DataType) -> Bounds | None:
        found = literal_bounds(node, data_type)
        if found is None:
            return None
        return Bounds(found[0], found[1], self._never, self._never)

    def _sides(self, left: exp.Expr, right: exp.Expr) -> tuple[Bounds, Bounds] | None:
        """Return the bounds of two operands in a common type, or None if there is none."""
        a, b = self._column(left), self._column(right)
        if a and b:
            return (a[0], b[0]) if _comparable(a[1], b[1]) else None
        if a:
            literal = self._literal(right, a[1])
            return (a[0], literal) if literal else None
        if b:
            literal = self._literal(left, b[1])
            return (literal, b[0]) if literal else None
        return None

    # --- chains ---------------------------------------------------------------------------------------------

    def _truths(self, terms: list[exp.Expr]) -> list[Truth]:
        """Evaluate the terms of a chain; beyond the work limit, the last terms count as unknown."""
        most = max(FEW, _MAX_COMPARISONS // max(1, self._count))
        rest = [self._unknown()] if len(terms) > most else []
        return [self.truth(term) for term in terms[:most]] + rest

    def _all(self, node: exp.Expr) -> Truth:
        return functools.reduce(Truth.and_, self._truths(list(node.flatten(unnest=False))))

    def _any(self, node: exp.Expr) -> Truth:
        """Evaluate an OR chain, treating ``c = 1 OR c = 2 OR ...`` of any length as one IN list."""
        lists: dict[Path, list[tuple[pa.Scalar, pa.Scalar]]] = {}
        others: list[exp.Expr] = []
        for term in node.flatten(unnest=False):
            path, value = self._equality(term)
            if path is None or value is None:
                others.append(term)
            else:
                lists.setdefault(path, []).append(value)
        truths = [one_of(self._known[path], values) for path, values in lists.items()]
        return functools.reduce(Truth.or_, truths + self._truths(others))

    def _equality(self, node: exp.Expr) -> tuple[Path | None, tuple[pa.Scalar, pa.Scalar] | None]:
        """Return column and literal of ``column = literal``."""
        node = _bare(node)
        if not isinstance(node, exp.EQ):
            return None, None
        left, right = _bare(node.this), _bare(node.args["expression"])
        left, right = (left, right) if column_path(left) else (right, left)
        path = column_path(left)
        data_type = column_type(path, self._schema) if path and path in self._known else None
        return path, literal_bounds(right, data_type) if data_type is not None else None

    # --- rules ----------------------------------------------------------------------------------------------

    def _comparison(self, node: exp.Expr) -> Truth:
        return self._compare(type(node), node.this, node.args["expression"])

    def _compare(self, operator: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Truth:
        if _is_null(left) or _is_null(right):
            return self._constant(null=True)
        sides = self._sides(left, right)
        return self._unknown() if sides is None else compared(operator, *sides)

    def _null_safe(self, node: exp.Expr) -> Truth:
        left, right = node.this, node.args["expression"]
        if _is_null(right) or _is_null(left):
            return self._null_test(left if _is_null(right) else right)
        sides = self._sides(left, right)
        if sides is None:
            return self._constant(true=True, false=True)
        a, b = sides
        equal = compared(exp.EQ, a, b)
        return Truth(
            equal.true | (a.nullable & b.nullable), equal.false | a.nullable | b.nullable, self._never
        )

    def _null_test(self, node: exp.Expr) -> Truth:
        """Evaluate ``node IS NULL``."""
        if _is_null(node):
            return self._constant(true=True)
        column = self._column(node)
        if column is not None and not isinstance(column[1], StructType | ArrayType | MapType):
            return Truth(column[0].nullable, ~column[0].only_null, self._never)
        if type(node) in self._rules and column_path(node) is None:
            inner = self.truth(node)
            return Truth(inner.null, inner.true | inner.false, self._never)
        return self._constant(true=True, false=True)

    def _is(self, node: exp.Expr) -> Truth:
        what = node.args["expression"]
        if isinstance(what, exp.Null):
            return self._null_test(node.this)
        if not isinstance(what, exp.Boolean):
            return self._unknown()
        inner = self.truth(node.this)
        inner = inner if what.this else inner.negated()
        return Truth(inner.true, inner.false | inner.null, self._never)

    def _boolean_column(self, node: exp.Expr) -> Truth:
        column = self._column(node)
        if column is None or column[1] != PrimitiveType("boolean"):
            return self._unknown()
        literal = self._literal(exp.Boolean(this=True), column[1])
        return compared(exp.EQ, column[0], literal) if literal else self._unknown()

    def _between(self, node: exp.Expr) -> Truth:
        lower = self._compare(exp.GTE, node.this, node.args["low"])
        return lower.and_(self._compare(exp.LTE, node.this, node.args["high"]))

    def _anonymous(self, node: exp.Expr) -> Truth:
        name = node.name.lower()
        if name in {"isnull", "isnotnull"} and len(node.expressions) == 1:
            test = self._null_test(node.expressions[0])
            return test if name == "isnull" else test.negated()
        return self._unknown()

    # --- lists and text -------------------------------------------------------------------------------------

    def _in(self, node: exp.Expr) -> Truth:
        column = self._column(node.this)
        members = [each for each in node.expressions if not _is_null(each)]
        if column is None or not node.expressions:
            return self._unknown()
        if not members:
            return self._constant(null=True)
        bounds, data_type = column
        # Spark casts all members to one type, so one unknown member makes the others unknown, too.
        if not in_equals_comparisons(members, data_type):
            return self._unknown()
        found = [literal_bounds(each, data_type) for each in members]
        values = [each for each in found if each is not None]
        if len(values) < len(found):
            return self._unknown()
        truth = one_of(bounds, values)
        return truth.or_(self._constant(null=True)) if len(members) < len(node.expressions) else truth

    def _escape(self, node: exp.Expr) -> Truth:
        if not isinstance(node.this, exp.Like):
            return self._unknown()
        return self._like(node.this, node.args["expression"].name)

    def _like(self, node: exp.Expr, escape: str = "\\") -> Truth:
        pattern = node.args["expression"]
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            return self._unknown()
        truth = self._matched(node.this, LikePattern.parse(pattern.name, escape))
        return truth.negated() if node.args.get("negate") else truth

    def _starts_with(self, node: exp.Expr) -> Truth:
        prefix = node.args["expression"]
        if not isinstance(prefix, exp.Literal) or not prefix.is_string:
            return self._unknown()
        return self._matched(node.this, LikePattern(prefix.name, "anything"))

    def _matched(self, node: exp.Expr, pattern: LikePattern | None) -> Truth:
        column = self._column(node)
        if column is None or column[1] != PrimitiveType("string") or pattern is None:
            return self._unknown()
        return matched(column[0], pattern)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_null(node: exp.Expr) -> bool:
    return isinstance(_bare(node), exp.Null)


def _comparable(left: DataType, right: DataType) -> bool:
    """Whether the bounds of two columns can be compared as stored."""
    if isinstance(left, PrimitiveType) and left.name in INTEGER_TYPES:
        return isinstance(right, PrimitiveType) and right.name in INTEGER_TYPES
    return left == right
