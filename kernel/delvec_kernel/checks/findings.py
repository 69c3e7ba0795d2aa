"""A finding: one thing that should be true of a table and is not."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.errors import CorruptLog, CorruptTable
from delvec_kernel.features.table_features import writer_features
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics

__all__ = ["INVARIANTS", "Finding", "Severity", "row_id_findings", "vector_findings"]

Severity: TypeAlias = Literal["error", "warning"]

INVARIANTS: Final = {
    "version-gap": "Every version of the log has a commit.",
    "readable-commit": "Every commit can be read.",
    "readable-checkpoint": "The newest checkpoint, and the one that the log begins with, can be read.",
    "readable-table": "The newest version can be read.",
    "one-action-per-file": "A version adds a path at most once, and removes it at most once.",
    "remove-of-live-file": "A remove names a file that was live.",
    "remove-with-its-vector": "A remove carries the deletion vector that the file had.",
    "one-live-file-per-path": "A path that is live is added again only where the same version removes the old one.",
    "no-empty-vector": "An action has a deletion vector or none, never an empty object.",
    "vector-feature": "A table with deletion vectors lists the feature, for readers and writers.",
    "vector-needs-count": "A file with a deletion vector has numRecords in its statistics.",
    "physical-count": "In a file with a deletion vector, numRecords counts the deleted rows, too.",
    "vector-loosens-bounds": "The statistics of a file with a deletion vector say tightBounds=false.",
    "vector-within-file": "A deletion vector marks no more rows than the file has, and none beyond it.",
    "readable-vector": "Every live deletion vector is there, with the size, checksum and rows that the log says.",
    "data-file": "Every live data file is there, with the size that the log says.",
    "checkpoint-agrees": "What readers load, by checkpoint or not, is what the commits say.",
    "in-commit-timestamp": "With in-commit timestamps, each commit begins with one, later than the one before.",
    "application-version": "The version of an application (txn) rises.",
    "own-commit": "What Delvec committed lately is in the log as it was committed.",
    "row-ids": "With row tracking, each file has row ids; none is given twice, or is above the high-water mark.",
    "iceberg-metadata": "The Iceberg metadata and the manifests of its current snapshot can be read, and are this table's.",
    "iceberg-version": "The Iceberg metadata shows a version of the table.",
    "iceberg-data-files": "The data files of the manifests are that version's live files, with their sizes and partitions.",
    "iceberg-record-counts": "The manifests say how many rows each data file has, deleted ones included.",
    "iceberg-one-delete-per-file": "A data file has one delete file or Iceberg deletion vector at most.",
    "iceberg-dangling-delete": "Deletes are of the format version's kind, and of a data file of the snapshot, its partition and spec.",
    "iceberg-delete-file": "Each delete file and Puffin file is there, with the size, offsets and data files that the manifests say.",
    "iceberg-deleted-rows": "The rows that Iceberg deletes are those that Delta deletes.",
    "iceberg-sequence-numbers": "Sequence numbers rise with snapshots; those of deletes are not below their data file's.",
    "iceberg-row-ids": "In format version 3 each data file has row ids; none is given twice, or is next-row-id or above.",
    "iceberg-counts": "Counts in manifest lists and snapshots are those of their files.",
    "iceberg-history": "Older Iceberg snapshots that have not expired have their manifests and delete files.",
}
"""Each invariant by its code."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Where an invariant does not hold.

    Attributes:
        invariant: a key of :data:`INVARIANTS`.
        severity: ``error`` where readers can see other rows than were committed, or none; ``warning`` for what
            other writers leave behind and readers cope with.
        version: in which it was found.
        file: path as in the log, or the name of the log file.
        message: what is wrong, and what to do.
        fixed_in: the version from which on it is no longer so. Only those who travel in time to one before it meet it.
    """

    invariant: str
    severity: Severity
    version: int | None
    file: str | None
    message: str
    fixed_in: int | None = None

    def as_fixed_in(self, version: int) -> "Finding":
        """Return it as what is over since a version."""
        message = f"{self.message} Since version {version} it is no longer so."
        return replace(self, severity="warning", message=message, fixed_in=version)


_BOUNDS = ("minValues", "maxValues")


def vector_findings(version: int, path: str, stats: str | None, vector: Descriptor) -> Iterator[Finding]:
    """Say what is wrong with the statistics of a file that has a deletion vector."""
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
            f"{where} has a deletion vector and no numRecords in its statistics; rewrite it with OPTIMIZE.",
        )
    elif vector.cardinality > count:
        yield Finding(
            "vector-within-file",
            "error",
            version,
            path,
            f"{where} has {count} rows, and a deletion vector of {vector.cardinality}; restore the table to a "
            "version before.",
        )
    if stats is not None and _claims_tight_bounds(stats):
        yield Finding(
            "vector-loosens-bounds",
            "warning",
            version,
            path,
            f"{where} has a deletion vector, and statistics that do not say tightBounds=false: an engine that "
            "answers MIN and MAX from them may be wrong; rewrite the file with OPTIMIZE.",
        )


def _claims_tight_bounds(stats: str) -> bool:
    try:
        document = json.loads(stats)
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict) or document.get("tightBounds") is False:
        return False
    return any(document.get(name) for name in _BOUNDS)


_MOST: Final = 20
_DOMAIN: Final = "delta.rowTracking"
_ADVICE: Final = "change feeds and incremental views that rest on row ids go wrong; rewrite both files"


def row_id_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Say which live files share row ids, or have some above the high-water mark; 20 of each at most."""
    if "rowTracking" not in writer_features(snapshot.protocol):
        return
    files = snapshot.live.columns(["path", "num_records", "base_row_id"])
    files = files.filter(pc.and_(pc.is_valid(files["base_row_id"]), pc.is_valid(files["num_records"])))
    files = files.filter(pc.greater(files["num_records"], 0)).sort_by("base_row_id")
    if not files.num_rows:
        return
    first: npt.NDArray[np.int64] = files["base_row_id"].to_numpy()
    last = first + files["num_records"].to_numpy() - 1
    for place in np.flatnonzero(first[1:] <= last[:-1])[:_MOST].tolist():
        one, other = files["path"][place].as_py(), files["path"][place + 1].as_py()
        yield _finding(
            snapshot.version,
            other,
            f"File '{other}' of version {snapshot.version} has row ids from {first[place + 1]} on, and file "
            f"'{one}' has those up to {last[place]}: {_ADVICE}.",
        )
    mark = _high_water_mark(snapshot)
    if mark is None:
        yield _finding(
            snapshot.version,
            None,
            f"Version {snapshot.version} has files with row ids and no high-water mark in the domain {_DOMAIN}: the "
            "next writer may give ids twice; set it with the engine that enabled row tracking.",
        )
        return
    paths = files["path"].filter(pa.array(last > mark))
    for path in paths[:_MOST].to_pylist():
        yield _finding(
            snapshot.version,
            path,
            f"File '{path}' of version {snapshot.version} has row ids above the high-water mark {mark}: the next "
            "writer may give them again; raise the mark with the engine that enabled row tracking.",
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
