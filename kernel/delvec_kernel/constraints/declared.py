"""The constraints that a table declares in its schema and properties; engines evaluate them.

As in delta-spark, a CHECK constraint or invariant is violated if false or NULL, a NOT NULL struct field also if
the struct is NULL, and strings are never truncated or padded to fit ``char`` or ``varchar``.

Tested in `tests/unit/kernel/constraints/test_constraints.py`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delvec_errors import ConstraintViolation, UnsupportedWriterFeature
from delvec_errors.texts import shortened
from delvec_kernel.expressions.table_expressions import allowed_expression, names_in
from delvec_kernel.schema.char_varchar import CHARACTER_TYPE, CHARACTERS
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import (
    GENERATION,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delvec_kernel.table_properties import is_true

__all__ = [
    "CONSTRAINT_PREFIX",
    "DEFAULT",
    "REPLACE_WHERE",
    "Check",
    "Constraints",
    "Generated",
    "MaxLength",
    "constraints_of",
    "generates",
    "mentioned",
]

CONSTRAINT_PREFIX: Final = "delta.constraints."
REPLACE_WHERE: Final = "__delvec_replace_where"
"""Name of the check for the condition of ``replace_where``."""
DEFAULT: Final = "CURRENT_DEFAULT"
_INVARIANTS: Final = "delta.invariants"
_OTHER_TYPE: Final = re.compile(r"[^<>(),]+(?:\([^()]*\))?(?:<[^<>]*>)?")
_LEGACY: Final = range(4, 7)
_FEATURES: Final = 7


@dataclass(frozen=True)
class Check:
    """A Boolean expression in Spark SQL that must be TRUE, not NULL, for each row.

    Attributes:
        name: the name of the constraint; ``EXPRESSION(...)`` for an invariant, ``Generated Column`` for a generated one.
        columns: top-level columns that the expression may read, as spelled in the schema.
        is_of_user: whether the writing user supplied it, not the table, so that it need not be on the allow-list.
        generated: the column compared with its generation expression, if any.
    """

    name: str
    expression: str
    columns: tuple[str, ...]
    generated: "Generated | None" = field(default=None, compare=False, repr=False)
    is_of_user: bool = False

    @property
    def sql(self) -> str:
        """The expression to evaluate.

        Raises:
            ExpressionNotAllowed: it contains an expression that is not on the allow-list.
        """
        if self.is_of_user:
            return f"{self.expression}\n"
        if self.generated is not None:
            return f"{backticked(self.generated.column)} <=> ( {self.generated.sql} )"
        owner = f"The constraint '{self.name}' is" if self.name else "The constraint is"
        return allowed_expression(self.expression, self.columns, owner, constraint=self.name)

    def violated(self, values: Mapping[str, Any], where: str) -> ConstraintViolation:
        """Return the error for a row.

        Args:
            values: the values of the row, by column.
            where: describes the table.
        """
        lines = "".join(f"\n - {name} : {_shown(value)}" for name, value in sorted(values.items()))
        return ConstraintViolation(
            f"CHECK constraint {self.name} ({self.expression}) of {where} violated by row with values:{lines}\n"
            "Nothing was committed; correct the rows.",
            constraint=self.name,
            expression=self.expression,
            values={name: _shown(value) for name, value in values.items()},
        )


@dataclass(frozen=True)
class Generated:
    """A generated column, or one with a default.

    Attributes:
        columns: top-level columns that the expression may read, as spelled in the schema; none for a default.
        is_default: whether the expression is a default.
    """

    column: str
    expression: str
    columns: tuple[str, ...]
    is_default: bool = False

    @property
    def sql(self) -> str:
        """The expression to evaluate.

        Raises:
            ExpressionNotAllowed: it contains an expression that is not on the allow-list.
        """
        kind = "default" if self.is_default else "generation expression"
        owner = f"Column '{self.column}' has the {kind}"
        return allowed_expression(self.expression, self.columns, owner, column=self.column)

    @property
    def check(self) -> Check:
        """The check for explicitly inserted values."""
        name = backticked(self.column)
        columns = tuple(dict.fromkeys((self.column, *self.columns)))
        # Otherwise a trailing comment would hide the closing bracket.
        end = "\n" if "--" in self.expression else ""
        return Check("Generated Column", f"{name} <=> ({self.expression}{end})", columns, generated=self)


@dataclass(frozen=True)
class MaxLength:
    """The maximum length of a string.

    Attributes:
        path: the column, then struct fields, ``element``, ``key`` or ``value``.
    """

    path: tuple[str, ...]
    limit: int

    def violated(self, value: str, where: str) -> ConstraintViolation:
        """Return the error for a value; ``where`` describes the table."""
        name = ".".join(self.path)
        return ConstraintViolation(
            f"Value {_shown(value)!r} of column '{name}' of {where} has {len(value)} characters and exceeds the "
            f"char/varchar type length limitation of {self.limit}. Nothing was committed; shorten it.",
            constraint="char/varchar length",
            column=name,
            limit=self.limit,
        )


@dataclass(frozen=True)
class Constraints:
    """All constraints on new rows of a table.

    Attributes:
        not_null: paths of columns and struct fields; a NULL struct makes its fields NULL.
        defaults: for absent columns; an explicit value, even NULL, is kept.
        append_only: whether rows may not be deleted or updated.
    """

    not_null: tuple[tuple[str, ...], ...] = ()
    checks: tuple[Check, ...] = ()
    generated: tuple[Generated, ...] = ()
    defaults: tuple[Generated, ...] = ()
    lengths: tuple[MaxLength, ...] = ()
    append_only: bool = False

    @property
    def has_expressions(self) -> bool:
        """Whether SQL expressions must be evaluated."""
        return bool(self.checks or self.generated or self.defaults)

    @property
    def computed(self) -> tuple[Generated, ...]:
        """Columns to compute if absent, in dependency order."""
        return (*self.defaults, *self.generated)


def constraints_of(
    schema: StructType, configuration: Mapping[str, str], *, generates_columns: bool = True
) -> Constraints:
    """Return a table's constraints on new rows.

    Args:
        schema: the schema of the table.
        configuration: table properties.
        generates_columns: whether to enforce generation expressions, see :func:`generates`.

    Raises:
        UnsupportedWriterFeature: the metadata of an invariant or a length is malformed.
    """
    checks = [
        Check(name[len(CONSTRAINT_PREFIX) :], text, mentioned(text, schema))
        for name, text in sorted(configuration.items())
        if name.lower().startswith(CONSTRAINT_PREFIX)
    ]
    lengths: list[MaxLength] = []
    not_null: list[tuple[str, ...]] = []
    for path, item in _struct_fields(schema):
        if not item.nullable:
            not_null.append(path)
        elif _INVARIANTS in item.metadata:
            # As in delta-spark, NOT NULL takes precedence over an invariant.
            rule = _invariant(item, path)
            checks.append(Check(f"EXPRESSION({rule})", rule, mentioned(rule, schema)))
    for item in schema.fields:
        if CHARACTERS in item.metadata:
            lengths += _lengths(item)
    return Constraints(
        not_null=tuple(not_null),
        checks=tuple(checks),
        generated=tuple(
            Generated(item.name, str(text), mentioned(str(text), schema))
            for item in schema.fields
            if generates_columns and (text := item.metadata.get(GENERATION)) is not None
        ),
        defaults=tuple(
            Generated(item.name, text, (), is_default=True)
            for item in schema.fields
            if isinstance(text := item.metadata.get(DEFAULT), str) and text.strip().upper() != "NULL"
        ),
        lengths=tuple(lengths),
        append_only=is_true(configuration, "delta.appendOnly"),
    )


def generates(protocol: Mapping[str, Any]) -> bool:
    """Whether the protocol requires writers to enforce generated columns; ``protocol`` is the action's JSON."""
    version = protocol.get("minWriterVersion", 0)
    if version >= _FEATURES:
        return "generatedColumns" in (protocol.get("writerFeatures") or ())
    return version in _LEGACY


def mentioned(expression: str, schema: StructType) -> tuple[str, ...]:
    """Return the top-level columns whose names occur in an expression, as spelled in the schema.

    Works on expressions that Delvec cannot parse; if one cannot be tokenized either, returns all columns.
    """
    names = names_in(expression)
    if names is None:
        return tuple(schema.names)
    return tuple(dict.fromkeys(schema.field(name).name for name in names if name in schema))


def _shown(value: Any) -> str:
    return shortened("null" if value is None else str(value))


def _struct_fields(
    schema: StructType, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Yield columns and struct fields outside arrays and maps, where delta-spark checks nothing."""
    for item in schema.fields:
        path = (*above, item.name)
        yield path, item
        if isinstance(item.type, StructType):
            yield from _struct_fields(item.type, path)


def _invariant(item: StructField, path: tuple[str, ...]) -> str:
    invariant_json = item.metadata[_INVARIANTS]
    try:
        text = json.loads(invariant_json)["expression"]["expression"]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise UnsupportedWriterFeature(
            f"Column '{'.'.join(path)}' has {_INVARIANTS} {str(invariant_json)[:200]!r}, which is not a valid Delta "
            "invariant; nothing was written. Correct the column's metadata.",
            features=["invariants"],
            column=".".join(path),
        )
    return text


def _lengths(item: StructField) -> list[MaxLength]:
    text = str(item.metadata[CHARACTERS])
    max_lengths: list[MaxLength] = []
    try:
        end = _read_lengths(text, 0, item.type, (item.name,), max_lengths)
    except ValueError:
        end = -1
    if end != len(text):
        raise UnsupportedWriterFeature(
            f"Column '{item.name}' has the type {text[:200]!r} in {CHARACTERS}, which does not match the "
            "schema; nothing was written. Correct the column's metadata.",
            column=item.name,
        )
    return max_lengths


def _read_lengths(
    text: str, start: int, kind: DataType, path: tuple[str, ...], max_lengths: list[MaxLength]
) -> int:
    """Read one type in Spark's text format; return the end position.

    Raises:
        ValueError: it is not the type in the schema.
    """
    inner: list[tuple[str, DataType]]
    match kind:
        case StructType():
            inner, opening = [(field.name, field.type) for field in kind.fields], "struct<"
        case ArrayType():
            inner, opening = [("element", kind.element)], "array<"
        case MapType():
            inner, opening = [("key", kind.key), ("value", kind.value)], "map<"
        case _:
            characters = CHARACTER_TYPE.match(text, start)
            if characters and kind == PrimitiveType("string"):
                max_lengths.append(MaxLength(path, int(characters[1])))
                return characters.end()
            other = _OTHER_TYPE.match(text, start)
            if other is None or characters:
                raise ValueError(text)
            return other.end()
    start = _after(text, start, opening)
    for number, (name, child) in enumerate(inner):
        if number:
            start = _after(text, start, ",")
        if isinstance(kind, StructType):
            # By position, as in delta-spark, since the text keeps the names from when the field was created.
            start = (
                start + len(name) + 1 if text.startswith(f"{name}:", start) else text.index(":", start) + 1
            )
        start = _read_lengths(text, start, child, (*path, name), max_lengths)
    return _after(text, start, ">")


def _after(text: str, start: int, sign: str) -> int:
    if text[start : start + len(sign)].lower() != sign:
        raise ValueError(text)
    return start + len(sign)
