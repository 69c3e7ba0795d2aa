"""CHECK constraints as table properties, and the dependents of a column."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlglot import exp

from delvec_errors import DelvecError, InvalidTableChange
from delvec_kernel.constraints.declared import CONSTRAINT_PREFIX, Check
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_mapping import all_fields
from delvec_kernel.schema.column_paths import path_text
from delvec_kernel.schema.types import GENERATION, StructType

__all__ = ["check_no_dependents", "constraint_key", "parse_constraint", "violating"]

_RESERVED_NAMES: Final = frozenset({"__char_varchar_type_check_constraint__"})


def constraint_key(name: str) -> str:
    """Return the property key of a constraint; Delta lower-cases the names."""
    return CONSTRAINT_PREFIX + name.lower()


def violating(condition: str) -> str:
    """Return a condition that selects the rows violating ``condition``; NULL is a violation, too."""
    return f"NOT ({condition}) OR ({condition}) IS NULL"


def parse_constraint(name: str, expression: str, schema: StructType) -> Predicate:
    """Parse a constraint's expression.

    Raises:
        InvalidTableChange: the name is invalid, or the expression is not deterministic.
        InvalidPredicate: it is not a Boolean expression.
        UnknownColumn: it refers to an unknown column.
        ExpressionNotAllowed: it calls a function that is not built into Spark, or is not allowed.
    """
    if not re.fullmatch(r"[^\s`'\"]+", name) or name.lower() in _RESERVED_NAMES:
        raise InvalidTableChange(f"'{name}' cannot be the name of a constraint; use letters, digits and _.")
    predicate = predicates.parse(expression, schema)
    Check(name, expression, tuple(schema.names)).sql  # noqa: B018 - raises ExpressionNotAllowed
    if not predicate.is_deterministic:
        raise InvalidTableChange(
            f"The constraint '{name}' calls a function that is nondeterministic or that Delvec does not "
            "know; constraints may only use deterministic functions.",
            constraint=name,
        )
    return predicate


def check_no_dependents(
    path: Sequence[str], schema: StructType, configuration: Mapping[str, str], what: str
) -> None:
    """Refuse to change a column that a constraint or a generated column reads.

    Args:
        path: the path of the column or struct field.
        schema: before the change.
        configuration: table properties.
        what: the change, for the message.

    Raises:
        InvalidTableChange: names the dependents.
    """
    dependents = [
        f"{kind} '{name}' ({text})"
        for kind, name, text in _expressions(schema, configuration)
        if _reads(text, path, schema)
    ]
    if dependents:
        raise InvalidTableChange(
            f"Column '{path_text(path)}' cannot be {what}: {', '.join(dependents)} "
            f"{'depends' if len(dependents) == 1 else 'depend'} on it; drop the constraint first.",
            column=path_text(path),
        )


def _expressions(schema: StructType, configuration: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for key, text in configuration.items():
        if key.lower().startswith(CONSTRAINT_PREFIX):
            yield "constraint", key[len(CONSTRAINT_PREFIX) :], text
    for field in all_fields(schema):
        if GENERATION in field.metadata:
            yield "generated column", field.name, str(field.metadata[GENERATION])


def _reads(text: str, path: Sequence[str], schema: StructType) -> bool:
    """Whether an expression reads a column, its parent or a child; True if the expression cannot be parsed."""
    try:
        # A generation expression has any type; IS NULL makes it a condition, which the parser requires.
        expression = predicates.parse(f"({text}) IS NULL", schema).expression
    except DelvecError:
        wanted = {part.lower() for part in path}
        words = {word.lower() for word in re.findall(r"\w+", text)}
        return bool(wanted & words) or not words
    wanted_path = tuple(part.lower() for part in path)
    for found in _paths(expression):
        shared = min(len(found), len(wanted_path))
        if found[:shared] == wanted_path[:shared]:
            return True
    return False


def _paths(root: exp.Expr) -> Iterator[tuple[str, ...]]:
    for column in root.find_all(exp.Column):
        names, node = [column.name.lower()], column.parent
        while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            names.append(node.expression.name.lower())
            node = node.parent
        yield tuple(names)
