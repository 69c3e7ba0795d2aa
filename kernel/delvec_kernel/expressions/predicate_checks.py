"""Checks of what a predicate may contain, and of constructs that Spark parses differently.

Tested in `tests/unit/kernel/expressions/test_predicate.py`.
"""

import difflib
import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from delvec_errors import InvalidPredicate
from delvec_errors.texts import is_text, shortened
from delvec_kernel.expressions.expression_kinds import kind_of
from delvec_kernel.expressions.source_text import located, span_of
from delvec_kernel.expressions.spark_dialect import AGGREGATES, GENERATORS, SPARK, WINDOW_ONLY, SparkDialect
from delvec_kernel.schema.char_varchar import is_char
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import StructType

__all__ = [
    "CLOSING",
    "MAX_DEPTH",
    "MAX_LENGTH",
    "MAX_NESTING",
    "MAX_OPERATIONS",
    "MAX_VALUES",
    "OPENING",
    "check_boolean",
    "check_characters",
    "check_depth",
    "check_nesting",
    "check_nodes",
    "check_precedence",
    "check_size",
    "names_hint",
    "near_names",
    "plain_strings",
    "replace_node",
    "short",
]

MAX_LENGTH: Final = 100_000
"""Characters of text."""
MAX_VALUES: Final = 30_000
"""Literals and the commas between them."""
MAX_OPERATIONS: Final = 12_000
"""Other tokens (names, operators, brackets), each of which is several times as expensive to parse as a value."""
MAX_NESTING: Final = 32
"""Nesting of brackets, CASEs and prefix operators in the text."""
MAX_DEPTH: Final = 64
"""Depth of the parsed expression; AND and OR chains of any length count as a few levels."""

_SIZE: Final = re.compile(r"[0-9]{1,9}")
_DECIMAL_DIGITS: Final = 2
"""Of the size of a decimal type: constants of larger ones would be computed with as many digits."""
_NAMES_SHOWN: Final = 20
_SHORT_TEXT: Final = 100
OPENING: Final = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
CLOSING: Final = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_VALUES: Final = {TokenType.NUMBER, TokenType.STRING, TokenType.COMMA}
_PREFIX: Final = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_SUFFIXES: Final = (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
_BITWISE: Final = (
    exp.BitwiseAnd,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.BitwiseLeftShift,
    exp.BitwiseRightShift,
    exp.DPipe,
)
_ADDITIVE: Final = (exp.Add, exp.Sub)

# Disallowed expressions, most helpful message first.
_FORBIDDEN: Final[tuple[tuple[tuple[type[exp.Expr], ...], str], ...]] = (
    ((exp.Query, exp.Table), "a subquery"),
    ((exp.DDL, exp.DML, exp.Command), "a statement"),
    ((exp.Window, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile), "a window function"),
    ((exp.AggFunc,), "an aggregate function"),
    ((exp.UDTF,), "a function that returns rows"),
    ((exp.Placeholder, exp.Parameter, exp.SessionParameter), "a parameter marker"),
    ((exp.Star,), "a star"),
    ((exp.Alias, exp.Aliases), "an alias"),
)


def check_size(text: str, tokens: Sequence[Token]) -> None:
    """Reject texts with too many tokens to parse quickly, before parsing."""
    values = sum(token.token_type in _VALUES for token in tokens)
    for count, limit, what in (
        (values, MAX_VALUES, "values and commas"),
        (len(tokens) - values, MAX_OPERATIONS, "names, operators and brackets"),
    ):
        if count > limit:
            raise InvalidPredicate(
                f"The predicate {short(text)} has {count:,} {what}; at most {limit:,} are accepted. "
                "Put long lists of keys into a table and use a merge."
            )


def check_nesting(text: str, tokens: Sequence[Token]) -> None:
    """Reject too deeply nested brackets, CASEs and prefix operators, before parsing."""
    # Each level takes about twenty Python frames in the parser, so check before it overflows the stack.
    depth = prefixes = 0
    for token in tokens:
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIX else 0
        if kind in OPENING:
            depth += 1
        elif kind in CLOSING:
            depth -= 1
        if depth + prefixes > MAX_NESTING:
            raise _too_deep(text)


def check_depth(text: str, root: exp.Expr) -> None:
    """Reject an expression that is too deep to translate."""
    level = [root]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise _too_deep(text)


def _too_deep(text: str) -> InvalidPredicate:
    return InvalidPredicate(
        f"The predicate {short(text)} is nested too deeply; at most {MAX_NESTING} levels of brackets and "
        f"{MAX_DEPTH} levels of operators are accepted."
    )


def near_names(wanted: str, names: Sequence[str]) -> list[str]:
    """Return up to three names similar to ``wanted``."""
    by_lower = {name.lower(): name for name in names}
    return [by_lower[each] for each in difflib.get_close_matches(wanted.lower(), by_lower, n=3, cutoff=0.6)]


def names_hint(near: Sequence[str], names: Sequence[str], *, text: str | None = None) -> str:
    """Return the end of an error message about an unknown name: similar names, or all names.

    Args:
        near: similar names.
        names: all names.
        text: the unknown name, if it may be a string without quotes.
    """
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    if not names:
        return "."
    name_list, more = ", ".join(map(repr, names[:_NAMES_SHOWN])), ", ..." * (len(names) > _NAMES_SHOWN)
    quotes = (
        ""
        if text is None or len(text) > _SHORT_TEXT
        else f" If it is a string, put it in quotes: {exp.Literal.string(text).sql(SPARK)}."
    )
    return f"; there {'is' if len(names) == 1 else 'are'} {name_list}{more}.{quotes}"


def short(text: str) -> str:
    """Return ``text`` quoted and shortened."""
    return repr(shortened(text))


def check_nodes(text: str, root: exp.Expr) -> None:
    """Reject subqueries, aggregates, windows and parameters, which one row cannot decide."""
    for node in root.walk():
        what = next((what for classes, what in _FORBIDDEN if isinstance(node, classes)), None)
        if what is None and isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if name in AGGREGATES:
                what = "an aggregate function"
            elif name in WINDOW_ONLY:
                what = "a window function"
            elif name in GENERATORS:
                what = "a function that returns rows"
        if what is None and isinstance(node, exp.In) and not (node.expressions or node.args.get("query")):
            what = "an empty IN list"
        if what is None and isinstance(node, exp.Between) and node.args.get("symmetric"):
            what = "BETWEEN SYMMETRIC"
        if isinstance(node, exp.DataType):
            _check_type(text, node)
        if what is not None:
            raise _at(
                node,
                text,
                f"The predicate {short(text)} contains {what}, which cannot be evaluated row by row; use "
                "only the table's own columns, and functions of one row.",
            )


def _check_type(text: str, node: exp.DataType) -> None:
    """Reject sizes of a type that are not numbers of its range: sqlglot takes strings and names there, too."""
    sizes = [each for each in node.expressions if isinstance(each, exp.DataTypeParam)]
    if any(
        each.this.is_string or each.args.get("expression") or not _SIZE.fullmatch(each.name) for each in sizes
    ):
        raise _at(
            node,
            text,
            f"The predicate {short(text)} has a type whose size is not a whole number; write it as in DECIMAL(10, 2).",
        )
    if node.this == exp.DType.DECIMAL and any(len(each.name) > _DECIMAL_DIGITS for each in sizes):
        raise _at(node, text, f"The predicate {short(text)} has a decimal type of more than 38 digits.")


def _at(node: exp.Expr, text: str, message: str) -> InvalidPredicate:
    error, span = InvalidPredicate(message), span_of(node)
    return error if span is None else located(error, text, *span)


def plain_strings(text: str, root: exp.Expr) -> None:
    r"""Turn raw strings into ordinary ones, and join surrogate pairs written as two escapes, as in ``'\ud83d\ude00'``."""
    for node in list(root.find_all(exp.Literal, exp.RawString)):
        if isinstance(node, exp.Literal) and (not node.is_string or is_text(node.name)):
            continue
        try:
            string = node.name.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise InvalidPredicate(
                f"The predicate {short(text)} contains a string with an unpaired surrogate, which is not "
                "valid Unicode; remove it."
            ) from None
        replace_node(node, exp.Literal.string(string))


def replace_node(old: exp.Expr, new: exp.Expr) -> None:
    """Replace ``old``, which has a parent, by ``new``.

    ``Expr.replace`` scans the whole list that contains the node, which is quadratic for a list of names.
    """
    parent, key, index = old.parent, str(old.arg_key), old.index
    assert parent is not None  # noqa: S101 - by contract
    if index is None:
        parent.set(key, new)
    else:
        parent.args[key][index] = new
        new.parent, new.arg_key, new.index = parent, key, index


def check_precedence(text: str, root: exp.Expr) -> None:
    """Reject operators without parentheses that Spark groups differently from this parser."""
    for node in root.walk():
        unclear: tuple[type[exp.Expr], ...] = ()
        if isinstance(node, _COMPARISONS):
            right = node.args.get("expression")
            if isinstance(right, (*_COMPARISONS, *_SUFFIXES)) or isinstance(node.this, _SUFFIXES):
                unclear = _COMPARISONS
        elif isinstance(node, _BITWISE):
            for side in (node.this, node.args.get("expression")):
                if isinstance(side, _BITWISE) and type(side) is not type(node):
                    unclear = _BITWISE
                if isinstance(node, exp.DPipe) and isinstance(side, _ADDITIVE):
                    unclear = _BITWISE
        if unclear:
            raise _at(
                node,
                text,
                f"The predicate {short(text)} combines operators whose precedence is easy to get wrong; put "
                f"parentheses around the parts of {short(node.sql(SparkDialect, comments=False))}.",
            )


def check_characters(text: str, root: exp.Expr, schema: StructType) -> None:
    """Reject comparisons of a ``char(n)`` column with a string that ends in spaces.

    Delta files contain the unpadded value, and delta-spark pads on read. A padded string, most likely from Spark, would
    match no row here.
    """
    padded = {item.name for item in schema.fields if is_char(item.metadata)}
    if not padded:
        return
    for node in root.find_all(*_COMPARISONS, exp.In, exp.Between):
        sides = [each.unnest() for each in node.iter_expressions()]
        names = [each.name for each in sides if isinstance(each, exp.Column) and each.name in padded]
        for literal in sides if names else ():
            if isinstance(literal, exp.Literal) and literal.is_string and literal.name.endswith(" "):
                column = backticked(names[0])
                raise _at(
                    node,
                    text,
                    f"The predicate {short(text)} compares column '{names[0]}', a char(n), with a string "
                    "that ends in spaces. Files store such values as they were written, mostly without "
                    "padding; delta-spark pads them on read. Leave out the spaces, or compare "
                    f"rtrim({column}) with {short(literal.name.rstrip(' '))}.",
                )


def check_boolean(text: str, root: exp.Expr, schema: StructType) -> None:
    """Reject an operand of AND, OR or NOT, or a whole predicate, whose type is known and not Boolean."""
    if isinstance(root.unnest(), exp.Null):
        raise InvalidPredicate(f"The predicate {short(text)} is not Boolean; NULL alone has no type.")
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, (exp.And, exp.Or)):
            pending += [node.this, node.expression]
        elif isinstance(node, (exp.Not, exp.Paren)):
            pending.append(node.this)
        else:
            kind = kind_of(node, schema)
            if kind not in {"boolean", "null", None}:
                raise _at(
                    node,
                    text,
                    f"The predicate {short(text)} is not Boolean: "
                    f"{short(node.sql(SparkDialect, comments=False))} has type {kind}.",
                )
