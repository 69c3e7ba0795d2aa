"""The health of a table, computed from one snapshot without reading any file.

The score is 100 less the points of the findings. Points measure wasted reads: a file with deleted rows costs the share
of the table's bytes that a full scan reads in vain; small files cost up to 40 points, by the share of all files that
compaction would eliminate; deletion vector files that compaction would eliminate cost up to 20, relative to the number
of data files; overlapping files of a clustered table up to 20, by the share that each lookup opens in vain; commits
without a checkpoint up to 20. Errors in the log or in live files, which the caller knows of, cost all points.

Tested in `tests/integration/service/scans/test_history_detail_health.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_contract.health import PartitionHealth
from delvec_contract.health_metrics import FileMetrics
from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD
from delvec_kernel.schema.column_paths import ColumnPath, as_in_schema
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.checks.findings import Finding
from delvec_maintenance.compaction import partition_numbers
from delvec_maintenance.health import health_findings
from delvec_maintenance.health.clustering_gain import overlapping_files
from delvec_maintenance.health.health_findings import FileTable, HealthFinding
from delvec_maintenance.health.overlap import ColumnOverlap, depths, overlaps
from delvec_maintenance.health.removed_files import RemovedFiles
from delvec_maintenance.zcubes import clustering_columns

__all__ = ["DEFAULT_VECTOR_FILE_SIZE", "HealthFinding", "HealthReport", "examine"]

DEFAULT_VECTOR_FILE_SIZE: Final = 2 * 1024 * 1024
SMALL_FILE: Final = 16 * 1024 * 1024
_EDGES: Final = (0.0, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0)
_BINS: Final = ("0 %", "up to 1 %", "1-5 %", "5-10 %", "10-30 %", "30-50 %", "over 50 %")
_MIB: Final = 1024 * 1024
_SCAN_BYTES_PER_SECOND: Final = 100e6
_SECONDS_PER_FILE: Final = 0.05
"""What one reader of an object store usually gets: tables are compared by it, nothing is promised."""
_OPENED_BY_SCANS: Final = ("small-files", "deletion-vector-files")
_SIZE_EDGES: Final = (_MIB, SMALL_FILE, 64 * _MIB, 128 * _MIB, 256 * _MIB, 1024 * _MIB)
_SIZE_BINS: Final = (
    "under 1 MiB",
    "1-16 MiB",
    "16-64 MiB",
    "64-128 MiB",
    "128-256 MiB",
    "256 MiB-1 GiB",
    "1 GiB and over",
)


@dataclass(frozen=True)
class HealthReport:
    """The state of one version's files.

    Attributes:
        score: from 0 to 100: 100 less the points of the findings.
        metrics: the numbers.
        deleted_ratio_histogram: files by share of deleted rows.
        file_size_histogram: files by size.
        partitions: those with the most points, as many as requested.
        overlaps: per clustering column and per requested column.
    """

    score: float
    metrics: FileMetrics
    deleted_ratio_histogram: Mapping[str, int]
    file_size_histogram: Mapping[str, int]
    findings: tuple[HealthFinding, ...]
    partitions: tuple[PartitionHealth, ...] = ()
    overlaps: tuple[ColumnOverlap, ...] = ()


def examine(
    snapshot: Snapshot,
    removed_files: RemovedFiles | None = None,
    *,
    num_traced: int = 0,
    partitions: int = 0,
    vector_file_size: int = DEFAULT_VECTOR_FILE_SIZE,
    columns: Sequence[ColumnPath] = (),
    problems: Sequence[Finding] = (),
) -> HealthReport:
    """Compute the health report of a version.

    Args:
        snapshot: the version.
        removed_files: totals of its tombstones, if they were read.
        num_traced: the number of files that each finding names.
        partitions: the number of partitions to report on.
        vector_file_size: bytes per deletion vector file after compaction.
        columns: report the overlap of these columns in addition to the clustering columns.
        problems: known errors in its log or live files. Then nothing is recommended that reads files, because it would
            fail, nor VACUUM, because an earlier version may be what is left.

    Raises:
        UnknownColumn: the table lacks one of ``columns``.
        SegmentsLost: the store has lost statistics.
    """
    clustering_paths = [as_in_schema(snapshot.schema, path) for path in clustering_columns(snapshot)]
    all_columns = list(
        dict.fromkeys([*clustering_paths, *(as_in_schema(snapshot.schema, path) for path in columns)])
    )
    in_columns = depths(snapshot, all_columns) if all_columns else []
    table = FileTable(snapshot, num_traced, clustering=bool(clustering_paths))
    possible_findings = [
        health_findings.small_files(table),
        health_findings.deleted_rows(table),
        health_findings.vector_files(table, vector_file_size),
        overlapping_files(table, clustering_paths, in_columns[: len(clustering_paths)]),
        health_findings.checkpoint(snapshot, num_traced),
    ]
    possible_findings.append(None if removed_files is None else health_findings.removed_files(removed_files))
    if problems:
        possible_findings = [
            health_findings.damaged_files(problems, num_traced),
            health_findings.checkpoint(snapshot, num_traced),
        ]
    reported_findings = tuple(one for one in possible_findings if one is not None)
    return HealthReport(
        score=round(max(0.0, 100.0 - sum(one.points for one in reported_findings)), 2),
        metrics=_measured(table, removed_files, reported_findings),
        deleted_ratio_histogram=_by_ratio(table.ratios),
        file_size_histogram=_counted(_SIZE_BINS, np.searchsorted(_SIZE_EDGES, table.sizes, side="right")),
        findings=reported_findings,
        partitions=_partitions(table, reported_findings, partitions) if partitions and table.keys else (),
        overlaps=overlaps(snapshot, all_columns, in_columns, num_traced=num_traced),
    )


def _measured(
    table: FileTable, removed_files: RemovedFiles | None, reported_findings: Sequence[HealthFinding]
) -> FileMetrics:
    snapshot, size, dead = table.snapshot, table.snapshot.size_in_bytes, int(table.dead.sum())
    superfluous = sum(one.gain_files for one in reported_findings if one.name in _OPENED_BY_SCANS)
    rows, num_deleted = snapshot.num_records, snapshot.num_deleted_rows
    vector_files, vector_bytes = _deletion_vector_files(table.files)
    return FileMetrics(
        num_files=snapshot.num_files,
        size_in_bytes=size,
        num_physical_rows=rows,
        num_deleted_rows=num_deleted,
        deleted_ratio=None if rows is None else num_deleted / rows if rows else 0.0,
        deleted_bytes=dead,
        read_amplification=1.0 if not size else round(size / (size - dead), 4) if size > dead else None,
        num_files_with_deletion_vectors=snapshot.num_deletion_vectors,
        num_deletion_vector_files=vector_files,
        live_deletion_vector_bytes=vector_bytes,
        dead_deletion_vector_bytes=None if removed_files is None else removed_files.dead_vector_bytes,
        num_removed_files=None if removed_files is None else removed_files.num_files,
        removed_bytes=None if removed_files is None else removed_files.size_in_bytes,
        small_files=int((table.sizes < SMALL_FILE).sum()),
        median_file_size=int(np.median(table.sizes)) if len(table) else None,
        commits_since_checkpoint=snapshot.commits_since_checkpoint,
        scan_debt_seconds=round(dead / _SCAN_BYTES_PER_SECOND + superfluous * _SECONDS_PER_FILE, 3),
    )


def _by_ratio(ratios: npt.NDArray[np.float64]) -> dict[str, int]:
    known = ratios[~np.isnan(ratios)]
    histogram = _counted(_BINS, np.searchsorted(_EDGES, known, side="left"))
    unknown = len(ratios) - len(known)
    return histogram | ({"unknown": unknown} if unknown else {})


def _counted(names: Sequence[str], places: npt.NDArray[np.intp]) -> dict[str, int]:
    """Return how often each name occurs, given the index of the name for each file."""
    counts = np.bincount(places, minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _deletion_vector_files(table_files: pa.Table) -> tuple[int, int]:
    """Return the number of deletion vector files, and the total size of the deletion vectors."""
    if not table_files.num_rows:
        return 0, 0
    stored = table_files["deletion_vector"].combine_chunks()
    stored = stored.filter(pc.is_in(pc.struct_field(stored, "storageType"), value_set=pa.array(["u", "p"])))
    files = pc.count_distinct(pc.struct_field(stored, "pathOrInlineDv")).as_py()
    size = pc.sum(pc.struct_field(stored, "sizeInBytes")).as_py() or 0
    return int(files), int(size) + FRAME_OVERHEAD * len(stored)


def _partitions(
    table: FileTable, found: tuple[HealthFinding, ...], limit: int
) -> tuple[PartitionHealth, ...]:
    numbers = partition_numbers(table.files, table.keys)
    count = int(numbers.max()) + 1 if len(numbers) else 0
    points = np.zeros(len(table))
    for one in found:
        if one.per_file is not None:
            points += one.per_file
    vectors = table.files["deletion_vector"]
    rows = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_numpy()

    def summed(weights: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        return np.bincount(numbers, weights, minlength=count)

    sizes, costs, files = summed(table.sizes), summed(points).round(6), summed()
    # Sums in floating point are exact up to 2**53, eight petabytes per partition.
    deleted_rows, dead, small = summed(rows), summed(table.dead), summed(table.sizes < SMALL_FILE)
    with_vector = summed(pc.is_valid(vectors).to_numpy())
    worst = np.lexsort((-sizes, -costs))
    worst = worst[files[worst] > 0][:limit]
    _, first = np.unique(numbers, return_index=True)
    seen = {int(numbers[place]): int(place) for place in first}
    values = table.files["partition_values"].take(pa.array([seen[int(one)] for one in worst], pa.int64()))
    named = list(zip(table.snapshot.partition_columns, table.keys, strict=True))
    return tuple(
        PartitionHealth(
            partition_values={name: dict(texts or ()).get(key) for name, key in named},
            num_files=int(files[one]),
            size_in_bytes=int(sizes[one]),
            num_deleted_rows=int(deleted_rows[one]),
            deleted_bytes=int(dead[one]),
            num_files_with_deletion_vectors=int(with_vector[one]),
            small_files=int(small[one]),
            points=round(float(costs[one]), 4),
        )
        for one, texts in zip(worst.tolist(), values.to_pylist(), strict=True)
    )
