"""Expressions over the rows of one or two relations, in Spark's SQL: values of UPDATE, conditions of MERGE."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from delvec.protocol.predicate import Predicate
from delvec.protocol.types import StructType

__all__ = ["Expression", "parse_expression"]


@dataclass(frozen=True, eq=False)
class Expression:
    """A checked scalar expression.

    Attributes:
        text: as it was given.
        root: parsed; a column is an ``exp.Dot`` below an ``exp.Column`` that names its relation.
        columns: top-level columns that it reads, as their schema spells them, by relation.
        is_deterministic: whether every evaluation gives the same answer.
    """

    text: str
    root: exp.Expr = field(repr=False)
    columns: Mapping[str, frozenset[str]]
    is_deterministic: bool
    _predicate: Predicate = field(repr=False)

    def sql(self, dialect: Literal["spark", "duckdb"]) -> str:
        """Return SQL text in which every column stands behind its relation's name.

        Raises:
            InvalidPredicate: DuckDB has no equivalent that is known to give Spark's answer.
        """
        raise NotImplementedError


def parse_expression(
    text: str,
    relations: Mapping[str, StructType],
    aliases: Mapping[str, str] | None = None,
    *,
    boolean: bool = False,
) -> Expression:
    """Parse one expression against the relations that it may read.

    Args:
        text: Spark SQL. ``alias.column`` and, where only one relation has it, ``column``.
        relations: schemas by the relations' names in the result.
        aliases: what the text calls them, by the relation's name; by default the same.
        boolean: whether only a condition will do.

    Raises:
        InvalidPredicate: it cannot be parsed, or holds what does not belong there.
        UnknownColumn: no relation has the column; suggests near names.
        AmbiguousColumn: several have it.
    """
    raise NotImplementedError
