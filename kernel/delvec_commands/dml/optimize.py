"""OPTIMIZE, Z-order, clustering and PURGE: rewriting files to make reads cheaper, without changing rows."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from delvec_commands.dml.optimize_options import COMMIT_BYTES, OptimizeOptions
from delvec_commands.dml.optimize_run import OptimizeRun
from delvec_commands.dml.retry import checked, with_retries
from delvec_commands.dml.rewrite_progress import Progress, reported
from delvec_commands.peer_names import (
    OPTIMIZE_ARGUMENTS,
    OPTIMIZE_HINTS,
    memory_of,
    no_argument,
    no_attribute,
    partitions_of,
)
from delvec_commands.reading import ReadableTable
from delvec_commands.table_service import TableService, request
from delvec_commands.transaction import Metrics
from delvec_contract import operations
from delvec_contract.commands import Rewrite
from delvec_contract.maintenance import RepackRequest
from delvec_engines.operation import attempt, running
from delvec_errors import BadRequest
from delvec_maintenance.compaction import MAX_DELETED_RATIO

__all__ = ["Optimizer"]

_AUTO_BYTES: Final = 1 << 30
_LOGGER: Final = logging.getLogger(__name__)


class Optimizer:
    """OPTIMIZE of a table: ``table.optimize()``, ``.optimize.compact()``, ``.optimize.z_order([…])``, ``.optimize.purge()``."""

    def __init__(self, service: TableService, table: ReadableTable, retries: int) -> None:
        self._service = service
        self._table = table
        self._retries = retries

    if not TYPE_CHECKING:  # to type checkers an unknown name would be a method of any type

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("table.optimize", name, OPTIMIZE_HINTS)

    def __call__(
        self,
        where: str | None = None,
        *,
        target_size: int | None = None,
        max_deleted_ratio: float = MAX_DELETED_RATIO,
        dry_run: bool = False,
        commit_bytes: int = COMMIT_BYTES,
        max_bytes: int | None = None,
        max_memory: int | None = None,
        user_metadata: str | None = None,
        retries: int | None = None,
        progress: Progress | None = None,
        full: bool = False,
        rewrite: Rewrite = "auto",
        partition_filters: Any = None,
        max_spill_size: int | None = None,
        **others: Any,
    ) -> Metrics:
        """Compact small files and files with many deleted rows; ``compact`` is another name.

        Readers always see the same rows. Concurrent deletes and updates are carried over to the new files; neither side
        fails.

        Args:
            where: a predicate over partition columns.
            target_size: approximate maximum bytes of new files; by default ``delta.targetFileSize``, else 256 MiB.
            max_deleted_ratio: files with a larger share of deleted rows are rewritten even if they are large, or alone.
            dry_run: commit nothing; ``.bins`` of the result has the files that would be rewritten together.
            commit_bytes: commit after about this many bytes: commits remain if the rest fails.
            max_bytes: rewrite files of at most this many bytes; those with the highest gain per byte first.
            max_memory: maximum bytes of rows in memory, at least 128 MiB; DuckDB spills the rest to disk. Python and
                its libraries come on top. Not for Spark, where the executors' settings apply.
            user_metadata: text for the table's history.
            retries: how often to plan again after another writer replaced the same files; by default the connection's.
            progress: called while it runs, and after each commit, with the bytes done and the total; on Spark only after
                commits.
            full: recluster all files of a clustered table together, including those clustered by other columns.
            rewrite: "always" decodes and encodes all rows. "auto" copies row groups byte for byte, deleted rows included, if
                they are large and the files similar. "never" only copies, and leaves other files as they are. Files
                of a group that are alike are copied though others are not. Sorting never copies.
            partition_filters: as in deltalake, instead of ``where``: ``[("country", "=", "NZ")]``.
            max_spill_size: deltalake's name of ``max_memory``.
            others: other arguments of deltalake are refused; the error names the one to use.

        Rows of a clustered table (``CLUSTER BY``) are sorted along a curve through its clustering columns: those of new
        files, together with sorted files that are no larger.

        Returns:
            Delta's metrics of an OPTIMIZE, over all its commits; ``.version`` is that of the last, None if no files
            needed to be rewritten.

        Raises:
            InvalidPredicate: ``where`` reads a column that is not a partition column.
            CorruptTable: a file cannot be read, or lacks rows; its commit had no effect.
            ConcurrentModification: another writer replaced the same files on the last attempt, too.
        """
        no_argument("table.optimize()", others, OPTIMIZE_ARGUMENTS, self.__call__)
        options = OptimizeOptions(
            partitions_of(where, partition_filters),
            full=full,
            target_size=target_size,
            max_deleted_ratio=max_deleted_ratio,
            commit_bytes=commit_bytes,
            user_metadata=user_metadata,
            progress=progress,
            max_bytes=max_bytes,
            max_memory=memory_of(max_memory, max_spill_size),
            rewrite=rewrite,
            dry_run=dry_run,
            retries=retries,
        )
        return self.run(options)

    compact = __call__

    def z_order(
        self,
        columns: Sequence[str],
        where: str | None = None,
        *,
        target_size: int | None = None,
        max_deleted_ratio: float = MAX_DELETED_RATIO,
        dry_run: bool = False,
        commit_bytes: int = COMMIT_BYTES,
        max_bytes: int | None = None,
        max_memory: int | None = None,
        user_metadata: str | None = None,
        retries: int | None = None,
        progress: Progress | None = None,
        partition_filters: Any = None,
        max_spill_size: int | None = None,
        **others: Any,
    ) -> Metrics:
        """Sort rows so that files have narrow ranges in each of these columns, and filters by them skip files: ZORDER BY.

        Files already sorted by the same columns are left alone unless there are as many bytes of new files: a second
        run on the same files writes nothing. Rows are ordered along a Hilbert curve.

        Args:
            columns: names, or paths of fields in structs.
            where: a predicate over partition columns.
            target_size: approximate bytes of new files.
            max_deleted_ratio: sorted files with a larger share of deleted rows are sorted again.
            dry_run: commit nothing; ``.bins`` of the result has the files that would be sorted together.
            commit_bytes: commit after about this many bytes; files sorted together are one commit.
            max_bytes: sort files of at most this many bytes; files sorted together are sorted entirely or not.
            max_memory: maximum bytes of rows in memory, as for ``table.optimize()``.
            user_metadata: text for the table's history.
            retries: how often to plan again after another writer changed the same files; by default the connection's.
            progress: called while it runs, and after each commit, with the bytes done and the total; on Spark only after
                commits.
            partition_filters: as in deltalake, instead of ``where``; see ``table.optimize()``.
            max_spill_size: deltalake's name of ``max_memory``.
            others: refused, as for ``table.optimize()``.

        Raises:
            UnknownColumn: it does not exist.
            InvalidTableChange: a column is a partition column, has no statistics or is not orderable, or the table is
                clustered and so has its own columns.
        """
        if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
            raise BadRequest(f"columns must be a list of names (given: {columns!r})")
        if not columns:
            raise BadRequest(
                "z_order needs at least one column; optimize() compacts small files without sorting."
            )
        no_argument("table.optimize.z_order()", others, OPTIMIZE_ARGUMENTS, self.z_order)
        options = OptimizeOptions(
            partitions_of(where, partition_filters),
            zorder_by=tuple(columns),
            max_bytes=max_bytes,
            max_memory=memory_of(max_memory, max_spill_size),
            target_size=target_size,
            max_deleted_ratio=max_deleted_ratio,
            commit_bytes=commit_bytes,
            user_metadata=user_metadata,
            progress=progress,
            dry_run=dry_run,
            retries=retries,
        )
        return self.run(options)

    def purge(
        self,
        where: str | None = None,
        *,
        min_deleted_ratio: float = 0.0,
        target_size: int | None = None,
        dry_run: bool = False,
        commit_bytes: int = COMMIT_BYTES,
        max_bytes: int | None = None,
        max_memory: int | None = None,
        user_metadata: str | None = None,
        retries: int | None = None,
        progress: Progress | None = None,
    ) -> Metrics:
        """Rewrite all files with deletion vectors without the deleted rows: REORG TABLE ... APPLY (PURGE).

        Afterwards the newest version has no deletion vectors. VACUUM removes the deleted rows from storage. With
        ``min_deleted_ratio``, only files with a larger share of deleted rows are rewritten. Other arguments, metrics
        and errors are those of ``table.optimize()``.
        """
        options = OptimizeOptions(
            where,
            purge=True,
            target_size=target_size,
            commit_bytes=commit_bytes,
            user_metadata=user_metadata,
            progress=progress,
            min_deleted_ratio=min_deleted_ratio,
            max_bytes=max_bytes,
            max_memory=max_memory,
            dry_run=dry_run,
            retries=retries,
        )
        return self.run(options)

    @running("OPTIMIZE")
    def deletion_vectors(self, *, dry_run: bool = False, user_metadata: str | None = None) -> dict[str, Any]:
        """Compact deletion vectors of many small, or mostly unused, files into few files.

        Runs in the service, without touching data files or rows; others may write meanwhile. VACUUM removes the old
        files from storage.

        Args:
            dry_run: only count what would be rewritten.
            user_metadata: text for the table's history.

        Returns:
            ``version``, ``num-deletion-vectors``, ``size-in-bytes``, ``num-vector-files``, ``new-vector-files`` and
            ``gain-bytes``.

        Raises:
            InvalidTableChange: deletion vectors are turned off for the table; ``purge()`` removes the existing ones.
            CorruptDeletionVector: or a subclass: a deletion vector cannot be read; its commit had no effect.
        """
        body = request(RepackRequest, dry_run=dry_run, user_metadata=user_metadata)
        answered = self._service.call(operations.COMPACT_DELETION_VECTORS, body, table=self._table.id)
        return answered.model_dump(by_alias=True)

    @running("OPTIMIZE")
    def after_commit(self, partitions: Sequence[Mapping[str, str | None]]) -> None:
        """Compact partitions with many small files; called after commits, and never fails.

        One attempt, of at most 1 GiB: the next commit finds the rest. Clustered tables are left to OPTIMIZE, which
        sorts.
        """
        options = OptimizeOptions(auto=partitions, max_bytes=_AUTO_BYTES)
        try:
            with attempt():
                OptimizeRun(self._service, self._table, options).execute()
        except Exception as error:  # noqa: BLE001 - the command before it is committed
            _LOGGER.warning("table %s was not compacted after a commit: %s", self._table.name, error)

    def run(self, options: OptimizeOptions) -> Metrics:
        """Run a command whose options are collected already."""
        options.check()
        run = OptimizeRun(self._service, self._table, options)
        with running(options.operation):
            if options.dry_run:
                return run.planned()
            most = self._retries if options.retries is None else checked(options.retries)
            name, engine = options.operation, self._table.engine.name
            with reported(self._service, self._table.id, name, engine, run.progress):
                return with_retries(self._service, most, run.execute)
