"""Converts rows of Python values to Arrow columns of the table's types.

Arrow infers types from values: a dictionary becomes a struct, never a map, and a float never a decimal. Here the table's
schema gives the types at every depth; only columns and fields that the table lacks are inferred. Values must fit as for
Arrow columns (:func:`~delvec_engines.arrow_conversion.cast_array`), with two exceptions: Python has only one type of
floating-point numbers, so a float in a ``float`` column is rounded to the nearest; and values of several types in a column
are converted type by type, because Arrow would take the first value's type for all.

Tested in `tests/integration/client/engines/test_input_data.py` and
`tests/integration/engines/test_rows_of_values.py`.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_engines.arrow_conversion import cast_array
from delvec_errors import SchemaMismatch
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    arrow_type,
    type_name,
)

__all__ = ["Widening", "array_of_values", "table_of_rows"]

Widening: TypeAlias = Callable[[pa.DataType, DataType], bool]
"""Whether a column of the Delta type can be widened to take values of the Arrow type."""

_MAX_SHOWN: Final = 80
_NOT_VALUES: Final = (str, bytes, bytearray, memoryview, Mapping)
_ERRORS: Final = (pa.ArrowException, SchemaMismatch, TypeError, ValueError, OverflowError)


def table_of_rows(
    rows: Sequence[Mapping[str, Any]],
    schema: StructType,
    *,
    widens: Widening | None = None,
    misfits: dict[str, SchemaMismatch] | None = None,
) -> pa.Table:
    """Return rows as a table with the union of their columns; a row that lacks one has NULL.

    Args:
        rows: dictionaries by column; structs are dictionaries by field, maps are dictionaries or pairs.
        schema: types by case-insensitive column name; other columns are inferred.
        widens: if it accepts the inferred type of values that do not fit, the column gets that type.
        misfits: collects the error of each misfit column by lower-case name, and the type is inferred; None raises it.

    Raises:
        SchemaMismatch: names the column, the row and the value that does not fit; or an inferred column mixes types.
    """
    columns: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        kind = schema.field(name).type if name in schema else None
        try:
            columns[name] = array_of_values(values, kind, name, widens)
        except SchemaMismatch as error:
            if misfits is None:
                raise
            try:
                columns[name] = pa.array(values)
            except _ERRORS:
                raise error from None
            misfits[name.lower()] = error
    return pa.table(columns)


def array_of_values(
    values: Sequence[Any], kind: DataType | None, name: str, widens: Widening | None = None
) -> pa.Array:
    """Return the values of a column.

    Args:
        values: one for each row.
        kind: the column's type; None: Arrow infers one.
        name: the name of the column, for errors.
        widens: as in :func:`table_of_rows`.

    Raises:
        SchemaMismatch: a value does not fit; without a type: values of several types.
    """
    return _Column(name, range(len(values)), widens).array(values, kind)


@dataclass(frozen=True)
class _Column:
    """A column or nested field.

    Attributes:
        path: names with dots between.
        rows: the row of each value.
        widens: as in :func:`table_of_rows`.
    """

    path: str
    rows: Sequence[int]
    widens: Widening | None

    def array(self, values: Sequence[Any], kind: DataType | None) -> pa.Array:
        if kind is not None and all(value is None for value in values):
            return pa.nulls(len(values), arrow_type(kind))
        match kind:
            case None:
                return self._inferred(values)
            case StructType():
                return self._struct(values, kind)
            case ArrayType():
                return self._list(values, kind)
            case MapType():
                return self._map(values, kind)
            case _:
                return self._leaf(values, kind)

    def _inside(self, name: str, rows: Sequence[int] | None = None) -> "_Column":
        return _Column(f"{self.path}.{name}", self.rows if rows is None else rows, self.widens)

    def _struct(self, values: Sequence[Any], kind: StructType) -> pa.Array:
        for place, value in enumerate(values):
            if not (value is None or isinstance(value, Mapping)):
                raise self._misfit(value, place, kind)
        names = dict.fromkeys(name for value in values if value is not None for name in value)
        if not names:
            return pa.array(values, pa.struct([]))
        fields, children = [], []
        for name in names:
            inner = [None if value is None else value.get(name) for value in values]
            # Fields that the struct lacks are inferred, too: schema evolution may add them.
            known = kind.field(name).type if name in kind else None
            children.append(self._inside(name).array(inner, known))
            fields.append(pa.field(name, children[-1].type))
        nulls = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=fields, mask=nulls)

    def _list(self, values: Sequence[Any], kind: ArrayType) -> pa.Array:
        lists: list[list[Any] | None] = []
        for place, value in enumerate(values):
            if value is not None and (isinstance(value, _NOT_VALUES) or not isinstance(value, Iterable)):
                raise self._misfit(value, place, kind)
            lists.append(None if value is None else list(value))
        inside = self._inside("element", self._repeated(lists))
        elements = inside.array([each for value in lists if value for each in value], kind.element)
        return pa.ListArray.from_arrays(_offsets(lists), elements)

    def _map(self, values: Sequence[Any], kind: MapType) -> pa.Array:
        maps: list[list[tuple[Any, Any]] | None] = []
        for place, value in enumerate(values):
            try:
                pairs = value.items() if isinstance(value, Mapping) else value
                maps.append(None if value is None else [(key, item) for key, item in pairs])
            except (TypeError, ValueError):
                raise self._misfit(value, place, kind) from None
        keys = [key for value in maps if value for key, _ in value]
        inside = self._repeated(maps)
        if None in keys:
            place = keys.index(None)
            raise self._inside("key", inside)._misfit(None, place, kind.key)  # noqa: SLF001 - one of this class
        items = [item for value in maps if value for _, item in value]
        return pa.MapArray.from_arrays(
            _offsets(maps),
            self._inside("key", inside).array(keys, kind.key),
            self._inside("value", inside).array(items, kind.value),
        )

    def _repeated(self, values: Sequence[Sequence[Any] | None]) -> list[int]:
        return [row for row, value in zip(self.rows, values, strict=True) for _ in value or ()]

    def _leaf(self, values: Sequence[Any], kind: DataType) -> pa.Array:
        try:
            return self._exactly(values, kind)
        except SchemaMismatch:
            if self.widens is not None and self.widens((found := self._inferred(values)).type, kind):
                return found
            raise

    def _inferred(self, values: Sequence[Any]) -> pa.Array:
        try:
            return pa.array(values)
        except _ERRORS as error:
            reason = str(error).partition("\n")[0]
            raise SchemaMismatch(
                f"The values of column '{self.path}' have no common type: {reason}.", column=self.path
            ) from error

    def _exactly(self, values: Sequence[Any], kind: DataType) -> pa.Array:
        kinds = set(map(type, values))
        if len(kinds - {type(None)}) < 2 and not any(issubclass(each, dt.datetime) for each in kinds):  # noqa: PLR2004 - one type
            return self._alike(values, range(len(values)), kind)
        places: dict[Any, list[int]] = {}
        for place, value in enumerate(values):
            zoned = isinstance(value, dt.datetime) and value.tzinfo is not None
            places.setdefault((type(value), zoned), []).append(place)
        order = np.argsort(np.concatenate([np.array(each) for each in places.values()]))
        arrays = [self._alike([values[place] for place in each], each, kind) for each in places.values()]
        return pa.concat_arrays(arrays).take(pa.array(order))

    def _alike(self, values: Sequence[Any], places: Sequence[int], kind: DataType) -> pa.Array:
        """Return the array of values that share one Python type, or are None."""
        try:
            return _converted(values, kind)
        except _ERRORS as error:
            first, last = 0, len(values)
            while last - first > 1:
                middle = (first + last) // 2
                if _fits(values[first:middle], kind):
                    first = middle
                else:
                    last = middle
            raise self._misfit(values[first], places[first], kind) from error

    def _misfit(self, value: Any, place: int, kind: DataType) -> SchemaMismatch:
        value_text = repr(value) if len(repr(value)) <= _MAX_SHOWN else f"{repr(value)[:_MAX_SHOWN]}…"
        row = self.rows[place]
        return SchemaMismatch(
            f"Column '{self.path}' is {type_name(kind)} in the table, but row {row} (counted from 0) has {value_text} "
            f"({type(value).__name__}); nothing was committed.",
            column=self.path,
            row=row,
            value=value_text,
        )


def _converted(values: Sequence[Any], kind: DataType) -> pa.Array:
    target = arrow_type(kind)
    sample = next((value for value in values if value is not None), None)
    if isinstance(kind, DecimalType) and isinstance(sample, int | Decimal) and not isinstance(sample, bool):
        # With an inferred type, numbers that fit one by one could together exceed the digits of a decimal.
        return pa.array(values, target)
    inferred_array = pa.array(values)
    if kind == PrimitiveType("float") and pa.types.is_float64(inferred_array.type):
        near = inferred_array.cast(target)
        if pc.any(pc.and_(pc.is_inf(near), pc.is_finite(inferred_array))).as_py():
            raise pa.ArrowInvalid("too large for a float")
        return near
    return cast_array(inferred_array, kind, target, "", check_nulls=False)


def _fits(values: Sequence[Any], kind: DataType) -> bool:
    try:
        _converted(values, kind)
    except _ERRORS:
        return False
    return True


def _offsets(values: Sequence[Sequence[Any] | None]) -> pa.Array:
    """Return the list offsets; NULL for a NULL list."""
    ends = np.concatenate([[0], np.cumsum([len(value or ()) for value in values], dtype=np.int64)])
    nulls = np.array([*(value is None for value in values), False])
    return pa.array(ends, pa.int32(), mask=nulls)
