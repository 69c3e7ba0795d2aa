"""Random statements that suit a table's current rows."""

from tests.interop.dml_creation import TableMaker, random_kind
from tests.interop.dml_expressions import Expressions
from tests.interop.dml_merge import Clause, Merge
from tests.interop.dml_operators import Scope, both, read
from tests.interop.dml_statements import Delete, DeleteKeys, Insert, Optimize, Overwrite, Update, joined
from tests.interop.dml_table import RefusedError, Rows
from tests.interop.dml_values import NESTED, POOLS, STRUCTS, WIDER, Column, FailedValueError

__all__ = ["Script", "rows_of"]

ASSIGNED = {
    "byte": ["int"],
    "short": ["int"],
    "int": ["long"],
    "long": ["int"],
    "string": ["int"],
    "float": ["double"],
    "double": ["int"],
    "decimal(10,2)": ["int", "decimal(20,6)"],
    "decimal(20,6)": ["decimal(10,2)"],
}
"""Types that are occasionally cast to a column's."""


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
    """A table, and statements generated for the rows it has at that point.

    Args:
        random: the source of all decisions.
        mappings: column mapping modes to choose from.

    Attributes:
        table: its current definition.
        rows: its current rows.
    """

    def __init__(self, random, mappings):
        self._random = random
        self.mapping = random.choice(mappings)
        self.table = TableMaker(random, self.mapping).table()
        self.first = []
        for size in [random.randint(0, 14) for _ in range(random.randint(1, 3))]:
            # Computed, not given: a given -0.0 would pass for 0.0.
            kept = [row | self._computed(row) for row in self._rows(size) if self._keeps(row)]
            self.first.append(Rows(self.table.columns, tuple(kept)))
        self.rows = [self.table.stored(row) for part in self.first for row in part.rows]
        self._text = f"CREATE TABLE t {self.table}" + "".join(f"\n    APPEND {part}" for part in self.first)

    def __str__(self):
        return self._text

    @property
    def has_feed(self):
        return self.table.properties.get("delta.enableChangeDataFeed") == "true"

    @property
    def has_vectors(self):
        return self.table.properties["delta.enableDeletionVectors"] == "true"

    def statement(self):
        """Return the next statement with its effect, or with the refusal it must cause."""
        while True:
            made = self._made()
            try:
                effect = made.on(self.table, self.rows)
            except RefusedError as error:
                if error.everyone and self._random.random() < 0.3:
                    return made, error
                continue
            self.rows, self.table = effect.rows, effect.table
            return made, effect

    # --- rows -------------------------------------------------------------------------------------------------

    def _rows(self, count, columns=None):
        """Return random rows whose generated columns are nearly always right."""
        rows = []
        for row in rows_of(self._random, columns or self.table.columns, count):
            if self.table.generated.keys() <= row.keys() and self._random.random() < 0.97:
                try:
                    rows.append(row | self._computed(row))
                except RefusedError:
                    continue
            else:
                rows.append(row)
        return rows

    def _computed(self, row):
        found = self.table.computed({name: row.get(name) for name in self.table.names})
        return {name: found[name] for name in self.table.generated}

    def _keeps(self, row):
        try:
            self.table.check([self.table.stored(row)])
            self.table.check([self.table.completed(row)])
        except RefusedError:
            return False
        return True

    def _new(self, most=5):
        rows = self._rows(self._random.randint(1, most))
        kept = [row for row in rows if self._keeps(row) or self._random.random() < 0.05]
        return Rows(self.table.columns, tuple(kept or rows))

    def _thinned(self, data, *, more=True):
        """Return rows without some optional columns."""
        random = self._random
        spare = {*self.table.defaults}
        if more and random.random() < 0.3:
            spare |= {*data.names[1:]}
        # delta-spark requires all partition columns except generated ones.
        spare = (spare - {*self.table.partition_by}) | {*self.table.generated}
        return data.without({name for name in sorted(spare) if random.random() < 0.4})

    # --- statements -------------------------------------------------------------------------------------------

    def _made(self):
        choices = [self._delete] * 3 + [self._update] * 4 + [self._merge] * 7 + [self._insert] * 2
        choices += [self._overwrite, self._delete_keys, self._optimize]
        return self._random.choice(choices)()

    def _scope(self, prefix=""):
        return Scope("t", prefix, self.table.columns)

    def _where(self, share=0.92):
        if self._random.random() >= share:
            return None
        return Expressions(self._random, [self._scope()]).condition()

    def _delete(self):
        return Delete(self._where(), by_sql=self._random.random() < 0.25)

    def _optimize(self):
        roll = self._random.random()
        if roll < 0.4:
            return Optimize(purge=roll < 0.2, vectors=roll >= 0.3)
        plain = [
            column
            for column in self.table.columns
            if column.kind not in NESTED and column.name not in self.table.partition_by
        ]
        return Optimize(
            zorder_by=tuple(self._random.sample(plain, min(len(plain), self._random.randint(1, 3))))
        )

    def _update(self):
        values = self._values([self._scope()], fields=True)
        return Update(values, self._where(0.85), by_sql=self._random.random() < 0.25)

    def _values(self, scopes, *, fields=False):
        random = self._random
        expressions = Expressions(random, scopes)
        columns = [
            column
            for column in self.table.columns
            if column.name not in self.table.generated or random.random() < 0.05
        ]
        found = {}
        for column in random.sample(columns, random.randint(1, min(3, len(columns)))):
            # delta-spark fails with an internal error on DEFAULT in a MERGE.
            likely = 0.2 if column.name in self.table.defaults else 0.01
            if not any(scope.prefix for scope in scopes) and random.random() < likely:
                found[(column.name,)] = self.table.default(column.name)
            else:
                found |= self._value(expressions, (column.name,), column.kind, fields=fields)
        return found

    def _value(self, expressions, path, kind, *, fields):
        """Return values for a column or some of its fields."""
        random = self._random
        if not fields or kind not in STRUCTS or random.random() < 0.35:
            return {path: expressions.value(self._assigned_kind(kind))}
        found = {}
        inner = STRUCTS[kind]
        for name in random.sample(list(inner), random.randint(1, len(inner))):
            found |= self._value(expressions, (*path, name), inner[name], fields=True)
        return found

    def _assigned_kind(self, kind):
        if kind in ASSIGNED and self._random.random() < 0.15:
            return self._random.choice(ASSIGNED[kind])
        return kind

    def _delete_keys(self):
        random = self._random
        others = [each.name for each in self.table.columns[1:] if each.kind not in NESTED]
        names = {"id"}
        if others and random.random() < 0.3:
            names.add(random.choice(others))
        source = self._source(whole=True)
        source = source.without({each.name for each in source.columns} - names)
        return DeleteKeys(source, self._where() if random.random() < 0.25 else None)

    # --- MERGE ------------------------------------------------------------------------------------------------

    def _source(self, *, whole, more=(), others=False):
        random = self._random
        columns = list(self.table.columns)
        if not whole:
            columns = [columns[0], *random.sample(columns[1:], random.randint(1, len(columns) - 1))]
        if others:
            columns = [self._other_struct(each) for each in columns]
        random.shuffle(columns)
        names = {column.name for column in columns}
        columns += [each for each in (*more, Column("flag", "int")) if each.name not in names]
        rows = self._rows(random.randint(0, 8), columns)
        if self.rows:
            for row in rows:
                if random.random() < 0.6:
                    known = random.choice(self.rows)
                    row["id"] = known["id"]
                    if random.random() < 0.3:
                        # so that other columns can match, too
                        same = {each.name for each in columns if each in self.table.columns}
                        row.update({name: value for name, value in known.items() if name in same})
        if random.random() < 0.75:
            # one row per key, so that few statements are ambiguous
            rows = list({repr(row["id"]).replace("-0.0", "0.0"): row for row in rows}.values())
        return Rows(tuple(columns), tuple(rows))

    def _merge(self):
        random = self._random
        evolves = random.random() < 0.15
        # Without schema evolution, `*` needs every column in the source.
        whole = random.random() < 0.5
        more = self._more_columns() if evolves else ()
        source = self._source(whole=whole, more=more, others=evolves)
        stars = evolves or (whole and self.table.identity is None)
        target_scope, source_scope = self._scope("t."), Scope("s", "s.", source.columns)
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
                clause = self._clause(match, scopes, condition, stars=stars)
                if evolves and clause.values and match != "not-matched-by-source" and random.random() < 0.5:
                    self._set_new(clause, source_scope)
                clauses.append(clause)
        if not clauses:
            clauses.append(Clause("matched", "delete"))
        return Merge(source, self._on(target_scope, source_scope), tuple(clauses), evolves)

    def _set_new(self, clause, source):
        """Make a clause set the columns that it must add or extend with fields."""
        for column in source.columns:
            if column not in self.table.columns and column.name != "flag":
                for path in [each for each in clause.values if each[0] == column.name]:
                    del clause.values[path]
                clause.values[(column.name,)] = read(source, column)

    def _more_columns(self):
        random = self._random
        known = len(self.table.columns)
        return tuple(
            Column(f"new_{known + i}", random_kind(random)) for i in range(random.choice([0, 1, 1, 2]))
        )

    def _other_struct(self, column):
        """Return a struct column with more or fewer fields than the table's."""
        narrower = {wide: narrow for narrow, wide in WIDER.items()}
        other = WIDER.get(column.kind) or narrower.get(column.kind)
        return Column(column.name, other) if other and self._random.random() < 0.5 else column

    def _on(self, target, source):
        random = self._random
        keys = [self.table.columns[0]]
        others = [
            each for each in self.table.columns[1:] if each in source.columns and each.kind not in NESTED
        ]
        if others and random.random() < 0.15:
            keys.append(random.choice(others))
        on = joined(target, source, keys, [random.choice(["=", "=", "=", "<=>"]) for _ in keys])
        if random.random() < 0.25:
            on = both(on, Expressions(random, [random.choice([target, source])]).condition(0))
        return on

    def _clause(self, match, scopes, condition, *, stars):
        random = self._random
        if match == "not-matched":
            values = None
            if not stars or random.random() < 0.5:
                values = self._values(scopes)
            return Clause(match, "insert", condition, values)
        if random.random() < 0.35:
            return Clause(match, "delete", condition)
        if match == "matched" and stars and random.random() < 0.4:
            return Clause(match, "update", condition)
        return Clause(match, "update", condition, self._values(scopes, fields=True))

    # --- writes -----------------------------------------------------------------------------------------------

    def _insert(self):
        data = self._new()
        if self._random.random() < 0.15:
            wide = [Column(each.name, WIDER[each.kind]) for each in data.columns if each.kind in WIDER]
            more = (*self._more_columns(), *(each for each in wide if self._random.random() < 0.5))
            names = {each.name for each in more}
            columns = (*(each for each in data.columns if each.name not in names), *more)
            pairs = zip(data.rows, rows_of(self._random, more, len(data.rows)), strict=True)
            rows = tuple({each.name: (row | other)[each.name] for each in columns} for row, other in pairs)
            return Insert(Rows(columns, rows), evolves=True)
        return Insert(self._thinned(data))

    def _overwrite(self):
        random = self._random
        roll = random.random()
        if roll < 0.2:
            return Overwrite(self._thinned(self._new(), more=False))
        if roll < 0.5 and self.table.partition_by:
            return Overwrite(self._new(), dynamic=True)
        columns = self.table.columns
        if self.has_feed and not self.has_vectors:
            # Unmatched rows are not copied there, so only whole partitions can be replaced.
            columns = tuple(each for each in columns if each.name in self.table.partition_by)
            if not columns:
                return self._insert()
        where = Expressions(random, [Scope("t", "", columns)]).condition(1)
        kept = [row for row in self._rows(12) if self._keeps(row) and self._is_one(where, row)]
        return Overwrite(Rows(self.table.columns, tuple(kept[:4])), where=where)

    def _is_one(self, where, row):
        """Whether a row meets a condition: a check distinguishes '' from NULL, a partition value does not."""
        try:
            return all(where.is_true(t=each) for each in (row, self.table.stored(row)))
        except FailedValueError:
            return False
