"""OPTIMIZE, Z-order, clustering and PURGE: rewriting files to make reads cheaper, without changing rows."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from delvec.display import shown
from delvec.dml import row_command
from delvec.dml.retry import checked, with_retries
from delvec.dml.row_command import Clock
from delvec.engines import row_ids
from delvec.engines.compaction import Compacted
from delvec.engines.operation import operation, running
from delvec.engines.protocol import ROW_GROUP_BYTES, Engine, WriteTarget
from delvec.engines.row_group_copy import CopyPlan, Decision, check_rewrite
from delvec.http.service_client import ServiceClient, answer, request, table_path
from delvec.peer_names import (
    OPTIMIZE_ARGUMENTS,
    OPTIMIZE_HINTS,
    memory_of,
    no_argument,
    no_attribute,
    partitions_of,
)
from delvec.reading import ReadableTable
from delvec.scan import Scan
from delvec.transaction import Metrics, Transaction, begin
from delvec_kernel import auto_compaction
from delvec_kernel.compaction import (
    DEFAULT_TARGET_SIZE,
    MAX_DELETED_RATIO,
    Bin,
    CompactionRules,
    Packing,
    new_files,
    pack,
    target_file_size,
    with_room,
    within,
)
from delvec_kernel.compaction import (
    reasons as compaction_reasons,
)
from delvec_kernel.errors import BadRequest, InvalidPredicate, InvalidTableChange
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import parse_path, path_text
from delvec_kernel.storage.row_groups import SourceFile
from delvec_kernel.wire import AddFile, RepackRequest, RepackResponse, Rewrite, RowMapFile
from delvec_kernel.zcubes import CLUSTERING_PROVIDER, ZCubeRules, check_columns, choose, files_to_come
from delvec_kernel.zcubes import reasons as sorting_reasons

__all__ = ["Optimize", "Optimizer", "PlannedCompaction", "check_partitions_only"]

Progress = Callable[[int, int], None]
"""Called after each commit with the bytes done and the total."""

_PATHS_SHOWN: Final = 3
_COMMIT_BYTES: Final = 4 << 30
_AUTO_BYTES: Final = 1 << 30
_ROW_GROUPS_IN_MEMORY: Final = 20
"""Of ``max_memory``: five are held during writes, and DuckDB gets three quarters."""
_LOOKS: Final = 1000
"""Files of which a dry run reads the footers."""
_NOT_LOOKED_AT: Final = Decision("whether row groups are copied is decided when it runs")
_LOGGER: Final = logging.getLogger(__name__)
_TARGET_SIZE: Final = "delta.targetFileSize"
_METRICS: Final = dict.fromkeys(
    (
        "numAddedFiles",
        "numAddedBytes",
        "numRemovedFiles",
        "numRemovedBytes",
        "numDeletionVectorsRemoved",
        "numBins",
        "numBinsCopied",
        "numBatches",
        "totalConsideredFiles",
        "totalFilesSkipped",
        "partitionsOptimized",
        "executionTimeMs",
    ),
    0,
)
_SUMMED: Final = (
    "numAddedFiles",
    "numAddedBytes",
    "numRemovedFiles",
    "numRemovedBytes",
    "numDeletionVectorsRemoved",
)


@dataclass(frozen=True)
class Optimize:
    """What to rewrite, and how.

    Attributes:
        where: a predicate over partition columns; None for the whole table.
        purge: only files with deletion vectors.
        zorder_by: columns to sort rows by; if empty, the clustering columns of a clustered table.
        full: also recluster files that were clustered by other columns.
        target_size: bytes of new files; None for the table's setting.
        max_deleted_ratio: files with a larger share of deleted rows are rewritten, whatever their size.
        commit_bytes: split the work into independent commits of about this many bytes.
        user_metadata: text for the table's history.
        progress: is called after each commit.
        min_deleted_ratio: purge only files with a larger share of deleted rows.
        max_bytes: rewrite at most this many bytes, by gain per byte; None for no limit.
        auto: only these partitions, by the rules of auto compaction; None for a command.
        max_memory: bytes of rows held in memory; None for the engine's default.
        rewrite: whether rows are decoded and encoded again: see :meth:`Optimizer.__call__`.
    """

    where: str | None = None
    purge: bool = False
    zorder_by: Sequence[str] = ()
    full: bool = False
    target_size: int | None = None
    max_deleted_ratio: float = MAX_DELETED_RATIO
    commit_bytes: int = _COMMIT_BYTES
    user_metadata: str | None = None
    progress: Progress | None = None
    min_deleted_ratio: float = 0.0
    max_bytes: int | None = None
    auto: Sequence[Mapping[str, str | None]] | None = None
    max_memory: int | None = None
    rewrite: Rewrite = "auto"

    def check(self) -> None:
        """Refuse invalid numbers.

        Raises:
            BadRequest: names the argument.
        """
        for name in ("target_size", "commit_bytes", "max_bytes", "max_memory"):
            given = getattr(self, name)
            if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
                raise BadRequest(f"{name} must be a number of bytes above 0 (given: {given!r})")
        check_rewrite(self.rewrite)
        for name in ("max_deleted_ratio", "min_deleted_ratio"):
            ratio = getattr(self, name)
            if not 0 <= ratio <= 1:
                raise BadRequest(
                    f"{name} must be between 0 and 1, a fraction of a file's rows (given: {ratio!r})"
                )


class PlannedCompaction(Metrics):
    """What OPTIMIZE would do, from its ``dry_run``; nothing was committed. ``str()`` describes it.

    Attributes:
        bins: the paths that would be rewritten together.
        reasons: of each bin, why.
        sizes: of each bin, the bytes that would be read and written, approximately.
        read_version: the version of the plan.
        gain_bytes: estimated bytes of deleted rows in the old files.
        num_new_files: approximate number of new files.
    """

    def __init__(
        self,
        values: Mapping[str, int | None],
        bins: Sequence[Sequence[str]],
        gain_bytes: int = 0,
        num_new_files: int = 0,
        *,
        reasons: Sequence[str] = (),
        sizes: Sequence[tuple[int, int]] = (),
        read_version: int | None = None,
    ) -> None:
        super().__init__(values, None)
        self.bins = tuple(tuple(paths) for paths in bins)
        self.gain_bytes = gain_bytes
        self.num_new_files = num_new_files
        self.reasons = tuple(reasons)
        self.sizes = tuple(sizes)
        self.read_version = read_version

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {value}" for name, value in shown(self).items())
        lines = [f"dry run, nothing committed: {counts or 'no files would be rewritten'}"]
        for paths, reason, (size, live) in zip(self.bins, self.reasons, self.sizes, strict=True):
            lines.append(f"  {reason}: {size:,} bytes to read, about {live:,} to write")
            some = ", ".join(paths[:_PATHS_SHOWN])
            lines.append(f"    {len(paths)} files: {some}{', …' if len(paths) > _PATHS_SHOWN else ''}")
        return "\n".join(lines)


class Optimizer:
    """OPTIMIZE of a table: ``table.optimize()``, ``.optimize.compact()``, ``.optimize.z_order([…])``, ``.optimize.purge()``."""

    def __init__(self, service: ServiceClient, table: ReadableTable, retries: int) -> None:
        self._service = service
        self._table = table
        self._retries = retries

    def __getattr__(self, name: str) -> Any:
        raise no_attribute("table.optimize", name, OPTIMIZE_HINTS)

    @running("OPTIMIZE")
    def __call__(
        self,
        where: str | None = None,
        *,
        target_size: int | None = None,
        max_deleted_ratio: float = MAX_DELETED_RATIO,
        dry_run: bool = False,
        commit_bytes: int = _COMMIT_BYTES,
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
            progress: called after each commit with the bytes done and the total.
            full: recluster all files of a clustered table together, including those clustered by other columns.
            rewrite: "always" decodes and encodes all rows. "auto" copies row groups byte for byte, deleted rows included, if
                they are large and the files similar. "never" only copies, and leaves other files as they are. Only DuckDB
                copies; sorting never does.
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
        no_argument("table.optimize()", others, OPTIMIZE_ARGUMENTS)
        max_memory = memory_of(max_memory, max_spill_size)
        wanted = Optimize(
            partitions_of(where, partition_filters),
            full=full,
            target_size=target_size,
            max_deleted_ratio=max_deleted_ratio,
            commit_bytes=commit_bytes,
            user_metadata=user_metadata,
            progress=progress,
            max_bytes=max_bytes,
            max_memory=max_memory,
            rewrite=rewrite,
        )
        return self._run(wanted, dry_run=dry_run, retries=retries)

    compact = __call__

    @running("OPTIMIZE")
    def z_order(
        self,
        columns: Sequence[str],
        where: str | None = None,
        *,
        target_size: int | None = None,
        max_deleted_ratio: float = MAX_DELETED_RATIO,
        dry_run: bool = False,
        commit_bytes: int = _COMMIT_BYTES,
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
            progress: called after each commit with the bytes done and the total.
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
        no_argument("table.optimize.z_order()", others, OPTIMIZE_ARGUMENTS)
        max_memory = memory_of(max_memory, max_spill_size)
        wanted = Optimize(
            partitions_of(where, partition_filters),
            zorder_by=tuple(columns),
            max_bytes=max_bytes,
            max_memory=max_memory,
            target_size=target_size,
            max_deleted_ratio=max_deleted_ratio,
            commit_bytes=commit_bytes,
            user_metadata=user_metadata,
            progress=progress,
        )
        return self._run(wanted, dry_run=dry_run, retries=retries)

    @running("REORG")
    def purge(
        self,
        where: str | None = None,
        *,
        min_deleted_ratio: float = 0.0,
        target_size: int | None = None,
        dry_run: bool = False,
        commit_bytes: int = _COMMIT_BYTES,
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
        wanted = Optimize(
            where,
            purge=True,
            target_size=target_size,
            commit_bytes=commit_bytes,
            user_metadata=user_metadata,
            progress=progress,
            min_deleted_ratio=min_deleted_ratio,
            max_bytes=max_bytes,
            max_memory=max_memory,
        )
        return self._run(wanted, dry_run=dry_run, retries=retries)

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
        answered = self._service.post(table_path(self._table.id, "deletion-vectors", "compact"), body)
        return answer(RepackResponse, answered).model_dump(by_alias=True)

    @running("OPTIMIZE")
    def after_commit(self, partitions: Sequence[Mapping[str, str | None]]) -> None:
        """Compact partitions with many small files; called after commits, and never fails.

        One attempt, of at most 1 GiB: the next commit finds the rest. Clustered tables are left to OPTIMIZE, which
        sorts.
        """
        wanted = Optimize(auto=partitions, max_bytes=_AUTO_BYTES)
        try:
            _Run(self._service, self._table, wanted).execute()
        except Exception as error:  # noqa: BLE001 - the command before it is committed
            _LOGGER.warning("table %s was not compacted after a commit: %s", self._table.name, error)

    def _run(self, wanted: Optimize, *, dry_run: bool, retries: int | None) -> Metrics:
        wanted.check()
        run = _Run(self._service, self._table, wanted)
        if dry_run:
            return run.planned()
        return with_retries(
            self._service, self._retries if retries is None else checked(retries), run.execute
        )


class _Run:
    """One OPTIMIZE; a retry after a conflict keeps the commits made so far."""

    def __init__(self, service: ServiceClient, table: ReadableTable, wanted: Optimize) -> None:
        self._service = service
        self._table = table
        self._wanted = wanted
        self._clock = Clock()
        self._counts: dict[str, int | None] = {**_METRICS}
        self._version: int | None = None
        self._done_bytes = 0
        self._cubes: ZCubeRules | None = None
        self._rules = CompactionRules()
        self._copies: CopyPlan | None = None

    def planned(self) -> PlannedCompaction:
        """Return the plan of a dry run."""
        scan, bins = self._plan()
        copies = self._copies
        decisions = [] if copies is None else self._decided(copies, bins)
        if decisions:
            # Copied row groups keep their deleted rows.
            bins = [
                replace(each, live_size=each.size) if decision.is_copy else each
                for each, decision in zip(bins, decisions, strict=True)
            ]
        chosen = sum(len(each.files) for each in bins)
        paths = scan.files["path"].to_pylist()
        values = {
            **_METRICS,
            "numRemovedFiles": chosen,
            "numRemovedBytes": sum(each.size for each in bins),
            "numBins": len(bins),
            "totalConsideredFiles": len(scan),
            "totalFilesSkipped": len(scan) - chosen,
            **self._elapsed(),
        }
        gain = sum(each.size - each.live_size for each in bins)
        named = [[paths[place] for place in each.files] for each in bins]
        facts = scan.files
        reasons = (
            compaction_reasons(facts, bins, self._rules)
            if self._cubes is None
            else sorting_reasons(facts, bins, self._cubes)
        )
        if decisions:
            reasons = [f"{said}; {each.why}" for said, each in zip(reasons, decisions, strict=True)]
        return PlannedCompaction(
            values,
            named,
            gain,
            self._new_files(scan, bins),
            reasons=reasons,
            sizes=[(each.size, each.live_size) for each in bins],
            read_version=scan.version,
        )

    def execute(self) -> Metrics:
        """Rewrite and commit, batch by batch."""
        scan, bins = self._plan()
        chosen = sum(len(each.files) for each in bins)
        self._counts["totalConsideredFiles"] = len(scan)
        self._counts["totalFilesSkipped"] = len(scan) - chosen
        total = self._done_bytes + sum(each.size for each in bins)
        paths = scan.files["path"].to_pylist()
        partitions = {self._partition(scan, each) for each in bins}
        with self._engine() as engine:
            for batch in self._batches(bins):
                named = [[paths[place] for place in each.files] for each in batch]
                copied = {} if self._copies is None else _chosen(self._copies, batch)
                self._commit(engine, scan, named, copied)
                self._done_bytes += sum(each.size for each in batch)
                self._add("numBins", len(batch))
                self._add("numBatches", 1)
                if self._wanted.progress is not None:
                    self._wanted.progress(self._done_bytes, total)
        self._add("partitionsOptimized", len(partitions))
        return Metrics({**self._counts, **self._elapsed()}, self._version)

    def _decided(self, copies: CopyPlan, bins: Sequence[Bin]) -> list[Decision]:
        """Return the decision for each bin; a dry run reads the footers of the first bins only."""
        found, looks = [], 0
        for each in bins:
            looks += len(each.files)
            found.append(copies.decide(each) if looks <= _LOOKS else _NOT_LOOKED_AT)
        return found

    def _engine(self) -> AbstractContextManager[Engine]:
        bound = self._wanted.max_memory
        return nullcontext(self._table.engine) if bound is None else self._table.engine.bounded(bound)

    def _plan(self) -> tuple[Scan, list[Bin]]:
        where = self._wanted.where
        scan, predicate = self._table.plan(predicate=where, row_ids=True, clustering=True)
        if predicate is not None:
            check_partitions_only(scan, predicate)
            # Files with a partition value that cannot be compared are left alone.
            scan = scan.filter(scan.files["matches_all"])
        size = self._wanted.target_size or target_file_size(scan.configuration) or DEFAULT_TARGET_SIZE
        wanted = self._wanted
        self._target_size = size
        keys = scan.partition_keys
        self._cubes = None if wanted.purge else self._cube_rules(scan)
        if wanted.auto is not None:
            if self._cubes is not None:
                return scan, []
            self._rules, bins = auto_compaction.choose(scan.files, keys, scan.configuration, wanted.auto)
            self._target_size = self._rules.target_size
        elif self._cubes is not None:
            bins = choose(scan.files, keys, self._cubes)
        else:
            self._rules = CompactionRules(
                size, wanted.max_deleted_ratio, wanted.purge, wanted.min_deleted_ratio
            )
            bins = pack(scan.files, keys, self._rules)
        left = None if wanted.max_bytes is None else max(0, wanted.max_bytes - self._done_bytes)
        bins = within(bins, left)
        self._copies = self._copy_plan(scan)
        if wanted.rewrite == "never" and self._copies is not None:
            bins = [each for each in bins if self._copies.decide(each).is_copy]
        return scan, bins

    def _copy_plan(self, scan: Scan) -> CopyPlan | None:
        """Return the plan that decides which bins are copied; None if rows are always rewritten."""
        wanted = self._wanted
        if wanted.rewrite == "never":
            self._check_copies(scan)
        if wanted.purge or wanted.rewrite == "always" or self._cubes is not None:
            return None
        if not self._engine_copies:
            return None
        tolerated = wanted.max_deleted_ratio
        if wanted.rewrite == "auto":
            tolerated = min(tolerated, MAX_DELETED_RATIO)
        return CopyPlan(scan, lambda: self._statistics(scan), wanted.rewrite, tolerated)

    @property
    def _engine_copies(self) -> bool:
        """Whether this process copies row groups for the engine; not for Spark, or all bytes would pass the driver."""
        return bool(getattr(self._table.engine, "copies_row_groups", False))

    def _check_copies(self, scan: Scan) -> None:
        if self._cubes is not None:
            raise BadRequest(
                f"Table '{scan.name}' is clustered, so OPTIMIZE sorts it, and writes rows again; leave out rewrite='never'."
            )
        if not self._engine_copies:
            raise BadRequest(
                "rewrite='never' is for the DuckDB engine, which copies row groups; Spark's tasks write rows again."
            )

    def _statistics(self, scan: Scan) -> Mapping[str, str | None]:
        """Return the statistics of the files of a scan, by path."""
        found, _ = self._table.plan(predicate=self._wanted.where, version=scan.version, stats=True)
        wanted = found.only(scan.files["path"].to_pylist()).files
        return dict(zip(wanted["path"].to_pylist(), wanted["stats"].to_pylist(), strict=True))

    def _new_files(self, scan: Scan, bins: Sequence[Bin]) -> int:
        """Return the approximate number of new files."""
        if self._cubes is None:
            return int(new_files(Packing.of(bins), CompactionRules(self._target_size)).sum())
        facts = scan.files.select(["size", "num_records", "deletion_vector"])
        return sum(files_to_come(facts.take(pa.array(each.files)), self._target_size) for each in bins)

    def _cube_rules(self, scan: Scan) -> ZCubeRules | None:
        """Return how to sort rows; None if they keep their order."""
        wanted = self._wanted
        is_clustered = "clustering" in (scan.protocol.get("writerFeatures") or ())
        columns = [parse_path(name) for name in wanted.zorder_by]
        if is_clustered:
            clustered = [parse_path(name) for name in self._table.detail()["clusteringColumns"]]
            if clustered and columns:
                raise InvalidTableChange(
                    f"Table '{scan.name}' is clustered by {', '.join(path_text(path) for path in clustered)}; OPTIMIZE "
                    "sorts it by these columns. Leave out ZORDER BY, or change the columns with ALTER TABLE ... "
                    "CLUSTER BY.",
                    table=scan.name,
                )
            if clustered:
                return ZCubeRules(clustered, True, wanted.full, wanted.max_deleted_ratio)
        if wanted.full:
            raise InvalidTableChange(
                f"OPTIMIZE ... FULL needs a clustered table, but table '{scan.name}' has no clustering columns; leave "
                "out FULL.",
                table=scan.name,
            )
        if not columns:
            return None
        columns = check_columns(columns, scan.schema, scan.partition_columns, scan.configuration)
        return ZCubeRules(columns, max_deleted_ratio=wanted.max_deleted_ratio)

    def _commit(
        self,
        engine: Engine,
        scan: Scan,
        bins: Sequence[Sequence[str]],
        copied: Mapping[int, Sequence[SourceFile]],
    ) -> None:
        operation = "REORG" if self._wanted.purge else "OPTIMIZE"
        begun, _ = begin(self._service, self._table.id, operation)
        target = row_command.target_of(scan, begun.transaction_id)
        if self._wanted.max_memory is not None:
            target = replace(
                target, row_group_bytes=min(ROW_GROUP_BYTES, self._wanted.max_memory // _ROW_GROUPS_IN_MEMORY)
            )
        removed = [path for paths in bins for path in paths]
        written = self._copy_or_write(engine, scan, bins, copied, target)
        transaction = Transaction(
            self._service,
            self._table.id,
            operation,
            scan.version,
            read_mark=scan.read_mark,
            transaction_id=begun.transaction_id,
            engine_info=engine.name,
            data_change=False,
            operation_parameters=self._parameters(),
            user_metadata=self._wanted.user_metadata,
        )
        transaction.keeps_row_ids = True
        transaction.remove(removed)
        transaction.add(written.adds)
        for path, runs in written.rewritten.items():
            transaction.record_rewrite(path, runs)
        if written.row_map:
            transaction.record_row_map(written.row_map)
        transaction.delete_added_rows(written.deleted)
        done = transaction.commit()
        self._version = done.version
        for name in _SUMMED:
            self._add(name, done.operation_metrics.get(name, 0))

    def _copy_or_write(
        self,
        engine: Engine,
        scan: Scan,
        bins: Sequence[Sequence[str]],
        copied: Mapping[int, Sequence[SourceFile]],
        target: WriteTarget,
    ) -> Compacted:
        """Copy the row groups of some bins, and rewrite the rows of the others."""
        done: dict[int, Compacted | None] = {}
        if copied and self._copies is not None:
            done = self._copies.copy(list(copied.items()), target)
        rest = [paths for number, paths in enumerate(bins) if done.get(number) is None]
        found = [each for each in done.values() if each is not None]
        self._add("numBinsCopied", len(found))
        if rest:
            found.append(
                self._write(engine, scan.only(path for paths in rest for path in paths), rest, target)
            )
        return Compacted(
            [add for each in found for add in each.adds],
            {path: runs for each in found for path, runs in each.rewritten.items()},
            [file for each in found for file in each.row_map],
            {path: rows for each in found for path, rows in each.deleted.items()},
        )

    def _write(
        self, engine: Engine, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget
    ) -> Compacted:
        cubes = self._cubes
        scan, target = row_ids.add_to_rewrite(scan, target)
        if cubes is None:
            compacted = engine.compact(scan, bins, _with_file_size(target, with_room(self._target_size)))
            return _sorted_as_before(scan, compacted) if self._wanted.purge else compacted
        adds: list[AddFile] = []
        row_map: list[RowMapFile] = []
        provider = CLUSTERING_PROVIDER if cubes.is_clustering else None
        for of_bin in engine.cluster(scan, bins, cubes.columns, _with_file_size(target, self._target_size)):
            facts = {"tags": dict(cubes.new_tags()), "clustering_provider": provider}
            adds += [add.model_copy(update=facts) for add in of_bin.adds]
            row_map += of_bin.row_map
        return Compacted(adds, {}, row_map)

    def _parameters(self) -> dict[str, str]:
        where = self._wanted.where
        predicate = json.dumps([] if where is None else [where], ensure_ascii=False)
        if self._wanted.purge:
            return {"predicate": predicate, "applyPurge": "true"}
        cubes = self._cubes
        names = json.dumps([] if cubes is None else cubes.names, ensure_ascii=False)
        by_clustering = cubes is not None and cubes.is_clustering
        found = {
            "predicate": predicate,
            "zOrderBy": "[]" if by_clustering else names,
            "clusterBy": names if by_clustering else "[]",
            "auto": "false" if self._wanted.auto is None else "true",
        }
        return found | {"isFull": "true"} if self._wanted.full else found

    def _batches(self, bins: Sequence[Bin]) -> Iterator[list[Bin]]:
        batch: list[Bin] = []
        size = 0
        for each in bins:
            if batch and size + each.size > self._wanted.commit_bytes:
                yield batch
                batch, size = [], 0
            batch.append(each)
            size += each.size
        if batch:
            yield batch

    def _partition(self, scan: Scan, each: Bin) -> str:
        return str(scan.files["partition_values"][int(each.files[0])].as_py())

    def _add(self, name: str, count: int | None) -> None:
        self._counts[name] = (self._counts[name] or 0) + (count or 0)

    def _elapsed(self) -> dict[str, int]:
        return {"executionTimeMs": self._clock.metrics()["executionTimeMs"]}


def _chosen(copies: CopyPlan, bins: Sequence[Bin]) -> dict[int, Sequence[SourceFile]]:
    """Return the files of each copied bin, by the bin's number."""
    found = ((number, copies.decide(each).sources) for number, each in enumerate(bins))
    return {number: sources for number, sources in found if sources is not None}


def _sorted_as_before(scan: Scan, compacted: Compacted) -> Compacted:
    """Return the new files with the ZCube tags of their sources; copying keeps the order, and a bin has one ZCube."""
    facts = scan.files.select(["path", "tags", "clustering_provider"]).to_pylist()
    sources = {row["path"]: row for row in facts}
    adds = []
    for add in compacted.adds:
        source = sources[compacted.rewritten[add.path][0].source]
        tags = {name: text for name, text in source["tags"] or () if name.startswith("ZCUBE_")}
        facts_of = {"tags": tags, "clustering_provider": source["clustering_provider"]}
        adds.append(add.model_copy(update=facts_of) if "ZCUBE_ID" in tags else add)
    return replace(compacted, adds=adds)


def _with_file_size(target: WriteTarget, size: int) -> WriteTarget:
    return replace(target, configuration={**target.configuration, _TARGET_SIZE: str(size)})


def check_partitions_only(scan: Scan, predicate: Predicate) -> None:
    """Check that a predicate reads only partition columns, since whole files are rewritten.

    Raises:
        InvalidPredicate: it reads other columns; the message lists them.
    """
    partitioned = {name.lower() for name in scan.partition_columns}
    others = sorted(name for name in predicate.columns if name.lower() not in partitioned)
    if others:
        columns = ", ".join(scan.partition_columns) or "none"
        raise InvalidPredicate(
            f"{operation()} takes a condition on partition columns only, but {predicate.text[:200]!r} reads "
            f"{', '.join(others)}; "
            f"table '{scan.name}' is partitioned by {columns}.",
            table=scan.name,
            predicate=predicate.text,
        )
