"""The model of MERGE on a table of plain Python rows."""

from dataclasses import dataclass
from typing import Any

from tests.interop.dml_operators import Expression
from tests.interop.dml_table import Effect, RefusedError, Rows, evaluated, quoted, set_of
from tests.interop.dml_values import starred

__all__ = ["Clause", "Merge"]


@dataclass(frozen=True)
class Clause:
    """One WHEN clause of a MERGE.

    Attributes:
        match: matched, not-matched or not-matched-by-source.
        action: update, delete or insert.
        condition: None for every row.
        values: expressions by column; None for all of the source's columns.
    """

    match: str
    action: str
    condition: Any = None
    values: Any = None

    @property
    def is_star(self):
        return self.values is None and self.action != "delete"

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
    """A MERGE of a source into the table.

    Attributes:
        evolves: whether columns set by a clause and missing in the table are added.
    """

    source: Rows
    on_: Any
    clauses: tuple
    evolves: bool = False

    def on(self, table, rows):
        older, table = table, table.with_columns(self._new_columns())
        effect = Effect([], table)
        is_matched = set()
        for narrow in rows:
            row = table.widened(narrow, older)
            numbers = [
                number
                for number, source in enumerate(self.source.rows)
                if evaluated(self.on_, t=row, s=source) is True
            ]
            is_matched.update(numbers)
            clause, given = self._clause(row, numbers)
            if len(numbers) > 1 and not self._may_match_twice:
                # If no clause applies to any of them, it is refused unless statistics let the row's file be skipped.
                why = f"several rows of the source match {row}"
                raise RefusedError(why, everyone=clause is not None)
            if clause is None:
                effect.rows.append(row)
            elif clause.action == "delete":
                effect.delete(row)
            else:
                effect.update(row, table.updated(row, self._values(table, clause), {"t": row, "s": given}))
        for number, source in enumerate(self.source.rows):
            if number not in is_matched:
                self._insert(table, source, effect)
        return effect

    @property
    def _may_match_twice(self):
        """Whether several source rows may match one target row without an error."""
        return self._only_deletes or all(clause.match == "not-matched" for clause in self.clauses)

    @property
    def _only_deletes(self):
        matched = self._of("matched")
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None

    def _clause(self, row, numbers):
        """Return the clause that applies to a row, and its source row."""
        if not numbers:
            return self._first("not-matched-by-source", t=row), None
        found = [
            (self._first("matched", t=row, s=self.source.rows[number]), self.source.rows[number])
            for number in numbers
        ]
        return next((each for each in found if each[0] is not None), (None, None))

    def _first(self, match, **rows):
        chosen = None
        for clause in self._of(match):
            holds = clause.condition is None or evaluated(clause.condition, **rows) is True
            if holds and chosen is None:
                chosen = clause
        return chosen

    def _of(self, match):
        return [clause for clause in self.clauses if clause.match == match]

    def _new_columns(self):
        """Return the source columns that clauses set and schema evolution adds."""
        if not self.evolves:
            return []
        if any(clause.is_star for clause in self.clauses):
            return self.source.columns
        clauses = (*self._of("matched"), *self._of("not-matched"))
        named = {path[0] for clause in clauses for path in clause.values or () if len(path) == 1}
        return [column for column in self.source.columns if column.name in named]

    def _values(self, table, clause):
        if clause.values is not None:
            return clause.values
        kinds = {each.name: each.kind for each in self.source.columns}
        replaces = clause.action == "update"
        return {
            (column.name,): _taken(column, kinds[column.name], replaces=replaces)
            for column in table.columns
            if column.name in kinds
        }

    def _insert(self, table, source, effect):
        clause = self._first("not-matched", s=source)
        if clause is None:
            return
        values = self._values(table, clause)
        empty = {name: table.defaults.get(name) for name in table.names}
        effect.insert(table.updated(empty, values, {"s": source}))

    def __str__(self):
        clauses = "".join(f"\n      {clause}" for clause in self.clauses)
        how = "MERGE WITH SCHEMA EVOLUTION" if self.evolves else "MERGE"
        return f"{how} INTO t USING s ON {self.on_.sql}{clauses}\n      WITH s {self.source}"


def _taken(column, kind, *, replaces):
    """Return the value that ``*`` assigns to a column.

    Args:
        column: the table's.
        kind: its type in the source.
        replaces: whether it updates an existing row.
    """
    name = column.name

    def of(rows):
        old = rows["t"][name] if replaces else None
        return starred(rows["s"][name], kind, old, column.kind)

    return Expression("", column.kind, of)
