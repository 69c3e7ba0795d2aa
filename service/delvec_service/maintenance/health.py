"""A table's health as the service reports it.

Tested in `tests/integration/service/scans/test_history_detail_health.py`.
"""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delvec_contract import health as wire
from delvec_contract.health import FindingFile, HealthResponse, OverwrittenCommit, Recommendation
from delvec_contract.parameters import HealthParameters
from delvec_errors import CorruptTable, NotADeltaTable
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.schema.column_paths import ColumnPath, parse_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.checks.findings import Finding
from delvec_maintenance.compaction import MAX_DELETED_RATIO
from delvec_maintenance.health.overlap import ColumnOverlap
from delvec_maintenance.health.removed_files import RemovedFiles
from delvec_service.iceberg.lag import IcebergLag, iceberg_lags
from delvec_service.maintenance.health_report import (
    DEFAULT_VECTOR_FILE_SIZE,
    HealthFinding,
    HealthReport,
    examine,
)
from delvec_service.maintenance.health_watch import HealthWatch
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.tombstone_reader import with_tombstones
from delvec_service.store.health_samples import CommitCounts
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_service.store.own_commits import Overwritten

__all__ = ["TableHealth", "health", "health_answer"]

_COMMANDS: Final[Mapping[str, str]] = {
    "OPTIMIZE": "delvec optimize {table}",
    "OPTIMIZE FULL": "delvec optimize {table} --full",
    "PURGE": f"delvec optimize {{table}} --purge --min-deleted-ratio {MAX_DELETED_RATIO:g}",
    "DV COMPACTION": "delvec optimize {table} --deletion-vectors",
    "CHECKPOINT": "delvec checkpoint {table}",
    "VACUUM": "delvec vacuum {table}",
    "CHECK": "delvec check {table}",
}


@dataclass(frozen=True)
class TableHealth:
    """A table's health at a version.

    Attributes:
        checkpoint_age: seconds since the newest checkpoint was written, or None.
    """

    report: HealthReport
    version: int
    table: str
    checkpoint_age: int | None

    def response(
        self,
        overwritten: Sequence[Overwritten] = (),
        counts: CommitCounts | None = None,
        lags: Sequence[IcebergLag] = (),
    ) -> HealthResponse:
        """Return its wire form.

        Args:
            overwritten: own commits that other writers replaced.
            counts: outcomes of commits; None for an earlier version.
            lags: how far Iceberg metadata is behind; None for an earlier version.
        """
        return _response(self, overwritten, counts, lags)


def health(
    snapshot: Snapshot,
    objects: ObjectStore,
    table: str,
    *,
    vector_file_size: int = DEFAULT_VECTOR_FILE_SIZE,
    traced: int = 0,
    partitions: int = 0,
    columns: Sequence[ColumnPath] = (),
    problems: Sequence[Finding] = (),
) -> TableHealth:
    """Return the health of a version, tombstones included.

    Args:
        snapshot: the version.
        objects: the table's files.
        table: the table's name.
        vector_file_size: target size of deletion vector files, in bytes.
        traced: how many files each finding names.
        partitions: how many partitions to report on.
        columns: columns for which to report how much files overlap, besides the clustering columns.
        problems: known errors in its log or live files.

    Raises:
        UnknownColumn: the table does not have one of these.
        StorageError: storage did not answer.
    """
    reader, now = LogReader(objects, table), time.time_ns() // 1_000_000
    removed = _removed(reader, snapshot, now, traced)
    report = examine(
        snapshot,
        removed,
        num_traced=traced,
        partitions=partitions,
        vector_file_size=vector_file_size,
        columns=columns,
        problems=problems,
    )
    return TableHealth(report, snapshot.version, table, _checkpoint_age(reader, snapshot, now))


def health_answer(
    loader: SnapshotLoader,
    watch: HealthWatch,
    table: OpenTable,
    overwritten: Sequence[Overwritten],
    request: HealthParameters,
) -> HealthResponse:
    """Return the health of a table, and keep a sample of it.

    Args:
        loader: reads snapshots.
        watch: keeps samples.
        table: the table.
        overwritten: own commits that other writers replaced.
        request: what to report of which version; by default of the newest.
    """
    version, timestamp = request.version, request.timestamp
    is_newest = version is None and timestamp is None
    counts = watch.counts(table.record.id) if is_newest else None
    paths = [parse_path(name) for name in request.column or ()]

    def look(snapshot: Snapshot) -> HealthResponse:
        table_health = health(
            snapshot,
            table.objects,
            table.name,
            vector_file_size=watch.vector_file_size,
            traced=request.files,
            partitions=request.partitions,
            columns=paths,
            problems=watch.damage.look(table, snapshot, failed=request.file or ()) if is_newest else (),
        )
        lags = iceberg_lags(loader, table, snapshot) if is_newest else ()
        if is_newest:
            # Others may have committed since the last sample, or there is no sample yet.
            watch.keep(table.record.id, snapshot, table_health.report)
        return table_health.response(overwritten, counts, lags)

    try:
        return loader.reading(table.objects, table.name, look, version=version, timestamp=timestamp)
    except (CorruptTable, NotADeltaTable):
        if is_newest:
            watch.unreadable(table.record.id)
        raise


def _removed(reader: LogReader, snapshot: Snapshot, now: int, traced: int) -> RemovedFiles | None:
    """Return the totals of a version's tombstones, or None if the log does not have them."""
    try:
        kept = LogPolicy.of(snapshot.configuration, snapshot.protocol).deleted_file_retention
        before = now - int(kept.total_seconds() * 1000)
        return with_tombstones(
            reader,
            snapshot.version,
            -1,
            lambda tombstones: RemovedFiles.of(tombstones, snapshot, before=before, num_traced=traced),
        )
    except CorruptTable:
        # A report without this is worth more than an error; ``delvec check`` explains what is wrong with the log.
        return None


def _checkpoint_age(reader: LogReader, snapshot: Snapshot, now: int) -> int | None:
    newest = snapshot.checkpoint_version
    found = None if newest is None else reader.list_recent().checkpoints.get(newest)
    return None if found is None else max(0, now - found.files[0].last_modified_ms) // 1000


def _response(
    table_health: TableHealth,
    overwritten: Sequence[Overwritten],
    counts: CommitCounts | None,
    lags: Sequence[IcebergLag],
) -> HealthResponse:
    report, table = table_health.report, table_health.table
    return HealthResponse(
        table=table,
        version=table_health.version,
        score=report.score,
        **dict(report.metrics),
        checkpoint_age_seconds=table_health.checkpoint_age,
        deleted_ratio_histogram=dict(report.deleted_ratio_histogram),
        file_size_histogram=dict(report.file_size_histogram),
        recommendations=[_recommendation(one, table) for one in report.findings],
        partitions=list(report.partitions),
        overlaps=[_overlap(one) for one in report.overlaps],
        commits=None
        if counts is None
        else wire.CommitCounts(
            since=counts.since,
            committed=counts.commits,
            rebased=counts.rebased,
            rows_saved=counts.rows_saved,
            conflicts=counts.conflicts,
        ),
        overwritten_commits=[
            OverwrittenCommit(
                version=one.version,
                transaction_id=one.key,
                by_operation=one.by_operation,
                by_engine=one.by_engine,
                by_transaction_id=one.by_key,
                found_at=one.found_at,
            )
            for one in overwritten
        ],
        iceberg=[
            wire.IcebergHealth(
                format_version=one.format_version,
                metadata_location=one.metadata_location,
                delta_version=one.delta_version,
                lag_versions=one.versions,
                lag_seconds=one.seconds,
            )
            for one in lags
        ],
    )


def _overlap(overlap: ColumnOverlap) -> wire.ColumnOverlap:
    return wire.ColumnOverlap(
        column=overlap.column,
        average_depth=overlap.average_depth,
        max_depth=overlap.max_depth,
        average_overlaps=overlap.average_overlaps,
        num_files=overlap.num_files,
        unbounded_files=overlap.unbounded_files,
        depth_histogram=overlap.histogram,
        files=[
            wire.OverlapFile(path=one.path, size_in_bytes=one.size, depth=one.depth, overlaps=one.overlaps)
            for one in overlap.files
        ],
    )


def _recommendation(finding: HealthFinding, table: str) -> Recommendation:
    return Recommendation.model_validate(
        {
            "finding": finding.name,
            "action": finding.action,
            "command": _COMMANDS[finding.action].format(table=shlex.quote(table)),
            "points": round(finding.points, 4),
            "reason": finding.reason,
            "expected_gain": finding.expected_gain,
            "expected_gain_bytes": finding.gain_bytes,
            "expected_gain_files": finding.gain_files,
            "cost_bytes": finding.cost_bytes,
            "num_files": finding.num_files,
            "files": [
                FindingFile(
                    path=file.path,
                    size_in_bytes=file.size,
                    points=round(file.points, 4),
                    gain_bytes=file.gain_bytes,
                )
                for file in finding.files
            ],
        }
    )
