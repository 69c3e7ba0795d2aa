"""A table of plain Python rows: its constraints, generated values and defaults, and a statement's effect on it."""

from collections import Counter
from dataclasses import dataclass, field, replace

from tests.interop.dml_operators import Expression
from tests.interop.dml_values import (
    WIDER,
    Column,
    FailedValueError,
    UncertainValueError,
    assign,
    assign_at,
    compare,
    literal,
    plain,
)

__all__ = [
    "Effect",
    "Identity",
    "RefusedError",
    "Rows",
    "Table",
    "evaluated",
    "plain_key",
    "quoted",
    "set_of",
    "where_of",
]


NTZ = "timestamp_ntz"


class RefusedError(Exception):
    """The statement must fail and change nothing.

    Attributes:
        everyone: False if only some writers refuse it, so that nothing can be checked.
    """

    def __init__(self, why, *, everyone=True):
        super().__init__(why)
        self.everyone = everyone


@dataclass(frozen=True)
class Identity:
    """An identity column: each writer assigns its own values, and no statement reads or sets it."""

    name: str
    start: int
    step: int


@dataclass(frozen=True)
class Table:
    """A table's definition, without its rows.

    Attributes:
        columns: in order, without the identity column.
        partition_by: column names.
        properties: table properties.
        checks: CHECK constraints by name.
        generated: generation expressions by column.
        defaults: default values by column.
        not_null: column names.
        identity: the identity column, which is the last one; None without one.
    """

    columns: tuple
    partition_by: tuple = ()
    properties: dict = field(default_factory=dict)
    checks: dict = field(default_factory=dict)
    generated: dict = field(default_factory=dict)
    defaults: dict = field(default_factory=dict)
    not_null: frozenset = frozenset()
    identity: Identity | None = None

    @property
    def names(self):
        return [column.name for column in self.columns]

    def kind(self, name):
        return next(column.kind for column in self.columns if column.name == name)

    def default(self, name):
        """Return ``DEFAULT`` for a column."""
        return Expression("DEFAULT", self.kind(name), lambda _: self.defaults.get(name))

    def with_columns(self, columns):
        """Return the table with added columns and struct fields."""
        kinds = {each.name: each.kind for each in columns}
        if NTZ in kinds.values() and NTZ not in {each.kind for each in self.columns}:
            raise RefusedError("the table's protocol has no timestamps without a time zone")
        known = [
            Column(each.name, kinds[each.name]) if WIDER.get(each.kind) == kinds.get(each.name, "") else each
            for each in self.columns
        ]
        return replace(self, columns=(*known, *(each for each in columns if each.name not in self.names)))

    def widened(self, row, older):
        """Return a row of an older schema in this one."""
        kinds = {each.name: each.kind for each in older.columns}
        return {
            each.name: assign(row[each.name], kinds[each.name], each.kind) if each.name in kinds else None
            for each in self.columns
        }

    # --- new rows ---------------------------------------------------------------------------------------------

    def stored(self, row):
        """Return a row as it is read back: as a partition value, '' becomes NULL."""
        return {
            name: None if value == "" and name in self.partition_by else value for name, value in row.items()
        }

    def check(self, rows):
        """Refuse rows that violate a constraint."""
        for row in rows:
            for name in self.not_null:
                if row[name] is None:
                    raise RefusedError(f"{name} is NULL in {row}")
            for name, check in self.checks.items():
                if evaluated(check, t=row) is not True:
                    raise RefusedError(f"{name} is broken by {row}")

    def completed(self, given):
        """Return a new row with its missing columns filled in.

        Raises:
            RefusedError: a generated column has a wrong value, or cannot be computed.
        """
        row = {name: given.get(name, self.defaults.get(name)) for name in self.names}
        return self._consistent(self._generated(row, given), given)

    def updated(self, row, values, given):
        """Return a row with new values, not yet as stored.

        Args:
            row: the row before.
            values: expressions by path of column and fields.
            given: the rows that they read, by name.
        """
        after, named = dict(row), set()
        for (column, *inside), value in values.items():
            named.add(column)
            try:
                kind = self.kind(column)
                after[column] = assign_at(after[column], inside, value.of(given), value.kind, kind)
            except FailedValueError as error:
                why = f"column {column} cannot get its value for {given}"
                raise RefusedError(why, everyone=not isinstance(error, UncertainValueError)) from error
        return self._consistent(self._generated(after, named), None)

    def computed(self, row):
        """Return a row with its generated columns computed anew."""
        return self._generated(row, ())

    def _generated(self, row, given):
        row = dict(row)
        for name, expression in self.generated.items():
            try:
                value = assign(expression.of({"t": row}), expression.kind, self.kind(name))
            except FailedValueError as error:
                raise RefusedError(f"{name} cannot be computed of {row}") from error
            if name not in given:
                row[name] = value
        return row

    def _consistent(self, row, given):
        """Return a row whose generated columns match its stored values; ``given`` is None to check all of them."""
        stored = self.stored(row)
        for name, expression in self.generated.items():
            try:
                value = assign(expression.of({"t": stored}), expression.kind, self.kind(name))
            except FailedValueError as error:
                raise RefusedError(f"{name} cannot be computed of {row}") from error
            if not _is_same(stored[name], value):
                # delta-spark refuses when it copies a row what no writer checks on append.
                is_seen = given is None or name in given
                raise RefusedError(f"{name} is not {value!r} in {row}", everyone=is_seen)
        return row

    # --- text -------------------------------------------------------------------------------------------------

    def __str__(self):
        parts = []
        for column in self.columns:
            text = f"{column.quoted} {column.kind}"
            if column.name in self.not_null:
                text += " NOT NULL"
            if column.name in self.generated:
                text += f" GENERATED ALWAYS AS ({self.generated[column.name].sql})"
            if column.name in self.defaults:
                text += f" DEFAULT {literal(self.defaults[column.name], column.kind)}"
            parts.append(text)
        if self.identity is not None:
            parts.append(str(self.identity))
        checks = "".join(f" CHECK ({check.sql})" for check in self.checks.values())
        by = f" PARTITIONED BY {self.partition_by}" if self.partition_by else ""
        return f"({', '.join(parts)}){by}{checks} {self.properties}"


@dataclass
class Effect:
    """A statement's effect.

    Attributes:
        rows: the table's rows afterwards.
        table: its definition afterwards.
        changes: pairs of change type and row.
        counts: rows updated, deleted and inserted.
    """

    rows: list
    table: Table
    changes: list = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)

    def tell(self, kind, row):
        self.changes.append((kind, row))

    def delete(self, row):
        self.tell("delete", row)
        self.counts["deleted"] += 1

    def update(self, before, after):
        after = self._checked(after)
        self.tell("update_preimage", before)
        self.tell("update_postimage", after)
        self.counts["updated"] += 1
        self.rows.append(after)

    def insert(self, row):
        row = self._checked(row)
        self.tell("insert", row)
        self.counts["inserted"] += 1
        self.rows.append(row)

    def _checked(self, row):
        row = self.table.stored(row)
        self.table.check([row])
        return row


@dataclass(frozen=True)
class Rows:
    """Rows of a source, or rows to write."""

    columns: tuple
    rows: tuple

    @property
    def names(self):
        return [column.name for column in self.columns]

    def without(self, names):
        """Return the rows without some columns."""
        columns = tuple(each for each in self.columns if each.name not in names)
        return Rows(columns, tuple({each.name: row[each.name] for each in columns} for row in self.rows))

    def __str__(self):
        named = ", ".join(f"{column.name} {column.kind}" for column in self.columns)
        lines = "".join(f"\n        {tuple(row.values())}" for row in self.rows)
        return f"({named}){lines}"


# --- parts --------------------------------------------------------------------------------------------------


def evaluated(condition, **rows):
    """Return a condition's value for rows; engines may or may not evaluate one that fails.

    Raises:
        RefusedError: the condition fails.
    """
    try:
        return condition.of(rows)
    except FailedValueError as error:
        raise RefusedError(f"the condition fails for {rows}", everyone=False) from error


def plain_key(value):
    if isinstance(value, float) and value == 0:
        return plain(0.0)
    return plain(value)


def quoted(path):
    """Return a column or field path in SQL."""
    return ".".join(Column(part, "").quoted for part in path)


def set_of(values):
    return ", ".join(f"{quoted(path)} = {value.sql}" for path, value in values.items())


def where_of(statement):
    return "" if statement.where is None else f" WHERE {statement.where.sql}"


def _is_same(given, computed):
    if given is None or computed is None:
        return given is computed
    return compare(given, computed) == 0
