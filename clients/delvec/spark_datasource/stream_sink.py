"""``df.writeStream.format("delvec")``: commits each micro-batch of a stream exactly once, as one version.

A batch that Spark repeats after a crash is recognized by the query id, which the checkpoint keeps, and the batch
id: the log records them as ``txn``. Only tasks know the query id, so they return it
to the commit with their files.

For each batch Spark creates the writer twice: once to send it to tasks, and once to commit. The first begins the
transaction; the second receives it from the first task.

Tested in `tests/integration/spark/test_spark_stream_sink.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from delvec.spark_datasource.driver_connection import driver_connection
from delvec.spark_datasource.sink import Written, written
from delvec.spark_datasource.sink_options import WriteRequest
from delvec.spark_datasource.write_transaction import WriteTransaction
from delvec_engines.spark.row_sets import without_traceback
from delvec_errors import DelvecError, InternalError
from delvec_kernel.schema.types import schema_from

__all__ = ["DelvecStreamWriter"]

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class _BatchCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task of a batch.

    Attributes:
        begun: the transaction, from the first task only.
    """

    query: str
    written: Written
    begun: WriteTransaction | None


class DelvecStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the rows of a batch, or commits them."""

    def __init__(self, request: WriteRequest, schema: T.StructType, *, overwrite: bool) -> None:
        self._replacement = request.replacement(overwrite=overwrite)
        self._request = request
        self._columns = schema_from(schema)
        self._begun: WriteTransaction | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Called only for the writer that is sent to tasks, so begin here. Tasks do not need the token.
        return {"_begun": self._begin(), "_request": self._request.without_token()}

    def _begin(self) -> WriteTransaction:
        if self._begun is None:
            request = self._request
            lake = driver_connection(request.url, request.token)
            self._begun = WriteTransaction.begin(lake, request, self._columns, request.options)
        return self._begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors."""
        context = TaskContext.get()
        transaction = self._begin()
        query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH))
        if context is None or query is None:
            raise InternalError(
                "Spark does not tell tasks which query they belong to; write with foreachBatch"
            )
        done = transaction.begun.app_transactions.get(self._request.txn_app or query, -1)
        # The batch was committed before a crash: nothing to write.
        found = Written([]) if batch is not None and int(batch) <= done else Written.by(transaction, iterator)
        return _BatchCommitMessage(query, found, transaction if context.partitionId() == 0 else None)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Commit what tasks wrote, in a process of the driver's.

        Raises:
            DelvecError: the error of a task or of the commit.
        """
        parts = [message for message in messages if isinstance(message, _BatchCommitMessage)]
        transaction = next((part.begun for part in parts if part.begun is not None), None)
        adds = written([part.written for part in parts])
        if isinstance(adds, DelvecError):
            raise adds
        if transaction is None:
            raise InternalError(f"batch {batchId} lacks the result of its first task; run the query again")
        if not (adds or transaction.changes or self._replacement):
            return
        query, request = parts[0].query, self._request
        transaction.commit(
            driver_connection(request.url, request.token),
            adds,
            replace(request.options, txn=(request.txn_app or query, batchId)),
            self._replacement,
            {
                "outputMode": "Append" if self._replacement is None else "Complete",
                "queryId": query,
                "epochId": str(batchId),
            },
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the files to VACUUM: the service's ledger has the transaction, and nothing refers to them."""
