"""What a table of plain Python rows becomes of each statement: its rows, what the change feed tells, what is counted."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.interop.dml_values import FIELDS, FailedValueError, assign, plain

__all__ = [
    "Clause",
    "Delete",
    "DeleteKeys",
    "Effect",
    "Insert",
    "Merge",
    "Overwrite",
    "RefusedError",
    "Rows",
    "Table",
    "Update",
    "quoted",
]


class RefusedError(Exception):
    """The statement is an error, and changes nothing.

    Attributes:
        everyone: False where only some of the writers refuse it, so that nothing can be said.
    """

    def __init__(self, why, *, everyone=True):
        super().__init__(why)
        self.everyone = everyone


@dataclass(frozen=True)
class Table:
    """What does not change of a table.

    Attributes:
        columns: in order.
        partition_by: names.
        properties: of the table.
        checks: CHECK constraints by name.
    """

    columns: tuple
    partition_by: tuple = ()
    properties: dict = field(default_factory=dict)
    checks: dict = field(default_factory=dict)

    def kind(self, name):
        return next(column.kind for column in self.columns if column.name == name)

    def stored(self, row):
        """Return a row as it comes back: an empty text cannot be told from NULL in the name of a partition."""
        return {
            name: None if value == "" and name in self.partition_by else value for name, value in row.items()
        }

    def check(self, rows):
        for row in rows:
            for name, check in self.checks.items():
                if evaluated(check, t=row) is not True:
                    raise RefusedError(f"{name} is broken by {row}")


@dataclass
class Effect:
    """What a statement did.

    Attributes:
        rows: that the table has then.
        changes: (kind of change, row) each.
        counts: rows that were updated, deleted and inserted.
    """

    rows: list
    changes: list = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)

    def tell(self, kind, row):
        self.changes.append((kind, row))

    def delete(self, row):
        self.tell("delete", row)
        self.counts["deleted"] += 1

    def update(self, before, after):
        self.tell("update_preimage", before)
        self.tell("update_postimage", after)
        self.counts["updated"] += 1
        self.rows.append(after)

    def insert(self, row):
        self.tell("insert", row)
        self.counts["inserted"] += 1
        self.rows.append(row)


@dataclass(frozen=True)
class Rows:
    """Rows of a source, or rows to be written."""

    columns: tuple
    rows: tuple

    def __str__(self):
        named = ", ".join(f"{column.name} {column.kind}" for column in self.columns)
        lines = "".join(f"\n        {tuple(row.values())}" for row in self.rows)
        return f"({named}){lines}"


@dataclass(frozen=True)
class Delete:
    """Rows of a condition go; without one, all."""

    where: Any
    by_sql: bool = False

    def on(self, _table, rows):
        effect = Effect([])
        for row in rows:
            if self.where is None or evaluated(self.where, t=row) is True:
                effect.delete(row)
            else:
                effect.rows.append(row)
        return effect

    def __str__(self):
        return f"DELETE FROM t{where_of(self)}{' (SQL)' if self.by_sql else ''}"


@dataclass(frozen=True)
class DeleteKeys:
    """Rows go that have the key of a row of the source."""

    source: Rows
    names: tuple

    def on(self, _table, rows):
        keys = {tuple(plain_key(row[name]) for name in self.names) for row in self.source.rows}
        effect = Effect([])
        for row in rows:
            key = tuple(plain_key(row[name]) for name in self.names)
            if key in keys and None not in key:
                effect.delete(row)
            else:
                effect.rows.append(row)
        return effect

    def __str__(self):
        return f"DELETE FROM t BY KEYS {self.names} OF {self.source}"


@dataclass(frozen=True)
class Update:
    """Columns of rows get new values.

    Attributes:
        values: expressions by column, or column and field, as a tuple.
    """

    values: dict
    where: Any
    by_sql: bool = False

    def on(self, table, rows):
        effect = Effect([])
        for row in rows:
            if self.where is None or evaluated(self.where, t=row) is True:
                after = with_values(table, row, self.values, {"t": row})
                table.check([after])
                effect.update(row, after)
            else:
                effect.rows.append(row)
        return effect

    def __str__(self):
        return f"UPDATE t SET {set_of(self.values)}{where_of(self)}{' (SQL)' if self.by_sql else ''}"


@dataclass(frozen=True)
class Clause:
    """One WHEN of a MERGE.

    Attributes:
        match: matched, not-matched or not-matched-by-source.
        action: update, delete or insert.
        condition: None for every row.
        values: expressions by column; None for all of the source's.
    """

    match: str
    action: str
    condition: Any = None
    values: Any = None

    def __str__(self):
        when = {
            "matched": "MATCHED",
            "not-matched": "NOT MATCHED",
            "not-matched-by-source": "NOT MATCHED BY SOURCE",
        }[self.match]
        condition = "" if self.condition is None else f" AND {self.condition.sql}"
        if self.action == "delete":
            then = "DELETE"
        elif self.values is None:
            then = "UPDATE SET *" if self.action == "update" else "INSERT *"
        elif self.action == "update":
            then = f"UPDATE SET {set_of(self.values)}"
        else:
            names = ", ".join(map(quoted, self.values))
            then = f"INSERT ({names}) VALUES ({', '.join(value.sql for value in self.values.values())})"
        return f"WHEN {when}{condition} THEN {then}"


@dataclass(frozen=True)
class Merge:
    """Rows of the table and of a source that belong together."""

    source: Rows
    on_: Any
    clauses: tuple

    def on(self, table, rows):
        effect = Effect([])
        is_matched = set()
        for row in rows:
            numbers = [
                number
                for number, source in enumerate(self.source.rows)
                if evaluated(self.on_, t=row, s=source) is True
            ]
            is_matched.update(numbers)
            clause, given = self._clause(row, numbers)
            if clause is None:
                effect.rows.append(row)
            elif clause.action == "delete":
                effect.delete(row)
            else:
                values = self._values(table, clause)
                after = with_values(table, row, values, {"t": row, "s": given})
                table.check([after])
                effect.update(row, after)
        for number, source in enumerate(self.source.rows):
            if number not in is_matched:
                self._insert(table, source, effect)
        return effect

    def _clause(self, row, numbers):
        """Return the clause that changes a row, and the row of the source that does."""
        if not numbers:
            return self._first("not-matched-by-source", t=row), None
        matched = self._of("matched")
        found = [
            (self._first("matched", t=row, s=self.source.rows[number]), self.source.rows[number])
            for number in numbers
        ]
        found = [each for each in found if each[0] is not None]
        all_go = len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None
        if len(found) > 1 and not all_go:
            raise RefusedError(f"several rows of the source match {row}")
        if len(numbers) > 1 and not all_go and len(matched) < len(self.clauses):
            others = {clause.match for clause in self.clauses}
            if others != {"not-matched"}:
                # delta-spark counts the rows that match, whatever a clause says of them.
                raise RefusedError("several rows of the source match", everyone=False)
        return found[0] if found else (None, None)

    def _first(self, match, **rows):
        chosen = None
        for clause in self._of(match):
            holds = clause.condition is None or evaluated(clause.condition, **rows) is True
            if holds and chosen is None:
                chosen = clause
        return chosen

    def _of(self, match):
        return [clause for clause in self.clauses if clause.match == match]

    def _values(self, table, clause):
        if clause.values is not None:
            return clause.values
        return {(column.name,): _Taken(column) for column in table.columns}

    def _insert(self, table, source, effect):
        clause = self._first("not-matched", s=source)
        if clause is not None:
            empty = dict.fromkeys(column.name for column in table.columns)
            after = with_values(table, empty, self._values(table, clause), {"s": source})
            table.check([after])
            effect.insert(after)

    def __str__(self):
        clauses = "".join(f"\n      {clause}" for clause in self.clauses)
        return f"MERGE INTO t USING s ON {self.on_.sql}{clauses}\n      WITH s {self.source}"


class _Taken:
    """A column of the source as it is."""

    def __init__(self, column):
        self.kind = column.kind
        self.of = lambda rows: rows["s"][column.name]


@dataclass(frozen=True)
class Insert:
    """Rows are added."""

    data: Rows

    def on(self, table, rows):
        effect = Effect(list(rows))
        table.check(self.data.rows)
        for row in self.data.rows:
            effect.insert(table.stored(row))
        return effect

    def __str__(self):
        return f"INSERT INTO t {self.data}"


@dataclass(frozen=True)
class Overwrite:
    """Rows take the place of others.

    Attributes:
        where: the condition of ``replaceWhere``.
        dynamic: only partitions that new rows are in lose their rows.
    """

    data: Rows
    where: Any = None
    dynamic: bool = False

    def on(self, table, rows):
        effect = Effect([])
        new = [table.stored(row) for row in self.data.rows]
        table.check(self.data.rows)
        if self.where is not None and any(evaluated(self.where, t=row) is not True for row in new):
            raise RefusedError("a row is not one of replaceWhere")
        for row in rows:
            if self._goes(table, row, new):
                effect.delete(row)
            else:
                effect.rows.append(row)
        for row in new:
            effect.insert(row)
        return effect

    def _goes(self, table, row, new):
        if self.where is not None:
            return evaluated(self.where, t=row) is True
        if self.dynamic and table.partition_by:
            return partition(table, row) in {partition(table, each) for each in new}
        return True

    def __str__(self):
        how = "DYNAMIC" if self.dynamic else where_of(self)
        return f"OVERWRITE t {how} {self.data}"


# --- parts --------------------------------------------------------------------------------------------------


def evaluated(condition, **rows):
    """Return what a condition is for rows; where it fails, engines may look at it or not.

    Raises:
        RefusedError: it fails.
    """
    try:
        return condition.of(rows)
    except FailedValueError as error:
        raise RefusedError(f"the condition fails for {rows}", everyone=False) from error


def with_values(table, row, values, given):
    """Return a row with new values, as it comes back from the table."""
    after = dict(row)
    for (column, *inside), value in values.items():
        try:
            if inside:
                found = dict(after[column] or dict.fromkeys(FIELDS))
                found[inside[0]] = assign(value.of(given), value.kind, FIELDS[inside[0]])
            else:
                found = assign(value.of(given), value.kind, table.kind(column))
        except FailedValueError as error:
            raise RefusedError(f"column {column} cannot get its value for {given}") from error
        after[column] = found
    return table.stored(after)


def partition(table, row):
    return tuple(plain(row[name]) for name in table.partition_by)


def plain_key(value):
    if isinstance(value, float) and value == 0:
        return plain(0.0)
    return plain(value)


def quoted(path):
    """Return the text of a column, or of a field of one."""
    return ".".join(f"`{part}`" for part in path)


def set_of(values):
    return ", ".join(f"{quoted(path)} = {value.sql}" for path, value in values.items())


def where_of(statement):
    return "" if statement.where is None else f" WHERE {statement.where.sql}"
