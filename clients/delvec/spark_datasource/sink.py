"""``df.write.format("delvec")``: the batch writer of the Python data source.

Spark runs the steps in separate processes: one on the driver creates the writer, which begins the transaction;
tasks write final files; another one on the driver commits the files that tasks report. Only the two on the driver
send requests. Files of a failed job carry the id of a transaction in the service's ledger.

Tested in `tests/integration/spark/test_spark_sink.py`.
"""

import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from delvec.entry_point import connect
from delvec.spark_datasource.sink_options import WriteRequest
from delvec.spark_datasource.write_transaction import WriteTransaction
from delvec_contract.codec import as_json, from_json
from delvec_engines.spark.row_sets import drop_zip_importers, without_traceback
from delvec_errors import DelvecError, from_wire
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.schema.types import schema_from

__all__ = ["DelvecWriter", "Written", "written"]


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task: files as JSON, or an error."""

    adds: list[str]
    error: str | None = None

    @classmethod
    def by(cls, transaction: WriteTransaction, batches: Iterator[pa.RecordBatch]) -> "Written":
        """Write the rows of this task; errors are returned: if raised, Spark would retry, and turn them into text.

        Raises:
            StorageError: raised, because a retry by Spark, perhaps on another executor, may succeed.
        """
        context = TaskContext.get()
        drop_zip_importers()
        try:
            adds = transaction.write(batches, context.partitionId() if context else 0)
        except DelvecError as error:
            if error.retryable:
                raise
            return cls([], json.dumps(error.to_wire()))
        return cls([as_json(add) for add in adds])


def written(messages: Sequence[Written]) -> list[AddFile] | DelvecError:
    """Return the files of all tasks, or the error of one."""
    for message in messages:
        if message.error:
            return from_wire(json.loads(message.error))
    return [from_json(AddFile, add) for message in messages for add in message.adds]


class DelvecWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes the rows of one job, and commits them."""

    def __init__(self, request: WriteRequest, schema: T.StructType, *, overwrite: bool) -> None:
        self._replacement = request.replacement(overwrite=overwrite)
        with connect(request.url, token=request.token) as lake:
            self._begun = WriteTransaction.begin(lake, request, schema_from(schema), request.options)
        self._request = request
        self._secret = _Secret(request.token)

    def __getstate__(self) -> dict[str, Any]:
        # Without the token: this object is sent to tasks.
        return {**self.__dict__, "_request": self._request.without_token()}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors."""
        return Written([]) if self._begun.already_applied else Written.by(self._begun, iterator)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what tasks wrote, in a process of the driver's.

        Raises:
            DelvecError: the error of a task or of the commit.
        """
        token = self._secret.take()
        if self._begun.already_applied:
            return
        adds = written([message for message in messages if isinstance(message, Written)])
        with connect(self._request.url, token=token) as lake:
            self._begun.commit(lake, adds, self._request.options, self._replacement)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Leave the files to VACUUM: the service's ledger has the transaction, and nothing refers to them."""
        self._secret.take()


class _Secret:
    """Passes the token from one driver process to another.

    A file contains it XORed with random bytes, which are part of the writer. So neither a file left by a crash reveals
    the token, nor the writer, which is sent to tasks.
    """

    def __init__(self, token: str | None) -> None:
        self._path: str | None = None
        self._pad = b""
        if token is not None:
            self._pad = secrets.token_bytes(len(token.encode()))
            handle, self._path = tempfile.mkstemp(prefix="delvec-")
            with os.fdopen(handle, "wb") as file:
                file.write(_xor(token.encode(), self._pad))

    def take(self) -> str | None:
        """Return the token, once, and remove the file."""
        if self._path is None:
            return None
        file = Path(self._path)
        token = _xor(file.read_bytes(), self._pad).decode() if file.exists() else None
        with suppress(OSError):
            file.unlink()
        return token


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
