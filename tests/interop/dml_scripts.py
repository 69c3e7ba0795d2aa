"""Random tables, and random statements that fit what a table holds."""

import json

from tests.interop.dml_expressions import Expressions, Scope, both, read, tested
from tests.interop.dml_model import (
    Clause,
    Delete,
    DeleteKeys,
    Insert,
    Merge,
    Overwrite,
    RefusedError,
    Rows,
    Table,
    Update,
)
from tests.interop.dml_values import FIELDS, INTEGERS, POOLS, Column, FailedValueError

__all__ = ["Script", "rows_of"]

PARTITIONED = ("string", "int", "date", "boolean")
KEYS = ("long", "string", "date", "decimal(10,2)", "double", "int")
KINDS = [kind for kind in POOLS if kind not in {"array", "map", "struct", "binary"}]
PLAIN_NAMES = ["n", "Name", "größe", "at", "x_1", "value", "order", "t"]
MAPPED_NAMES = [*PLAIN_NAMES, "a b", "x,y;z"]


def rows_of(random, columns, count):
    """Return random rows."""
    return tuple(
        {
            column.name: None if random.random() < 0.12 else random.choice(POOLS[column.kind])
            for column in columns
        }
        for _ in range(count)
    )


class Script:
    """A table, and statements that are made for the rows that it has by then.

    Args:
        random: where all decisions come from.
        mappings: modes of column mapping to choose from.
    """

    def __init__(self, random, mappings):
        self._random = random
        self.mapping = random.choice(mappings)
        self.table = self._table()
        sizes = [random.randint(0, 14) for _ in range(random.randint(1, 3))]
        self.first = []
        for size in sizes:
            rows = rows_of(random, self.table.columns, size)
            kept = tuple(row for row in rows if self._keeps(row))
            self.first.append(Rows(self.table.columns, kept))
        self.rows = [self.table.stored(row) for part in self.first for row in part.rows]

    def __str__(self):
        lines = "".join(f"\n    APPEND {part}" for part in self.first)
        columns = ", ".join(f"{column.quoted} {column.kind}" for column in self.table.columns)
        checks = "".join(f" CHECK ({check.sql})" for check in self.table.checks.values())
        by = f" PARTITIONED BY {self.table.partition_by}" if self.table.partition_by else ""
        return f"CREATE TABLE t ({columns}){by}{checks} {json.dumps(self.table.properties)}{lines}"

    @property
    def has_feed(self):
        return self.table.properties.get("delta.enableChangeDataFeed") == "true"

    @property
    def has_vectors(self):
        return self.table.properties["delta.enableDeletionVectors"] == "true"

    def statement(self):
        """Return the next statement with its effect, or with the refusal that it must meet."""
        while True:
            made = self._made()
            try:
                effect = made.on(self.table, self.rows)
            except RefusedError as error:
                if error.everyone and self._random.random() < 0.3:
                    return made, error
                continue
            self.rows = effect.rows
            return made, effect

    # --- tables -----------------------------------------------------------------------------------------------

    def _table(self):
        random = self._random
        names = random.sample(MAPPED_NAMES if self.mapping != "none" else PLAIN_NAMES, random.randint(2, 5))
        columns = [Column("id", random.choice(KEYS))]
        columns += [Column(name, random.choice([*KINDS, *POOLS, "string", "int"])) for name in names]
        parted = [each.name for each in columns[1:] if each.kind in PARTITIONED]
        partition_by = tuple(random.sample(parted, min(len(parted), random.choice([0, 0, 1, 1, 2]))))
        if len(partition_by) == len(columns):
            partition_by = ()
        properties = {
            "delta.enableDeletionVectors": random.choice(["true", "true", "false"]),
            "delta.enableChangeDataFeed": random.choice(["true", "true", "false"]),
        }
        if self.mapping != "none":
            properties["delta.columnMapping.mode"] = self.mapping
        if random.random() < 0.15:
            properties["delvec.rewriteThreshold"] = random.choice(["0.3", "1"])
        checks = {}
        numbers = [each for each in columns if each.kind in INTEGERS and each.name not in partition_by]
        if numbers and random.random() < 0.2:
            made = Expressions(random, [Scope("t", "", (random.choice(numbers),))]).condition(0)
            checks["some_check"] = made
        return Table(tuple(columns), partition_by, properties, checks)

    def _keeps(self, row):
        try:
            self.table.check([self.table.stored(row)])
            self.table.check([row])
        except RefusedError:
            return False
        return True

    # --- statements -------------------------------------------------------------------------------------------

    def _made(self):
        choices = [self._delete] * 3 + [self._update] * 4 + [self._merge] * 6 + [self._insert] * 2
        choices += [self._overwrite, self._delete_keys]
        return self._random.choice(choices)()

    def _scope(self, prefix=""):
        return Scope("t", prefix, self.table.columns)

    def _where(self, share=0.92):
        if self._random.random() >= share:
            return None
        return Expressions(self._random, [self._scope()]).condition()

    def _delete(self):
        return Delete(self._where(), by_sql=self._random.random() < 0.25)

    def _update(self):
        values = self._values([self._scope()], fields=True)
        return Update(values, self._where(0.85), by_sql=self._random.random() < 0.25)

    def _values(self, scopes, *, fields=False, columns=None):
        random = self._random
        expressions = Expressions(random, scopes)
        columns = list(columns or self.table.columns)
        found = {}
        for column in random.sample(columns, random.randint(1, min(3, len(columns)))):
            if fields and column.kind == "struct" and random.random() < 0.5:
                for inner in random.sample(list(FIELDS), random.randint(1, 2)):
                    found[(column.name, inner)] = expressions.value(FIELDS[inner])
            else:
                found[(column.name,)] = expressions.value(self._assigned_kind(column.kind))
        return found

    def _assigned_kind(self, kind):
        """Return the kind of a value for a column: now and then another one, which is cast."""
        others = {
            "int": ["long"],
            "long": ["int"],
            "short": ["int"],
            "string": ["int"],
            "float": ["double"],
            "double": ["int"],
        }
        if kind in others and self._random.random() < 0.15:
            return self._random.choice(others[kind])
        return kind

    def _source(self, *, whole):
        random = self._random
        columns = list(self.table.columns)
        if not whole:
            columns = [columns[0], *random.sample(columns[1:], random.randint(1, len(columns) - 1))]
        random.shuffle(columns)
        columns.append(Column("flag", "int"))
        rows = list(rows_of(random, columns, random.randint(0, 8)))
        known = [row["id"] for row in self.rows]
        if known:
            for row in rows:
                if random.random() < 0.6:
                    row["id"] = random.choice(known)
        if random.random() < 0.85:
            # One row for each key, so that few statements are ambiguous.
            rows = list({repr(row["id"]).replace("-0.0", "0.0"): row for row in rows}.values())
        return Rows(tuple(columns), tuple(rows))

    def _delete_keys(self):
        source = self._source(whole=False)
        columns = tuple(column for column in source.columns if column.name == "id")
        rows = tuple({"id": row["id"]} for row in source.rows)
        return DeleteKeys(Rows(columns, rows), ("id",))

    def _merge(self):
        random = self._random
        whole = random.random() < 0.5
        source = self._source(whole=whole)
        target_scope, source_scope = self._scope("t."), Scope("s", "s.", source.columns)
        on = self._on(target_scope, source_scope)
        clauses = []
        for match, scopes in (
            ("matched", [target_scope, source_scope]),
            ("not-matched", [source_scope]),
            ("not-matched-by-source", [target_scope]),
        ):
            count = random.choice([0, 1, 1, 2, 3] if match == "matched" else [0, 0, 1, 2])
            for number in range(count):
                condition = None
                if number < count - 1 or random.random() < 0.5:
                    condition = Expressions(random, scopes).condition(1)
                clauses.append(self._clause(match, scopes, condition, whole=whole))
        if not clauses:
            clauses.append(Clause("matched", "delete"))
        return Merge(source, on, tuple(clauses))

    def _on(self, target, source):
        random = self._random
        left, right = (
            read(target, self.table.columns[0]),
            read(source, next(c for c in source.columns if c.name == "id")),
        )
        on = tested(left, random.choice(["=", "=", "=", "<=>"]), right)
        if random.random() < 0.25:
            on = both(on, Expressions(random, [random.choice([target, source])]).condition(0))
        return on

    def _clause(self, match, scopes, condition, *, whole):
        random = self._random
        if match == "not-matched":
            values = None
            if not whole or random.random() < 0.5:
                values = self._values(scopes)
            return Clause(match, "insert", condition, values)
        if random.random() < 0.35:
            return Clause(match, "delete", condition)
        if match == "matched" and whole and random.random() < 0.4:
            return Clause(match, "update", condition)
        return Clause(match, "update", condition, self._values(scopes, fields=True))

    def _new(self, most=5):
        rows = rows_of(self._random, self.table.columns, self._random.randint(1, most))
        kept = tuple(row for row in rows if self._keeps(row) or self._random.random() < 0.05)
        return Rows(self.table.columns, kept or rows)

    def _insert(self):
        return Insert(self._new())

    def _overwrite(self):
        random = self._random
        roll = random.random()
        if roll < 0.2:
            return Overwrite(self._new())
        if roll < 0.5 and self.table.partition_by:
            return Overwrite(self._new(), dynamic=True)
        columns = self.table.columns
        if self.has_feed and not self.has_vectors:
            # Rows that stay are not copied there: only whole partitions can be replaced.
            columns = tuple(each for each in columns if each.name in self.table.partition_by)
            if not columns:
                return self._insert()
        where = Expressions(random, [Scope("t", "", columns)]).condition(1)
        rows = rows_of(random, self.table.columns, 12)
        kept = []
        for row in rows:
            try:
                # An empty text is told from NULL when it is checked, and not any more when it is in a partition.
                both = (row, self.table.stored(row))
                if self._keeps(row) and all(where.is_true(t=each) for each in both):
                    kept.append(row)
            except FailedValueError:
                continue
        return Overwrite(Rows(self.table.columns, tuple(kept[:4])), where=where)
