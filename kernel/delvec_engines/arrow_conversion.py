"""Converts Arrow columns to a Delta schema: exact types, names and nesting, or an error that names the column.

Whether a value fits depends on the value, not on its type alone: a 64-bit column whose values fit goes into an ``integer``
column, and a ``double`` into a decimal column if no digit is lost. Nothing is rounded, truncated, parsed from text or
converted between time zones, with one exception that mirrors the engines' session time zone: timestamps without time zone
are taken as UTC in a ``timestamp`` column.

Tested in `tests/unit/engines/test_parquet_writer.py` and `tests/integration/engines/test_schemas.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import ConstraintViolation, SchemaMismatch
from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES
from delvec_kernel.schema.column_mapping import NestedIds
from delvec_kernel.schema.types import (
    PARQUET_FIELD_ID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)

__all__ = ["bytes_in", "cast_array", "cast_batch", "decoded", "physical_schema", "plain_list"]

_FLOATS: Final = frozenset({"float", "double"})
_MAX_DIGITS: Final = 38


def physical_schema(schema: StructType, *, has_mapping: bool) -> pa.Schema:
    """Return the Arrow schema of data files.

    Only columns are declared NOT NULL, not what is inside of them: a field of a NULL struct is NULL, for which Arrow would
    refuse to write the file. Readers go by the table's schema.

    Args:
        schema: the columns that files hold.
        has_mapping: whether column mapping is on: physical names and field ids, nested ones included, instead of
            names (PROTOCOL.md, "Column Mapping").
    """
    fields = (_physical_field(item, has_mapping=has_mapping) for item in schema.fields)
    return pa.schema(
        [field.with_nullable(item.nullable) for field, item in zip(fields, schema.fields, strict=True)]
    )


def _physical_field(item: StructField, *, has_mapping: bool) -> pa.Field:
    if not has_mapping:
        return pa.field(item.name, _physical_type(item.type, None))
    kind = _physical_type(item.type, NestedIds.of(item))
    return pa.field(item.physical_name, kind, metadata=_parquet_id(item.field_id))


def _physical_type(kind: DataType, nested_ids: NestedIds | None) -> pa.DataType:
    """Return the Arrow type in files; ``nested_ids`` is None without column mapping."""

    def inside(part: str, kind: DataType, *, nullable: bool = True) -> pa.Field:
        ids = None if nested_ids is None else nested_ids.child(part)
        return pa.field(
            part, _physical_type(kind, ids), nullable, None if ids is None else _parquet_id(ids.id)
        )

    if isinstance(kind, StructType):
        return pa.struct([_physical_field(item, has_mapping=nested_ids is not None) for item in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(inside("element", kind.element))
    if isinstance(kind, MapType):
        key = inside("key", kind.key, nullable=False)
        return pa.map_(key, inside("value", kind.value))
    return kind.to_arrow()


def _parquet_id(field_id: int | None) -> dict[bytes, bytes] | None:
    return None if field_id is None else {PARQUET_FIELD_ID: str(field_id).encode()}


def bytes_in(rows: pa.RecordBatch) -> int:
    """Return the approximate size of rows in memory.

    Not ``nbytes``: Java sends empty nested lists without offsets, on which ``nbytes`` crashes the process (pyarrow 26).
    """
    return sum(
        column.get_total_buffer_size() if _nests_lists(column.type) or not len(column) else column.nbytes
        for column in rows.columns
    )


def _nests_lists(kind: pa.DataType, *, inside: bool = False) -> bool:
    is_list = pa.types.is_map(kind) or hasattr(kind, "value_type")
    if is_list and inside:
        return True
    fields = [kind.field(place) for place in range(kind.num_fields)]
    return any(_nests_lists(field.type, inside=inside or is_list) for field in fields)


def cast_batch(
    batch: pa.RecordBatch, schema: StructType, target: pa.Schema, *, check_nulls: bool
) -> pa.RecordBatch:
    """Return the batch with exactly the columns of ``target``.

    Columns are matched without regard to case; absent nullable columns become NULL.

    Args:
        batch: the data.
        schema: the Delta types.
        target: their Arrow form, position by position: ``schema.to_arrow()`` or :func:`physical_schema`.
        check_nulls: whether NULL in a column that does not allow it is an error.

    Raises:
        SchemaMismatch: unknown, duplicate or missing columns, values that do not fit.
        ConstraintViolation: a NULL in a NOT NULL column.
    """
    if not check_nulls and batch.schema.equals(target, check_metadata=True):
        return batch
    positions = _positions(batch.schema.names, schema, "")
    columns = []
    for item, field in zip(schema.fields, target, strict=True):
        position = positions.get(item.name.lower())
        if position is None:
            columns.append(_absent(item, field, batch.num_rows, item.name))
        else:
            columns.append(_field(batch.column(position), item, field, item.name, check_nulls=check_nulls))
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary array: of a categorical column of pandas or polars."""
    values = array.dictionary
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        # Arrow casts no dictionary of these, which polars sends.
        values = values.cast(pa.string() if pa.types.is_string_view(values.type) else pa.binary())
    return values.take(array.indices)


def plain_list(array: pa.Array) -> pa.ListArray:
    """Return lists of any form as lists with offsets."""
    kind = array.type
    if not (pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)):
        return array if pa.types.is_list(kind) else array.cast(pa.list_(kind.value_field))
    # A cast gives a last NULL no offset.
    lengths = pc.fill_null(pc.list_value_length(array).cast(pa.int64()), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    values = pc.list_flatten(array)
    return pa.ListArray.from_arrays(offsets, values, pa.list_(kind.value_field), mask=array.is_null())


def cast_array(
    array: pa.Array, kind: DataType, target: pa.DataType, name: str, *, check_nulls: bool
) -> pa.Array:
    """Return ``array`` as ``target``, the Arrow form of ``kind``; ``name`` is for errors.

    Raises:
        SchemaMismatch: a value does not fit.
        ConstraintViolation: a NULL in a NOT NULL column.
    """
    if pa.types.is_dictionary(array.type):
        array = decoded(array)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_null(array.type) or (pa.types.is_null(target) and array.null_count == len(array)):
        return pa.nulls(len(array), target)
    if array.type == target and not (check_nulls and _forbids_nulls(kind)):
        return array
    match kind:
        case StructType():
            return _struct(array, kind, target, name, check_nulls=check_nulls)
        case ArrayType():
            return _list(array, kind, target, name, check_nulls=check_nulls)
        case MapType():
            return _map(array, kind, target, name, check_nulls=check_nulls)
        case _:
            return _leaf(array, kind, target, name)


def _field(array: pa.Array, item: StructField, field: pa.Field, name: str, *, check_nulls: bool) -> pa.Array:
    if check_nulls and not item.nullable and array.null_count:
        raise _violated(name, array.null_count)
    return cast_array(array, item.type, field.type, name, check_nulls=check_nulls)


def _absent(item: StructField, field: pa.Field, length: int, name: str) -> pa.Array:
    if not item.nullable:
        raise SchemaMismatch(
            f"The data lacks column '{name}', and the table does not allow NULL there.", column=name
        )
    return pa.nulls(length, field.type)


def _positions(names: Sequence[str], schema: StructType, inside: str) -> dict[str, int]:
    """Return column positions by lower-case name; columns that the table lacks are an error."""
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        full = f"{inside}{name}"
        if name not in schema:
            known = ", ".join(schema.names[:20])
            raise SchemaMismatch(
                f"The data has a column '{full}' that the table does not have; it has {known}.", column=full
            )
        if name.lower() in positions:
            raise SchemaMismatch(f"The data has column '{full}' twice.", column=full)
        positions[name.lower()] = position
    return positions


def _struct(
    array: pa.Array, kind: StructType, target: pa.DataType, name: str, *, check_nulls: bool
) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _does_not_fit(array, kind, name)
    positions = _positions([field.name for field in array.type], kind, f"{name}.")
    children = []
    nulls = array.is_null() if array.null_count else None
    for item, field in zip(kind.fields, target, strict=True):
        inner = f"{name}.{item.name}"
        position = positions.get(item.name.lower())
        if position is None:
            children.append(_absent(item, field, len(array), inner))
            continue
        child = cast_array(array.field(position), item.type, field.type, inner, check_nulls=check_nulls)
        if check_nulls and not item.nullable and child.null_count:
            # Fields of a NULL struct are NULL, which does not violate NOT NULL.
            _no_nulls(child if nulls is None else child.filter(pc.invert(nulls)), inner)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=nulls)


def _list(array: pa.Array, kind: ArrayType, target: pa.DataType, name: str, *, check_nulls: bool) -> pa.Array:
    if pa.types.is_map(array.type) or not hasattr(array.type, "value_type"):
        raise _does_not_fit(array, kind, name)
    array = plain_list(array)
    inner = f"{name}.element"
    # Not ``values``: it includes values outside a slice and below NULL lists.
    if check_nulls and not kind.contains_null and array.values.null_count:
        _no_nulls(array.flatten(), inner)
    values = cast_array(array.values, kind.element, target.value_type, inner, check_nulls=check_nulls)
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, [values]
    )


def _map(array: pa.Array, kind: MapType, target: pa.DataType, name: str, *, check_nulls: bool) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _does_not_fit(array, kind, name)
    if check_nulls and not kind.value_contains_null and array.items.null_count:
        live = array.items if array.offset == 0 and not array.null_count else pa.concat_arrays([array]).items
        _no_nulls(live, f"{name}.value")
    keys = cast_array(array.keys, kind.key, target.key_type, f"{name}.key", check_nulls=check_nulls)
    items = cast_array(array.items, kind.value, target.item_type, f"{name}.value", check_nulls=check_nulls)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, [entries]
    )


def _no_nulls(values: pa.Array, name: str) -> None:
    if values.null_count:
        raise _violated(name, values.null_count)


def _violated(name: str, count: int) -> ConstraintViolation:
    return ConstraintViolation(
        f"NOT NULL constraint violated for column: {name}. The data has {count} NULLs; replace them with values.",
        constraint="NOT NULL",
        column=name,
    )


def _leaf(array: pa.Array, kind: DataType, target: pa.DataType, name: str) -> pa.Array:
    if not _may_fit(array.type, kind):
        raise _does_not_fit(array, kind, name)
    try:
        if isinstance(kind, DecimalType) and pa.types.is_integer(array.type):
            # Arrow demands a precision for any 64-bit value, so convert by the values.
            array = array.cast(pa.decimal128(_MAX_DIGITS, 0))
        elif isinstance(kind, DecimalType) and pa.types.is_floating(array.type):
            # By its decimal digits (0.1), not by its binary value, as Spark does.
            array = array.cast(pa.string())
        if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type) and array.type.tz is None:
            return (
                array.cast(pa.timestamp("us")).cast(target) if target.tz is None else _as_utc(array, target)
            )
        target_array = array.cast(target)
        if pa.types.is_floating(array.type) and kind == PrimitiveType("float"):
            back = target_array.cast(array.type)
            same = pc.or_(pc.equal(back, array), pc.is_nan(array))
            if pc.all(same).as_py() is False:
                raise pa.ArrowInvalid("a value does not fit into float without loss")
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise SchemaMismatch(
            f"A value of column '{name}' ({array.type}) does not fit into {type_name(kind)}: {reason}.",
            column=name,
        ) from error
    return target_array


def _as_utc(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(pa.timestamp("us")).view(target)


def _may_fit(source: pa.DataType, kind: DataType) -> bool:
    """Whether values of an Arrow type can be values of ``kind`` without changing their meaning."""
    if isinstance(kind, DecimalType):
        kinds = pa.types
        return bool(kinds.is_decimal(source) or kinds.is_integer(source) or kinds.is_floating(source))
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in INTEGER_TYPES or name in _FLOATS:
        return bool(pa.types.is_integer(source) or pa.types.is_floating(source))
    checks: dict[str, Any] = {
        "string": lambda: (
            pa.types.is_string(source) or pa.types.is_large_string(source) or pa.types.is_string_view(source)
        ),
        "binary": lambda: (
            pa.types.is_binary(source)
            or pa.types.is_large_binary(source)
            or pa.types.is_binary_view(source)
            or pa.types.is_fixed_size_binary(source)
        ),
        "boolean": lambda: pa.types.is_boolean(source),
        "date": lambda: pa.types.is_date(source),
        "timestamp": lambda: pa.types.is_timestamp(source),
        "timestamp_ntz": lambda: pa.types.is_timestamp(source) and source.tz is None,
    }
    return name in checks and bool(checks[name]())


def _does_not_fit(array: pa.Array, kind: DataType, name: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"Column '{name}' is {array.type} in the data and {type_name(kind)} in the table; convert it first.",
        column=name,
    )


def _forbids_nulls(kind: DataType) -> bool:
    return any(_nested_rules(kind))


def _nested_rules(kind: DataType) -> Iterator[bool]:
    if isinstance(kind, StructType):
        for item in kind.fields:
            yield not item.nullable
            yield from _nested_rules(item.type)
    elif isinstance(kind, ArrayType):
        yield not kind.contains_null
        yield from _nested_rules(kind.element)
    elif isinstance(kind, MapType):
        yield not kind.value_contains_null
        yield from _nested_rules(kind.value)
