"""Translates predicates and expressions from Spark SQL to DuckDB SQL with the same results.

Every node is translated explicitly and fully parenthesized, because generic transpilers keep names
and change meanings: LIKE has no escape character in DuckDB, casts round instead of truncating, a REAL is compared
as REAL, regular expressions are RE2's. Other syntax has not been compared with Spark and is refused.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Final

from sqlglot import exp

from delvec_engines.duckdb.dialect_functions import TEMPORAL, Operands, lower, rounded, to_re2, upper
from delvec_engines.duckdb.lookup import quoted, string_literal
from delvec_engines.duckdb.pushed_filters import conjuncts, may_accept_null_text, shielded
from delvec_errors import InvalidPredicate
from delvec_kernel.expressions.expression import Expression, reworded
from delvec_kernel.expressions.expression_kinds import NUMERIC_KINDS
from delvec_kernel.expressions.functions import Parameter, function_of
from delvec_kernel.expressions.predicate import Predicate, limited_nesting
from delvec_kernel.schema.types import StructType

__all__ = ["TRANSLATED", "expression_sql", "filter_sql", "predicate_sql", "to_duckdb"]

_OPERATORS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_NUMBER: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TEXTUAL: Final = {"string", "integer", "boolean", "date", "null"}
_OF_DAYS: Final = frozenset({"year", "month", "week", "day"})
"""Units of the intervals with which a date stays a date."""


def predicate_sql(predicate: Predicate) -> str:
    """Return a predicate as DuckDB's SQL, every column double-quoted, so that the same rows satisfy it.

    Conversions that fail raise an error when run, as under ``spark.sql.ansi.enabled``.

    Raises:
        InvalidPredicate: DuckDB has no equivalent that is known to give Spark's answer.
    """
    with limited_nesting():
        return to_duckdb(predicate.expression, predicate.schema, predicate.text)


def filter_sql(predicate: Predicate) -> str:
    """Return a predicate as a filter of Parquet files: true for the same rows, NULL or false for the others.

    Raises:
        InvalidPredicate: DuckDB has no equivalent that is known to give Spark's answer.
    """
    write = _Writer(predicate.schema, {}, predicate.text, ()).write
    with limited_nesting():
        return _filter(write, predicate.expression, predicate.schema)


def expression_sql(expression: Expression, over: str | None = None, *, filters: bool = False) -> str:
    """Return an expression as DuckDB's SQL, every column behind its relation's name.

    Args:
        expression: any.
        over: a relation whose columns stand alone, without the relation's name.
        filters: whether it is a condition that filters Parquet files, as of :func:`filter_sql`.

    Raises:
        InvalidPredicate: DuckDB has no equivalent that is known to give Spark's answer.
    """
    rename = {} if over is None else {over: ""}
    relations = expression.relations
    try:
        write = _Writer(relations, rename, expression.text, relations.names).write
        root = expression.root
        with limited_nesting():
            return _filter(write, root, relations) if filters else write(root)
    except InvalidPredicate as error:
        raise reworded(error) from error


def to_duckdb(root: exp.Expr, schema: StructType, text: str) -> str:
    """Return the SQL text of ``root``.

    Args:
        root: a resolved expression.
        schema: the schema it was resolved against.
        text: the original text, for errors.

    Raises:
        InvalidPredicate: an operator or function is not known to give Spark's result; names it.
    """
    return _Writer(schema, {}, text, ()).write(root)


def _filter(write: Callable[[exp.Expr], str], root: exp.Expr, schema: StructType) -> str:
    written = (
        shielded(write(each)) if may_accept_null_text(each, schema) else write(each)
        for each in conjuncts(root)
    )
    return " AND ".join(f"({each})" for each in written)


class _Writer(Operands):
    """One translation. Recursion is as deep as the expression, which ``predicate_checks.MAX_DEPTH`` bounds."""

    def __init__(
        self, schema: StructType, rename: Mapping[str, str], text: str, relations: Collection[str]
    ) -> None:
        super().__init__(schema, text)
        self._rename = rename
        self._relations = relations

    @cached_property
    def _writers(self) -> Mapping[type[exp.Expr], Callable[[exp.Expr], str]]:
        """How to write each kind of expression. Plain columns, which wide tables have by the thousand, do without."""
        return {
            exp.And: lambda node: f"({self.write(node.this)} AND {self.write(node.expression)})",
            exp.Or: lambda node: f"({self.write(node.this)} OR {self.write(node.expression)})",
            exp.Not: lambda node: f"(NOT {self.write(node.this)})",
            exp.Paren: lambda node: self.write(node.this),
            exp.Neg: lambda node: f"(- {self.write(node.this)})",
            exp.BitwiseNot: lambda node: f"(~ {self.write(node.this)})",
            exp.BitwiseAnd: lambda node: f"({self.write(node.this)} & {self.write(node.expression)})",
            exp.BitwiseOr: lambda node: f"({self.write(node.this)} | {self.write(node.expression)})",
            exp.BitwiseXor: lambda node: f"xor({self.write(node.this)}, {self.write(node.expression)})",
            exp.Null: lambda _: "NULL",
            exp.Boolean: lambda node: "TRUE" if node.this else "FALSE",
            exp.HexString: lambda node: f"unhex({_literal(node.name)})",
            exp.Literal: lambda node: _literal(node.name) if node.is_string else self._number(node),
            exp.Column: lambda node: quoted(self._rename.get(node.name, node.name)),
            exp.Is: self._is,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Cast: self.cast,
            exp.TryCast: self.cast,
            exp.Add: self._arithmetic,
            exp.Sub: self._arithmetic,
            exp.Mul: self._arithmetic,
            exp.Div: self._division,
            exp.IntDiv: self._division,
            exp.Mod: self._division,
            exp.Interval: self._interval,
            exp.Like: self._like,
            exp.ILike: self._like,
            exp.Escape: self._escape,
            exp.RegexpLike: lambda node: self._regex(node.this, node.expression),
            exp.Case: self._case,
            exp.If: lambda node: self._if(self.write(node.this), node),
            exp.Nvl2: lambda node: self._if(f"{self.write(node.this)} IS NOT NULL", node),
            exp.Coalesce: lambda node: f"coalesce({', '.join(self.aligned([node.this, *node.expressions]))})",
            exp.Greatest: lambda node: f"greatest({', '.join(self.aligned([node.this, *node.expressions]))})",
            exp.Least: lambda node: f"least({', '.join(self.aligned([node.this, *node.expressions]))})",
            exp.Nullif: lambda node: f"nullif({', '.join(self.aligned([node.this, node.expression]))})",
            exp.DPipe: lambda node: f"({self._string(node.this)} || {self._string(node.expression)})",
            exp.Concat: lambda node: "(" + " || ".join(self._string(each) for each in node.expressions) + ")",
            exp.Lower: lambda node: lower(self._string(node.this)),
            exp.Upper: lambda node: upper(self._string(node.this)),
            exp.Length: self._length,
            exp.Trim: self._trim,
            exp.Substring: self._substring,
            exp.TsOrDsAdd: self._date_add,
            exp.DateDiff: self._date_diff,
            exp.Bracket: self._element,
            exp.Struct: self._struct,
            exp.Anonymous: self._anonymous,
        }

    def write(self, node: exp.Expr) -> str:
        """Return ``node`` as one operand: atomic or in parentheses."""
        cls = type(node)
        if cls in _OPERATORS:
            left, right = self.aligned([node.this, node.args["expression"]])
            return f"({left} {_OPERATORS[cls]} {right})"
        if cls is exp.Dot:
            return self._dot(node)
        writer = self._writers.get(cls)
        return writer(node) if writer else self._call(node)

    def _call(self, node: exp.Expr) -> str:
        function = function_of(node)
        if function is None or function.duckdb is None:
            return self.refuse(node)
        arguments = function.arguments(node)
        if arguments is None:
            name = " or ".join(function.names)
            return self.refuse(
                node, f"{name} with these arguments may mean something else in DuckDB than in Spark"
            )
        written = (
            self._argument(node, each, parameter)
            for each, parameter in zip(arguments, function.parameters, strict=True)
        )
        return function.duckdb.format(*written)

    def _argument(self, call: exp.Expr, node: exp.Expr, parameter: Parameter) -> str:
        match parameter:
            case "string":
                return self._string(node)
            case "date":
                return self.date(node)
            case "moment" if self.kind(node) not in TEMPORAL:
                return self.refuse(call)
            case _:
                return self.write(node)

    # --- comparisons ----------------------------------------------------------------------------------------

    def _dot(self, node: exp.Expr) -> str:
        name = node.args["expression"]
        if not isinstance(name, exp.Identifier):
            self.refuse(node)
        if isinstance(node.this, exp.Column) and node.this.name in self._relations:
            column = quoted(name.name)
            relation = self._rename.get(node.this.name, node.this.name)
            return f"{quoted(relation)}.{column}" if relation else column
        return f"struct_extract({self.write(node.this)}, {_literal(name.name)})"

    def _is(self, node: exp.Expr) -> str:
        what = node.args["expression"]
        if not isinstance(what, (exp.Null, exp.Boolean)):
            self.refuse(node)
        if isinstance(what, exp.Null):
            return f"({self.write(node.this)} IS NULL)"
        return f"({self.write(node.this)} IS NOT DISTINCT FROM {self.write(what)})"

    def _in(self, node: exp.Expr) -> str:
        if any(isinstance(each, exp.Tuple) for each in (node.this, *node.expressions)):
            self.refuse(node, "IN with tuples is not supported; compare the columns one by one")
        this, *members = self.aligned([node.this, *node.expressions])
        return f"({this} IN ({', '.join(members)}))"

    def _between(self, node: exp.Expr) -> str:
        this, low, high = self.aligned([node.this, node.args["low"], node.args["high"]])
        return f"({this} BETWEEN {low} AND {high})"

    # --- arithmetic -----------------------------------------------------------------------------------------

    def _number(self, node: exp.Expr) -> str:
        # The only text that is written without quotes.
        return node.name if _NUMBER.fullmatch(node.name) else self.refuse(node, f"{node.name!r} is no number")

    def _operand(self, node: exp.Expr) -> str:
        # A bare literal would take the column's type: TINYINT * 100 overflows in DuckDB, not in Spark.
        literal = node.unnest()
        sign = ""
        if isinstance(literal, exp.Neg):
            sign, literal = "-", literal.this.unnest()
        if isinstance(literal, exp.Literal) and self.kind(literal) == "integer":
            is_int = _INT_MIN <= int(sign + literal.name) <= _INT_MAX
            return f"CAST({sign}{literal.name} AS {'INTEGER' if is_int else 'BIGINT'})"
        return self.write(node)

    def _arithmetic(self, node: exp.Expr) -> str:
        operator = "+" if isinstance(node, exp.Add) else "-" if isinstance(node, exp.Sub) else "*"
        left, right = node.this, node.args["expression"]
        kinds = (self.kind(left), self.kind(right))
        numbers = set(kinds) <= {*NUMERIC_KINDS, "null"}
        moment = kinds[0] in TEMPORAL and kinds[1] in {"interval", "integer" if kinds[0] == "date" else ""}
        if not numbers and not (moment and not isinstance(node, exp.Mul)):
            self.refuse(
                node, f"{operator} on {kinds[0] or 'an unknown type'} and {kinds[1] or 'an unknown type'}"
            )
        if set(kinds) == {"float", "decimal"}:
            self.refuse(
                node, "arithmetic on float and decimal rounds differently; cast the operands to double"
            )
        value = f"({self._operand(left)} {operator} {self._operand(right)})"
        if kinds == ("date", "interval") and right.unnest().args["unit"].name.lower().rstrip("s") in _OF_DAYS:
            return f"CAST({value} AS DATE)"  # DuckDB's is a timestamp
        room = rounded(node, self._schema)
        return value if room is None else f"CAST({value} AS DECIMAL({room.precision}, {room.scale}))"

    def _division(self, node: exp.Expr) -> str:
        left, right = node.this, node.args["expression"]
        kinds = {self.kind(left), self.kind(right)} - {"null"}
        if not kinds <= NUMERIC_KINDS:
            self.refuse(node, "division needs numbers; cast the operands")
        if "decimal" in kinds and not kinds & {"float", "double"} and isinstance(node, exp.Div):
            self.refuse(node, "division of decimals rounds differently; cast the operands to double")
        a, b = self._operand(left), self._operand(right)
        if isinstance(node, exp.Div):
            quotient = f"CAST({a} AS DOUBLE) / CAST({b} AS DOUBLE)"
        elif isinstance(node, exp.Mod):
            quotient = f"{a} % {b}"
        elif kinds <= {"integer"}:
            quotient = f"CAST({a} AS BIGINT) // CAST({b} AS BIGINT)"
        elif kinds & {"float", "double"}:
            quotient = f"CAST(trunc({a} / {b}) AS BIGINT)"
        else:
            # DuckDB divides decimals as doubles: 0.29 / 0.01 is less than 29. The remainder is exact.
            whole = f"round(({a} - {a} % {b}) / {b})"
            large = (
                f"WHEN abs({whole}) >= {2**53} THEN error('DIV of decimals has a result that is too large')"
            )
            quotient = f"CAST(CASE {large} ELSE {whole} END AS BIGINT)"
        if isinstance(right, exp.Literal) and float(right.name) != 0:
            return f"({quotient})"
        # Left alone, DuckDB gives infinity or NULL, depending on version and operator.
        return f"(CASE WHEN {b} = 0 THEN error('division by zero') ELSE {quotient} END)"

    def _interval(self, node: exp.Expr) -> str:
        value, unit = node.this, node.args.get("unit")
        if not isinstance(value, exp.Literal) or not isinstance(unit, exp.Var):
            return self.refuse(node, "write intervals as INTERVAL 1 DAY")
        number, name = value.name.strip(), unit.name.lower().rstrip("s")
        known = {"year", "month", "week", "day", "hour", "minute", "second"}
        if name not in known or not re.fullmatch(r"[+-]?\d+", number):
            return self.refuse(node, "write intervals as INTERVAL 1 DAY")
        return f"INTERVAL '{number}' {name}"

    # --- text -----------------------------------------------------------------------------------------------

    def _string(self, node: exp.Expr) -> str:
        kind = self.kind(node)
        if kind not in _TEXTUAL:
            self.refuse(node, f"{kind or 'an unknown type'} is used as a string; cast it to string")
        written = self.write(node)
        return written if kind == "string" else f"CAST({written} AS VARCHAR)"

    def _like(self, node: exp.Expr, escape: str = "\\") -> str:
        # As Spark's ILIKE, and unlike DuckDB's: both sides in Java's small letters, but for the escape character.
        in_small = isinstance(node, exp.ILike)
        pattern, negate = node.args["expression"], bool(node.args.get("negate"))
        every = isinstance(pattern, exp.All)
        patterns: list[exp.Expr] = [pattern]
        if isinstance(pattern, (exp.Any, exp.All)):
            patterns = (
                pattern.this.expressions if isinstance(pattern.this, exp.Tuple) else [pattern.this.unnest()]
            )
        this, suffix = self._string(node.this), f"ESCAPE {_literal(escape)}"
        negated = "NOT " if negate else ""
        tests = []
        for each in patterns:
            text = each.name.lower() if in_small else each.name
            if isinstance(each, exp.Literal) and not _is_pattern(text, escape):
                self.refuse(each, f"in the pattern {each.name!r} an escape is not followed by %, _ or itself")
            wanted = self._string(each)
            if in_small:
                wanted = _literal(text) if isinstance(each, exp.Literal) and text.isascii() else lower(wanted)
            tests.append(f"({lower(this) if in_small else this} {negated}LIKE {wanted} {suffix})")
        return "(" + (" AND " if every else " OR ").join(tests) + ")"

    def _escape(self, node: exp.Expr) -> str:
        escape = node.args["expression"]
        if not isinstance(node.this, (exp.Like, exp.ILike)) or len(escape.name) != 1:
            return self.refuse(node, "ESCAPE needs one character")
        return self._like(node.this, escape.name)

    def _regex(self, value: exp.Expr, pattern: exp.Expr) -> str:
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            return self.refuse(pattern, "RLIKE needs a literal pattern")
        try:
            translated = to_re2(pattern.name)
        except ValueError as error:
            return self.refuse(
                pattern, f"the pattern {pattern.name!r} uses {error}, which RE2 reads differently"
            )
        return f"regexp_matches({self._string(value)}, {_literal(translated)})"

    def _length(self, node: exp.Expr) -> str:
        if self.kind(node.this) == "binary":
            return f"CAST(octet_length({self.write(node.this)}) AS INTEGER)"
        return f"CAST(length({self._string(node.this)}) AS INTEGER)"

    def _trim(self, node: exp.Expr) -> str:
        if node.args.get("expression") is not None:
            return self.refuse(node)
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
        return f"{name}({self._string(node.this)}, ' ')"

    def _substring(self, node: exp.Expr) -> str:
        numbers = [node.args.get("start"), node.args.get("length")]
        if not all(each is None or (isinstance(each, exp.Literal) and each.is_int) for each in numbers):
            return self.refuse(node, "substring needs positive integer literals")
        # Position 0 is position 1 in Spark.
        written = [str(max(1, int(numbers[0].name))) if numbers[0] else "1"]
        written += [numbers[1].name] if numbers[1] else []
        return f"substring({self._string(node.this)}, {', '.join(written)})"

    # --- the rest -------------------------------------------------------------------------------------------

    def _case(self, node: exp.Expr) -> str:
        whens, default = node.args["ifs"], node.args.get("default")
        results = [each.args["true"] for each in whens] + ([default] if default is not None else [])
        written = self.aligned(results)
        if node.this is None:
            tests = [self.write(each.this) for each in whens]
        else:
            tests = []
            for each in whens:
                left, right = self.aligned([node.this, each.this])
                tests.append(f"({left} = {right})")
        body = " ".join(f"WHEN {test} THEN {value}" for test, value in zip(tests, written, strict=False))
        return f"(CASE {body}{f' ELSE {written[-1]}' if default is not None else ''} END)"

    def _if(self, test: str, node: exp.Expr) -> str:
        otherwise = node.args.get("false") or exp.Null()
        yes, no = self.aligned([node.args["true"], otherwise])
        return f"(CASE WHEN {test} THEN {yes} ELSE {no} END)"

    def _date_add(self, node: exp.Expr) -> str:
        days, unit = node.args["expression"], node.args.get("unit")
        if (unit is not None and unit.name.upper() != "DAY") or self.kind(days) != "integer":
            return self.refuse(node, "date_add needs a whole number of days")
        return f"({self.date(node.this)} + CAST({self.write(days)} AS INTEGER))"

    def _date_diff(self, node: exp.Expr) -> str:
        unit = node.args.get("unit")
        if unit is not None and unit.name.upper() != "DAY":
            return self.refuse(node, "datediff is supported for days only")
        return (
            f"CAST(date_diff('day', {self.date(node.args['expression'])}, {self.date(node.this)}) AS INTEGER)"
        )

    def _element(self, node: exp.Expr) -> str:
        kind, keys = self.kind(node.this), node.expressions
        if node.args.get("offset") or len(keys) != 1:
            return self.refuse(node)
        if kind == "map":
            return f"{self.write(node.this)}[{self.write(keys[0])}]"
        if kind == "array" and isinstance(keys[0], exp.Literal) and keys[0].is_int:
            return f"{self.write(node.this)}[{int(keys[0].name) + 1}]"
        return self.refuse(node, "element access needs a column, and a literal key or position")

    def _struct(self, node: exp.Expr) -> str:
        if not node.expressions or not all(isinstance(each, exp.PropertyEQ) for each in node.expressions):
            return self.refuse(node, "write structs as named_struct('field', value, ...)")
        fields = (f"{quoted(each.name)} := {self.write(each.expression)}" for each in node.expressions)
        return f"struct_pack({', '.join(fields)})"

    def _anonymous(self, node: exp.Expr) -> str:
        if node.name.lower() == "regexp" and len(node.expressions) == 2:  # noqa: PLR2004 - value and pattern
            return self._regex(*node.expressions)
        return self._call(node)


_KINDS: Final = frozenset({*_OPERATORS, exp.Dot, *_Writer(StructType(()), {}, "", ())._writers})  # noqa: SLF001 - of this module
TRANSLATED: Final = _KINDS - {exp.Anonymous}
"""The kinds of expressions that may be translated, other than calls of the table of functions."""


def _is_pattern(pattern: str, escape: str) -> bool:
    one = re.escape(escape)
    return re.fullmatch(rf"(?s:[^{one}]|{one}[%_{one}])*", pattern) is not None


def _literal(text: str) -> str:
    literal = string_literal(text)
    return "(" + literal.replace("\0", "' || chr(0) || '") + ")" if "\0" in text else literal
