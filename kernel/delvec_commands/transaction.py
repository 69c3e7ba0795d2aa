"""One commit of the client: what was read, what changes, and the result."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypedDict

from pyroaring import BitMap64

from delvec_commands.display import pairs, shown
from delvec_commands.table_service import TableService, request
from delvec_contract.commits import (
    AllocateRequest,
    AllocateResponse,
    BeginRequest,
    BeginResponse,
    CommitResponse,
)
from delvec_engines.dv_files import SENT_BYTES, DeletionVectorFiles
from delvec_engines.found_rows import serialized_bytes
from delvec_engines.operation import SPARK, executions
from delvec_kernel.actions.actions import AddFile, Cdc, Txn
from delvec_kernel.alter_table.change_types import WriteChange
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, check_storable
from delvec_kernel.schema.types import StructType
from delvec_kernel.statistics.file_statistics import num_records
from delvec_kernel.transaction import commit_rules as rules
from delvec_kernel.transaction.transaction_changes import (
    Changes,
    FileStatistics,
    MappedOutput,
    Reads,
    RowMap,
    RowMapFile,
    RowRun,
)

__all__ = ["Metrics", "Transaction", "TransactionOptions", "begin"]


class Metrics(dict[str, Any]):
    """The metrics of a command under Delta's names; None for unknown values.

    Shows only those that are not 0; ``dict(metrics)`` has all.

    Attributes:
        version: the version that the command committed; None if there was nothing to commit.
        already_applied: the table already had the application's transaction, so nothing was done.
        retries: how often the command was retried after a conflict.
        auto_compact: partitions to compact now according to the table's properties, or None.
        executed_by: on Spark, which engine ran the command, and where: ``DuckDB in the driver``, ``DuckDB in tasks``, or
            ``Spark: …`` with the reason. None if the table's engine leaves no choice.
    """

    auto_compact: Sequence[Mapping[str, str | None]] | None = None
    executed_by: str | None = None

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
            f", {name}={value!r}"
            for name, value in (
                ("already_applied", self.already_applied),
                ("retries", self.retries),
                ("executed_by", self.executed_by),
            )
            if value
        )
        return f"Metrics({shown(self)!r}, version={self.version}{more})"

    def _repr_html_(self) -> str:
        done = "nothing committed" if self.version is None else f"version {self.version}"
        values = {name: f"{value:,}" for name, value in shown(self).items()}
        return pairs(
            done, values if self.executed_by is None else {**values, "executed by": self.executed_by}
        )


class TransactionOptions(TypedDict, total=False):
    """The optional arguments of a :class:`Transaction`."""

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

    A context manager, which commits at its end unless the block raises; ``.result`` then has the answer. Paths are
    those of the log: relative to the table's location and URL-encoded, as plans and statistics have them.

    Args:
        table_id: the table's id.
        operation: Delta's operation name.
        read_version: the version that the changes are based on.
        read_mark: the read mark of that version, from a scan or from :func:`begin`: if another writer replaces the version, the
            commit is refused.
        transaction_id: from :func:`begin`; by default a new one, for commands that write no data files themselves.
        engine_info: recorded in the log, with what has executed the running command if its engine chose.
        predicate: the condition of the changed rows: matching rows that were added since are a conflict. Without it,
            the commit depends only on the rows that it names.
        txn: an application id and its version; if the table has that version or a later one, nothing is done.
        data_change: False if the commit only rearranges rows.
        operation_parameters: for the table's history.
        user_metadata: a text for the table's history.

    Attributes:
        transaction_id: the idempotency key. Names of new files carry it.
        result: the service's answer, once committed; ``result.result`` and ``result.version`` say what was done.
    """

    def __init__(
        self,
        service: TableService,
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
        self._txn = None if txn is None else request(Txn, app_id=txn[0], version=txn[1])
        self._data_change = data_change
        self._parameters = dict(operation_parameters or {})
        self._user_metadata = user_metadata
        self._reads: Reads | None = None
        self._adds: list[AddFile] = []
        self._removes: list[str] = []
        self._row_deletes: dict[str, BitMap64] = {}
        self._written_vectors: dict[str, Descriptor] = {}
        self._rewritten: dict[str, list[RowRun]] = {}
        self._row_map: list[RowMapFile] = []
        self._added_deletes: dict[str, BitMap64] = {}
        self._statistics: dict[str, FileStatistics] = {}
        self._table_changes: list[WriteChange] = []
        self._change_files: list[Cdc] = []
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
        """Add files that are already written, as described by Delta's ``add`` actions."""
        self._adds.extend(
            file if isinstance(file, AddFile) else request(AddFile, **dict(file)) for file in files
        )

    def add_change_files(self, files: Iterable[Cdc]) -> None:
        """Add files of the change data feed that are already written: for all changes of this commit, or none."""
        self._change_files.extend(files)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove whole files, whatever deletion vectors they have at the time of the commit."""
        self._removes.extend(paths)

    def delete_rows(self, rows: Mapping[str, Iterable[int]]) -> None:
        """Delete rows of live files: physical row indexes by path. Files without indexes are ignored.

        Raises:
            DuplicateFile: a file has lost rows already.
            InvalidCommit: a row index is larger than Delta can store.
        """
        for path, bitmap in _bitmaps(rows):
            rules.put(self._row_deletes, path, bitmap)

    def delete_rows_by_vectors(self, location: str, vectors: Mapping[str, Iterable[int]]) -> None:
        """Write deletion vectors from the client, to files assigned by the service, for sets too large to send.

        Args:
            location: the table's.
            vectors: by path, each complete: the rows deleted in ``read_version`` and those deleted now.

        Raises:
            InvalidCommit: the table does not have deletion vectors enabled.
            StorageError: a file cannot be written.
        """
        wanted = {path: rows for path, indexes in vectors.items() if (rows := _rows(indexes))}
        self.delete_rows_written(self.deletion_vector_files(location).write(wanted))

    def delete_rows_written(self, vectors: Mapping[str, Descriptor]) -> None:
        """Delete rows by complete deletion vectors, already written to :meth:`deletion_vector_files`."""
        for path, descriptor in vectors.items():
            rules.put(self._row_deletes, path, BitMap64())
            self._written_vectors[path] = descriptor

    def deletion_vector_files(self, location: str) -> DeletionVectorFiles:
        """Return the files that deletion vectors of this commit may be written to, for a table at ``location``."""
        return DeletionVectorFiles(self._allocate, location, self.transaction_id)

    def _allocate(self, body: AllocateRequest) -> AllocateResponse:
        return self._service.allocate(self._table_id, body)

    def mark_read(
        self,
        *,
        whole_table: bool = False,
        files: Sequence[str] = (),
        rows: Mapping[str, Iterable[int]] | None = None,
    ) -> None:
        """Declare what else was read, so that concurrent changes to it conflict; replaces earlier declarations.

        Args:
            whole_table: any change of data is a conflict.
            files: removing any row of these files is a conflict.
            rows: removing these rows is a conflict: row indexes by path. If they are too many to send, only the files
                are sent, and removing any of their rows is a conflict.
        """
        rows_read: dict[str, BitMap64] = {}
        read_files, room = list(files), SENT_BYTES
        for path, bitmap in _bitmaps(rows or {}):
            if room > 0:
                rows_read[path] = bitmap
                room -= serialized_bytes([bitmap])
            else:
                read_files.append(path)
        self._reads = Reads(whole_table, read_files, rows_read)

    def record_rewrite(self, path: str, runs: Iterable[RowRun]) -> None:
        """Record the origin of each row of an added file, so that compactions and row-level changes do not conflict."""
        rules.put(self._rewritten, path, list(runs))

    def delete_added_rows(self, rows: Mapping[str, Iterable[int]]) -> None:
        """Say which rows of added files are deleted from the start; for a compaction that copies files whole.

        Such a file needs :meth:`record_rewrite`, whose ranks then count all rows of a source.
        """
        for path, bitmap in _bitmaps(rows):
            rules.put(self._added_deletes, path, bitmap)

    def record_row_map(self, files: Sequence[RowMapFile]) -> None:
        """Record the origin of each row of the added files after sorting, in files that are already written.

        They cover the rows of all added files, in the order of addition; each added file needs statistics.
        """
        self._row_map = list(files)

    def set_statistics(self, files: Iterable[tuple[str, str, Mapping[str, object] | None]]) -> None:
        """Replace the statistics of live files, and change nothing else; for a transaction with ``data_change=False``.

        Args:
            files: path, statistics as JSON, and the deletion vector of the file at the time. A file with another one at
                the time of the commit keeps its statistics.
        """
        for path, stats, vector in files:
            new = request(
                FileStatistics,
                path=path,
                stats=stats,
                deletion_vector=None if vector is None else request(Descriptor, **vector),
            )
            rules.put(self._statistics, path, new)

    def change_table(self, changes: Iterable[WriteChange]) -> None:
        """Alter the table in the same version: columns of the new files, or the high-water mark of an identity column.

        With column mapping, also give the columns to :func:`begin`, which returns their names in files.
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
        """Send the changes; if sent again, the same transaction gets the same answer.

        Args:
            metrics: metrics that only the client knows: times in milliseconds, copied rows.
            predicate: replaces the transaction's predicate.

        Raises:
            ConcurrentModification: or a subclass; another writer won, and ``.conflict`` says which.
            InvalidCommit: or a subclass; the changes contradict the table.
            CommitOutcomeUnknown: the response was lost.
        """
        changes = request(
            Changes,
            read_version=self.read_version,
            read_mark=self._read_mark,
            transaction_id=self.transaction_id,
            operation=self._operation,
            operation_parameters=self._parameters,
            operation_metrics=dict(metrics or {}),
            predicate=self._predicate if predicate is None else predicate,
            adds=self._adds,
            data_change=self._data_change,
            row_map=self._mapped(),
            table_changes=self._table_changes,
            change_files=self._change_files,
            keeps_row_ids=self.keeps_row_ids,
            app_transaction=self._txn,
            user_metadata=self._user_metadata,
            engine_info=_with_executions(self._engine_info),
        )
        # Not read from the wire's form, where rows are bytes.
        changes = replace(
            changes,
            reads=self._reads,
            removes=self._removes,
            row_deletes=self._row_deletes,
            written_vectors=self._written_vectors,
            rewritten=self._rewritten,
            added_deletes=self._added_deletes,
            statistics=self._statistics,
        )
        self.result = self._service.commit(self._table_id, changes)
        return self.result


def begin(
    service: TableService, table_id: str, operation: str, table_changes: Sequence[WriteChange] = ()
) -> tuple[BeginResponse, StructType]:
    """Start a transaction before data files are written; return what a writer needs to know, and the schema.

    With ``table_changes``, it describes the table after the commit, which must include the same changes.
    """
    body = request(BeginRequest, operation=operation, table_changes=list(table_changes))
    begun = service.begin(table_id, body)
    return begun, StructType.from_json(begun.table_schema)


def _with_executions(engine_info: str | None) -> str | None:
    """Return the engine's name followed by what it left the work to, as in ``delvec-spark/4.1.2 (DuckDB in tasks)``."""
    left_to = [by for by in dict.fromkeys(each.by for each in executions()) if by != SPARK]
    return f"{engine_info} ({', '.join(left_to)})" if engine_info and left_to else engine_info


def _bitmaps(rows: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, BitMap64]]:
    """Yield the rows of files that have any, as bitmaps that the caller does not change later.

    Raises:
        InvalidCommit: a row index is larger than Delta can store.
    """
    for path, indexes in rows.items():
        if bitmap := BitMap64(indexes):
            check_storable(bitmap)
            yield path, bitmap


def _rows(indexes: Iterable[int]) -> BitMap64:
    return indexes if isinstance(indexes, BitMap64) else BitMap64(indexes)
