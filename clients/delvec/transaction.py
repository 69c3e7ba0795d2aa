"""One commit as the client makes it: what was read, what changes, and what came of it."""

import base64
import uuid
from collections.abc import Mapping, Sequence

from pyroaring import BitMap64

from delvec._transport import ServiceClient, answer, request, table_path
from delvec.protocol.deletion_vector import serialize_bitmap
from delvec.protocol.types import StructType
from delvec.protocol.wire import (
    AddFile,
    BeginRequest,
    BeginResponse,
    CommitRequest,
    CommitResponse,
    RemoveFile,
    RowDelete,
)

__all__ = ["Metrics", "Transaction", "begin"]


class Metrics(dict[str, int]):
    """What a command did: Delta's metric names and their values.

    Attributes:
        version: the version that the command committed; None where there was nothing to commit.
    """

    def __init__(self, values: Mapping[str, int], version: int | None) -> None:
        super().__init__(values)
        self.version = version

    def __repr__(self) -> str:
        return f"Metrics({dict(self)!r}, version={self.version})"


class Transaction:
    """The changes of one command, sent as one commit.

    Args:
        table_id: the table's id.
        operation: Delta's operation name.
        read_version: the version that the command read.
        transaction_id: from :func:`begin`; a new one for a command that writes no data files itself.
        engine_info: recorded in the log.
    """

    def __init__(
        self,
        service: ServiceClient,
        table_id: str,
        operation: str,
        read_version: int,
        *,
        transaction_id: str | None = None,
        engine_info: str | None = None,
    ) -> None:
        self._service = service
        self._table_id = table_id
        self._operation = operation
        self._read_version = read_version
        self._engine_info = engine_info
        self._adds: list[AddFile] = []
        self._removes: list[RemoveFile] = []
        self._row_deletes: list[RowDelete] = []
        self.transaction_id = transaction_id or str(uuid.uuid4())

    def add(self, files: Sequence[AddFile]) -> None:
        """Add files that an engine wrote."""
        self._adds.extend(files)

    def remove(self, paths: Sequence[str]) -> None:
        """Remove whole files, by their paths in the log."""
        self._removes.extend(RemoveFile(path=path) for path in paths)

    def delete_rows(self, rows: Mapping[str, BitMap64]) -> None:
        """Delete rows of live files: physical row indexes by path. Empty bitmaps are left out."""
        self._row_deletes.extend(
            # The field takes base64, which is how it travels.
            RowDelete(path=path, rows=base64.b64encode(serialize_bitmap(bitmap)))
            for path, bitmap in rows.items()
            if bitmap
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self._adds or self._removes or self._row_deletes)

    def commit(
        self,
        *,
        metrics: Mapping[str, int] | None = None,
        predicate: str | None = None,
    ) -> CommitResponse:
        """Send the changes.

        Args:
            metrics: what only the client knows: times in milliseconds, rows copied.
            predicate: the condition whose matching rows were changed.

        Raises:
            ConcurrentModification: or a subclass; another writer won, and ``.conflict`` says which.
            CommitOutcomeUnknown: the answer was lost.
        """
        body = request(
            CommitRequest,
            read_version=self._read_version,
            transaction_id=self.transaction_id,
            operation=self._operation,
            operation_metrics=dict(metrics or {}),
            predicate=predicate,
            adds=self._adds,
            removes=self._removes,
            row_deletes=self._row_deletes,
            engine_info=self._engine_info,
        )
        path = table_path(self._table_id, "commits")
        return answer(CommitResponse, self._service.commit(path, body, self.transaction_id))


def begin(service: ServiceClient, table_id: str, operation: str) -> tuple[BeginResponse, StructType]:
    """Open a transaction before data files are written; return what a writer has to know, and the schema."""
    body = request(BeginRequest, operation=operation)
    begun = answer(BeginResponse, service.post(table_path(table_id, "transactions"), body))
    return begun, StructType.from_json(begun.table_schema)
