"""Checks a version's live files in storage: data files by size, deletion vectors by every row.

Tested in `tests/integration/service/maintenance/test_check.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from delvec_errors import CorruptDeletionVector, InvalidLocation, LocationNotAllowed, UnusableFile
from delvec_kernel import locations
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.checks.findings import Finding
from delvec_parquet.parquet_file import read_footer
from delvec_service.store.objects import ObjectStore
from delvec_storage import files as storage
from delvec_storage.files import Allowed

__all__ = ["FileCheckResult", "check_files"]

_CONCURRENT: Final = 32
_T = TypeVar("_T")
_COLUMNS: Final = ("path", "size", "num_records", "deletion_vector")


@dataclass
class FileCheckResult:
    """What was checked, and what is wrong with it.

    Attributes:
        data_files: number of data files whose size was compared.
        vectors: number of deletion vectors read.
        missing: paths of data files that do not exist in storage.
        counts: row counts from the footers of files whose deletion vectors were read, if they differ from the log.
    """

    data_files: int = 0
    vectors: int = 0
    findings: list[Finding] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """What is wrong, if anything: how many files of the version are affected, and the first of them."""
        first, count = self.findings[0], len(self.findings)
        named = "one of its files is" if count == 1 else f"{count} of its files are"
        return f"{named} missing from storage or damaged. {first.message}"


def check_files(
    snapshot: Snapshot,
    objects: ObjectStore,
    table: str,
    is_allowed: Allowed,
    *,
    data_files: bool,
    footers: bool = True,
    among: Iterable[pa.RecordBatch] | None = None,
) -> FileCheckResult:
    """Read live deletion vectors and look up live data files, several at once in an object store.

    Args:
        snapshot: the version.
        objects: the table's files.
        table: the table's name, for errors.
        is_allowed: whether a file outside the table may be accessed.
        data_files: whether to look up data files: one request each.
        footers: whether to compare row counts with the footers of data files with deletion vectors.
        among: the files to check, as in FILES_SCHEMA; by default all.

    Raises:
        StorageError: storage did not answer.
    """
    check_result = FileCheckResult()
    for batch in snapshot.live.batches(_COLUMNS) if among is None else among:
        rows = batch.select(_COLUMNS).to_pylist()
        rows_with_vector = [row for row in rows if row["deletion_vector"] is not None]
        check_result.vectors += len(rows_with_vector)
        findings = []
        if data_files:
            check_result.data_files += len(rows)
            findings = list(_data_files(rows, snapshot, objects, check_result))
            if footers:
                whole = {row["path"] for row in rows_with_vector} - {finding.file for finding in findings}
                findings += _counts(
                    [row for row in rows_with_vector if row["path"] in whole],
                    snapshot,
                    is_allowed,
                    check_result,
                )
        check_result.findings += [
            *_vectors(rows_with_vector, snapshot, table, is_allowed, check_result.counts),
            *findings,
        ]
    return check_result


def _vectors(
    rows_with_vector: Sequence[dict[str, Any]],
    snapshot: Snapshot,
    table: str,
    is_allowed: Allowed,
    physical: Mapping[str, int],
) -> Iterator[Finding]:
    deletion_vectors = [
        (row["path"], Descriptor.from_json(row["deletion_vector"])) for row in rows_with_vector
    ]
    counts = {row["path"]: physical.get(row["path"], row["num_records"]) for row in rows_with_vector}

    def read(some: list[tuple[str, Descriptor]]) -> dict[str, BitMap64]:
        return storage.read_deletion_vectors(
            snapshot.location, some, table=table, version=snapshot.version, is_allowed=is_allowed
        )

    deleted_rows: dict[str, BitMap64] = {}
    try:
        deleted_rows = read(deletion_vectors)
    except (CorruptDeletionVector, LocationNotAllowed):
        for path, descriptor in deletion_vectors:  # one by one, to report what is wrong with each
            try:
                deleted_rows |= read([(path, descriptor)])
            except (CorruptDeletionVector, LocationNotAllowed) as error:
                yield Finding("readable-vector", "error", snapshot.version, path, error.message)
    for path, rows in deleted_rows.items():
        count = counts[path]
        if rows and count is not None and rows.max() >= count:
            yield Finding(
                "vector-within-file",
                "error",
                snapshot.version,
                path,
                f"File '{path}' of version {snapshot.version} has {count} rows, but its deletion vector marks row "
                f"{rows.max()}; restore the table to an earlier version.",
            )


def _counts(
    rows: Sequence[dict[str, Any]], snapshot: Snapshot, is_allowed: Allowed, check_result: FileCheckResult
) -> Iterator[Finding]:
    """Compare numRecords with footers: some writers record the number of remaining rows instead."""

    def look(row: dict[str, Any]) -> int | str | None:
        try:
            with storage.open_input(snapshot.location, row["path"], is_allowed=is_allowed) as source:
                count = int(read_footer(source, row["path"]).num_rows)
                return count if count >= 0 else "has an invalid Parquet footer; restore it from a backup."
        except FileNotFoundError:
            return None  # it was deleted since it was looked up: the next check reports it
        except (pa.ArrowException, OSError):
            return "is not a Parquet file: it was replaced or truncated; restore it from a backup."
        except (LocationNotAllowed, InvalidLocation, UnusableFile) as error:
            return f"cannot be checked: {error.message}"

    for row, count_or_problem in zip(rows, _each(look, rows, snapshot), strict=True):
        where = f"File '{row['path']}' of version {snapshot.version}"
        if isinstance(count_or_problem, str):
            yield Finding("data-file", "error", snapshot.version, row["path"], f"{where} {count_or_problem}")
        elif count_or_problem is not None and count_or_problem != row["num_records"]:
            check_result.counts[row["path"]] = count_or_problem
            if row["num_records"] is not None:
                yield Finding(
                    "physical-count",
                    "error",
                    snapshot.version,
                    row["path"],
                    f"{where} has {count_or_problem} rows including deleted ones, but numRecords is {row['num_records']}: "
                    "counts from statistics are wrong, and writers may consider rows deleted. Repair the table.",
                )


def _each(
    look: Callable[[dict[str, Any]], _T], rows: Sequence[dict[str, Any]], snapshot: Snapshot
) -> list[_T]:
    """Check each file, several at once in an object store."""
    if locations.local_path(snapshot.location) is not None:
        return list(map(look, rows))
    with ThreadPoolExecutor(min(_CONCURRENT, max(1, len(rows))), "delvec-head") as pool:
        return list(pool.map(look, rows))


def _data_files(
    rows: Sequence[dict[str, Any]], snapshot: Snapshot, objects: ObjectStore, check_result: FileCheckResult
) -> Iterator[Finding]:
    def look(row: dict[str, Any]) -> str | None:
        try:
            object_meta = objects.head(row["path"])
        except (LocationNotAllowed, InvalidLocation) as error:
            return f"cannot be checked: {error.message}"
        if object_meta is None:
            check_result.missing.add(row["path"])
            return (
                "does not exist in storage; restore it from a backup, or remove it from the table: repair "
                "--drop-missing-files."
            )
        if object_meta.size != row["size"]:
            return (
                f"has {object_meta.size} bytes in storage but {row['size']} in the log: it was replaced or truncated; "
                "restore it from a backup."
            )
        return None

    for row, problem in zip(rows, _each(look, rows, snapshot), strict=True):
        if problem is not None:
            yield Finding(
                "data-file",
                "error",
                snapshot.version,
                row["path"],
                f"File '{row['path']}' of version {snapshot.version} {problem}",
            )
