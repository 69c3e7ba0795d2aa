"""APPEND: new rows, whatever the table holds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec._transport import ServiceClient, request
from delvec.engines.engine import WriteTarget
from delvec.protocol.constraints import generates
from delvec.protocol.wire import AppTransaction
from delvec.transaction import Metrics, Transaction, begin

if TYPE_CHECKING:
    from delvec.table import DeltaTable

__all__ = ["append", "is_repeatable"]

_METRICS: Final[Mapping[str, int]] = dict.fromkeys(("numFiles", "numOutputRows", "numOutputBytes"), 0)
_READ_AGAIN: Final = frozenset({"duckdb", "pandas", "polars", "pyarrow", "pyspark"})


def append(
    service: ServiceClient, table: "DeltaTable", data: Any, txn: tuple[str, int] | None = None
) -> Metrics:
    """Write ``data`` as new files, and commit them; see :meth:`delvec.DeltaTable.append`."""
    application = None if txn is None else request(AppTransaction, app_id=txn[0], version=txn[1])
    begun, schema = begin(service, table.id, "WRITE")
    if application and begun.app_transactions.get(application.app_id, -1) >= application.version:
        return Metrics(_METRICS, None, already_applied=True)
    target = WriteTarget(
        location=begun.location,
        schema=schema,
        partition_columns=begun.partition_columns,
        configuration=begun.configuration,
        transaction_id=begun.transaction_id,
        generated_columns=generates(begun.protocol),
    )
    transaction = Transaction(
        service,
        table.id,
        "WRITE",
        begun.version,
        transaction_id=begun.transaction_id,
        engine_info=table.engine.name,
        txn=txn,
    )
    transaction.add(table.engine.write(data, target))
    if transaction.is_empty:
        return Metrics(_METRICS, None)
    return Metrics.of(transaction.commit(), _METRICS)


def is_repeatable(data: Any) -> bool:
    """Whether rows can be read a second time: a stream cannot."""
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__next__"):
        return False
    return isinstance(data, list) or type(data).__module__.partition(".")[0] in _READ_AGAIN
