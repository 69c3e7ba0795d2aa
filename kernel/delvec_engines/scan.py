"""A planned scan in the client: one version, the files to read, their deletion vectors.

Tested in `tests/integration/client/test_scan.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec_errors import MissingDataFile
from delvec_kernel.deletion_vectors.deletion_vector import (
    Descriptor,
    Where,
    check_rows_exist,
    deserialize_bitmap,
)
from delvec_kernel.features.table_features import deletes_by_vector
from delvec_kernel.schema.column_mapping import is_mapped
from delvec_kernel.schema.partition_values import column_of_files, has_empty
from delvec_kernel.schema.types import StructField, StructType
from delvec_kernel.table_properties import is_true
from delvec_storage.files import read_deletion_vectors
from delvec_storage.roots import Roots

__all__ = ["OCCURRENCES", "Scan", "ScanFile", "missing_data_file"]

OCCURRENCES: Final = "occurrences"
"""A column that ``Scan.files`` may have: see :mod:`delvec_engines.repeated_rows`."""


def missing_data_file(scan: "Scan", path: str) -> MissingDataFile:
    """Return the error for a data file of a scan that is not in storage."""
    advice = (
        "restore it from a backup, or restore the table to a version that does not need it."
        if scan.is_newest
        else "VACUUM deletes files that only older versions need: read a newer version, or a clone made before."
    )
    return MissingDataFile(
        f"The data file '{path}' of table '{scan.name}' (version {scan.version}) does not exist; {advice}",
        table=scan.name,
        version=scan.version,
        file=path,
    )


@dataclass(frozen=True)
class ScanFile:
    """One file of a scan.

    Attributes:
        path: the path, as in the log: relative to the location or absolute, URL-encoded.
        partition_values: serialized, by physical column name.
        size: bytes.
        num_records: physical rows, deleted ones included, or None without statistics.
        matches_all: partition values alone show that every row satisfies the plan's predicate.
        descriptor: the deletion vector's descriptor, if it has one.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    num_records: int | None
    matches_all: bool
    descriptor: Descriptor | None


@dataclass(frozen=True)
class Scan:
    """What to read, of one version.

    Attributes:
        files: a table with the columns of ``wire.PlanFile`` in snake case, one row per file; no path twice. Columns of
            row ids exist only if requested and if the table has row tracking.
        protocol: the action's JSON; empty for scans that no write is based on.
        read_mark: identifies this commit of the version, in case it is replaced; sent with commits based on it.
        is_newest: the version was not chosen by number or time: it was the newest when planned.
        roots: locations that its files must be under; checked again when a file is opened.
        marked_only: the deletion vectors list the rows to read instead of those deleted; every file has one.
    """

    table_id: str
    name: str
    location: str
    version: int
    schema: StructType
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    files: pa.Table
    num_files_total: int
    protocol: Mapping[str, Any] = field(default_factory=dict)
    marked_only: bool = False
    read_mark: str | None = None
    is_newest: bool = False
    roots: Roots = field(default_factory=Roots)

    def __iter__(self) -> Iterator[ScanFile]:
        """Iterate over the files; for the few that a command changes, not for planning."""
        more = {
            "deleted_rows",
            "stats",
            "base_row_id",
            "default_row_commit_version",
            "tags",
            "clustering_provider",
            OCCURRENCES,
        }
        for row in self.files.select(
            [name for name in self.files.column_names if name not in more]
        ).to_pylist():
            dv = row.pop("deletion_vector")
            row["partition_values"] = dict(row["partition_values"] or [])
            yield ScanFile(**row, descriptor=Descriptor.from_json(dv) if dv else None)

    def __len__(self) -> int:
        return int(self.files.num_rows)

    def filter(self, mask: pa.Array) -> "Scan":
        """Return the scan of the files for which ``mask`` is true."""
        return replace(self, files=self.files.filter(mask))

    def slice(self, start: int, count: int | None = None) -> "Scan":
        """Return the scan of ``count`` files from ``start``; by default of all remaining files."""
        return replace(self, files=self.files.slice(start, count))

    def only(self, paths: Iterable[str]) -> "Scan":
        """Return the scan of those files."""
        own = self.files["path"].combine_chunks()
        return self.filter(pc.is_in(own, value_set=pa.array(list(paths), own.type)))

    def parts(self, max_bytes: int) -> Iterator["Scan"]:
        """Split the scan, in file order, into parts with deletion vectors of up to about ``max_bytes`` each."""
        vectors = self.files["deletion_vector"].to_pylist() if self.has_deletion_vectors else []
        start = held_bytes = 0
        for number, vector in enumerate(vectors):
            size = vector["sizeInBytes"] if vector else 0
            if held_bytes and held_bytes + size > max_bytes:
                yield self.slice(start, number - start)
                start, held_bytes = number, 0
            held_bytes += size
        yield self.slice(start) if start else self

    @property
    def deletes_by_vector(self) -> bool:
        """Whether rows may be deleted by deletion vector."""
        return deletes_by_vector(self.protocol.get("writerFeatures"), self.configuration)

    @property
    def partition_keys(self) -> list[str]:
        """The keys of the files' partition values: physical names if column mapping is on."""
        mapped = is_mapped(self.configuration)
        fields = [self.schema.field(name) for name in self.partition_columns]
        return [item.physical_name if mapped else item.name for item in fields]

    def partition_column(self, item: StructField, files: pa.Table | None = None) -> pa.Array:
        """Return the value of each file in a partition column.

        Args:
            item: the column.
            files: some of the scan's; by default all.

        Raises:
            CorruptLog: a value is not of the column's type; names the file.
        """
        key = item.physical_name if is_mapped(self.configuration) else item.name
        chosen = self.files if files is None else files
        return column_of_files(chosen, key, item, table=self.name, version=self.version)

    @property
    def empty_texts(self) -> frozenset[str]:
        """The partition columns in which a file has an empty string or binary, not NULL."""
        values = self.files["partition_values"].combine_chunks()
        fields = [self.schema.field(name) for name in self.partition_columns]
        return frozenset(
            item.name
            for item, key in zip(fields, self.partition_keys, strict=True)
            if has_empty(item.type)
            and pc.any(pc.equal(pc.map_lookup(values, pa.scalar(key), "last"), "")).as_py()
        )

    @property
    def keeps_change_feed(self) -> bool:
        """Whether the table keeps a change data feed."""
        return is_true(self.configuration, "delta.enableChangeDataFeed")

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether any file has one."""
        return bool(self.files["deletion_vector"].null_count < self.files.num_rows)

    @cached_property
    def deletion_vectors(self) -> Mapping[str, BitMap64]:
        """The deleted rows by path, for files that have any; those not inlined in the plan are fetched.

        Raises:
            CorruptDeletionVector: or a subclass, naming the table, the version and the file; also if one marks a row that the
                file does not have.
        """
        with_dv = self.files.filter(pc.is_valid(self.files["deletion_vector"]))
        deletion_vectors: dict[str, BitMap64] = {}
        missing: list[tuple[str, Descriptor]] = []
        names = ("path", "deletion_vector", "deleted_rows", "num_records")
        columns = (with_dv[name].to_pylist() for name in names)
        counts: dict[str, int | None] = {}
        for path, dv, inlined, count in zip(*columns, strict=True):
            if inlined is None:
                missing.append((path, Descriptor.from_json(dv)))
                counts[path] = count
            else:
                deletion_vectors[path] = deserialize_bitmap(inlined)
                where = Where(self.name, self.version, path)
                check_rows_exist(deletion_vectors[path], count, Descriptor.from_json(dv), where)
        if missing:
            deletion_vectors.update(
                read_deletion_vectors(
                    self.location,
                    missing,
                    table=self.name,
                    version=self.version,
                    is_allowed=self.roots.allows,
                    num_records=counts,
                )
            )
        return deletion_vectors
