"""One run of OPTIMIZE, Z-order, clustering or PURGE: plans, has files copied or rewritten, and commits batch by batch."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delvec_commands.display import shown
from delvec_commands.dml import row_command
from delvec_commands.dml.optimize_options import OptimizeOptions
from delvec_commands.dml.rewrite_progress import RewriteProgress
from delvec_commands.dml.rewrite_sample import with_measured_sizes
from delvec_commands.dml.row_command import Clock
from delvec_commands.reading import ReadableTable
from delvec_commands.table_service import TableService
from delvec_commands.transaction import Metrics, Transaction, begin
from delvec_engines import row_ids
from delvec_engines.compacted_files import Compacted
from delvec_engines.copy_jobs import RowGroupCopier
from delvec_engines.copy_plan import CopyDecision, CopyPlan, Part
from delvec_engines.operation import operation
from delvec_engines.protocol import ROW_GROUP_BYTES, Engine, WriteTarget
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, DelvecError, InvalidPredicate, InvalidTableChange
from delvec_errors.texts import counted
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import parse_path, path_text
from delvec_kernel.table_properties import byte_size_text
from delvec_kernel.transaction.transaction_changes import RowMapFile
from delvec_maintenance import auto_compaction
from delvec_maintenance.compaction import (
    DEFAULT_TARGET_SIZE,
    MAX_DELETED_RATIO,
    Bin,
    CompactionRules,
    Packing,
    new_files,
    pack,
    rolling_size,
    target_file_size,
    within,
)
from delvec_maintenance.compaction import reasons as compaction_reasons
from delvec_maintenance.zcubes import CLUSTERING_PROVIDER, ZCubeRules, check_columns, choose, files_to_come
from delvec_maintenance.zcubes import reasons as sorting_reasons
from delvec_parquet.row_group_copy import SourceFile
from delvec_parquet.use import SETTING

__all__ = ["OptimizeRun", "PlannedCompaction", "check_partitions_only"]

_PATHS_SHOWN: Final = 3
_ROW_GROUPS_IN_MEMORY: Final = 20
"""``max_memory`` in row groups: five are held during writes, and DuckDB gets three quarters."""
_MAX_DRY_RUN_FOOTERS: Final = 1000
"""The number of files whose footers a dry run reads."""
_UNDECIDED: Final = CopyDecision("whether row groups are copied is decided when it runs")
_TARGET_SIZE: Final = "delta.targetFileSize"
_SUMMED_METRICS: Final = (
    "numAddedFiles",
    "numAddedBytes",
    "numRemovedFiles",
    "numRemovedBytes",
    "numDeletionVectorsRemoved",
)
_METRICS: Final = dict.fromkeys(
    (
        *_SUMMED_METRICS,
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


class PlannedCompaction(Metrics):
    """The result of an OPTIMIZE with ``dry_run``: what it would do. Nothing was committed. ``str()`` describes it.

    Attributes:
        bins: the paths that would be rewritten together.
        reasons: why each bin would be rewritten.
        sizes: the approximate bytes read and written for each bin.
        read_version: the version of the plan.
        gain_bytes: estimated bytes by which the new files are smaller than the old ones.
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
            lines.append(f"  {reason}: {byte_size_text(size)} to read, about {byte_size_text(live)} to write")
            some = ", ".join(paths[:_PATHS_SHOWN])
            lines.append(
                f"    {counted(len(paths), 'file')}: {some}{', …' if len(paths) > _PATHS_SHOWN else ''}"
            )
        return "\n".join(lines)


class OptimizeRun:
    """One OPTIMIZE. Commits before a conflict are counted, and not repeated.

    Args:
        service: commits the changes.
        table: the table to rewrite.
        options: what to rewrite, and how.
    """

    def __init__(self, service: TableService, table: ReadableTable, options: OptimizeOptions) -> None:
        self._service = service
        self._table = table
        self._options = options
        self._clock = Clock()
        self._counts: dict[str, int | None] = {**_METRICS}
        self._version: int | None = None
        self._cubes: ZCubeRules | None = None
        self._rules = CompactionRules()
        self._copies: CopyPlan | None = None
        self.progress = RewriteProgress(options.progress)

    def planned(self) -> PlannedCompaction:
        """Return what would be done."""
        scan, packed = self._plan()
        parts = list(self._parts(scan, packed, _MAX_DRY_RUN_FOOTERS))
        # Copied files keep their deleted rows.
        bins = [
            replace(each.bin, live_size=each.bin.size) if each.sources is not None else each.bin
            for each in parts
        ]
        bins = self._measured(scan, bins, [each.sources is None for each in parts])
        num_removed = sum(len(each.files) for each in bins)
        values = {
            **_METRICS,
            "numRemovedFiles": num_removed,
            "numRemovedBytes": sum(each.size for each in bins),
            "numBins": len(bins),
            "totalConsideredFiles": len(scan),
            "totalFilesSkipped": len(scan) - num_removed,
            **self._elapsed(),
        }
        gain = sum(each.size - each.live_size for each in bins)
        facts = scan.files
        reasons = (
            compaction_reasons(facts, bins, self._rules)
            if self._cubes is None
            else sorting_reasons(facts, bins, self._cubes)
        )
        reasons = [
            said if each.decision is None else f"{said}; {each.decision.why}"
            for said, each in zip(reasons, parts, strict=True)
        ]
        return PlannedCompaction(
            values,
            [_paths(scan, each) for each in bins],
            gain,
            self._new_files(scan, bins),
            reasons=reasons,
            sizes=[(each.size, each.live_size) for each in bins],
            read_version=scan.version,
        )

    def execute(self) -> Metrics:
        """Rewrite and commit, batch by batch."""
        scan, bins = self._plan()
        self._check_size(scan, bins)
        self._counts["totalConsideredFiles"] = self._counts["totalFilesSkipped"] = len(scan)
        self.progress.plan(sum(len(each.files) for each in bins), sum(each.size for each in bins))
        passes = 1 if self._cubes is None else 2  # sorted rows are read, then written
        partitions = set()
        with self._engine() as engine:
            for batch in self._batches(self._parts(scan, bins)):
                places = np.concatenate([each.bin.files for each in batch])
                self.progress.begin(scan.files.take(pa.array(places)), passes)
                self._commit(engine, scan, batch)
                partitions |= {self._partition(scan, each.bin) for each in batch}
                self._add("totalFilesSkipped", -sum(len(each.bin.files) for each in batch))
                self._add("numBins", len(batch))
                self._add("numBatches", 1)
                self.progress.commit()
        self._add("partitionsOptimized", len(partitions))
        return Metrics({**self._counts, **self._elapsed()}, self._version)

    def _check_size(self, scan: Scan, bins: Sequence[Bin]) -> None:
        """Let the command refuse what is too large."""
        check = self._options.may_read
        if check is None:
            return
        try:
            check(sum(each.size for each in bins))
        except DelvecError:
            if self._copies is None:
                raise
            # Files that stay as they are do not count; only footers tell which.
            check(sum(each.bin.size for each in self._parts(scan, bins, _MAX_DRY_RUN_FOOTERS)))

    def _parts(self, scan: Scan, bins: Sequence[Bin], looks: int | None = None) -> Iterator[Part]:
        """Yield the parts to copy or rewrite; each footer is read once, when its bin's turn comes.

        Args:
            scan: the plan.
            bins: files to combine.
            looks: the maximum number of footers to read; None for no limit.
        """
        copies = self._copies
        if copies is None:
            yield from map(Part, bins)
            return
        rest: list[npt.NDArray[np.int64]] = []
        for each in bins:
            if looks is not None:
                looks -= len(each.files)
                if looks < 0:
                    yield Part(each, _UNDECIDED)
                    continue
            parts = copies.divide(each)
            rest += [part.bin.files for part in parts if part.is_rest]
            yield from self._written(part for part in parts if not part.is_rest)
        if not rest:
            return
        # Files left over from several bins' copies are combined.
        places = np.concatenate(rest)
        facts = scan.files.take(pa.array(places))
        self.progress.skip(len(facts), int(facts["size"].to_numpy().sum()))
        for again in pack(facts, scan.partition_keys, self._rules):
            self.progress.skip(-len(again.files), -again.size)
            parts = copies.divide(
                replace(again, files=places[again.files]), whole=self._options.rewrite != "never"
            )
            yield from self._written(parts)

    def _written(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Leave out parts whose files stay unchanged."""
        for each in parts:
            if self._options.rewrite == "never" and each.sources is None:
                self.progress.skip(len(each.bin.files), each.bin.size)
            else:
                yield each

    def _measured(self, scan: Scan, bins: list[Bin], is_rewritten: Sequence[bool]) -> list[Bin]:
        """Return the bins with the bytes of their new files, measured with a sample if this process writes them unsorted."""
        if self._cubes is not None or not self._table.engine.compacts_in_process:
            return bins
        rewritten = [place for place, is_one in enumerate(is_rewritten) if is_one]

        def write(sample: Scan, named: Sequence[Sequence[str]], location: str) -> int:
            with self._engine() as engine:
                target = replace(row_command.target_of(scan), location=location)
                return sum(add.size for add in self._write(engine, sample, named, target).adds)

        found = list(bins)
        measured = with_measured_sizes(scan, [bins[place] for place in rewritten], write)
        for place, each in zip(rewritten, measured, strict=True):
            found[place] = each
        return found

    def _engine(self) -> AbstractContextManager[Engine]:
        bound = self._options.max_memory
        return nullcontext(self._table.engine) if bound is None else self._table.engine.bounded(bound)

    def _plan(self) -> tuple[Scan, list[Bin]]:
        options = self._options
        scan, predicate = self._table.plan(predicate=options.where, row_ids=True, clustering=True)
        if predicate is not None:
            check_partitions_only(scan, predicate)
            # Files with a partition value that cannot be compared are left alone.
            scan = scan.filter(scan.files["matches_all"])
        size = options.target_size or target_file_size(scan.configuration) or DEFAULT_TARGET_SIZE
        self._target_size = size
        keys = scan.partition_keys
        self._cubes = None if options.purge else self._cube_rules(scan)
        if options.auto is not None:
            if self._cubes is not None:
                return scan, []
            self._rules, bins = auto_compaction.choose(scan.files, keys, scan.configuration, options.auto)
            self._target_size = self._rules.target_size
        elif self._cubes is not None:
            bins = choose(scan.files, keys, self._cubes)
        else:
            self._rules = CompactionRules(
                size, options.max_deleted_ratio, options.purge, options.min_deleted_ratio
            )
            bins = pack(scan.files, keys, self._rules)
        left = (
            None if options.max_bytes is None else max(0, options.max_bytes - self.progress.committed_bytes)
        )
        bins = within(bins, left)
        self._copies = self._copy_plan(scan)
        return scan, bins

    def _copy_plan(self, scan: Scan) -> CopyPlan | None:
        """Return the plan that decides which bins are copied; None if rows are always rewritten."""
        options = self._options
        if options.rewrite == "never":
            self._check_copies(scan)
        if options.purge or options.rewrite == "always" or self._cubes is not None:
            return None
        copier = self._copier
        if copier is None:
            return None
        max_deleted_ratio = options.max_deleted_ratio
        if options.rewrite == "auto":
            max_deleted_ratio = min(max_deleted_ratio, MAX_DELETED_RATIO)
        return CopyPlan(
            scan,
            lambda: self._statistics(scan),
            options.rewrite,
            max_deleted_ratio,
            self._rules.target_size,
            copier,
        )

    @property
    def _copier(self) -> RowGroupCopier | None:
        """Return the copier of row groups; None for an engine that always rewrites."""
        return self._table.engine.copier

    def _check_copies(self, scan: Scan) -> None:
        if self._cubes is not None:
            raise BadRequest(
                f"Table '{scan.name}' is clustered, so OPTIMIZE sorts it, and writes rows again; leave out rewrite='never'."
            )
        if self._copier is None:
            raise BadRequest(
                f"rewrite='never' is for an engine that copies row groups, which {self._table.engine.name} does not here; leave "
                f"it out, or do not set {SETTING}=off."
            )

    def _statistics(self, scan: Scan) -> Mapping[str, str | None]:
        """Return the statistics of a scan's files, by path."""
        found, _ = self._table.plan(predicate=self._options.where, version=scan.version, stats=True)
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
        options = self._options
        is_clustered = "clustering" in (scan.protocol.get("writerFeatures") or ())
        columns = [parse_path(name) for name in options.zorder_by]
        if is_clustered:
            clustering_columns = [parse_path(name) for name in self._table.detail()["clusteringColumns"]]
            if clustering_columns and columns:
                raise InvalidTableChange(
                    f"Table '{scan.name}' is clustered by {', '.join(path_text(path) for path in clustering_columns)}; OPTIMIZE "
                    "sorts it by these columns. Leave out ZORDER BY, or change the columns with ALTER TABLE ... "
                    "CLUSTER BY.",
                    table=scan.name,
                )
            if clustering_columns:
                return ZCubeRules(clustering_columns, True, options.full, options.max_deleted_ratio)
        if options.full:
            raise InvalidTableChange(
                f"OPTIMIZE ... FULL needs a clustered table, but table '{scan.name}' has no clustering columns; leave "
                "out FULL.",
                table=scan.name,
            )
        if not columns:
            return None
        columns = check_columns(columns, scan.schema, scan.partition_columns, scan.configuration)
        return ZCubeRules(columns, max_deleted_ratio=options.max_deleted_ratio)

    def _commit(self, engine: Engine, scan: Scan, parts: Sequence[Part]) -> None:
        options = self._options
        begin_response, _ = begin(self._service, self._table.id, options.operation)
        target = row_command.target_of(scan, begin_response.transaction_id)
        if options.max_memory is not None:
            most = options.max_memory // _ROW_GROUPS_IN_MEMORY
            target = replace(target, row_group_bytes=min(ROW_GROUP_BYTES, most))
        target = replace(target, advance=self.progress.advance)
        bins = [_paths(scan, each.bin) for each in parts]
        sources_by_bin = {
            number: each.sources for number, each in enumerate(parts) if each.sources is not None
        }
        compacted_files = self._copy_or_write(engine, scan, bins, sources_by_bin, target)
        transaction = Transaction(
            self._service,
            self._table.id,
            options.operation,
            scan.version,
            read_mark=scan.read_mark,
            transaction_id=begin_response.transaction_id,
            engine_info=engine.name,
            data_change=False,
            operation_parameters=self._parameters(),
            user_metadata=options.user_metadata,
        )
        transaction.keeps_row_ids = True
        transaction.remove([path for paths in bins for path in paths])
        transaction.add(compacted_files.adds)
        for path, runs in compacted_files.rewritten.items():
            transaction.record_rewrite(path, runs)
        if compacted_files.row_map:
            transaction.record_row_map(compacted_files.row_map)
        transaction.delete_added_rows(compacted_files.deleted)
        commit_response = transaction.commit()
        self._version = commit_response.version
        for name in _SUMMED_METRICS:
            self._add(name, commit_response.operation_metrics.get(name, 0))

    def _copy_or_write(
        self,
        engine: Engine,
        scan: Scan,
        bins: Sequence[Sequence[str]],
        sources_by_bin: Mapping[int, Sequence[SourceFile]],
        target: WriteTarget,
    ) -> Compacted:
        """Copy some bins, and rewrite the others."""
        copied_bins: dict[int, Compacted | None] = {}
        if sources_by_bin and self._copies is not None:
            copied_bins = self._copies.copy(list(sources_by_bin.items()), target)
        rest = [paths for number, paths in enumerate(bins) if copied_bins.get(number) is None]
        compactions = [each for each in copied_bins.values() if each is not None]
        self._add("numBinsCopied", len(compactions))
        if rest:
            compactions.append(
                self._write(engine, scan.only(path for paths in rest for path in paths), rest, target)
            )
        return Compacted(
            [add for each in compactions for add in each.adds],
            {path: runs for each in compactions for path, runs in each.rewritten.items()},
            [file for each in compactions for file in each.row_map],
            {path: rows for each in compactions for path, rows in each.deleted.items()},
        )

    def _write(
        self, engine: Engine, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget
    ) -> Compacted:
        cubes = self._cubes
        scan, target = row_ids.add_to_rewrite(scan, target)
        if cubes is None:
            compacted = engine.compact(scan, bins, _with_file_size(target, rolling_size(self._target_size)))
            return _sorted_as_before(scan, compacted) if self._options.purge else compacted
        adds: list[AddFile] = []
        row_map: list[RowMapFile] = []
        provider = CLUSTERING_PROVIDER if cubes.is_clustering else None
        for of_bin in engine.cluster(scan, bins, cubes.columns, _with_file_size(target, self._target_size)):
            tags = dict(cubes.new_tags())
            adds += [replace(add, tags=tags, clustering_provider=provider) for add in of_bin.adds]
            row_map += of_bin.row_map
        return Compacted(adds, {}, row_map)

    def _parameters(self) -> dict[str, str]:
        options = self._options
        predicate = json.dumps([] if options.where is None else [f"({options.where})"], ensure_ascii=False)
        if options.purge:
            return {"predicate": predicate, "applyPurge": "true"}
        cubes = self._cubes
        names = json.dumps([] if cubes is None else cubes.names, ensure_ascii=False)
        by_clustering = cubes is not None and cubes.is_clustering
        operation_parameters = {
            "predicate": predicate,
            "zOrderBy": "[]" if by_clustering else names,
            "clusterBy": names if by_clustering else "[]",
            "auto": "false" if options.auto is None else "true",
        }
        return operation_parameters | {"isFull": "true"} if options.full else operation_parameters

    def _batches(self, parts: Iterable[Part]) -> Iterator[list[Part]]:
        batch: list[Part] = []
        size = 0
        for each in parts:
            if batch and size + each.bin.size > self._options.commit_bytes:
                yield batch
                batch, size = [], 0
            batch.append(each)
            size += each.bin.size
        if batch:
            yield batch

    def _partition(self, scan: Scan, each: Bin) -> str:
        return str(scan.files["partition_values"][int(each.files[0])].as_py())

    def _add(self, name: str, count: int | None) -> None:
        self._counts[name] = (self._counts[name] or 0) + (count or 0)

    def _elapsed(self) -> dict[str, int]:
        return {"executionTimeMs": self._clock.metrics()["executionTimeMs"]}


def _paths(scan: Scan, found: Bin) -> list[str]:
    paths: list[str] = scan.files["path"].take(pa.array(found.files)).to_pylist()
    return paths


def _sorted_as_before(scan: Scan, compacted_files: Compacted) -> Compacted:
    """Return the new files tagged with the ZCube that each one's rows came from, because they keep its order."""
    facts = scan.files.select(["path", "tags", "clustering_provider"]).to_pylist()
    sources = {row["path"]: row for row in facts}
    adds = []
    for add in compacted_files.adds:
        source = sources[compacted_files.rewritten[add.path][0].source]
        tags = {name: text for name, text in source["tags"] or () if name.startswith("ZCUBE_")}
        provider = source["clustering_provider"]
        adds.append(replace(add, tags=tags, clustering_provider=provider) if "ZCUBE_ID" in tags else add)
    return replace(compacted_files, adds=adds)


def _with_file_size(target: WriteTarget, size: int) -> WriteTarget:
    return replace(target, configuration={**target.configuration, _TARGET_SIZE: str(size)})


def check_partitions_only(scan: Scan, predicate: Predicate) -> None:
    """Refuse a predicate over other columns: files are rewritten whole.

    Raises:
        InvalidPredicate: it uses other columns; the message lists them.
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
            columns=others,
            partition_columns=list(scan.partition_columns),
        )
