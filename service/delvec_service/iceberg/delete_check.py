"""Checks delete files: each is read, and its rows are compared with those of Delta's deletion vector.

A deletion vector in a Puffin file should have the same bytes as Delta's; only if they differ are both decoded. Only
some of the deletion vectors are in memory at a time.

Tested in `tests/integration/service/iceberg/test_published_check.py`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyroaring import BitMap64

from delvec_errors import CorruptDeletionVector, CorruptIcebergMetadata, LocationNotAllowed, UnusableFile
from delvec_iceberg.position_deletes import read_position_deletes
from delvec_iceberg.puffin import FOOTER_TRAILER_BYTES, Blob, footer_size, read_footer
from delvec_iceberg.schema import V3
from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD, Descriptor, Where, unframe
from delvec_maintenance.checks.findings import Finding
from delvec_maintenance.checks.iceberg_invariants import IcebergSnapshot
from delvec_service.iceberg.metadata_directory import IcebergDirectory
from delvec_service.store.open_table import OpenTable
from delvec_storage import files as storage

__all__ = ["DeletesCheck", "DeltaVector"]

_PART_BYTES: Final = 16 * 1024 * 1024
_MAX_FOOTER: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class DeltaVector:
    """A deletion vector of the Delta table.

    Attributes:
        path: the data file, as in the log.
        descriptor: the descriptor of the deletion vector.
    """

    path: str
    descriptor: Descriptor


class DeletesCheck:
    """Reads the delete files of a snapshot.

    Args:
        table: the Delta table.
        directory: where the delete files are.
        of: the snapshot.
    """

    def __init__(self, table: OpenTable, directory: IcebergDirectory, of: IcebergSnapshot) -> None:
        self._table = table
        self._directory = directory
        self._of = of

    def findings(self, deletes: pa.Table, vectors: Mapping[str, DeltaVector] | None) -> Iterator[Finding]:
        """Yield what is wrong with delete files.

        Args:
            deletes: manifest entries, ENTRIES_SCHEMA, a row for each data file that a delete file is for.
            vectors: Delta's deletion vectors, by the data file's path in Iceberg; None if unknown.

        Raises:
            StorageError: storage did not answer.
        """
        files: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in deletes.select(
            ["path", "format", "records", "size", "referenced", "offset", "length"]
        ).to_pylist():
            files[row["path"]].append(row)
        part: list[tuple[str, list[dict[str, Any]]]] = []
        size = 0
        for path, rows in files.items():
            part.append((path, rows))
            found = [vectors[row["referenced"]] for row in rows if vectors and row["referenced"] in vectors]
            size += sum(one.descriptor.size_in_bytes for one in found)
            if size >= _PART_BYTES:
                yield from self._part(part, vectors)
                part, size = [], 0
        yield from self._part(part, vectors)

    def _part(
        self, part: Sequence[tuple[str, list[dict[str, Any]]]], vectors: Mapping[str, DeltaVector] | None
    ) -> Iterator[Finding]:
        delta_vectors = {
            row["referenced"]: vectors[row["referenced"]]
            for _, rows in part
            for row in rows
            if vectors and row["referenced"] in vectors
        }
        if self._of.format_version >= V3:
            records = self._of_delta(delta_vectors, storage.read_deletion_vector_records)
            for path, rows in part:
                yield from self._puffin(path, rows, delta_vectors, records)
        else:
            deleted = self._of_delta(delta_vectors, storage.read_deletion_vectors)
            for path, rows in part:
                yield from self._parquet(path, rows, deleted)

    def _of_delta(self, delta_vectors: Mapping[str, DeltaVector], read: Any) -> dict[str, Any]:
        """Return Delta's deletion vectors by the data file's path in Iceberg.

        The check of the Delta table reports damaged ones.
        """

        def rows_of(some: Mapping[str, DeltaVector]) -> dict[str, Any]:
            wanted = [(one.path, one.descriptor) for one in some.values()]
            vector_contents = read(
                self._table.location,
                wanted,
                table=self._table.name,
                version=self._of.version,
                is_allowed=self._table.roots.allows,
            )
            return {path: vector_contents[one.path] for path, one in some.items()}

        try:
            return rows_of(delta_vectors)
        except (CorruptDeletionVector, LocationNotAllowed):
            vector_contents: dict[str, Any] = {}
            for path, one in delta_vectors.items():
                try:
                    vector_contents |= rows_of({path: one})
                except (CorruptDeletionVector, LocationNotAllowed):
                    continue
            return vector_contents

    # --- Puffin -----------------------------------------------------------------------------------------

    def _puffin(
        self,
        path: str,
        rows: Sequence[dict[str, Any]],
        delta_vectors: Mapping[str, DeltaVector],
        records: Mapping[str, bytes | memoryview],
    ) -> Iterator[Finding]:
        try:
            with self._directory.open(path) as file:
                yield from self._wrong_size(path, rows, file.size())
                blobs = {blob.offset: blob for blob in _footer(file, path)}
                for row in sorted(rows, key=lambda row: row["offset"] or 0):
                    yield from self._blob(file, row, blobs.get(row["offset"]), delta_vectors, records)
        except CorruptIcebergMetadata as error:
            yield self._unusable(path, error.message)
        except FileNotFoundError:
            yield self._missing(path)
        except (OSError, pa.ArrowException) as error:
            yield self._unusable(path, str(error)[:200])

    def _blob(
        self,
        file: pa.NativeFile,
        row: dict[str, Any],
        blob: Blob | None,
        delta_vectors: Mapping[str, DeltaVector],
        records: Mapping[str, bytes | memoryview],
    ) -> Iterator[Finding]:
        path, data_file = row["path"], row["referenced"]
        place = f"of '{data_file}', at {row['offset']} of '{path}',"
        if blob is None or (blob.length, blob.referenced_data_file, blob.cardinality) != (
            row["length"],
            data_file,
            row["records"],
        ):
            footer_text = (
                "no deletion vector at that position"
                if blob is None
                else f"{blob.length} bytes with {blob.cardinality} rows of '{blob.referenced_data_file}' there"
            )
            yield self._of.finding(
                "iceberg-delete-file",
                path,
                f"The deletion vector {place} has {row['length']} bytes and {row['records']} rows according to its "
                f"manifest, but the footer lists {footer_text}",
            )
            return
        if not 0 <= blob.offset <= blob.offset + blob.length <= file.size():
            yield self._unusable(path, f"the deletion vector {place} extends beyond the file")
            return
        data = file.read_at(blob.length, blob.offset)
        theirs = records.get(data_file)
        if theirs is not None and data == theirs:
            return
        size = blob.length - FRAME_OVERHEAD
        where = Where(
            self._table.name,
            self._of.version,
            delta_vectors[data_file].path if data_file in delta_vectors else data_file,
        )
        try:
            deleted_rows = unframe(data, Descriptor("p", path, blob.offset, size, blob.cardinality), where)
        except CorruptDeletionVector as error:
            yield self._of.finding(
                "iceberg-delete-file",
                path,
                f"The deletion vector {place} is damaged ({error.message.rstrip('.')})",
            )
            return
        if theirs is not None:
            expected_rows = unframe(theirs, _as_record(delta_vectors[data_file].descriptor, theirs), where)
            yield from self._difference(path, data_file, deleted_rows, expected_rows)

    # --- Parquet ----------------------------------------------------------------------------------------

    def _parquet(
        self, path: str, rows: Sequence[dict[str, Any]], deleted_rows: Mapping[str, BitMap64]
    ) -> Iterator[Finding]:
        positions_by_file: defaultdict[str, BitMap64] = defaultdict(BitMap64)
        try:
            with self._directory.open(path) as file:
                yield from self._wrong_size(path, rows, file.size())
                for data_file, positions in read_position_deletes(file, path):
                    positions_by_file[data_file].update(positions)
        except CorruptIcebergMetadata as error:
            yield self._unusable(path, error.message)
            return
        except FileNotFoundError:
            yield self._missing(path)
            return
        except (OSError, ValueError, pa.ArrowException, UnusableFile) as error:
            yield self._unusable(path, str(error)[:200])
            return
        data_files = {row["referenced"] for row in rows}
        if None in data_files:
            return  # it is reported for that
        source = "manifest" if len(rows) == 1 else "footer"
        for row in rows:
            data_file = row["referenced"]
            if positions_by_file.keys() - data_files or len(positions_by_file[data_file]) != row["records"]:
                counts_text = ", ".join(
                    f"{len(each)} of '{name}'" for name, each in list(positions_by_file.items())[:3] if each
                )
                yield self._of.finding(
                    "iceberg-delete-file",
                    path,
                    f"The delete file '{path}' has {row['records']} rows of '{data_file}' according to its "
                    f"{source}, but contains {counts_text or 'none'}",
                )
            elif data_file in deleted_rows:
                yield from self._difference(
                    path, data_file, positions_by_file[data_file], deleted_rows[data_file]
                )

    # --- what is wrong ----------------------------------------------------------------------------------

    def _difference(
        self, path: str, data_file: str, deleted_rows: BitMap64, expected_rows: BitMap64
    ) -> Iterator[Finding]:
        if deleted_rows != expected_rows:
            yield self._of.finding(
                "iceberg-deleted-rows",
                path,
                f"'{path}' deletes {len(deleted_rows - expected_rows)} rows of '{data_file}' that Delta does not, and lacks "
                f"{len(expected_rows - deleted_rows)} that Delta deletes",
            )

    def _wrong_size(self, path: str, rows: Sequence[dict[str, Any]], size: int) -> Iterator[Finding]:
        for stated in {row["size"] for row in rows} - {size}:
            yield self._of.finding(
                "iceberg-delete-file",
                path,
                f"'{path}' has {size} bytes, but {stated} according to its manifest",
            )

    def _missing(self, path: str) -> Finding:
        return self._of.finding(
            "iceberg-delete-file", path, f"'{path}' does not exist in storage: Iceberg readers fail"
        )

    def _unusable(self, path: str, said: str) -> Finding:
        return self._of.finding("iceberg-delete-file", path, f"'{path}' cannot be read ({said.rstrip('.')})")


def _footer(file: pa.NativeFile, path: str) -> Sequence[Blob]:
    size = file.size()
    if size < FOOTER_TRAILER_BYTES:
        raise CorruptIcebergMetadata(f"Its size is {size} bytes.", file=path)
    length = footer_size(file.read_at(FOOTER_TRAILER_BYTES, size - FOOTER_TRAILER_BYTES), path)
    if length > min(size, _MAX_FOOTER):
        raise CorruptIcebergMetadata(f"Its footer would have {length} bytes.", file=path)
    return read_footer(file.read_at(length, size - length), path)


def _as_record(descriptor: Descriptor, record: bytes | memoryview) -> Descriptor:
    """Return a descriptor for the bytes of a deletion vector, which may have been inline, or in the older layout."""
    return Descriptor("p", "", 0, len(record) - FRAME_OVERHEAD, descriptor.cardinality)
