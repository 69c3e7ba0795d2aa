"""Invariants of a converted Iceberg snapshot: its manifests and files, compared with its Delta version.

All checks are columnar, over the entries of all manifests at once.

Tested in `tests/integration/service/iceberg/test_published_check.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_iceberg.manifests import ADDED, DATA, DELETED, DELETES, EXISTING, ManifestEntry, ManifestFile
from delvec_iceberg.position_deletes import FILE_PATH_ID
from delvec_iceberg.schema import V3
from delvec_maintenance.checks.findings import Finding, Severity

__all__ = [
    "ENTRIES_SCHEMA",
    "LIVE_SCHEMA",
    "IcebergSnapshot",
    "columns_of",
    "count_findings",
    "delete_findings",
    "file_findings",
    "manifest_findings",
    "partition_key",
    "row_id_findings",
    "sequence_findings",
]

_TEXT: Final = pa.large_string()  # all paths of a table may exceed 2 GiB

ENTRIES_SCHEMA: Final = pa.schema(
    {
        "path": _TEXT,
        "format": _TEXT,
        "spec_id": pa.int32(),
        "partition": _TEXT,
        "records": pa.int64(),
        "size": pa.int64(),
        "sequence_number": pa.int64(),
        "first_row_id": pa.int64(),
        "referenced": _TEXT,
        "offset": pa.int64(),
        "length": pa.int64(),
        "first_path": _TEXT,
        "last_path": _TEXT,
    }
)
"""Live manifest entries of data files or deletes; the bounds of ``file_path`` only for position deletes."""

LIVE_SCHEMA: Final = pa.schema(
    {
        "path": _TEXT,
        "partition": _TEXT,
        "records": pa.int64(),
        "size": pa.int64(),
        "first_row_id": pa.int64(),
        "deleted": pa.int64(),
    }
)
"""Live files of a Delta version as they should appear in Iceberg; ``records`` is NULL where unknown."""

_TOTALS: Final = (
    ("total-data-files", DATA, False),
    ("total-records", DATA, True),
    ("total-delete-files", DELETES, False),
    ("total-position-deletes", DELETES, True),
)


@dataclass(frozen=True)
class IcebergSnapshot:
    """The snapshot being checked, with context for findings.

    Attributes:
        version: the Delta version that was converted.
        format_version: 2 or 3.
        location: the location of the Iceberg table.
        metadata: the metadata of the Iceberg table.
        snapshot: the current one.
    """

    version: int
    format_version: int
    location: str
    metadata: Mapping[str, Any]
    snapshot: Mapping[str, Any]

    def finding(self, invariant: str, file: str | None, what: str, severity: Severity = "error") -> Finding:
        """Return a finding whose message includes how to fix it."""
        return Finding(
            invariant,
            severity,
            self.version,
            file,
            f"{what} (Iceberg format version {self.format_version} of version {self.version}): delete "
            f"'{self.location}/metadata', and convert the table again with format version {self.format_version}.",
        )


def columns_of(entries: Iterable[ManifestEntry], manifest: ManifestFile) -> pa.RecordBatch:
    """Return the live entries of a manifest, ENTRIES_SCHEMA.

    Raises:
        KeyError: a field is missing.
        TypeError: or ``pa.ArrowException``: a field has another type.
    """
    rows = [
        {
            "path": file["file_path"],
            "format": file["file_format"],
            "spec_id": manifest["partition_spec_id"],
            "partition": partition_key(file["partition"]),
            "records": file["record_count"],
            "size": file["file_size_in_bytes"],
            "sequence_number": entry["sequence_number"],
            "first_row_id": file.get("first_row_id"),
            "referenced": file.get("referenced_data_file"),
            "offset": file.get("content_offset"),
            "length": file.get("content_size_in_bytes"),
            "first_path": _path_bound(file, "lower_bounds"),
            "last_path": _path_bound(file, "upper_bounds"),
        }
        for entry in entries
        if entry["status"] != DELETED
        for file in (entry["data_file"],)
    ]
    return pa.RecordBatch.from_pylist(rows, ENTRIES_SCHEMA)


def _path_bound(file: Mapping[str, Any], side: str) -> str | None:
    if file["content"] == DATA:
        return None
    bounds = {one["key"]: one["value"] for one in file.get(side) or ()}
    return bounds[FILE_PATH_ID].decode() if FILE_PATH_ID in bounds else None


def partition_key(values: Mapping[str, Any]) -> str:
    """Return a partition tuple as text, the same text for equal tuples."""
    return repr(sorted(values.items()))


def manifest_findings(
    manifest: ManifestFile, entries: Sequence[ManifestEntry], of: IcebergSnapshot
) -> Iterator[Finding]:
    """Report errors in a manifest's entry in the manifest list."""
    path = manifest["manifest_path"]
    for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        counts = [entry["data_file"]["record_count"] for entry in entries if entry["status"] == status]
        for what, count in ((f"{name}_files_count", len(counts)), (f"{name}_rows_count", sum(counts))):
            if manifest[what] != count:
                yield of.finding(
                    "iceberg-counts",
                    path,
                    f"Manifest '{path}' has {what} {count}, but the manifest list says {manifest[what]}",
                )
    lowest = min(
        (entry["sequence_number"] for entry in entries if entry["status"] != DELETED),
        default=manifest["min_sequence_number"],
    )
    if (
        not manifest["min_sequence_number"]
        <= lowest
        <= manifest["sequence_number"]
        <= of.snapshot["sequence-number"]
    ):
        yield of.finding(
            "iceberg-sequence-numbers",
            path,
            f"Manifest '{path}' has files from sequence number {lowest} on, but the manifest list says "
            f"{manifest['min_sequence_number']} to {manifest['sequence_number']}, in a snapshot of "
            f"{of.snapshot['sequence-number']}",
        )
    wrong = sum((entry["data_file"]["content"] == DATA) != (manifest["content"] == DATA) for entry in entries)
    if wrong:
        yield of.finding(
            "iceberg-metadata", path, f"Manifest '{path}' has {wrong} entries of the wrong content type"
        )


def count_findings(data: pa.Table, deletes: pa.Table, of: IcebergSnapshot) -> Iterator[Finding]:
    """Report wrong totals in the snapshot's summary."""
    for name, content, rows in _TOTALS:
        files = data if content == DATA else deletes
        count = (pc.sum(files["records"]).as_py() or 0) if rows else files.num_rows
        stated = of.snapshot["summary"].get(name)
        if stated != str(count):
            yield of.finding(
                "iceberg-counts",
                None,
                f"The snapshot's summary says that {name} is {stated}, but it is {count}",
            )


def file_findings(
    data: pa.Table, live: pa.Table, default_spec_id: int, of: IcebergSnapshot
) -> Iterator[Finding]:
    """Compare data files with the live files of the Delta version.

    Args:
        data: ENTRIES_SCHEMA.
        live: LIVE_SCHEMA; ``partition`` in the default spec.
        default_spec_id: files of other specs keep their partition.
        of: the snapshot.
    """
    for path, count in _repeated(data["path"]):
        yield of.finding("iceberg-data-files", path, f"Data file '{path}' is in the manifests {count} times")
    at = pc.index_in(data["path"], value_set=live["path"])
    for path in data["path"].filter(pc.is_null(at)).to_pylist():
        yield of.finding(
            "iceberg-data-files",
            path,
            f"Data file '{path}' is in the manifests, but is not a live file in Delta",
        )
    for path in live["path"].filter(pc.invert(pc.is_in(live["path"], value_set=data["path"]))).to_pylist():
        yield of.finding("iceberg-data-files", path, f"The live file '{path}' is not in any manifest")
    both, theirs = data.filter(pc.is_valid(at)), live.take(at.drop_null())
    for name, invariant, what in (
        ("size", "iceberg-data-files", "bytes"),
        ("records", "iceberg-record-counts", "rows, deleted ones included,"),
    ):
        for path, one, other in _differing(both, theirs, name):
            yield of.finding(
                invariant, path, f"Data file '{path}' has {one} {what} in its manifest, but {other} in Delta"
            )
    ours = pc.equal(both["spec_id"], default_spec_id)
    for path, one, other in _differing(both.filter(ours), theirs.filter(ours), "partition"):
        yield of.finding(
            "iceberg-data-files",
            path,
            f"Data file '{path}' is in partition {one} in its manifest, but in {other} in Delta",
        )
    if of.format_version >= V3:
        for path, one, other in _differing(both, theirs, "first_row_id"):
            yield of.finding(
                "iceberg-row-ids",
                path,
                f"Data file '{path}' has row ids from {one} on, but from {other} on in Delta",
            )


def delete_findings(
    data: pa.Table, deletes: pa.Table, live: pa.Table | None, of: IcebergSnapshot
) -> Iterator[Finding]:
    """Compare deletes with the data files they refer to, and with Delta's deletion vectors.

    Args:
        data: ENTRIES_SCHEMA.
        deletes: ENTRIES_SCHEMA, a row for each data file that a delete file is for.
        live: LIVE_SCHEMA; None if the Delta version is no longer available.
        of: the snapshot.
    """
    wanted = "PUFFIN" if of.format_version >= V3 else "PARQUET"
    for row in deletes.filter(pc.not_equal(deletes["format"], wanted)).to_pylist():
        yield of.finding(
            "iceberg-dangling-delete",
            row["path"],
            f"Delete file '{row['path']}' is {row['format']}, which format version {of.format_version} does "
            "not have",
        )
    for path, count in _repeated(deletes["referenced"]):
        yield of.finding(
            "iceberg-one-delete-per-file",
            path,
            f"Data file '{path}' has {count} deletion vectors or delete files",
        )
    at = pc.index_in(deletes["referenced"], value_set=data["path"])
    for row in deletes.filter(pc.is_null(at)).to_pylist():
        refers = (
            "names no data file"
            if row["referenced"] is None
            else f"refers to '{row['referenced']}', which is not a data file of the snapshot"
        )
        yield of.finding("iceberg-dangling-delete", row["path"], f"Delete file '{row['path']}' {refers}")
    outside = pc.or_(
        pc.less(deletes["referenced"], deletes["first_path"]),
        pc.greater(deletes["referenced"], deletes["last_path"]),
    )
    for row in deletes.filter(pc.fill_null(outside, False)).to_pylist():
        yield of.finding(
            "iceberg-dangling-delete",
            row["path"],
            f"The bounds of delete file '{row['path']}' in its manifest do not include '{row['referenced']}', so "
            "readers do not apply it",
        )
    both, files = deletes.filter(pc.is_valid(at)), data.take(at.drop_null())
    differ = pc.or_(
        pc.not_equal(both["spec_id"], files["spec_id"]), pc.not_equal(both["partition"], files["partition"])
    )
    for path, one, other in _pairs(both, files, differ, "partition"):
        yield of.finding(
            "iceberg-dangling-delete",
            path,
            f"The delete file of '{path}' is in partition {one} or has another spec, but the data file is "
            f"in {other}",
        )
    older = pc.less(both["sequence_number"], files["sequence_number"])
    for path, one, other in _pairs(both, files, older, "sequence_number"):
        yield of.finding(
            "iceberg-sequence-numbers",
            path,
            f"The delete file of '{path}' has sequence number {one}, but the data file has {other}, so "
            "readers ignore the deletes",
        )
    if live is not None:
        yield from _compare_with_deletion_vectors(deletes, live, of)


def _compare_with_deletion_vectors(
    deletes: pa.Table, live: pa.Table, of: IcebergSnapshot
) -> Iterator[Finding]:
    marked = live.filter(pc.greater(live["deleted"], 0))
    missing = pc.invert(pc.is_in(marked["path"], value_set=deletes["referenced"]))
    for row in marked.filter(missing).to_pylist():
        yield of.finding(
            "iceberg-deleted-rows",
            row["path"],
            f"No delete file covers the {row['deleted']} deleted rows of '{row['path']}'",
        )
    at = pc.index_in(deletes["referenced"], value_set=live["path"])
    both, theirs = deletes.filter(pc.is_valid(at)), live.take(at.drop_null())
    differ = pc.not_equal(both["records"], theirs["deleted"])
    rows = zip(
        both["referenced"].filter(differ).to_pylist(),
        both["records"].filter(differ).to_pylist(),
        theirs["deleted"].filter(differ).to_pylist(),
        strict=True,
    )
    for path, one, other in rows:
        yield of.finding(
            "iceberg-deleted-rows",
            path,
            f"The manifests delete {one} rows of '{path}', but Delta deletes {other}",
        )


def sequence_findings(data: pa.Table, deletes: pa.Table, of: IcebergSnapshot) -> Iterator[Finding]:
    """Report sequence numbers above the snapshot's, or a snapshot's above the table's last."""
    last, own = of.metadata["last-sequence-number"], of.snapshot["sequence-number"]
    if own > last:
        yield of.finding(
            "iceberg-sequence-numbers",
            None,
            f"The snapshot has sequence number {own}, above last-sequence-number {last}",
        )
    for files in (data, deletes):
        later = files.filter(pc.greater(files["sequence_number"], own))
        for row in later.to_pylist():
            yield of.finding(
                "iceberg-sequence-numbers",
                row["path"],
                f"File '{row['path']}' has sequence number {row['sequence_number']}, above its snapshot's {own}",
            )


def row_id_findings(data: pa.Table, of: IcebergSnapshot) -> Iterator[Finding]:
    """Report files with missing, overlapping or still unassigned row ids; format version 3 only."""
    if of.format_version < V3:
        return
    end = of.metadata["next-row-id"]
    given = of.snapshot["first-row-id"] + of.snapshot["added-rows"]
    if given > end:
        yield of.finding(
            "iceberg-row-ids", None, f"The snapshot assigns row ids below {given}, but next-row-id is {end}"
        )
    for path in data["path"].filter(pc.is_null(data["first_row_id"])).to_pylist():
        yield of.finding("iceberg-row-ids", path, f"Data file '{path}' has no row ids")
    files = data.filter(pc.and_(pc.is_valid(data["first_row_id"]), pc.greater(data["records"], 0)))
    files = files.sort_by("first_row_id")
    first: npt.NDArray[np.int64] = files["first_row_id"].to_numpy()
    ends = first + files["records"].to_numpy()
    for place in np.flatnonzero(first[1:] < ends[:-1]).tolist():
        one, other = files["path"][place].as_py(), files["path"][place + 1].as_py()
        yield of.finding("iceberg-row-ids", other, f"Data files '{one}' and '{other}' share row ids")
    for place in np.flatnonzero(ends > end).tolist():
        path = files["path"][place].as_py()
        yield of.finding(
            "iceberg-row-ids",
            path,
            f"Data file '{path}' has row ids below {ends[place]}, but next-row-id is {end}",
        )


def _repeated(values: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    counted = pc.value_counts(values.drop_null())
    for row in counted.filter(pc.greater(counted.field("counts"), 1)).to_pylist():
        yield row["values"], row["counts"]


def _differing(one: pa.Table, other: pa.Table, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield path and both values of the rows in which two tables differ; NULL in ``other`` means unknown."""
    yield from _pairs(one, other, pc.fill_null(pc.not_equal(one[name], other[name]), False), name)


def _pairs(
    one: pa.Table, other: pa.Table, mask: pa.ChunkedArray, name: str
) -> Iterator[tuple[str, Any, Any]]:
    paths = other["path"].filter(mask).to_pylist()
    yield from zip(
        paths, one[name].filter(mask).to_pylist(), other[name].filter(mask).to_pylist(), strict=True
    )
