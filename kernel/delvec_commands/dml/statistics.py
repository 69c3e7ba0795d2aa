"""COMPUTE STATISTICS: tightens bounds that deletes left wide, and adds missing statistics."""

import json
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.dml.optimize_run import check_partitions_only
from delvec_commands.dml.row_command import Clock
from delvec_commands.reading import ReadableTable
from delvec_commands.table_service import TableService
from delvec_commands.transaction import Metrics, Transaction
from delvec_engines.live_statistics import live_statistics
from delvec_engines.scan import Scan
from delvec_kernel.statistics.file_statistics import dump, indexed_columns

__all__ = ["OPERATION", "compute_statistics"]

OPERATION: Final = "COMPUTE STATS"
"""Its name in the table's history, as in delta-spark."""
_COMMIT_FILES: Final = 10_000
_READ_FILES: Final = 100
_COMMIT_BYTES: Final = 16 << 20


def compute_statistics(
    service: TableService,
    table: ReadableTable,
    where: str | None = None,
    *,
    all_files: bool = False,
    dry_run: bool = False,
    user_metadata: str | None = None,
) -> Metrics:
    """Compute statistics once; see :meth:`delvec.DeltaTable.compute_statistics`."""
    clock = Clock()
    scan, predicate = table.plan(predicate=where, stats=True)
    if predicate is not None:
        check_partitions_only(scan, predicate)
        scan = scan.filter(scan.files["matches_all"])
    considered = len(scan)
    scan = scan if all_files else scan.filter(_needs_statistics(scan))
    counts: dict[str, int | None] = {"numUpdatedFiles": 0, "numConsideredFiles": considered}
    if dry_run:
        return Metrics({**counts, "numUpdatedFiles": len(scan), **clock.metrics()}, None)
    version = None
    num_updated_files = 0
    waiting: dict[str, str] = {}
    for start in range(0, len(scan), _READ_FILES):
        waiting |= live_statistics(scan.slice(start, _READ_FILES))
        is_full = len(waiting) >= _COMMIT_FILES or sum(map(len, waiting.values())) >= _COMMIT_BYTES
        if is_full or start + _READ_FILES >= len(scan):
            transaction = Transaction(
                service,
                table.id,
                OPERATION,
                scan.version,
                read_mark=scan.read_mark,
                engine_info=table.engine.name,
                data_change=False,
                operation_parameters={
                    "predicate": json.dumps([] if where is None else [where], ensure_ascii=False)
                },
                user_metadata=user_metadata,
            )
            transaction.set_statistics(_with_vectors(scan, waiting))
            commit_response = transaction.commit(metrics=clock.metrics())
            version = commit_response.version if commit_response.version is not None else version
            num_updated_files += commit_response.operation_metrics.get("numUpdatedFiles", 0)
            waiting = {}
    return Metrics({**counts, "numUpdatedFiles": num_updated_files, **clock.metrics()}, version)


def _with_vectors(scan: Scan, stats: Mapping[str, str]) -> list[tuple[str, str, dict[str, object] | None]]:
    files = scan.only(stats).files
    vectors = zip(files["path"].to_pylist(), files["deletion_vector"].to_pylist(), strict=True)
    return [(path, stats[path], vector) for path, vector in vectors]


def _needs_statistics(scan: Scan) -> pa.Array:
    """Return which files have wide bounds, or lack numRecords or a nullCount of a column with statistics."""
    texts = pc.fill_null(scan.files["stats"], "")
    mask = pc.or_(
        pc.match_substring_regex(texts, r'"tightBounds"\s*:\s*false'), pc.is_null(scan.files["num_records"])
    )
    # Files with bounds of a column also have its nullCount, but not vice versa, so nullCount is checked.
    counts = pc.fill_null(
        pc.struct_field(pc.extract_regex(texts, r'(?s)"nullCount"\s*:\s*(?P<counts>\{.*)'), "counts"), ""
    )
    for leaf in indexed_columns(scan.schema, scan.partition_columns, scan.configuration):
        name = dump(leaf[-1].physical_name)
        mask = pc.or_(mask, pc.invert(pc.match_substring(counts, f"{name}:")))
    return mask
