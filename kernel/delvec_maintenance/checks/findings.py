"""Findings: violations of a table's invariants.

Tested in `tests/integration/service/maintenance/test_check.py`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, CorruptTable
from delvec_errors.texts import counted
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.features.table_features import writer_features
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics

__all__ = ["INVARIANTS", "Finding", "Severity", "row_id_findings", "vector_findings"]

Severity: TypeAlias = Literal["error", "warning"]

INVARIANTS: Final = {
    "version-gap": "Every version of the log has a commit.",
    "readable-commit": "Every commit can be read.",
    "readable-checkpoint": "The newest checkpoint, and the one with which the log begins, can be read.",
    "readable-table": "The newest version can be read.",
    "one-action-per-file": "A version adds each path at most once, and removes it at most once.",
    "remove-of-live-file": "A remove names a file that was live.",
    "remove-with-its-vector": "A remove has the deletion vector that the file had.",
    "one-live-file-per-path": "A live path is added again only if the same version removes the old file.",
    "no-empty-vector": "The deletion vector of an action is never an empty object.",
    "vector-feature": "A table with deletion vectors lists the table feature for readers and writers.",
    "vector-needs-count": "A file with a deletion vector has numRecords in its statistics.",
    "physical-count": "In a file with a deletion vector, numRecords includes the deleted rows.",
    "vector-loosens-bounds": "The statistics of a file with a deletion vector say tightBounds=false.",
    "vector-within-file": "A deletion vector marks only rows that the file has.",
    "readable-vector": (
        "Every live deletion vector is in storage, with the size, checksum and number of rows in the log."
    ),
    "data-file": "Every live data file is in storage, with the size in the log.",
    "checkpoint-agrees": "Readers see the same table with and without checkpoints.",
    "in-commit-timestamp": (
        "With in-commit timestamps, each commit begins with one, later than the previous one."
    ),
    "application-version": "The version of an application (txn) only increases.",
    "own-commit": "Delvec's recent commits are in the log as they were committed.",
    "row-ids": "With row tracking, each file has row ids; none occurs twice or is above the high-water mark.",
    "iceberg-metadata": (
        "The Iceberg metadata and the manifests of its current snapshot can be read, and belong to this "
        "table."
    ),
    "iceberg-version": "The Iceberg metadata shows a version of the table.",
    "iceberg-data-files": (
        "The data files in the manifests are that version's live files, with the same sizes and partitions."
    ),
    "iceberg-record-counts": (
        "The manifests have the right number of rows for each data file, deleted rows included."
    ),
    "iceberg-one-delete-per-file": (
        "A data file has at most one delete file, shared or not, or Iceberg deletion vector."
    ),
    "iceberg-dangling-delete": (
        "Delete files are of the format version's kind, and refer to a data file of the snapshot with the "
        "same partition and spec, which is inside their bounds."
    ),
    "iceberg-delete-file": (
        "Each delete file and Puffin file is in storage, with the size, offsets and data files in the "
        "manifests; a shared one has as many rows as its footer says."
    ),
    "iceberg-deleted-rows": "Iceberg and Delta delete the same rows.",
    "iceberg-sequence-numbers": (
        "Sequence numbers increase with snapshots; a delete file's is never below its data file's."
    ),
    "iceberg-row-ids": (
        "In format version 3, each data file has row ids; none occurs twice or reaches next-row-id."
    ),
    "iceberg-counts": "The counts in manifest lists and snapshots match their files.",
    "iceberg-history": (
        "Older Iceberg snapshots that have not expired still have their manifests, delete files and data files."
    ),
}
"""Descriptions of the invariants, by code."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of an invariant.

    Attributes:
        invariant: a key of :data:`INVARIANTS`.
        severity: ``error`` if readers can see rows other than those committed, or none; ``warning`` for leftovers of
            other writers that readers tolerate.
        version: the version with the problem.
        file: path as in the log, or the name of the log file.
        message: the problem, and how to fix it.
        fixed_in: the version that fixed it, so that only reads of earlier versions are affected.
    """

    invariant: str
    severity: Severity
    version: int | None
    file: str | None
    message: str
    fixed_in: int | None = None

    def as_fixed_in(self, version: int) -> "Finding":
        """Return a copy that is marked as fixed in a version."""
        message = f"{self.message} This was fixed in version {version}."
        return replace(self, severity="warning", message=message, fixed_in=version)


_BOUNDS = ("minValues", "maxValues")


def vector_findings(version: int, path: str, stats: str | None, vector: Descriptor) -> Iterator[Finding]:
    """Report problems with the statistics of a file that has a deletion vector."""
    where = f"File '{path}' of version {version}"
    try:
        count = None if stats is None else statistics.num_records(stats)
    except (CorruptLog, CorruptTable):
        count = None
    if count is None:
        yield Finding(
            "vector-needs-count",
            "error",
            version,
            path,
            f"{where} has a deletion vector but no numRecords in its statistics; rewrite it with OPTIMIZE.",
        )
    elif vector.cardinality > count:
        yield Finding(
            "vector-within-file",
            "error",
            version,
            path,
            f"{where} has {counted(count, 'row')}, but its deletion vector marks {vector.cardinality}; restore the "
            "table to the version before.",
        )
    if stats is not None and _claims_tight_bounds(stats):
        yield Finding(
            "vector-loosens-bounds",
            "warning",
            version,
            path,
            f"{where} has a deletion vector, but its statistics do not have tightBounds=false: an engine "
            "that answers MIN and MAX from them may return wrong results; rewrite the file with OPTIMIZE.",
        )


def _claims_tight_bounds(stats: str) -> bool:
    try:
        document = json.loads(stats)
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict) or document.get("tightBounds") is False:
        return False
    return any(document.get(name) for name in _BOUNDS)


_MAX_REPORTED: Final = 20
_DOMAIN: Final = "delta.rowTracking"
_ADVICE: Final = (
    "change feeds and incremental views that use row ids return wrong results; rewrite both files"
)


def row_id_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Report live files with overlapping row ids or row ids above the high-water mark, up to 20 of each."""
    if "rowTracking" not in writer_features(snapshot.protocol):
        return
    files = snapshot.live.columns(["path", "num_records", "base_row_id"])
    files = files.filter(pc.and_(pc.is_valid(files["base_row_id"]), pc.is_valid(files["num_records"])))
    files = files.filter(pc.greater(files["num_records"], 0)).sort_by("base_row_id")
    if not files.num_rows:
        return
    first: npt.NDArray[np.int64] = files["base_row_id"].to_numpy()
    last = first + files["num_records"].to_numpy() - 1
    for place in np.flatnonzero(first[1:] <= last[:-1])[:_MAX_REPORTED].tolist():
        one, other = files["path"][place].as_py(), files["path"][place + 1].as_py()
        yield _finding(
            snapshot.version,
            other,
            f"File '{other}' of version {snapshot.version} has row ids from {first[place + 1]} on, but file "
            f"'{one}' has row ids up to {last[place]}: {_ADVICE}.",
        )
    mark = _high_water_mark(snapshot)
    if mark is None:
        yield _finding(
            snapshot.version,
            None,
            f"Version {snapshot.version} has files with row ids, but no high-water mark in the domain "
            f"{_DOMAIN}: the next writer may assign ids twice; set it with the engine that enabled row "
            "tracking.",
        )
        return
    paths = files["path"].filter(pa.array(last > mark))
    for path in paths[:_MAX_REPORTED].to_pylist():
        yield _finding(
            snapshot.version,
            path,
            f"File '{path}' of version {snapshot.version} has row ids above the high-water mark {mark}: the "
            "next writer may assign them again; raise the mark with the engine that enabled row tracking.",
        )


def _finding(version: int, path: str | None, message: str) -> Finding:
    return Finding("row-ids", "error", version, path, message)


def _high_water_mark(snapshot: Snapshot) -> int | None:
    domain = snapshot.domain_metadata.get(_DOMAIN)
    try:
        mark = None if domain is None else json.loads(domain.configuration)["rowIdHighWaterMark"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return mark if isinstance(mark, int) else None
