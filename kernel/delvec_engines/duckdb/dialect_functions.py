"""Operands in DuckDB SQL, cast to the type in which Spark compares or uses them.

Tested in `tests/integration/client/engines/duckdb/test_decimal_digits.py`,
`tests/integration/client/engines/duckdb/test_letter_case.py` and
`tests/unit/kernel/data_skipping/test_skipping_rows.py`.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from sqlglot import exp

from delvec_errors import InvalidPredicate
from delvec_kernel.expressions.expression_kinds import NUMERIC_KINDS, column_path, column_type, kind_of
from delvec_kernel.expressions.source_text import located, span_of
from delvec_kernel.schema.types import DecimalType, PrimitiveType, StructType

__all__ = ["TEMPORAL", "Operands", "lower", "rounded", "to_re2", "to_real", "upper"]

_TYPES: Final[dict[exp.DType, str]] = {
    exp.DType.BOOLEAN: "BOOLEAN",
    exp.DType.TINYINT: "TINYINT",
    exp.DType.SMALLINT: "SMALLINT",
    exp.DType.INT: "INTEGER",
    exp.DType.BIGINT: "BIGINT",
    exp.DType.FLOAT: "REAL",
    exp.DType.DOUBLE: "DOUBLE",
    exp.DType.TEXT: "VARCHAR",
    exp.DType.BINARY: "BLOB",
    exp.DType.DATE: "DATE",
    exp.DType.TIMESTAMP: "TIMESTAMPTZ",
    exp.DType.TIMESTAMPTZ: "TIMESTAMPTZ",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMPTZ",
    exp.DType.TIMESTAMPNTZ: "TIMESTAMP",
}
_INTEGERS: Final = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}
TEMPORAL: Final = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "date": "DATE"}
# For each target type, the kinds from which DuckDB's cast equals Spark's.
_CAST_FROM: Final[dict[str, frozenset[str]]] = {
    "BOOLEAN": NUMERIC_KINDS | {"boolean"},
    **dict.fromkeys(_INTEGERS, NUMERIC_KINDS | {"boolean", "string"}),
    **dict.fromkeys(("REAL", "DOUBLE", "DECIMAL"), NUMERIC_KINDS | {"boolean", "string"}),
    "VARCHAR": frozenset({"string", "integer", "boolean", "date"}),
    **dict.fromkeys(TEMPORAL.values(), frozenset({*TEMPORAL, "string"})),
    "BLOB": frozenset({"binary"}),
}
_SPARK_DATE: Final = re.compile(r"\s*(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*", re.DOTALL)
_SPARK_INTEGER: Final = re.compile(r"\s*[+-]?\d+\s*")
_MAX_REAL, _INFINITE_REAL = "3.4028234663852886e38", "3.4028235677973366e38"
"""The largest REAL, and the smallest DOUBLE that rounds to infinity as a REAL."""


def to_real(value: str) -> str:
    """Return the SQL of a DOUBLE rounded to REAL; overflow gives infinity as in Spark, where DuckDB would fail."""
    bounded = f"least(greatest({value}, -{_MAX_REAL}), {_MAX_REAL})"
    return (
        f"(CASE WHEN abs({value}) < {_INFINITE_REAL} THEN CAST({bounded} AS REAL) WHEN isnan({value}) THEN CAST('NaN' AS "
        f"REAL) WHEN {value} > 0 THEN CAST('Infinity' AS REAL) WHEN {value} < 0 THEN CAST('-Infinity' AS REAL) END)"
    )


class Operands:
    """Writes operands with their kinds and Spark's implicit casts; the base of the translator."""

    def __init__(self, schema: StructType, text: str) -> None:
        self._schema = schema
        self._text = text

    def write(self, node: exp.Expr) -> str:
        """Return ``node`` as one operand: atomic or in parentheses."""
        raise NotImplementedError

    def kind(self, node: exp.Expr) -> str | None:
        """Return the kind of value, as ``kind_of`` names it."""
        return kind_of(node, self._schema)

    def refuse(self, node: exp.Expr, why: str = "") -> str:
        """Raise InvalidPredicate because of ``node``; declared as str for use in expressions."""
        name = node.name if isinstance(node, exp.Anonymous) else getattr(node, "sql_name", lambda: node.key)()
        reason = why or f"{str(name).lower()} may mean something else in DuckDB than in Spark"
        error = InvalidPredicate(
            f"The predicate {self._text[:200]!r} cannot be evaluated by the DuckDB engine: {reason}. "
            "Rewrite it, or run the command on Spark."
        )
        span = span_of(node)
        raise error if span is None else located(error, self._text, *span)

    def aligned(self, nodes: Sequence[exp.Expr]) -> list[str]:
        """Write operands that are compared, cast to the type in which Spark compares them."""
        kinds = [self.kind(node) for node in nodes]
        others = {kind for kind in kinds if kind is not None} - {"string", "null"}
        if "string" in kinds and others:
            return [
                self._from_string(node, others) if kind == "string" else self.write(node)
                for node, kind in zip(nodes, kinds, strict=True)
            ]
        if "float" in others and len(others & NUMERIC_KINDS) > 1:
            return [f"CAST({self.write(node)} AS DOUBLE)" for node in nodes]
        return [self.write(node) for node in nodes]

    def _from_string(self, node: exp.Expr, others: set[str]) -> str:
        if others <= NUMERIC_KINDS:
            if others == {"integer"}:
                return f"CAST({self._whole_text(node)} AS BIGINT)"
            return f"CAST({self.write(node)} AS DOUBLE)"
        for kind, name in TEMPORAL.items():
            if kind in others:
                return self.date(node) if kind == "date" else f"CAST({self.write(node)} AS {name})"
        if others == {"boolean"}:
            return f"CAST({self.write(node)} AS BOOLEAN)"
        return self.refuse(
            node, f"a string is compared with {' and '.join(sorted(others))}; cast one of them"
        )

    # --- casts ----------------------------------------------------------------------------------------------

    def cast(self, node: exp.Expr) -> str:
        """Write CAST or TRY_CAST."""
        to, cast = node.args["to"], "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        if to.this == exp.DType.DECIMAL:
            # Without arguments Spark means (10, 0) and DuckDB (18, 3).
            name = f"DECIMAL({', '.join(str(int(each.name)) for each in to.expressions) or '10, 0'})"
        elif to.this in _TYPES and not to.expressions:
            name = _TYPES[to.this]
        else:
            return self.refuse(node, f"cast to {to.sql('spark')} is not translated")
        kind = self.kind(node.this)
        if name == "DATE" and isinstance(node.this, exp.Literal):
            return self.date(node.this, cast)
        if kind != "null" and kind not in _CAST_FROM[name.partition("(")[0]]:
            return self.refuse(
                node, f"cast of {kind or 'an unknown type'} to {to.sql('spark')} is not translated"
            )
        value = self.write(node.this)
        if name in _INTEGERS and kind in {"decimal", "float", "double"}:
            value = f"trunc({value})"
        elif name in _INTEGERS and kind == "string":
            value = self._whole_text(node.this, strict=cast == "CAST")
        elif to.this == exp.DType.DECIMAL and kind in {"float", "double"}:
            # Spark rounds the decimal digits, so 1.005 becomes 1.01; DuckDB rounds the binary value.
            value = f"CAST(CAST({value} AS DOUBLE) AS VARCHAR)"
        elif name == "REAL" and kind == "double":
            return to_real(value)
        return f"{cast}({value} AS {name})"

    def _whole_text(self, node: exp.Expr, *, strict: bool = True) -> str:
        """Write text that may be cast to an integer; DuckDB would read '5.7' as 6."""
        value = self.write(node)
        if isinstance(node, exp.Literal):
            known = _SPARK_INTEGER.fullmatch(node.name)
            return (
                value
                if known
                else self.refuse(node, f"{node.name!r} is used as a whole number but is not one")
            )
        whole = f"regexp_full_match({value}, '\\s*[+-]?\\d+\\s*')"
        otherwise = "error('a string is not a whole number')" if strict else "NULL"
        return f"(CASE WHEN {whole} THEN {value} WHEN {value} IS NULL THEN NULL ELSE {otherwise} END)"

    def date(self, node: exp.Expr, cast: str = "CAST") -> str:
        """Write ``node`` as a DATE."""
        kind = self.kind(node)
        if kind not in {*TEMPORAL, "string", "null"}:
            self.refuse(node, f"{kind or 'an unknown type'} is used as a date")
        if not isinstance(node, exp.Literal):
            return f"{cast}({self.write(node)} AS DATE)"
        match = _SPARK_DATE.fullmatch(node.name)
        if match is None:
            return self.refuse(node, f"{node.name!r} is not a date (yyyy-mm-dd)")
        year, month, day = match.groups()
        return f"CAST('{year}-{int(month or 1):02d}-{int(day or 1):02d}' AS DATE)"


_MAX_PRECISION: Final = 38
_FEWEST_PLACES: Final = 6
_OF_TYPES: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_OF_CASTS: Final = {exp.DType.TINYINT: 3, exp.DType.SMALLINT: 5, exp.DType.INT: 10, exp.DType.BIGINT: 20}


def rounded(node: exp.Expr, schema: StructType) -> DecimalType | None:
    """Return the decimal type that Spark rounds +, - or * to; None if the result is exact or its type is unknown."""
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul)) or kind_of(node, schema) != "decimal":
        return None
    digits = _exact(node, schema)
    return _widened_decimal(*digits) if digits and digits[0] > _MAX_PRECISION else None


def _widened_decimal(precision: int, scale: int) -> DecimalType:
    if precision <= _MAX_PRECISION:
        return DecimalType(precision, scale)
    return DecimalType(_MAX_PRECISION, max(_MAX_PRECISION - (precision - scale), min(scale, _FEWEST_PLACES)))


def _exact(node: exp.Binary, schema: StructType) -> tuple[int, int] | None:
    left, right = _digits(node.this, schema), _digits(node.expression, schema)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Mul):
        return left.precision + right.precision + 1, left.scale + right.scale
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def _digits(node: exp.Expr, schema: StructType) -> DecimalType | None:  # noqa: PLR0911 - one answer per family
    """Return the decimal type to which Spark converts an operand."""
    if isinstance(node, (exp.Paren, exp.Neg, exp.Abs)):
        return _digits(node.this, schema)
    if isinstance(node, (exp.Column, exp.Dot)):
        path = column_path(node)
        found = column_type(path, schema) if path else None
        if isinstance(found, PrimitiveType) and found.name in _OF_TYPES:
            return DecimalType(_OF_TYPES[found.name], 0)
        return found if isinstance(found, DecimalType) else None
    if isinstance(node, exp.Literal) and not node.is_string and "e" not in node.name.lower():
        whole, _, places = node.name.partition(".")
        return DecimalType(max(1, len((whole + places).lstrip("0")), len(places)), len(places))
    if isinstance(node, exp.Cast):
        return _of_cast(node.to)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)) and kind_of(node, schema) == "decimal":
        digits = _exact(node, schema)
        return None if digits is None else _widened_decimal(*digits)
    return None


def _of_cast(to: exp.DataType) -> DecimalType | None:
    if to.this == exp.DType.DECIMAL:
        sizes = [int(each.name) for each in to.expressions if each.name.isdecimal()]
        precision, scale = (*sizes, 0) if len(sizes) == 1 else sizes or (10, 0)
        return DecimalType(precision, scale)
    return DecimalType(_OF_CASTS[to.this], 0) if to.this in _OF_CASTS else None


_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
_DOT: Final = f"[^{_LINE_ENDS}]"
_END: Final = rf"(?:(?:\r\n|[{_LINE_ENDS}])?\z)"
# Escapes that mean the same in both.
_SAME: Final = frozenset("dDwWtnrfaAz")
_SPACE: Final = {"s": r"[ \t\n\x0B\f\r]", "S": r"[^ \t\n\x0B\f\r]"}
_GROUP: Final = re.compile(r"\(\?(?::|i\)|<[A-Za-z][A-Za-z0-9]*>)")


def to_re2(pattern: str) -> str:
    r"""Return the RE2 pattern that finds what Java's ``Pattern`` finds.

    ``.`` and ``$`` know more line ends in Java, ``\s`` one more space.

    Raises:
        ValueError: a construct that RE2 lacks or reads differently; the message names it.
    """
    pieces: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        end = position + 1
        if char == "\\":
            end += 1
            pieces.append(_escaped(pattern[position + 1 : end], inside=False))
        elif char == "[":
            text, end = _class(pattern, position)
            pieces.append(text)
        elif char == "(" and pattern.startswith("?", end):
            text, end = _group(pattern, position)
            pieces.append(text)
        elif char in "*+?}" and pattern.startswith("+", end):
            raise ValueError("a possessive quantifier")
        else:
            pieces.append({".": _DOT, "$": _END}.get(char, char))
        position = end
    return "".join(pieces)


def _group(pattern: str, position: int) -> tuple[str, int]:
    group = _GROUP.match(pattern, position)
    # Java folds ASCII letters only, RE2 all.
    if group is None or (group.group() == "(?i)" and not pattern.isascii()):
        raise ValueError("look-around or flags")
    return group.group().replace("(?<", "(?P<"), group.end()


def _class(pattern: str, position: int) -> tuple[str, int]:
    """Return the character class that starts at ``position`` and where it ends."""
    start = position + 2 if pattern.startswith("^", position + 1) else position + 1
    pieces = [pattern[position:start]]
    position = start
    while position < len(pattern) and (pattern[position] != "]" or position == start):
        if pattern[position] in "[]" or pattern.startswith("&&", position):
            raise ValueError("a nested character class")
        width = 2 if pattern[position] == "\\" else 1
        piece = pattern[position : position + width]
        pieces.append(_escaped(piece[1:], inside=True) if width > 1 else piece)
        position += width
    if position >= len(pattern):
        raise ValueError("an unclosed bracket")
    return "".join(pieces) + "]", position + 1


def _escaped(char: str, *, inside: bool) -> str:
    if char in _SAME and not (inside and char in "Az"):
        return "\\" + char
    if char in _SPACE and not inside:
        return _SPACE[char]
    if char == "s":
        return r" \t\n\x0B\f\r"
    if char and not char.isalnum() and char.isascii():
        return "\\" + char
    raise ValueError(f"the escape \\{char}")


_LAST: Final = 0xFB17
"""The last character whose upper case has several characters."""
_DOTTED: Final = "\u0130"
_SIGMA, _SMALL_SIGMA, _FINAL_SIGMA = "\u03a3", "\u03c3", "\u03c2"
_LETTER: Final = r"[\p{Lu}\p{Ll}\p{Lt}]"
_BETWEEN: Final = r"""[\s\d,;!?()\[\]{}"/<>=+*&%$#@|-]"""
"""Characters that certainly end a word under Unicode's final sigma rule."""
_SHORT: Final = 150
"""Maximum characters of an SQL operand that is repeated instead of bound once."""
_UNDECIDED: Final = (
    "lower() of a string with a capital sigma next to a symbol differs from Spark; run the command on Spark"
)


def upper(value: str) -> str:
    """Return the SQL of ``upper(value)`` with Java's case mapping; ``value`` is SQL."""
    return _once(value, _upper)


def lower(value: str) -> str:
    """Return the SQL of ``lower(value)`` with Java's case mapping; fails at run time if a sigma is ambiguous."""
    return _once(value, _lower)


def _once(value: str, function: Callable[[str], str]) -> str:
    if len(value) <= _SHORT:
        return function(value)
    # Nested calls would repeat a long operand exponentially; a lambda is five times slower, so only for those.
    return f"list_transform([{value}], lambda delvec_text: {function('delvec_text')})[1]"


def _upper(value: str) -> str:
    several = _several()
    replaced = value
    for letter, letters in several.items():
        replaced = f"replace({replaced}, '{letter}', '{letters}')"
    return f"(CASE WHEN regexp_matches({value}, '[{''.join(several)}]') THEN upper({replaced}) ELSE upper({value}) END)"


def _lower(value: str) -> str:
    dotted = f"replace({value}, '{_DOTTED}', 'i\u0307')"
    ended = f"regexp_replace({dotted}, '({_LETTER}){_SIGMA}($|{_BETWEEN})', '\\1{_FINAL_SIGMA}\\2', 'g')"
    begun = f"regexp_replace({ended}, '(^|{_BETWEEN}){_SIGMA}', '\\1{_SMALL_SIGMA}', 'g')"
    return (
        f"(CASE WHEN NOT regexp_matches({value}, '[{_DOTTED}{_SIGMA}]') THEN lower({value}) "
        f"WHEN regexp_matches({begun}, '{_SIGMA}($|[^\\p{{Lu}}\\p{{Ll}}\\p{{Lt}}])') THEN error('{_UNDECIDED}') "
        f"ELSE lower({begun}) END)"
    )


@cache
def _several() -> dict[str, str]:
    """Return the characters whose upper case has several characters, and their upper case."""
    found = {}
    for code in range(0x80, _LAST + 1):
        letter = chr(code)
        if len(letter.upper()) > 1:
            found[letter] = letter.upper()
    return found
