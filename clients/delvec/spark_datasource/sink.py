"""``df.write.format("delvec")``: rows that Spark hands to a Python data source become files of a table, and a commit.

Spark calls the parts in processes of their own: one on the driver makes the writer, which begins the transaction;
tasks write final files; another one on the driver commits what the tasks say they wrote. Only that one and the first
ask the service. What a failed job leaves carries the id of a transaction that the service has in its ledger.
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

from delvec.connection import connect
from delvec.engines.spark.row_sets import forget_archives, plainly
from delvec.spark_datasource.sink_options import WriteRequest
from delvec.spark_datasource.write_transaction import WriteTransaction
from delvec_kernel.errors import DelvecError, from_wire
from delvec_kernel.schema.types import schema_from
from delvec_kernel.wire import AddFile

__all__ = ["DelvecWriter", "Written", "written"]


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task did: files, as JSON, or the error that it met."""

    adds: list[str]
    error: str | None = None

    @classmethod
    def by(cls, begun: WriteTransaction, batches: Iterator[pa.RecordBatch]) -> "Written":
        """Write the rows of this task; an error is an answer: raised here, it would be tried again, and become text.

        Raises:
            StorageError: where that is right, because it may pass: Spark runs the task again, elsewhere perhaps.
        """
        context = TaskContext.get()
        forget_archives()
        try:
            adds = begun.write(batches, context.partitionId() if context else 0)
        except DelvecError as error:
            if error.retryable:
                raise
            return cls([], json.dumps(error.to_wire()))
        return cls([add.model_dump_json(by_alias=True) for add in adds])


def written(messages: Sequence[Written]) -> list[AddFile] | DelvecError:
    """Return the files of all tasks, or what one of them met."""
    for message in messages:
        if message.error:
            return from_wire(json.loads(message.error))
    return [AddFile.model_validate_json(add) for message in messages for add in message.adds]


class DelvecWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes the rows of one job, and commits them."""

    def __init__(self, request: WriteRequest, schema: T.StructType, *, overwrite: bool) -> None:
        self._replacement = request.replacement(overwrite=overwrite)
        with connect(request.url, token=request.token) as lake:
            self._begun = WriteTransaction.begin(lake, request, schema_from(schema), request.options)
        self._request = request
        self._secret = _Secret(request.token)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get this object, too, and need no token.
        return {**self.__dict__, "_request": self._request.without_token()}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors."""
        return Written([]) if self._begun.already_applied else Written.by(self._begun, iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what tasks wrote, in a process of the driver's.

        Raises:
            DelvecError: what a task met, or the commit.
        """
        token = self._secret.take()
        if self._begun.already_applied:
            return
        found = written([message for message in messages if isinstance(message, Written)])
        with connect(self._request.url, token=token) as lake:
            self._begun.commit(lake, found, self._request.options, self._replacement)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Leave the files: the service has the transaction in its ledger, and nothing refers to them."""
        self._secret.take()


class _Secret:
    """The token on its way from one process of the driver's to another.

    A file holds it mixed with random bytes, which travel with the writer. So the file that a crash leaves behind tells
    nothing, and neither does the writer to tasks, which do not get the file.
    """

    def __init__(self, token: str | None) -> None:
        self._path: str | None = None
        self._pad = b""
        if token is not None:
            self._pad = secrets.token_bytes(len(token.encode()))
            handle, self._path = tempfile.mkstemp(prefix="delvec-")
            with os.fdopen(handle, "wb") as file:
                file.write(_mixed(token.encode(), self._pad))

    def take(self) -> str | None:
        """Return the token, once, and remove the file."""
        if self._path is None:
            return None
        file = Path(self._path)
        token = _mixed(file.read_bytes(), self._pad).decode() if file.exists() else None
        with suppress(OSError):
            file.unlink()
        return token


def _mixed(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
