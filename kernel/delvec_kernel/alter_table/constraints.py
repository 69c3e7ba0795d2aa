"""CHECK constraints as table properties, and what depends on a column."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlglot import exp

from delvec_kernel.constraints.declared import Check
from delvec_kernel.errors import DelvecError, InvalidTableChange
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_mapping import all_fields
from delvec_kernel.schema.column_paths import path_text
from delvec_kernel.schema.types import StructType

__all__ = ["CONSTRAINT_PREFIX", "check_no_dependents", "constraint_key", "parse_constraint", "violating"]

CONSTRAINT_PREFIX: Final = "delta.constraints."
_GENERATED: Final = "delta.generationExpression"
_TAKEN: Final = frozenset({"__char_varchar_type_check_constraint__"})


def constraint_key(name: str) -> str:
    """Return the property that holds a constraint; Delta keeps names in lower case."""
    return CONSTRAINT_PREFIX + name.lower()


def violating(condition: str) -> str:
    """Return the condition for rows that break another one; null is not true, and breaks it."""
    return f"NOT ({condition}) OR ({condition}) IS NULL"


def parse_constraint(name: str, expression: str, schema: StructType) -> Predicate:
    """Return a constraint's expression.

    Raises:
        InvalidTableChange: its name cannot be, or its answer depends on more than the row.
        InvalidPredicate: it is no Boolean expression.
        UnknownColumn: it names a column that the table does not have.
        ExpressionNotAllowed: it calls a function that is none of Spark's own, or holds what no writer should evaluate.
    """
    if not re.fullmatch(r"[^\s`'\"]+", name) or name.lower() in _TAKEN:
        raise InvalidTableChange(f"'{name}' cannot be the name of a constraint; use letters, digits and _.")
    parsed = predicates.parse(expression, schema)
    Check(name, expression, tuple(schema.names)).sql  # noqa: B018 - for the error
    if not parsed.is_deterministic:
        raise InvalidTableChange(
            f"The constraint '{name}' calls a function that is nondeterministic or that Delvec does not "
            "know; constraints may only use deterministic functions.",
            constraint=name,
        )
    return parsed


def check_no_dependents(
    path: Sequence[str], schema: StructType, configuration: Mapping[str, str], what: str
) -> None:
    """Refuse a change of a column that a constraint or a generated column is computed from.

    Args:
        path: of the column, or of a field of a struct.
        schema: before the change.
        configuration: the table's properties.
        what: is to happen to the column, for the message.

    Raises:
        InvalidTableChange: naming what depends on it.
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
        if _GENERATED in field.metadata:
            yield "generated column", field.name, str(field.metadata[_GENERATED])


def _reads(text: str, path: Sequence[str], schema: StructType) -> bool:
    """Whether an expression reads a column, part of it, or what it is part of; yes where that cannot be told."""
    try:
        # A generation expression is of any type: compared with null it is a condition.
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
