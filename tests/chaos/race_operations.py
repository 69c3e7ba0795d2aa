"""The operations in a race: row changes, each with its effect on the model, and maintenance, which keeps all rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delvec_errors import DelvecError

__all__ = ["BLOCK", "CHANGES", "COPIES", "MAINTENANCE", "SCHEMA", "SPARE", "Change", "due", "part_of"]

BLOCK = 10_000
"""The size of a writer's id range; statistics prove that no writer touches another's rows."""
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("part", pa.string())])
COPIES = ("copy", "copy renamed")
"""The name of the generated column that repeats the id."""
SPARE = "spare"
"""A column that is added and dropped."""
_PARTS = ("a b/é=%", "b")
_ONE_AT_MOST = 40
"""Rows per change."""


@dataclass(frozen=True)
class Change:
    """One row change.

    Attributes:
        run: runs it on a table, with ``retries``; returns the metrics.
        effect: maps rows, as (value, part) by id, to rows.
        count: the metric for rows removed or changed, and a function from rows to its value; None if there is no metric.
        inserts: ids of newly inserted rows, though rows with these ids existed before.
    """

    text: str
    run: Callable[[Any], Any]
    effect: Callable[[dict], dict]
    count: tuple[str, Callable[[dict], int]] | None = None
    inserts: frozenset = frozenset()


def part_of(id_):
    """Return the partition of a row, which never changes."""
    return _PARTS[id_ // 7 % len(_PARTS)]


def _rows(values):
    ids = list(values)
    columns = {"id": ids, "value": [values[each] for each in ids], "part": [part_of(each) for each in ids]}
    return pa.table(columns, schema=SCHEMA)


def _range(dice, block, newest):
    first = block * BLOCK + dice.randrange(max(1, newest))
    return range(first, first + dice.randint(1, _ONE_AT_MOST))


def _without(rows, ids):
    gone = set(ids)
    return {id_: row for id_, row in rows.items() if id_ not in gone}


def _delete_range(dice, block, newest):
    """Delete by a condition with computed bounds."""
    ids = _range(dice, block, newest)
    where = f"id BETWEEN {ids.start} AND {ids.stop} - 1"
    return _deleting(where, ids, lambda table, **how: table.delete(where, **how))


def _delete_ids(dice, block, newest):
    pool = range(block * BLOCK, block * BLOCK + max(1, newest))
    ids = sorted(dice.sample(pool, min(len(pool), dice.randint(1, 8))))
    where = f"id IN ({', '.join(map(str, ids))})"
    return _deleting(where, ids, lambda table, **how: table.delete(where, **how))


def _delete_keys(dice, block, newest):
    ids = _range(dice, block, newest)
    keys = pa.table({"id": pa.array(ids, pa.int64())})
    return _deleting(f"keys {ids}", ids, lambda table, **how: table.delete(keys=keys, on="id", **how))


def _deleting(text, ids, run):
    count = ("numDeletedRows", lambda rows: len(rows.keys() & set(ids)))
    return Change(f"DELETE {text}", run, lambda rows: _without(rows, ids), count)


def _update(dice, block, newest):
    ids = _range(dice, block, newest)
    where = f"id >= {ids.start} AND id < {ids.start} + {len(ids)}"

    def effect(rows):
        return {id_: (value + (id_ in ids), part) for id_, (value, part) in rows.items()}

    count = ("numUpdatedRows", lambda rows: len(rows.keys() & set(ids)))
    return Change(
        f"UPDATE {where}",
        lambda table, **how: table.update({"value": "value + 1"}, where, **how),
        effect,
        count,
    )


def _merge(dice, block, newest):
    ids = _range(dice, block, newest)
    values = {id_: dice.randrange(1000) for id_ in ids}

    def run(table, **how):
        merge = table.merge(_rows(values), "target.id = source.id")
        merge = merge.when_matched_update({"value": "source.value"})
        merge = merge.when_not_matched_insert({name: f"source.{name}" for name in SCHEMA.names})
        return merge.execute(**how)

    def effect(rows):
        return rows | {id_: (value, part_of(id_)) for id_, value in values.items()}

    return Change(f"MERGE {ids}", run, effect)


def _replace(dice, block, newest):
    ids = _range(dice, block, newest)
    values = {id_: dice.randrange(1000) for id_ in ids if dice.random() < 0.7}
    where = f"id BETWEEN {ids.start} AND {ids.stop} - 1"

    def effect(rows):
        return _without(rows, ids) | {id_: (value, part_of(id_)) for id_, value in values.items()}

    return Change(
        f"replaceWhere {where}",
        lambda table, **how: table.overwrite(_rows(values), replace_where=where, **how),
        effect,
        inserts=frozenset(values),
    )


def _append(dice, block, newest):
    first = block * BLOCK + newest
    values = dict.fromkeys(range(first, first + dice.randint(1, 2 * _ONE_AT_MOST)), 0)
    added = {id_: (value, part_of(id_)) for id_, value in values.items()}
    return Change(
        f"append {len(values)} from {first}",
        lambda table, **_: table.append(_rows(values)),
        lambda rows: rows | added,
    )


CHANGES = {
    "append": _append,
    "DELETE range": _delete_range,
    "DELETE ids": _delete_ids,
    "DELETE keys": _delete_keys,
    "UPDATE": _update,
    "MERGE": _merge,
    "replaceWhere": _replace,
}
"""Functions from dice, the writer's block and the number of its ids used so far, to a change."""


def _vacuum(mode, *, quarantine=False):
    def run(table, round_):
        return table.vacuum(
            round_.retention / 3600, mode=mode, enforce_retention_duration=False, quarantine=quarantine
        )

    return run


def _restore(table, round_):
    done = table.restore(round_.target)
    round_.restored(done.version)
    return done


def _sort(table, round_):
    """Cluster the whole table: by its clustering columns if it has any, as Z-order is refused then."""
    return table.optimize(full=True) if round_.is_clustered else table.optimize.z_order([round_.column])


def _alter(table, round_):
    """Rename the column that no command uses, or drop or add another; a concurrent RESTORE may change which exist."""
    while True:
        names = table.schema().names
        renamed = next(name for name in COPIES if name in names)
        try:
            if round_.alteration == "rename":
                return table.alter.rename_column(renamed, COPIES[renamed == COPIES[0]])
            if round_.alteration == "cluster":
                return table.alter.cluster_by([round_.column])
            if SPARE in names:
                return table.alter.drop_columns(SPARE)
            return table.alter.add_columns(f"{SPARE} long")
        except DelvecError:
            if table.schema().names == names:
                raise


MAINTENANCE = {
    "OPTIMIZE": lambda table, _: table.optimize(),
    "PURGE": lambda table, _: table.optimize.purge(),
    "sorting": _sort,
    "DV compaction": lambda table, _: table.optimize.deletion_vectors(),
    "RESTORE": _restore,
    "VACUUM": _vacuum("full"),
    "VACUUM LITE": _vacuum("lite"),
    "VACUUM into quarantine": _vacuum("full", quarantine=True),
    "checkpoint": lambda table, _: table.checkpoint(clean_up=True),
    "statistics": lambda table, _: table.compute_statistics(),
    "ALTER TABLE": _alter,
}
"""Functions of a table and the round."""
_ALTERATIONS = frozenset({"RENAME COLUMN", "DROP COLUMNS", "ADD COLUMNS"})


def due(name, error):
    """Return whether a user must expect an error.

    There are five: a row change that loses to a RESTORE of rows that it has read, or to a change of columns;
    a RESTORE of files that a VACUUM has deleted; a VACUUM LITE of a log that was cleaned up; deletion vector commands on a
    table without them. Commands that rewrite files plan again by themselves.

    Args:
        name: the command that failed.
        error: its error.
    """
    winner = getattr(error, "conflict", None) or {}
    if name in CHANGES:
        return winner.get("winning-operation") in {"RESTORE", *_ALTERATIONS}
    if name == "RESTORE":
        return error.type in {"MissingRestoreFiles", "VersionNotFound"}
    if name == "DV compaction":
        return error.type == "InvalidTableChange"
    if name == "VACUUM LITE":
        return error.type == "VacuumLiteImpossible"
    return False
