"""Data that a user hands in, as Arrow: the one place that knows of pandas, polars and lists of rows."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from delvec_kernel.errors import BadRequest, DelvecError, SchemaMismatch

__all__ = ["to_arrow", "to_reader"]

_DETAIL: Final = ". Detail: Python exception"
"""Where Arrow begins to tell how an error came about in Python."""


def to_reader(data: Any) -> pa.RecordBatchReader:
    """Return ``data`` as a stream of record batches; what is a stream already is not collected.

    Takes whatever :func:`to_arrow` takes.

    Raises:
        SchemaMismatch: ``data`` is not tabular, or a column mixes types that Arrow cannot hold together.
        BadRequest: while it is read: the stream fails before its end.
    """
    if isinstance(data, pa.RecordBatchReader):
        return _guarded(data)
    if isinstance(data, pa.Table):
        return data.to_reader()
    if _is_pandas(data) or not hasattr(data, "__arrow_c_stream__"):
        return to_arrow(data).to_reader()
    try:
        return _guarded(pa.RecordBatchReader.from_stream(data))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _mismatch(data, error) from error


def _guarded(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return a stream whose failure is an error of the one who gave it."""

    def batches() -> Iterator[pa.RecordBatch]:
        count = 0
        try:
            for batch in reader:
                yield batch
                count += batch.num_rows
        except DelvecError:
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).partition("\n")[0].partition(_DETAIL)[0]
            raise BadRequest(
                f"The rows cannot be read beyond row {count}: {reason}. Nothing was committed."
            ) from error

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def to_arrow(data: Any) -> pa.Table:
    """Return ``data`` as an Arrow table, without pandas metadata.

    Takes an Arrow table, record batch or reader, a pandas or polars DataFrame, anything with
    ``__arrow_c_stream__`` or ``__arrow_c_array__`` (DuckDB relations, nanoarrow, ...), and a list of
    dictionaries, where a row that lacks a key has NULL there. A pandas index is not a column.

    Raises:
        SchemaMismatch: ``data`` is not tabular, or a column mixes types that Arrow cannot hold together.
        BadRequest: a stream fails before its end.
    """
    try:
        table = _collect(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _mismatch(data, error) from error
    if table is None:
        hint = "; call .collect() first" if type(data).__name__ == "LazyFrame" else ""
        raise SchemaMismatch(
            f"Rows must come as an Arrow table, a pandas or polars DataFrame, or a list of dictionaries, "
            f"not as {_name(data)}{hint}"
        )
    return table


def _collect(data: Any) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    if _is_pandas(data):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if hasattr(data, "__arrow_c_stream__"):
        return _guarded(pa.RecordBatchReader.from_stream(data)).read_all()
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    if isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
        # from_pylist alone takes the columns of the first row and drops what only later rows have.
        names = list(dict.fromkeys(name for row in data for name in row))
        return pa.table({name: [row.get(name) for row in data] for name in names})
    return None


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and type(data).__name__ == "DataFrame"


def _name(data: Any) -> str:
    kind = type(data)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _mismatch(data: Any, error: Exception) -> SchemaMismatch:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return SchemaMismatch(f"The rows of this {_name(data)} do not fit into Arrow columns: {reason}")
