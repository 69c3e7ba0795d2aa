"""Converts user data (pandas, polars, lists of rows, ...) to Arrow.

Typed data keeps its types; Python values get the types of the table's columns.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from delvec_engines.interrupts import interruptible
from delvec_engines.python_rows import Widening, array_of_values, table_of_rows
from delvec_errors import BadRequest, DelvecError, SchemaMismatch
from delvec_kernel.schema.types import PrimitiveType, StructType

__all__ = ["to_arrow", "to_reader"]

_DETAIL: Final = ". Detail: Python exception"
"""Start of the Python traceback in Arrow's errors."""


_NO_COLUMNS: Final = StructType(())


def to_reader(
    data: Any, schema: StructType = _NO_COLUMNS, *, widens: Widening | None = None
) -> pa.RecordBatchReader:
    """Return ``data`` as a stream of record batches; streams are not collected.

    Takes whatever :func:`to_arrow` takes.

    Raises:
        SchemaMismatch: ``data`` is not tabular, or a value does not fit its column.
        BadRequest: while it is read: the stream fails before its end.
    """
    if isinstance(data, pa.RecordBatchReader):
        return _guarded(data)
    if isinstance(data, pa.Table):
        return data.to_reader()
    if _is_pandas(data) or not hasattr(data, "__arrow_c_stream__"):
        return to_arrow(data, schema, widens=widens).to_reader()
    try:
        with interruptible():
            return _guarded(pa.RecordBatchReader.from_stream(data))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _mismatch(data, error) from error


def _guarded(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return a stream that raises BadRequest if the user's stream fails."""

    def batches() -> Iterator[pa.RecordBatch]:
        count = 0
        try:
            with interruptible():
                for batch in reader:
                    yield batch
                    count += batch.num_rows
        except DelvecError:
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).partition("\n")[0].partition(_DETAIL)[0]
            raise BadRequest(
                f"The data cannot be read past row {count}: {reason}. Nothing was committed."
            ) from error

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def to_arrow(
    data: Any,
    schema: StructType = _NO_COLUMNS,
    *,
    widens: Widening | None = None,
    misfits: dict[str, SchemaMismatch] | None = None,
) -> pa.Table:
    """Return ``data`` as an Arrow table, without pandas metadata.

    Takes an Arrow table, record batch or reader, a pandas or polars DataFrame, anything with
    ``__arrow_c_stream__`` or ``__arrow_c_array__`` (DuckDB relations, nanoarrow, ...), and a list of
    dictionaries, where a row that lacks a key has NULL there. A pandas index is not a column.

    Args:
        data: the rows.
        schema: types of columns with Python values: of dictionaries, and of nested values and decimals in a
            pandas DataFrame. Types of other columns are inferred.
        widens: as in :func:`~delvec_engines.python_rows.table_of_rows`.
        misfits: as there, of dictionaries.

    Raises:
        SchemaMismatch: ``data`` is not tabular, a value does not fit its column, or a column that is inferred mixes types
            that Arrow cannot hold together.
        BadRequest: a stream fails before its end.
    """
    try:
        with interruptible():
            table = _collect(data, schema, widens, misfits)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _mismatch(data, error) from error
    if table is None:
        hint = "; call .collect() first" if type(data).__name__ == "LazyFrame" else ""
        raise SchemaMismatch(
            "The data must be an Arrow table, a pandas or polars DataFrame, or a list of dictionaries, not "
            f"{_name(data)}{hint}"
        )
    return table


def _collect(
    data: Any, schema: StructType, widens: Widening | None, misfits: dict[str, SchemaMismatch] | None
) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    if _is_pandas(data):
        return _from_pandas(data, schema, widens)
    if hasattr(data, "__arrow_c_stream__"):
        return _guarded(pa.RecordBatchReader.from_stream(data)).read_all()
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    if isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
        if data and not any(data):
            raise SchemaMismatch(
                f"The data has {len(data)} rows, but no row names a column, so nothing can be written. Name one, for example "
                "{'id': None}; columns that a row leaves out get their defaults."
            )
        return table_of_rows(data, schema, widens=widens, misfits=misfits)
    return None


def _from_pandas(frame: Any, schema: StructType, widens: Widening | None) -> pa.Table:
    values = {
        place: name
        for place, (name, kind) in enumerate(zip(frame.columns, frame.dtypes, strict=True))
        if kind.kind == "O" and name in schema and not isinstance(schema.field(name).type, PrimitiveType)
    }
    rest = frame.iloc[:, [place for place in range(frame.shape[1]) if place not in values]]
    table = pa.Table.from_pandas(rest, preserve_index=False).replace_schema_metadata(None)
    for place, name in values.items():
        column = frame.iloc[:, place]
        given = [None if null else value for value, null in zip(column, column.isna(), strict=True)]
        array = array_of_values(given, schema.field(name).type, name, widens)
        # A table without columns has no rows, to which none could be added.
        table = table.add_column(place, name, array) if table.num_columns else pa.table({name: array})
    return table


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and type(data).__name__ == "DataFrame"


def _name(data: Any) -> str:
    kind = type(data)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _mismatch(data: Any, error: Exception) -> SchemaMismatch:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return SchemaMismatch(f"This {_name(data)} cannot be converted to Arrow: {reason}")
