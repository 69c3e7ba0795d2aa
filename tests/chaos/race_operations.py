"""What takes part in a race: row changes, each with what it does to rows, and maintenance, which leaves rows as they are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delvec_kernel.errors import DelvecError

__all__ = ["BLOCK", "CHANGES", "COPIES", "MAINTENANCE", "SCHEMA", "SPARE", "Change", "due", "part_of"]

BLOCK = 10_000
"""Ids of one writer; so statistics prove that no writer touches another's rows."""
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("part", pa.string())])
COPIES = ("copy", "copy renamed")
"""What the generated column that repeats the id is called."""
SPARE = "spare"
"""A column that comes and goes."""
_PARTS = ("a b/é=%", "b")
_ONE_AT_MOST = 40
"""Rows of one change."""


@dataclass(frozen=True)
class Change:
    """One change of rows.

    Attributes:
        run: does it to a table, with ``retries``; returns the metrics.
        effect: from rows, value and part by id, to rows.
        count: the metric that says how many rows were removed or changed, and from rows to that number; None if none says it.
        inserts: ids of rows that are new ones, though there were rows of these ids before.
    """

    text: str
    run: Callable[[Any], Any]
    effect: Callable[[dict], dict]
    count: tuple[str, Callable[[dict], int]] | None = None
    inserts: frozenset = frozenset()


def part_of(id_):
    """Return the partition that a row is in, always."""
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
    """A condition whose bounds are to be computed."""
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
"""From dice, the writer's block and how many ids of it were ever used, to a change."""


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
    """Sort the whole table: by its clustering columns where it has some, which Z-order then refuses to ignore."""
    return table.optimize(full=True) if round_.is_clustered else table.optimize.z_order([round_.column])


def _alter(table, round_):
    """Rename the column that no command names, or drop or add another; a RESTORE meanwhile changes which there are."""
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
"""To be called with a table and the round."""
_ALTERATIONS = frozenset({"RENAME COLUMN", "DROP COLUMNS", "ADD COLUMNS"})


def due(name, error):
    """Whether an error is one that a user has to expect.

    There are five: a row change that loses to a RESTORE, which changes rows that it has read, or to a change of columns;
    a RESTORE of files that a VACUUM has deleted; a VACUUM LITE of a log that was cleaned up; vectors of a table that has
    them turned off. Whatever rewrites files plans again by itself.

    Args:
        name: what failed.
        error: with what.
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
