"""The source of a MERGE as a DuckDB table.

Tested in `tests/integration/client/engines/duckdb/test_row_changes.py` and
`tests/integration/engines/test_merge.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_engines.arrow_conversion import cast_batch
from delvec_engines.calendar import shows_early
from delvec_engines.input_data import to_arrow, to_reader
from delvec_engines.internal_names import INTERNAL
from delvec_engines.interrupts import interruptible
from delvec_engines.row_changes import MergeSource, SourceTable
from delvec_errors import BadRequest, DelvecError, EngineUnavailable
from delvec_kernel.schema.types import StructType, arrow_type

__all__ = ["SOURCE_ROW", "SOURCE_TABLE", "LoadedSource", "load", "merge_source"]

SOURCE_ROW: Final = INTERNAL("source_row")
"""The column that numbers the source's rows, from 0."""

SOURCE_TABLE: Final = INTERNAL("source")
_INCOMING: Final = INTERNAL("incoming")
_READ_AGAIN: Final = frozenset({"duckdb", "pandas", "polars", "pyarrow"})


@dataclass(frozen=True)
class _Rows:
    """Rows that are read lazily."""

    open: Callable[[], pa.RecordBatchReader]


def merge_source(data: Any) -> MergeSource:
    """Return a source for rows, which are read lazily, except for lists.

    Args:
        data: anything that :func:`~delvec_engines.input_data.to_reader` takes, or a :class:`~delvec.DeltaTable`,
            pinned to its newest version.

    Raises:
        InvalidSchema: columns that have no Delta type, or two of one name.
        SchemaMismatch: ``data`` is not tabular.
    """
    if isinstance(data, SourceTable):
        return _from_table(data)
    if isinstance(data, duckdb.DuckDBPyRelation):
        kinds = data.limit(0).to_arrow_table().schema
        # Read the names here: a subquery would rename duplicate columns silently.
        named = [item.with_name(name) for item, name in zip(kinds, data.columns, strict=True)]
        schema = StructType.from_arrow(pa.schema(named))
        return MergeSource(schema, _Rows(lambda: to_reader(data)), is_repeatable=True)
    if isinstance(data, pa.RecordBatchReader) or not _is_held(data):
        reader = to_reader(data)
        return MergeSource(StructType.from_arrow(reader.schema), _Rows(lambda: reader), is_repeatable=False)
    rows = to_arrow(data)
    schema = StructType.from_arrow(rows.schema)
    return MergeSource(
        schema,
        _Rows(rows.to_reader),
        is_repeatable=True,
        bounds=lambda columns: _bounds(rows, schema, columns),
    )


def _bounds(rows: pa.Table, schema: StructType, columns: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return the least and greatest value of each column that has usable ones."""
    bounds = {}
    for item in schema.select(columns).fields:
        try:
            ends = pc.min_max(rows[item.name].cast(arrow_type(item.type))).as_py()
        except pa.ArrowException:
            continue
        if ends["min"] is not None:
            bounds[item.name] = (ends["min"], ends["max"])
    return bounds


def _from_table(table: SourceTable) -> MergeSource:
    scan, _ = table.plan()
    # Without metadata: field ids and defaults of the source table do not apply to the target.
    schema = StructType.from_arrow(scan.schema.to_arrow())
    return MergeSource(schema, _Rows(lambda: table.to_batches(version=scan.version)), is_repeatable=True)


def _is_held(data: Any) -> bool:
    """Whether the rows are in memory and can be read again."""
    return not hasattr(data, "__next__") and (
        isinstance(data, list) or type(data).__module__.partition(".")[0] in _READ_AGAIN
    )


@dataclass(frozen=True)
class LoadedSource:
    """The source as a temporary table of one connection.

    Attributes:
        rows: number of rows; ``SOURCE_ROW`` numbers them from 0.
        early: whether it has dates before 1582-10-15 or timestamps before 1900.
    """

    rows: int = 0
    early: bool = False


def load(connection: Any, source: MergeSource) -> LoadedSource:
    """Read the source once into a temporary table named :data:`SOURCE_TABLE`.

    Raises:
        BadRequest: the source fails before its last row.
        EngineUnavailable: it does not fit into memory.
    """
    arrow = source.schema.to_arrow()
    numbered_schema = arrow.append(pa.field(SOURCE_ROW, pa.int64()))
    failures: list[Exception] = []
    count, early = 0, False

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count, early
        try:
            for batch in source.data.open():
                rows = cast_batch(batch, source.schema, arrow, check_nulls=False)
                early = early or shows_early(rows)
                numbers = pa.array(np.arange(count, count + batch.num_rows))
                count += batch.num_rows
                yield pa.RecordBatch.from_arrays([*rows.columns, numbers], schema=numbered_schema)
        except Exception as error:
            # DuckDB would turn the error into text.
            failures.append(error)
            raise

    connection.register(_INCOMING, pa.RecordBatchReader.from_batches(numbered_schema, batches()))
    try:
        with interruptible():
            connection.execute(f"CREATE TEMP TABLE {SOURCE_TABLE} AS SELECT * FROM {_INCOMING}")  # noqa: S608
    except Exception as error:
        raise _failed(failures[0] if failures else error, count) from error
    finally:
        connection.unregister(_INCOMING)
    return LoadedSource(count, early)


def _failed(error: Exception, count: int) -> DelvecError:
    if isinstance(error, DelvecError):
        return error
    reason = (str(error) or type(error).__name__).partition("\n")[0]
    if isinstance(error, duckdb.OutOfMemoryException):
        return EngineUnavailable(
            f"DuckDB ran out of memory reading the source after {count} rows: {reason}; raise its memory_limit, or use "
            "Spark."
        )
    return BadRequest(f"The source cannot be read past row {count}: {reason}. Nothing was changed.")
