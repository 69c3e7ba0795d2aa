"""Damage to checkpoints that remain valid Parquet."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz.draft import OUTSIDE
from tests.fuzz.json_mutations import PATHS

_INTEGERS = (0, -1, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
_TEXTS = ("", "x", "\0", "é" * 50, "x" * 50_000, "null", "{", "[" * 50_000)


def _table(data):
    return pq.read_table(io.BytesIO(data))


def _bytes(table):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _leaves(value, found):
    if isinstance(value, dict):
        for key, item in value.items():
            found.append((value, key))
            _leaves(item, found)
    elif isinstance(value, list):
        for item in value:
            _leaves(item, found)
    return found


def change_a_value(rng, table):
    rows = table.to_pylist()
    if not rows:
        return table
    holders = [(c, k) for c, k in _leaves(rng.choice(rows), []) if c[k] is not None]
    container, key = rng.choice(holders)
    old = container[key]
    if isinstance(old, bool):
        container[key] = not old
    elif isinstance(old, int):
        container[key] = rng.choice((*_INTEGERS, old + 1, old - 1))
    elif isinstance(old, str):
        at = rng.randrange(len(old) + 1)
        container[key] = rng.choice((*_TEXTS, old[:at], old[:at] + "~" + old[at + 1 :]))
    elif isinstance(old, list):
        container[key] = old[1:] if rng.random() < 0.5 else old + old
    else:
        container[key] = None
    return pa.Table.from_pylist(rows, table.schema)


def drop_rows(rng, table):
    number = rng.randrange(table.num_rows)
    return pa.concat_tables([table.slice(0, number), table.slice(number + rng.choice((1, 1, 2)))])


def repeat_rows(rng, table):
    number = rng.randrange(table.num_rows)
    return pa.concat_tables([table, table.slice(number, 1)])


def reorder_rows(rng, table):
    order = list(range(table.num_rows))
    rng.shuffle(order)
    return table.take(order)


def no_rows(rng, table):
    del rng
    return table.slice(0, 0)


def drop_a_column(rng, table):
    return table.drop_columns([rng.choice(table.column_names)])


def rename_a_column(rng, table):
    number = rng.randrange(table.num_columns)
    names = list(table.column_names)
    names[number] = rng.choice((names[number].upper(), "x", "", *names))
    return table.rename_columns(names)


def empty_a_column(rng, table):
    number = rng.randrange(table.num_columns)
    field = table.schema.field(number)
    return table.set_column(number, field, pa.nulls(table.num_rows, field.type))


def change_a_type(rng, table):
    number = rng.randrange(table.num_columns)
    name = table.column_names[number]
    kind = rng.choice(
        (pa.string(), pa.int64(), pa.list_(pa.int32()), pa.binary(), pa.struct([("x", pa.int32())]))
    )
    if rng.random() < 0.3 or not pa.types.is_struct(table.schema.field(number).type):
        return table.set_column(number, name, pa.nulls(table.num_rows, kind))
    column = table.column(number).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    fields, children = list(column.type), column.flatten()
    chosen = rng.randrange(len(fields))
    action = rng.random()
    if action < 0.3:
        del fields[chosen], children[chosen]
        if not fields:
            return table
    elif action < 0.4:
        fields[chosen] = fields[chosen].with_name(
            rng.choice(("x", "path", "size", fields[chosen].name.upper()))
        )
    else:
        new = pa.nulls(len(column), kind)
        if pa.types.is_string(kind) and pa.types.is_primitive(fields[chosen].type):
            new = children[chosen].cast(pa.string())
        fields[chosen] = pa.field(fields[chosen].name, new.type)
        children[chosen] = new
    made = pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
    return table.set_column(number, name, made)


IN_ROWS = (
    change_a_value,
    change_a_value,
    change_a_value,
    drop_rows,
    repeat_rows,
    reorder_rows,
    no_rows,
    drop_a_column,
    rename_a_column,
    empty_a_column,
    change_a_type,
)


def lie_about_a_path(rng, table, outside):
    """Change the path of a file in a checkpoint."""
    rows = table.to_pylist()
    holders = [row[key] for row in rows for key in ("add", "remove", "sidecar") if row.get(key)]
    if not holders:
        return table
    path = rng.choice([path for path in PATHS if "\0" not in path])
    rng.choice(holders)["path"] = path.replace(OUTSIDE, outside)
    return pa.Table.from_pylist(rows, table.schema)


def in_a_checkpoint(kind, change):
    """Return the mutation that applies ``change`` to the rows of one Parquet file of this kind."""

    def mutate(rng, draft):
        path = draft.pick(kind)
        if path is None:
            return None
        try:
            table = _table(draft.files[path])
            more = (draft.outside,) if change is lie_about_a_path else ()
            changed = change(rng, table, *more)
            if changed.equals(table):
                return None
            draft.files[path] = _bytes(changed)
        except (pa.ArrowException, ValueError, TypeError, IndexError, OverflowError, OSError):
            return None  # damaged before, or not expressible in Parquet
        return path

    return mutate


IN_A_CHECKPOINT = (*IN_ROWS, lie_about_a_path)
