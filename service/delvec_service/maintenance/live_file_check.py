"""The check of a version's live files in storage: data files by their size, deletion vectors by every row."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyroaring import BitMap64

from delvec_kernel import locations
from delvec_kernel.checks.findings import Finding
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.errors import CorruptDeletionVector, InvalidLocation, LocationNotAllowed
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.storage import files as storage
from delvec_kernel.storage.files import Allowed
from delvec_service.store.objects import ObjectStore

__all__ = ["FilesChecked", "check_files"]

_CONCURRENT: Final = 32
_COLUMNS: Final = ("path", "size", "num_records", "deletion_vector")


@dataclass
class FilesChecked:
    """What was looked at, and what is wrong with it.

    Attributes:
        data_files: of which size was compared.
        vectors: that were read.
    """

    data_files: int = 0
    vectors: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def problem(self) -> str:
        """What is wrong, where something is: how many files of the version, and the first of them."""
        first, count = self.findings[0], len(self.findings)
        named = "one of its files is" if count == 1 else f"{count} of its files are"
        return f"{named} missing from storage or damaged. {first.message}"


def check_files(
    snapshot: Snapshot,
    objects: ObjectStore,
    table: str,
    allowed: Allowed,
    *,
    data_files: bool,
    among: Iterable[pa.RecordBatch] | None = None,
) -> FilesChecked:
    """Read live deletion vectors, and look up live data files, several at once in an object store.

    Args:
        snapshot: the version.
        objects: the table's files.
        table: for errors.
        allowed: whether a file outside the table may be looked at.
        data_files: whether to look data files up: one request each.
        among: which of its files, as FILES_SCHEMA has them; all of them by default.

    Raises:
        StorageError: storage did not answer.
    """
    done = FilesChecked()
    for batch in snapshot.live.batches(_COLUMNS) if among is None else among:
        rows = batch.select(_COLUMNS).to_pylist()
        marked = [row for row in rows if row["deletion_vector"] is not None]
        done.vectors += len(marked)
        done.findings += _vectors(marked, snapshot, table, allowed)
        if data_files:
            done.data_files += len(rows)
            done.findings += _data_files(rows, snapshot, objects)
    return done


def _vectors(
    marked: Sequence[dict[str, Any]], snapshot: Snapshot, table: str, allowed: Allowed
) -> Iterator[Finding]:
    wanted = [(row["path"], Descriptor.from_json(row["deletion_vector"])) for row in marked]
    counts = {row["path"]: row["num_records"] for row in marked}

    def read(some: list[tuple[str, Descriptor]]) -> dict[str, BitMap64]:
        return storage.read_deletion_vectors(
            snapshot.location, some, table=table, version=snapshot.version, allowed=allowed
        )

    found: dict[str, BitMap64] = {}
    try:
        found = read(wanted)
    except (CorruptDeletionVector, LocationNotAllowed):
        for path, descriptor in wanted:  # one by one, to say of each what is wrong
            try:
                found |= read([(path, descriptor)])
            except (CorruptDeletionVector, LocationNotAllowed) as error:
                yield Finding("readable-vector", "error", snapshot.version, path, error.message)
    for path, rows in found.items():
        count = counts[path]
        if rows and count is not None and rows.max() >= count:
            yield Finding(
                "vector-within-file",
                "error",
                snapshot.version,
                path,
                f"File '{path}' of version {snapshot.version} has {count} rows, and its deletion vector marks row "
                f"{rows.max()}; restore the table to a version before.",
            )


def _data_files(
    rows: Sequence[dict[str, Any]], snapshot: Snapshot, objects: ObjectStore
) -> Iterator[Finding]:
    def look(row: dict[str, Any]) -> str | None:
        try:
            found = objects.head(row["path"])
        except (LocationNotAllowed, InvalidLocation) as error:
            return f"cannot be looked at: {error.message}"
        if found is None:
            return "is not in storage; restore it from a backup, or remove it from the table."
        if found.size != row["size"]:
            return (
                f"has {found.size} bytes in storage and {row['size']} in the log: it was replaced or cut off; "
                "restore it from a backup."
            )
        return None

    if locations.local_path(snapshot.location) is not None:
        problems = list(map(look, rows))
    else:
        with ThreadPoolExecutor(min(_CONCURRENT, max(1, len(rows))), "delvec-head") as pool:
            problems = list(pool.map(look, rows))
    for row, problem in zip(rows, problems, strict=True):
        if problem is not None:
            yield Finding(
                "data-file",
                "error",
                snapshot.version,
                row["path"],
                f"File '{row['path']}' of version {snapshot.version} {problem}",
            )
