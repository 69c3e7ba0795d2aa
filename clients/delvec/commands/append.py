"""APPEND: new rows, whatever the table holds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec._transport import ServiceClient
from delvec.commands.new_rows import NewRows, WriteOptions
from delvec.transaction import Metrics

if TYPE_CHECKING:
    from delvec.table import DeltaTable

__all__ = ["add_rows", "append", "is_repeatable"]

_METRICS: Final[Mapping[str, int]] = dict.fromkeys(("numFiles", "numOutputRows", "numOutputBytes"), 0)
_READ_AGAIN: Final = frozenset({"delvec", "duckdb", "pandas", "polars", "pyarrow", "pyspark"})


def append(service: ServiceClient, table: "DeltaTable", data: Any, options: WriteOptions) -> Metrics:
    """Write ``data`` as new files, and commit them; see :meth:`delvec.DeltaTable.append`."""
    return add_rows(NewRows.begin(service, table, data, options))


def add_rows(rows: NewRows) -> Metrics:
    """Do the same with rows whose transaction was begun."""
    if rows.already_applied:
        return Metrics(_METRICS, None, already_applied=True)
    transaction = rows.transaction()
    rows.write(transaction)
    if transaction.is_empty:
        return Metrics(_METRICS, None)
    return Metrics.of(transaction.commit(), _METRICS)


def is_repeatable(data: Any) -> bool:
    """Whether rows can be read a second time: a stream cannot."""
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__next__"):
        return False
    return isinstance(data, list) or type(data).__module__.partition(".")[0] in _READ_AGAIN
