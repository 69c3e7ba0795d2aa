"""One commit as the client makes it: what was read, what changes, and what came of it."""

import base64
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict

from pyroaring import BitMap64

from delvec.display import pairs, shown
from delvec.dv_files import SENT_BYTES, DeletionVectorFiles
from delvec.http.service_client import ServiceClient, answer, request, table_path
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap
from delvec_kernel.schema.types import StructType
from delvec_kernel.statistics.file_statistics import num_records
from delvec_kernel.wire import (
    AddFile,
    AppTransaction,
    BeginRequest,
    BeginResponse,
    ChangeFile,
    CommitReads,
    CommitRequest,
    CommitResponse,
    DeletionVectorDescriptor,
    FileRows,
    FileStatistics,
    MappedOutput,
    RemoveFile,
    RewrittenFile,
    RowDelete,
    RowMap,
    RowMapFile,
    RowRun,
    WriteChange,
)

__all__ = ["Metrics", "Transaction", "TransactionOptions", "begin"]


class Metrics(dict[str, Any]):
    """What a command did: Delta's metric names and their values, None where a value is not known.

    Shown are those that are not 0; ``dict(metrics)`` has all.

    Attributes:
        version: the version that the command committed; None where there was nothing to commit.
        already_applied: the table had the application's transaction before, so that nothing was done.
        retries: how often the command was run again because another writer won.
        auto_compact: partitions that the table asks to be compacted now, None where it does not.
    """

    auto_compact: Sequence[Mapping[str, str | None]] | None = None

    def __init__(
        self,
        values: Mapping[str, int | None],
        version: int | None,
        *,
        already_applied: bool = False,
        retries: int = 0,
    ) -> None:
        super().__init__(values)
        self.version = version
        self.already_applied = already_applied
        self.retries = retries

    @classmethod
    def of(cls, done: CommitResponse, defaults: Mapping[str, int | None]) -> Self:
        """Return what a commit did; ``defaults`` are the metrics that it has at least."""
        metrics = {**defaults, **done.operation_metrics}
        found = cls(metrics, done.version, already_applied=done.result == "already-applied")
        found.auto_compact = done.auto_compact
        return found

    def __repr__(self) -> str:
        more = "".join(
            f", {name}={value}"
            for name, value in (("already_applied", self.already_applied), ("retries", self.retries))
            if value
        )
        return f"Metrics({shown(self)!r}, version={self.version}{more})"

    def _repr_html_(self) -> str:
        done = "nothing committed" if self.version is None else f"version {self.version}"
        return pairs(done, {name: f"{value:,}" for name, value in shown(self).items()})


class TransactionOptions(TypedDict, total=False):
    """What a :class:`Transaction` may be given, beside what it must."""

    read_mark: str | None
    transaction_id: str | None
    engine_info: str | None
    predicate: str | None
    txn: tuple[str, int] | None
    data_change: bool
    operation_parameters: Mapping[str, str] | None
    user_metadata: str | None


class Transaction:
    """Changes that take effect together, as one commit, or not at all.

    A context manager, which commits at its end unless the block raises; ``.result`` is then what came of it.
    Paths are those of the log: relative to the table's location and URL-encoded, as plans and statistics have them.

    Args:
        table_id: the table's id.
        operation: Delta's operation name.
        read_version: the version that the changes rest on.
        read_mark: of that version, from a scan or from :func:`begin`: should another writer replace the version, the
            commit is refused.
        transaction_id: from :func:`begin`; a new one for a command that writes no data files itself.
        engine_info: recorded in the log.
        predicate: the condition whose matching rows are changed: rows that match and were added since are a
            conflict. Without it the commit rests on no rows but those that it names.
        txn: the application and how far it has got; at or before what the table has, nothing is done.
        data_change: False where the same rows are written another way.
        operation_parameters: for the table's history.
        user_metadata: likewise.

    Attributes:
        transaction_id: the idempotency key. Names of new files carry it.
        result: the service's answer, once committed; ``result.result`` and ``result.version`` say what was done.
    """

    def __init__(
        self,
        service: ServiceClient,
        table_id: str,
        operation: str,
        read_version: int,
        *,
        read_mark: str | None = None,
        transaction_id: str | None = None,
        engine_info: str | None = None,
        predicate: str | None = None,
        txn: tuple[str, int] | None = None,
        data_change: bool = True,
        operation_parameters: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
    ) -> None:
        self._service = service
        self._table_id = table_id
        self._operation = operation
        self._read_mark = read_mark
        self._engine_info = engine_info
        self._predicate = predicate
        self._txn = None if txn is None else request(AppTransaction, app_id=txn[0], version=txn[1])
        self._data_change = data_change
        self._parameters = dict(operation_parameters or {})
        self._user_metadata = user_metadata
        self._reads: CommitReads | None = None
        self._adds: list[AddFile] = []
        self._removes: list[RemoveFile] = []
        self._row_deletes: list[RowDelete] = []
        self._rewritten: list[RewrittenFile] = []
        self._row_map: list[RowMapFile] = []
        self._statistics: list[FileStatistics] = []
        self._table_changes: list[WriteChange] = []
        self._change_files: list[ChangeFile] = []
        self.read_version = read_version
        self.transaction_id = transaction_id or str(uuid.uuid4())
        self.result: CommitResponse | None = None
        self.keeps_row_ids = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self.result is None and not self.is_empty:
            self.commit()

    def add(self, files: Iterable[AddFile | Mapping[str, object]]) -> None:
        """Add files that were written already, as Delta's ``add`` actions describe them."""
        self._adds.extend(
            file if isinstance(file, AddFile) else request(AddFile, **dict(file)) for file in files
        )

    def add_change_files(self, files: Iterable[ChangeFile]) -> None:
        """Add files of the change data feed that were written already: all changes of this commit, or none."""
        self._change_files.extend(files)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove whole files, whatever deletion vectors they have by then."""
        self._removes.extend(RemoveFile(path=path) for path in paths)

    def delete_rows(self, rows: Mapping[str, Iterable[int]]) -> None:
        """Delete rows of live files: physical row indexes by path. Files without any are left out."""
        self._row_deletes.extend(RowDelete(path=path, rows=sent) for path, sent in _sent(rows))

    def delete_rows_by_vectors(self, location: str, vectors: Mapping[str, Iterable[int]]) -> None:
        """Write deletion vectors oneself, at places that the service gives out, for sets too large to send.

        Args:
            location: the table's.
            vectors: by path, each complete: the rows that were gone in ``read_version``, and those that go now.

        Raises:
            InvalidCommit: the table does not have deletion vectors enabled.
            StorageError: a file cannot be written.
        """
        wanted = {path: rows for path, indexes in vectors.items() if (rows := _rows(indexes))}
        self.delete_rows_written(self.deletion_vector_files(location).write(wanted))

    def delete_rows_written(self, vectors: Mapping[str, DeletionVectorDescriptor]) -> None:
        """Delete rows whose deletion vectors are written already, at :meth:`deletion_vector_files`; each is complete."""
        self._row_deletes.extend(
            RowDelete(path=path, deletion_vector=descriptor) for path, descriptor in vectors.items()
        )

    def deletion_vector_files(self, location: str) -> DeletionVectorFiles:
        """Return where deletion vectors of this commit may be written, for a table at ``location``."""
        return DeletionVectorFiles(self._service, self._table_id, location, self.transaction_id)

    def mark_read(
        self,
        *,
        whole_table: bool = False,
        files: Sequence[str] = (),
        rows: Mapping[str, Iterable[int]] | None = None,
    ) -> None:
        """Say what else was read, so that a change of it is a conflict; replaces what was said before.

        Args:
            whole_table: any change of data matters.
            files: any row that leaves these files matters.
            rows: that these rows leave matters: row indexes by path. Of those that are too many to be sent only the files
                are sent, so that any row that leaves one of them matters.
        """
        told: list[FileRows] = []
        named, room = list(files), SENT_BYTES
        for path, indexes in (rows or {}).items():
            if room > 0:
                for _, sent in _sent({path: indexes}):
                    told.append(FileRows(path=path, rows=sent))
                    room -= len(sent)
            elif _rows(indexes):
                named.append(path)
        self._reads = CommitReads(whole_table=whole_table, files=named, rows=told)

    def record_rewrite(self, path: str, runs: Iterable[RowRun]) -> None:
        """Say where each row of an added file comes from, so that a compaction and row-wise changes pass each other."""
        self._rewritten.append(RewrittenFile(path=path, runs=list(runs)))

    def record_row_map(self, files: Sequence[RowMapFile]) -> None:
        """Say where each row of the added files comes from where rows were sorted, in files that are written already.

        They tell of the rows of all added files, in the order in which these were added, of which each needs statistics.
        """
        self._row_map = list(files)

    def set_statistics(self, files: Iterable[tuple[str, str, Mapping[str, object] | None]]) -> None:
        """Give live files other statistics, and change nothing else; for a transaction with ``data_change=False``.

        Args:
            files: path, statistics as JSON, and the deletion vector that the file had when they were made. A file that has
                another one by the time of the commit keeps the statistics that it has.
        """
        self._statistics.extend(
            request(
                FileStatistics,
                path=path,
                stats=stats,
                deletion_vector=None
                if vector is None
                else DeletionVectorDescriptor.model_validate(dict(vector)),
            )
            for path, stats, vector in files
        )

    def rests_on(self, **reads: Any) -> None:
        """Call :meth:`mark_read`, which was called so until 0.1; goes with the next release."""
        warnings.warn("rests_on() is called mark_read() now", DeprecationWarning, stacklevel=2)
        self.mark_read(**reads)

    def rewrote(self, path: str, runs: Iterable[RowRun]) -> None:
        """Call :meth:`record_rewrite`, which was called so until 0.1; goes with the next release."""
        warnings.warn("rewrote() is called record_rewrite() now", DeprecationWarning, stacklevel=2)
        self.record_rewrite(path, runs)

    def change_table(self, changes: Iterable[WriteChange]) -> None:
        """Change the table in the same version: columns that the new files have, or how far an identity column has got.

        With column mapping, give columns to :func:`begin` too, which tells the names that files are written with.
        """
        self._table_changes.extend(changes)

    def _mapped(self) -> RowMap | None:
        outputs = [(add.path, num_records(add.stats) or 0) for add in self._adds if add.stats is not None]
        if not self._row_map or len(outputs) < len(self._adds):
            return None
        return RowMap(
            files=self._row_map, outputs=[MappedOutput(path=path, num_rows=rows) for path, rows in outputs]
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        files = self._adds or self._removes or self._row_deletes or self._statistics
        return not (files or self._table_changes or self._txn)

    def commit(
        self,
        *,
        metrics: Mapping[str, int] | None = None,
        predicate: str | None = None,
    ) -> CommitResponse:
        """Send the changes; sent again, the same transaction gets the same answer.

        Args:
            metrics: what only the client knows: times in milliseconds, rows copied.
            predicate: in place of the one that the transaction was made with.

        Raises:
            ConcurrentModification: or a subclass; another writer won, and ``.conflict`` says which.
            InvalidCommit: or a subclass; the changes contradict the table.
            CommitOutcomeUnknown: the answer was lost.
        """
        body = request(
            CommitRequest,
            read_version=self.read_version,
            read_mark=self._read_mark,
            transaction_id=self.transaction_id,
            operation=self._operation,
            operation_parameters=self._parameters,
            operation_metrics=dict(metrics or {}),
            predicate=self._predicate if predicate is None else predicate,
            reads=self._reads,
            adds=self._adds,
            removes=self._removes,
            row_deletes=self._row_deletes,
            data_change=self._data_change,
            rewritten=self._rewritten,
            row_map=self._mapped(),
            statistics=self._statistics,
            table_changes=self._table_changes,
            change_files=self._change_files,
            keeps_row_ids=self.keeps_row_ids,
            app_transaction=self._txn,
            user_metadata=self._user_metadata,
            engine_info=self._engine_info,
        )
        path = table_path(self._table_id, "commits")
        self.result = answer(CommitResponse, self._service.commit(path, body, self.transaction_id))
        return self.result


def begin(
    service: ServiceClient, table_id: str, operation: str, table_changes: Sequence[WriteChange] = ()
) -> tuple[BeginResponse, StructType]:
    """Open a transaction before data files are written; return what a writer has to know, and the schema.

    With ``table_changes`` that is the table as the commit will leave it, which has to ask for the same changes.
    """
    body = request(BeginRequest, operation=operation, table_changes=list(table_changes))
    path = table_path(table_id, "transactions")
    begun = answer(BeginResponse, service.post(path, body, harmless=True))  # one row more in the ledger
    return begun, StructType.from_json(begun.table_schema)


def _sent(rows: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, bytes]]:
    """Yield row indexes as they travel, of the files that have any."""
    for path, indexes in rows.items():
        if bitmap := _rows(indexes):
            yield path, base64.b64encode(serialize_bitmap(bitmap))


def _rows(indexes: Iterable[int]) -> BitMap64:
    return indexes if isinstance(indexes, BitMap64) else BitMap64(indexes)
