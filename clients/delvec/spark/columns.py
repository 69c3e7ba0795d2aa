"""Conditions given as Spark Columns, as SQL text.

The service plans and records conditions as text, and PySpark has no public way from a Column to SQL. Classic
Spark's text of a Column comes near: ``and(<(age, 18), =(country, 'NZ'))``; Connect has the expression itself. Only
what reads in one way is taken; dates, fractions and raw expressions, whose text could be mistaken for something
else, are refused. Text is always the better choice.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

from pyspark.sql import Column

from delvec.protocol.errors import InvalidPredicate

__all__ = ["to_sql", "without_alias"]

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\]|\\.)*')
      | (?P<number>-?\d+L?)(?=\s*[,)]|$)
      | (?P<call>[A-Za-z_]\w*|[=<>!+\-*/%&|^~]+)\(
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?=\s*[,)]|$)
      | (?P<sign>[,)])
    )""",
    re.VERBOSE | re.DOTALL,
)
_PIECE: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|\w+|.""", re.DOTALL)
_INFIX: Final = {
    **{sign: sign for sign in ("=", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "&", "|", "^")},
    "==": "=",
    "!=": "!=",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
}
_PREFIX: Final = {"!": "NOT ", "not": "NOT ", "negative": "- ", "~": "~ "}
_SUFFIX: Final = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CONSTANTS: Final = {"true", "false", "null"}
_BINARY: Final = 2


def to_sql(condition: str | Column, names: Iterable[str]) -> str:
    """Return a condition as text; text stays as it is.

    Args:
        condition: text or a Column.
        names: the table's columns. With an odd name among them no Column is taken: ``1`` or ``lower(x)`` as names
            look like values and calls.

    Raises:
        InvalidPredicate: the Column cannot be turned into text that surely means the same.
    """
    if isinstance(condition, str):
        return condition
    for name in names:
        if not _PLAIN_NAME.fullmatch(name) or "." in name or name.lower() in _CONSTANTS:
            _refuse(condition)
    expression = getattr(condition, "_expr", None)
    if expression is not None and type(condition).__module__.startswith("pyspark.sql.connect."):
        return _from_expression(expression, condition)
    text = str(condition)
    if not (isinstance(condition, Column) and text.startswith("Column<'") and text.endswith("'>")):
        raise InvalidPredicate(
            f"A condition is SQL text or a Spark Column, not {type(condition).__name__}: {text[:200]}"
        )
    return _Reader(text[len("Column<'") : -len("'>")], condition).read()


def without_alias(condition: str, alias: str) -> str:
    """Return SQL text with ``alias.column`` as ``column``."""
    pieces = _PIECE.findall(condition)
    kept: list[str] = []
    for i, piece in enumerate(pieces):
        follows = bool(kept) and kept[-1] == "."
        if piece.strip("`").lower() == alias.lower() and pieces[i + 1 : i + 2] == ["."] and not follows:
            pieces[i + 1] = ""
            continue
        kept.append(piece)
    return "".join(kept)


def _refuse(condition: Any) -> NoReturn:
    raise InvalidPredicate(
        f"The condition {str(condition)[:200]} cannot be turned into SQL text that surely means the same; "
        "give the condition as text, such as \"born < DATE'2000-01-01'\""
    )


class _Reader:
    """Reads classic Spark's text: calls in prefix form, names, whole numbers and quoted text."""

    def __init__(self, text: str, condition: Any) -> None:
        self._text = text
        self._condition = condition

    def read(self) -> str:
        tokens = self._tokens()
        result = self._expression(next(tokens), tokens)
        if next(tokens, None) is not None:
            _refuse(self._condition)
        return result

    def _tokens(self) -> Iterator[tuple[str, str]]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                _refuse(self._condition)
            yield found.lastgroup, found[found.lastgroup]
            at = found.end()
        if not self._text:
            _refuse(self._condition)

    def _expression(self, token: tuple[str, str], tokens: Iterator[tuple[str, str]]) -> str:
        kind, text = token
        if kind in ("text", "number"):
            return text
        if kind == "name":
            return text.upper() if text.lower() in _CONSTANTS else _name(text, self._condition)
        if kind != "call":
            _refuse(self._condition)
        arguments: list[str] = []
        for following in tokens:
            if following == ("sign", ")") and not arguments:
                break
            arguments.append(self._expression(following, tokens))
            separator = next(tokens, None)
            if separator == ("sign", ")"):
                break
            if separator != ("sign", ","):
                _refuse(self._condition)
        return _call(text, arguments, self._condition)


def _from_expression(expression: Any, condition: Any) -> str:
    """Render a Connect expression."""
    kind = type(expression).__name__
    if kind == "ColumnReference":
        return _name(expression._unparsed_identifier, condition)  # noqa: SLF001 - there is nothing public
    if kind == "UnresolvedFunction" and not expression._is_distinct:  # noqa: SLF001
        arguments = [_from_expression(each, condition) for each in expression._args]  # noqa: SLF001
        return _call(expression._name, arguments, condition)  # noqa: SLF001
    if kind == "LiteralExpression":
        value: Any = expression._value  # noqa: SLF001
        name = type(expression._dataType).__name__  # noqa: SLF001
        if value is None:
            return "NULL"
        if name == "BooleanType":
            return str(bool(value)).upper()
        if name in ("ByteType", "ShortType", "IntegerType", "LongType"):
            return f"{value}{'L' if name == 'LongType' else ''}"
        if name == "StringType":
            return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
    _refuse(condition)


def _name(text: str, condition: Any) -> str:
    if not _PLAIN_NAME.fullmatch(text) or text.lower() in _CONSTANTS:
        _refuse(condition)
    return ".".join(f"`{part}`" for part in text.split("."))


def _call(name: str, arguments: Sequence[str], condition: Any) -> str:
    key = name.lower()
    if key in _INFIX and len(arguments) == _BINARY:
        return f"({arguments[0]} {_INFIX[key]} {arguments[1]})"
    if key in _PREFIX and len(arguments) == 1:
        return f"({_PREFIX[key]}{arguments[0]})"
    if key in _SUFFIX and len(arguments) == 1:
        return f"({arguments[0]} {_SUFFIX[key]})"
    if key == "in" and len(arguments) >= _BINARY:
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if _PLAIN_NAME.fullmatch(name) and "." not in name and key not in {*_INFIX, *_PREFIX, *_SUFFIX, "in"}:
        return f"{name}({', '.join(arguments)})"
    _refuse(condition)
