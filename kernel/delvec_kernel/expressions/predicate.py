"""Predicates: Boolean SQL expressions over one table's columns, in Spark's dialect.

A predicate is parsed and checked here, but not executed: the service skips files with it, and an engine evaluates it.
Both must select the same rows, so anything that this parser reads differently from Spark is rejected.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from delvec_errors import BadRequest, InvalidPredicate, UnknownColumn
from delvec_errors.texts import is_text
from delvec_kernel.expressions.constant_folding import folded
from delvec_kernel.expressions.predicate_checks import (
    MAX_LENGTH,
    check_boolean,
    check_characters,
    check_depth,
    check_nesting,
    check_nodes,
    check_precedence,
    check_size,
    names_hint,
    near_names,
    plain_strings,
    replace_node,
    short,
)
from delvec_kernel.expressions.source_text import located, place
from delvec_kernel.expressions.spark_dialect import SPARK, is_deterministic_function
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import StructField, StructType

__all__ = ["MAX_LENGTH", "Predicate", "Resolve", "bounded_tokens", "limited_nesting", "parse"]


Resolve: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""Resolves the parts of a name, as written, to the path of a column or struct field."""


@dataclass(frozen=True, eq=False)
class Predicate:
    """A checked predicate.

    Attributes:
        text: as given.
        expression: the parsed expression. A column is an ``exp.Column`` of one quoted identifier, spelled as in the
            schema; a struct field is an ``exp.Dot`` around it. Do not modify it.
        columns: the top-level columns it reads, as spelled in the schema.
        is_deterministic: whether it contains no random or clock function, and no unknown function.
        schema: the schema it was checked against.
    """

    text: str
    expression: exp.Expr = field(repr=False)
    columns: frozenset[str]
    is_deterministic: bool
    schema: StructType = field(repr=False)
    _pieces: Sequence[str | tuple[str, str]] = field(repr=False)

    @cached_property
    def folded(self) -> exp.Expr:
        """The expression after constant folding, used for data skipping. Do not modify it."""
        return folded(self.expression)

    def sql(self, rename: Mapping[str, str] | None = None) -> str:
        """Return the predicate in Spark SQL: the original text without comments, with columns in backticks.

        Args:
            rename: new names of top-level columns, by the schema's spelling. A column renamed to "" is left out, so that
                only its struct fields are named.
        """
        names = dict(rename or {})
        return "".join(
            piece if isinstance(piece, str) else _renamed(names.get(piece[0], piece[0]), piece[1])
            for piece in self._pieces
        )

    def __str__(self) -> str:
        return self.text


def parse(
    text: str, schema: StructType, *, resolve: Resolve | None = None, boolean: bool = True
) -> Predicate:
    """Parse ``text``, one Boolean expression in Spark SQL, against a table's schema.

    Column names are case-insensitive; ``a.b`` is field ``b`` of struct column ``a``; names with characters other
    than letters, digits and underscores need backticks; double quotes delimit strings, as in Spark.

    Args:
        text: the predicate.
        schema: the columns it may read.
        resolve: resolves names, if they are not just the schema's top-level columns.
        boolean: False to allow any scalar expression.

    Raises:
        InvalidPredicate: it is not one expression, not Boolean, too long or too deep, or contains a subquery, an
            aggregate, a window function or a parameter.
        UnknownColumn: a column or struct field is not in the schema; suggests similar names.
    """
    tokens = bounded_tokens(text)
    check_nesting(text, tokens)
    find = resolve or (lambda parts: _path(text, parts, schema))
    with limited_nesting():
        return _parse(text, tokens, schema, find, boolean=boolean)


def bounded_tokens(text: str) -> list[Token]:
    """Return the tokens of an expression, which are not too many to parse.

    Raises:
        InvalidPredicate: it is not text, too long, or not made of tokens.
    """
    if not isinstance(text, str):
        raise InvalidPredicate(f"A predicate must be SQL text, not {type(text).__name__}.")
    if len(text) > MAX_LENGTH:
        raise InvalidPredicate(
            f"The predicate has {len(text):,} characters; at most {MAX_LENGTH:,} are accepted. "
            "Put long lists of keys into a table and use a merge."
        )
    if not is_text(text):
        raise InvalidPredicate(
            "The predicate contains an unpaired surrogate, which is not valid Unicode; remove it."
        )
    tokens = _tokens(text)
    check_size(text, tokens)
    return tokens


def _parse(
    text: str, tokens: list[Token], schema: StructType, resolve: Resolve, *, boolean: bool
) -> Predicate:
    try:
        trees = SPARK.parser().parse_into(exp.Condition, list(tokens), text)
    except ParseError as error:
        raise _unparsable(text, error) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        # sqlglot fails internally on some malformed input, which is the user's error, not the service's.
        raise InvalidPredicate(f"The predicate {short(text)} cannot be parsed.") from error
    expressions = [each for each in trees if each is not None]
    if len(expressions) != 1 or any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise InvalidPredicate(
            f"The predicate {short(text)} has {'no expression' if not expressions else 'several statements'}; "
            "give one Boolean expression, without a semicolon."
        )
    positions: dict[int, tuple[int, str, str]] = {}
    # The steps below are quadratic in the depth.
    root = _balanced(expressions[0])
    check_depth(text, root)
    holder = exp.Paren(this=root)
    check_nodes(text, holder)
    plain_strings(text, holder)
    check_precedence(text, holder)
    columns = _resolve(text, holder, resolve, positions)
    root = holder.this.pop()
    check_depth(text, root)
    check_characters(text, root, schema)
    if boolean:
        check_boolean(text, root, schema)
    return Predicate(
        text=text,
        expression=root,
        columns=frozenset(columns),
        is_deterministic=all(is_deterministic_function(node) for node in root.walk()),
        schema=schema,
        _pieces=_pieces(text, tokens, positions),
    )


# --- checks of the text -------------------------------------------------------------------------------------


def _tokens(text: str) -> list[Token]:
    try:
        tokens = SPARK.tokenize(text)
    except (SqlglotError, ValueError, IndexError) as error:
        unread = InvalidPredicate(
            f"The predicate {short(text)} cannot be read: a quote or comment is not closed, or a character "
            "is not allowed in SQL."
        )
        start = getattr(error, "start", None)
        raise (unread if start is None else located(unread, text, start, len(text))) from error
    if not tokens:
        raise InvalidPredicate(
            "The predicate is empty; leave it out to mean every row, or give a Boolean expression."
        )
    if any(token.token_type == TokenType.HINT for token in tokens):
        raise InvalidPredicate(
            f"The predicate {short(text)} contains a hint, which is only allowed in a query."
        )
    return tokens


def _unparsable(text: str, error: ParseError) -> InvalidPredicate:
    facts: Mapping[str, Any] = error.errors[-1] if error.errors else {}
    near = str(facts.get("highlight") or "")
    start = _start_of(text, facts)
    line, column = place(text, start)
    where = f" near {near!r} (line {line}, column {column})" if near else ""
    unparsable = InvalidPredicate(
        f"The predicate {short(text)} is not one SQL expression: it cannot be parsed{where}."
    )
    return located(unparsable, text, start, start + len(near)) if near else unparsable


def _start_of(text: str, facts: Mapping[str, Any]) -> int:
    """Return the position of the word that the parser stopped at; sqlglot reports its end, relative to the line."""
    line, end = int(facts.get("line") or 1), int(facts.get("col") or 1)
    before = sum(len(each) + 1 for each in text.split("\n")[: line - 1])
    return min(len(text), max(before, before + end - len(str(facts.get("highlight") or " "))))


# --- columns ------------------------------------------------------------------------------------------------


def _resolve(
    text: str, root: exp.Expr, resolve: Resolve, positions: dict[int, tuple[int, str, str]]
) -> set[str]:
    """Replace columns below ``root`` by their spelling in the schema, recording their positions in the text."""
    column_names: set[str] = set()
    for node in list(root.find_all(exp.Column)):
        outer: exp.Expr = node
        parts = list(node.parts)
        # sqlglot parses names of more than four parts as Dots around a Column.
        while isinstance(outer.parent, exp.Dot) and outer.arg_key == "this":
            name = outer.parent.args["expression"]
            if not isinstance(name, exp.Identifier):
                break
            outer = outer.parent
            parts.append(name)
        start, end = parts[0].meta.get("start"), parts[-1].meta.get("end")
        try:
            path = resolve([part.name for part in parts])
        except BadRequest as error:
            if start is None or end is None:
                raise
            raise located(error, text, start, end + 1) from None
        column_names.add(path[0])
        if start is not None and end is not None:
            fields = "".join("." + backticked(each) for each in path[1:])
            positions[start] = (end, path[0], fields)
        name = exp.to_identifier(path[0], quoted=True)
        if start is not None and end is not None:
            name.meta.update(start=start, end=end)
        column: exp.Expr = exp.Column(this=name)
        for each in path[1:]:
            column = exp.Dot(this=column, expression=exp.to_identifier(each, quoted=True))
        replace_node(outer, column)
    return column_names


def _path(text: str, parts: Sequence[str], schema: StructType) -> list[str]:
    struct: Any = schema
    path: list[str] = []
    for part in parts:
        match = struct.get(part) if isinstance(struct, StructType) else None
        if match is None:
            raise _unknown(text, parts, path, getattr(struct, "fields", ()))
        path.append(match.name)
        struct = match.type
    return path


def _unknown(
    text: str, parts: Sequence[str], path: Sequence[str], fields: Sequence[StructField]
) -> UnknownColumn:
    unknown_name = parts[len(path)]
    names = [each.name for each in fields]
    near = near_names(unknown_name, names)
    full_name = ".".join(parts)
    if path and not fields:
        owner = ".".join(path)
        what = f"reads {full_name!r}, but {owner!r} is not a struct and has no field {unknown_name!r}"
    elif path:
        what = f"reads {full_name!r}, but the struct {'.'.join(path)!r} has no field {unknown_name!r}"
    else:
        what = f"uses the column {unknown_name!r}, which the table does not have"
    hint = names_hint(near, names, text=unknown_name if len(parts) == 1 else None)
    return UnknownColumn(f"The predicate {short(text)} {what}{hint}", column=full_name, suggestions=near)


def _renamed(name: str, fields: str) -> str:
    return backticked(name) + fields if name else fields.removeprefix(".")


def _pieces(
    text: str, tokens: Sequence[Token], positions: Mapping[int, tuple[int, str, str]]
) -> list[str | tuple[str, str]]:
    """Split the text into literal slices and (column, fields), so that Spark runs the original text without comments."""
    pieces: list[str | tuple[str, str]] = []
    end = tokens[0].start - 1
    for token in tokens:
        if token.start <= end:
            continue
        gap = text[end + 1 : token.start]
        if gap:
            pieces.append(gap if gap.isspace() else " ")
        if token.start in positions:
            end, name, fields = positions[token.start]
            pieces.append((name, fields))
        else:
            end = token.end
            pieces.append(text[token.start : end + 1])
    return pieces


# --- shape --------------------------------------------------------------------------------------------------


def _balanced(root: exp.Expr) -> exp.Expr:
    """Regroup AND and OR chains as balanced trees, so that ten thousand terms are about a dozen levels deep."""
    chains = [
        node
        for node in root.walk()
        if isinstance(node, (exp.And, exp.Or)) and type(node.parent) is not type(node)
    ]
    for chain in chains:
        kind = type(chain)
        terms = list(chain.flatten(unnest=False))
        if len(terms) <= 2:  # noqa: PLR2004 - already balanced
            continue
        parent, key, index = chain.parent, chain.arg_key, chain.index
        for term in terms:
            term.parent = None
        while len(terms) > 1:
            pairs = [kind(this=a, expression=b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = [*pairs, terms[-1]] if len(terms) % 2 else list(pairs)
        if parent is None:
            root = terms[0]
        else:
            parent.set(str(key), terms[0], index=index)
    return root


@contextmanager
def limited_nesting() -> Iterator[None]:
    """Report a full stack as an error of the expression, each of whose levels takes about twenty Python frames.

    Raises:
        InvalidPredicate: the block needed more frames than the caller has left.
    """
    try:
        yield
    except RecursionError:
        raise InvalidPredicate(
            "The predicate is nested too deeply for the call stack of the program, which is nearly full: use fewer levels "
            "of brackets, or call from fewer nested functions."
        ) from None
