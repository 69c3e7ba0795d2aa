"""The model of every statement except MERGE on a table of plain Python rows: rows, change feed and counts."""

from dataclasses import dataclass
from typing import Any

from tests.interop.dml_operators import both, read, tested
from tests.interop.dml_table import (
    Effect,
    RefusedError,
    Rows,
    evaluated,
    plain_key,
    set_of,
    where_of,
)
from tests.interop.dml_values import plain

__all__ = ["Delete", "DeleteKeys", "Insert", "Optimize", "Overwrite", "Update", "joined"]


@dataclass(frozen=True)
class Delete:
    """Deletes the rows that meet a condition; without one, all rows."""

    where: Any
    by_sql: bool = False

    def on(self, table, rows):
        effect = Effect([], table)
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
    """Deletes the rows whose key is in the source."""

    source: Rows
    where: Any = None

    def on(self, table, rows):
        names = self.source.names
        keys = {tuple(plain_key(row[name]) for name in names) for row in self.source.rows}
        effect = Effect([], table)
        for row in rows:
            key = tuple(plain_key(row[name]) for name in names)
            meant = self.where is None or evaluated(self.where, t=row) is True
            if meant and key in keys and None not in key:
                effect.delete(row)
            else:
                effect.rows.append(row)
        return effect

    def __str__(self):
        return f"DELETE FROM t{where_of(self)} BY KEYS OF {self.source}"


@dataclass(frozen=True)
class Update:
    """Sets columns to new values.

    Attributes:
        values: expressions by path: a tuple of column and fields.
    """

    values: dict
    where: Any
    by_sql: bool = False

    def on(self, table, rows):
        effect = Effect([], table)
        for row in rows:
            if self.where is None or evaluated(self.where, t=row) is True:
                effect.update(row, table.updated(row, self.values, {"t": row}))
            else:
                effect.rows.append(row)
        return effect

    def __str__(self):
        return f"UPDATE t SET {set_of(self.values)}{where_of(self)}{' (SQL)' if self.by_sql else ''}"


@dataclass(frozen=True)
class Insert:
    """Appends rows.

    Attributes:
        evolves: whether columns missing in the table are added.
    """

    data: Rows
    evolves: bool = False

    def on(self, table, rows):
        older = table
        if self.evolves:
            table = table.with_columns(self.data.columns)
        effect = Effect([table.widened(row, older) for row in rows], table)
        for row in self.data.rows:
            effect.insert(table.completed(row))
        return effect

    def __str__(self):
        return f"INSERT INTO t{' WITH SCHEMA EVOLUTION' if self.evolves else ''} {self.data}"


@dataclass(frozen=True)
class Optimize:
    """Rewrites files and keeps the rows.

    Attributes:
        purge: only files with deletion vectors.
        zorder_by: columns to cluster by; without them, small files are compacted.
        vectors: compact deletion vector files, not data files; delta-spark runs a plain OPTIMIZE instead.
    """

    purge: bool = False
    zorder_by: tuple = ()
    vectors: bool = False

    def on(self, table, rows):
        return Effect(rows, table)

    def __str__(self):
        order = f" ZORDER BY ({', '.join(each.quoted for each in self.zorder_by)})" if self.zorder_by else ""
        return "REORG TABLE t APPLY (PURGE)" if self.purge else f"OPTIMIZE t{order}"


@dataclass(frozen=True)
class Overwrite:
    """Overwrites rows.

    Attributes:
        where: the ``replaceWhere`` condition.
        dynamic: replace only the partitions that the new rows are in.
    """

    data: Rows
    where: Any = None
    dynamic: bool = False

    def on(self, table, rows):
        effect = Effect([], table)
        complete = [table.completed(row) for row in self.data.rows]
        new = [table.stored(row) for row in complete]
        if self.where is not None and any(evaluated(self.where, t=row) is not True for row in new):
            raise RefusedError("a row is not one of replaceWhere")
        for row in rows:
            if self._goes(table, row, new):
                effect.delete(row)
            else:
                effect.rows.append(row)
        for row in complete:
            effect.insert(row)
        return effect

    def _goes(self, table, row, new):
        if self.where is not None:
            return evaluated(self.where, t=row) is True
        if self.dynamic and table.partition_by:
            return _partition(table, row) in {_partition(table, each) for each in new}
        return True

    def __str__(self):
        how = "DYNAMIC" if self.dynamic else where_of(self)
        return f"OVERWRITE t {how} {self.data}"


def joined(target, source, keys, operators):
    """Return the join condition.

    Args:
        target: the target's scope.
        source: the source's.
        keys: columns that both sides have.
        operators: one for each key.
    """
    found = None
    for key, operator in zip(keys, operators, strict=True):
        one = tested(read(target, key), operator, read(source, key))
        found = one if found is None else both(found, one)
    return found


def _partition(table, row):
    return tuple(plain(row[name]) for name in table.partition_by)
