"""Target-only parts of a MERGE condition, which determine the files that may match and the commit's read predicate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from delvec_errors import DelvecError
from delvec_kernel.expressions.expression import Expression, parse_expression
from delvec_kernel.expressions.expression_kinds import column_path, column_type, kind_of_type
from delvec_kernel.expressions.literals import literal
from delvec_kernel.expressions.predicate_checks import CLOSING, OPENING
from delvec_kernel.expressions.spark_dialect import SPARK
from delvec_kernel.schema.types import DataType, StructType

__all__ = ["JoinKey", "conjuncts", "join_keys", "key_ranges", "target_terms"]

_BOUNDED: Final = frozenset({"integer", "string", "date", "timestamp", "timestamp_ntz", "decimal"})
_MAX_LENGTH: Final = 256
"""Maximum length of a string bound in a condition."""


@dataclass(frozen=True)
class JoinKey:
    """An equality between a target column and a source column.

    Attributes:
        target: the column's text in a predicate over the target.
        kind: the target column's type.
        source: the source column.
        null_safe: whether NULL equals NULL.
    """

    target: str
    kind: DataType
    source: str
    null_safe: bool


def conjuncts(
    text: str, relations: Mapping[str, StructType], aliases: Mapping[str, str] | None = None
) -> list[Expression]:
    """Split a condition into AND terms where possible; at least one.

    Raises:
        InvalidPredicate: or another error of :func:`~delvec_kernel.expressions.expression.parse_expression`.
    """
    whole = parse_expression(text, relations, aliases, boolean=True)
    return list(_terms(whole, relations, aliases))


def _terms(
    whole: Expression, relations: Mapping[str, StructType], aliases: Mapping[str, str] | None
) -> Iterator[Expression]:
    if isinstance(whole.root, exp.Paren):
        start = whole.text.index("(") if "(" in whole.text else -1
        texts = [whole.text[start + 1 : whole.text.rindex(")")]]
        if not whole.text[:start].isspace() and start > 0:
            texts = []  # a comment before it
    elif isinstance(whole.root, exp.And):
        texts = _split(whole.text)
    else:
        texts = []
    try:
        parts = [parse_expression(each, relations, aliases, boolean=True) for each in texts]
    except DelvecError:
        parts = []
    # _split() only looks at tokens: trust it only if the parser found the same number of terms.
    expected = len(list(whole.root.flatten(unnest=False))) if isinstance(whole.root, exp.And) else 1
    if len(parts) != expected:
        yield whole
        return
    for part in parts:
        yield from _terms(part, relations, aliases)


def _split(text: str) -> list[str]:
    """Split a text at the ANDs outside brackets, CASE and BETWEEN."""
    try:
        tokens: Sequence[Token] = SPARK.tokenize(text)
    except SqlglotError:
        return []
    conjunct_texts, begin, depth, between = [], 0, 0, 0
    for token in tokens:
        kind = token.token_type
        depth += (kind in OPENING) - (kind in CLOSING)
        if depth:
            continue
        if kind == TokenType.OR:
            return []
        if kind == TokenType.BETWEEN:
            between += 1
        elif kind == TokenType.AND and between:
            between -= 1
        elif kind == TokenType.AND:
            conjunct_texts.append(text[begin : token.start])
            begin = token.end + 1
    return [*conjunct_texts, text[begin:]]


def target_terms(terms: Sequence[Expression], target: str) -> list[str]:
    """Return the deterministic terms that read only the target, as predicates over it."""
    return [each.over(target) for each in terms if each.reads_only(target) and each.is_deterministic]


def join_keys(
    terms: Sequence[Expression], relations: Mapping[str, StructType], target: str, source: str
) -> list[JoinKey]:
    """Return the pairs of plain columns that must be equal."""
    keys = []
    for term in terms:
        root = term.root.unnest()
        if not isinstance(root, (exp.EQ, exp.NullSafeEQ)):
            continue
        sides = {
            path[0]: path for side in (root.this, root.expression) if (path := column_path(side.unnest()))
        }
        ours, theirs = sides.get(target), sides.get(source)
        if ours is None or theirs is None or len(theirs) != 2:  # noqa: PLR2004 - relation and column
            continue
        kind = column_type(ours[1:], relations[target])
        other = column_type(theirs[1:], relations[source])
        same = kind_of_type(kind)
        if kind is not None and same in _BOUNDED and same == kind_of_type(other):
            text = ".".join(f"`{name.replace('`', '``')}`" for name in ours[1:])
            keys.append(JoinKey(text, kind, theirs[1], isinstance(root, exp.NullSafeEQ)))
    return keys


def key_ranges(keys: Sequence[JoinKey], bounds: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return predicates over the target that the ranges of the source's keys imply."""
    range_predicates = []
    for key in keys:
        low, high = bounds.get(key.source, (None, None))
        if low is None or high is None or max(len(str(low)), len(str(high))) > _MAX_LENGTH:
            continue
        text = f"{key.target} BETWEEN {literal(low, key.kind)} AND {literal(high, key.kind)}"
        range_predicates.append(f"({text} OR {key.target} IS NULL)" if key.null_safe else text)
    return range_predicates
