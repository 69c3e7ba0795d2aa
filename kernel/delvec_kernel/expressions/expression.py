"""Scalar expressions over the rows of one or two relations in Spark SQL: UPDATE values and MERGE conditions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlglot import exp

from delvec_errors import AmbiguousColumn, InvalidPredicate, UnknownColumn
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.expression_kinds import column_path, kind_of
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.expressions.predicate_checks import names_hint, near_names, short
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import StructField, StructType

__all__ = ["Expression", "column_expression", "parse_expression", "reworded"]


@dataclass(frozen=True, eq=False)
class Expression:
    """A checked scalar expression.

    Attributes:
        text: as given.
        root: parsed; a column is an ``exp.Dot`` under an ``exp.Column`` that names its relation.
        columns: the top-level columns it reads, as spelled in the schema, by relation.
        is_deterministic: whether it contains no random, clock or unknown function.
        relations: a struct column per relation, whose fields are the relation's columns.
    """

    text: str
    root: exp.Expr = field(repr=False)
    columns: Mapping[str, frozenset[str]]
    is_deterministic: bool
    relations: StructType = field(repr=False)
    _predicate: Predicate = field(repr=False)

    def sql(self) -> str:
        """Return it in Spark SQL: the original text without comments, with columns qualified by relation."""
        return self._predicate.sql()

    @property
    def folded(self) -> exp.Expr:
        """The expression after constant folding, used for data skipping. Do not modify it."""
        return self._predicate.folded

    @cached_property
    def path(self) -> tuple[str, ...] | None:
        """The relation, column and struct fields, if it is one of these; else None."""
        return column_path(self.root)

    @cached_property
    def kind(self) -> str | None:
        """The kind of its value (see ``kind_of``), or None if unknown."""
        return kind_of(self.root, self.relations)

    def reads_only(self, relation: str) -> bool:
        """Whether it reads no other relation; true for constants."""
        return all(name == relation for name in self.columns)

    def over(self, relation: str) -> str:
        """Return the expression with that relation's columns unqualified."""
        return self._predicate.sql({relation: ""})

    def __str__(self) -> str:
        return self.text


def parse_expression(
    text: str,
    relations: Mapping[str, StructType],
    aliases: Mapping[str, str] | None = None,
    *,
    boolean: bool = False,
) -> Expression:
    """Parse one expression against the relations it may read.

    As in Spark, the name before a dot is an alias if that relation has the column, otherwise a struct column.

    Args:
        text: Spark SQL, with columns as ``alias.column`` or, if unambiguous, ``column``.
        relations: schemas by the relation names used in the result.
        aliases: the names used in the text, by relation name; the same names by default. An alias of a relation that
            is not in ``relations`` is known, but has no columns.
        boolean: whether the expression must be Boolean.

    Raises:
        InvalidPredicate: it cannot be parsed, or contains something not allowed.
        UnknownColumn: no relation has the column; suggests similar names.
        AmbiguousColumn: several relations have the column.
    """
    virtual = StructType(
        tuple(StructField(name, schema, nullable=False) for name, schema in relations.items())
    )
    names = _Names(text, relations, {name: name for name in relations} if aliases is None else aliases)
    try:
        predicate = predicates.parse(text, virtual, resolve=names.resolve, boolean=boolean)
    except InvalidPredicate as error:
        raise error if boolean else reworded(error) from error
    return Expression(
        text=text,
        root=predicate.expression,
        columns={name: frozenset(found) for name, found in names.found.items()},
        is_deterministic=predicate.is_deterministic,
        relations=virtual,
        _predicate=predicate,
    )


def column_expression(relation: str, column: str, schema: StructType) -> Expression:
    """Return a column of a relation as an expression: what its name would be parsed to, at a fraction of the time.

    Args:
        relation: its name.
        column: as spelled in the schema.
        schema: the schema of the relation.
    """
    name, virtual = backticked(column), StructType((StructField(relation, schema, nullable=False),))
    root = exp.Dot(
        this=exp.Column(this=exp.to_identifier(relation, quoted=True)),
        expression=exp.to_identifier(column, quoted=True),
    )
    text = f"{backticked(relation)}.{name}"
    columns = frozenset({relation})
    parsed = Predicate(text, root, columns, True, virtual, [(relation, f".{name}")])
    return Expression(text, root, {relation: frozenset({column})}, True, virtual, parsed)


class _Names:
    """Resolves the names in one text, and records the columns it reads."""

    def __init__(self, text: str, relations: Mapping[str, StructType], aliases: Mapping[str, str]) -> None:
        self._text = text
        self._relations = relations
        self._aliases = {name: alias.lower() for name, alias in aliases.items()}
        self.found: dict[str, set[str]] = {}

    def resolve(self, parts: Sequence[str]) -> list[str]:
        """Return relation, column and struct fields.

        Raises:
            UnknownColumn: no relation has the column.
            AmbiguousColumn: several relations have it.
        """
        owners: list[tuple[str, StructField]] = []
        rest: Sequence[str] = ()
        if len(parts) > 1:
            rest = parts[2:]
            named = [
                name for name in self._relations if self._aliases.get(name, name.lower()) == parts[0].lower()
            ]
            owners = [(name, each) for name in named if (each := _field(self._relations[name], parts[1]))]
        if not owners:
            rest = parts[1:]
            owners = [
                (name, each)
                for name, schema in self._relations.items()
                if (each := _field(schema, parts[0])) is not None
            ]
        if not owners:
            raise self._unknown(parts)
        if len(owners) > 1:
            raise self._ambiguous(parts)
        relation, column = owners[0]
        path = [relation, column.name]
        inside: Any = column.type
        for part in rest:
            inner = _field(inside, part)
            if inner is None:
                raise self._no_field(parts, path[1:], part, inside)
            path.append(inner.name)
            inside = inner.type
        self.found.setdefault(relation, set()).add(column.name)
        return path

    def _ambiguous(self, parts: Sequence[str]) -> AmbiguousColumn:
        both = " and ".join(repr(f"{self._aliases.get(name) or name}.{parts[0]}") for name in self._relations)
        return AmbiguousColumn(
            f"The expression {short(self._text)} uses the column {parts[0]!r}, which both sides have; write "
            f"{both.replace(' and ', ' or ')}.",
            column=".".join(parts),
        )

    def _unknown(self, parts: Sequence[str]) -> UnknownColumn:
        full_name = ".".join(parts)
        absent = [
            name
            for name, alias in self._aliases.items()
            if name not in self._relations and alias == parts[0].lower()
        ]
        if absent and len(parts) > 1:
            there = " and ".join(repr(self._aliases.get(name) or name) for name in self._relations)
            return UnknownColumn(
                f"The expression {short(self._text)} reads {full_name!r}, but {parts[0]!r} has no row there; "
                f"it may read {f'columns of {there}' if there else 'no columns'}.",
                column=full_name,
                suggestions=[],
            )
        owners = [
            name for name in self._relations if self._aliases.get(name, name.lower()) == parts[0].lower()
        ]
        is_qualified = len(parts) > 1 and bool(owners)
        name_used = parts[1] if is_qualified else parts[0]
        names = [
            each
            for name in (owners if is_qualified else self._relations)
            for each in self._relations[name].names
        ]
        near = near_names(name_used, names)
        owner = f"{parts[0]!r} does not have" if is_qualified else "is not there"
        what = f"uses the column {name_used!r}, which {owner}"
        hint = names_hint(near, names, text=name_used if len(parts) == 1 else None)
        return UnknownColumn(
            f"The expression {short(self._text)} {what}{hint}", column=full_name, suggestions=near
        )

    def _no_field(self, parts: Sequence[str], path: Sequence[str], part: str, inside: Any) -> UnknownColumn:
        names = list(inside.names) if isinstance(inside, StructType) else []
        near = near_names(part, names)
        owner = ".".join(path)
        what = f"the struct {owner!r} has no field {part!r}"
        if not isinstance(inside, StructType):
            what = f"{owner!r} is not a struct and has no field {part!r}"
        return UnknownColumn(
            f"The expression {short(self._text)} reads {'.'.join(parts)!r}, but {what}{names_hint(near, names)}",
            column=".".join(parts),
            suggestions=near,
        )


def _field(schema: Any, name: str) -> StructField | None:
    return schema.get(name) if isinstance(schema, StructType) else None


def reworded(error: InvalidPredicate) -> InvalidPredicate:
    """Reword an error about a predicate for an expression, which need not be Boolean."""
    message = error.message.replace("The predicate", "The expression", 1)
    return InvalidPredicate(message, **error.details)
