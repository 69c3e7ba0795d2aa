"""The live files of an Iceberg snapshot, from its manifest list and manifests (Iceberg spec, "Manifests").

Tested in `tests/integration/client/test_iceberg_import.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from delvec_errors import CorruptIcebergMetadata
from delvec_iceberg.manifests import DATA, DELETED, DELETES, read_manifest, read_manifest_list
from delvec_service.cloning.iceberg_metadata import IcebergSource, file_url, refusal, unsupported
from delvec_storage.files import Allowed, read

__all__ = ["DeleteFile", "IcebergDataFile", "Partition", "SnapshotFiles", "snapshot_files"]

_MAX_MANIFEST: Final = 256 << 20
_MAX_FILES: Final = 5_000_000
"""All are held in memory, a kilobyte and more each."""
_POSITION_DELETES, _EQUALITY_DELETES = 1, 2


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition of a file.

    Attributes:
        spec_id: the spec that it was written with.
        values: one per field of the spec, in Avro's plain types: days, microseconds, bytes of decimals.
    """

    spec_id: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class IcebergDataFile:
    """A data file; counts and bounds are by field id, bounds in Iceberg's binary form.

    Attributes:
        path: as spelled in the metadata.
        url: canonical.
        sequence: the sequence number of its data.
        modified: when its snapshot was created, in milliseconds since the epoch.
    """

    path: str
    url: str
    size: int
    records: int
    sequence: int
    partition: Partition
    modified: int
    nulls: Mapping[int, int]
    nans: Mapping[int, int]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file of position deletes, or one deletion vector.

    Attributes:
        referenced: its only data file, as spelled in the metadata; None if only the file itself has it.
        extent: offset and length of a deletion vector in its Puffin file; None for position deletes.
    """

    path: str
    url: str
    records: int
    sequence: int
    partition: Partition
    referenced: str | None
    extent: tuple[int, int] | None


@dataclass(frozen=True)
class SnapshotFiles:
    """The files of a snapshot."""

    data: list[IcebergDataFile]
    deletes: list[DeleteFile]


def snapshot_files(source: IcebergSource, is_allowed: Allowed) -> SnapshotFiles:
    """Read the manifests of the current snapshot.

    Raises:
        UnsupportedOperation: there are equality deletes, files that are not Parquet, or encrypted ones.
        InvalidTableChange: a manifest is missing or damaged, or a data file is listed twice.
        UnusableFile: a manifest is larger than 256 MiB.
        LocationNotAllowed: a file is outside the roots.
        StorageError: storage did not answer.
    """
    files = SnapshotFiles([], [])
    if source.manifest_list is None:
        return files
    manifests = _records(source, source.manifest_list, is_allowed, read_manifest_list)
    twice = len(manifests) - len({manifest["manifest_path"] for manifest in manifests})
    if twice:
        raise refusal(source.location, f"its manifest list has {twice} manifests twice.")
    for manifest in manifests:
        path = manifest["manifest_path"]
        entries = _records(source, path, is_allowed, partial(read_manifest, manifest=manifest))
        try:
            holds_deletes = manifest["content"] == DELETES
            for entry in entries:
                if entry["status"] != DELETED:
                    _take(source, manifest, entry, files, holds_deletes=holds_deletes)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise refusal(
                source.location, f"its manifest {path} is damaged ({error!r}).", file=path
            ) from error
        if len(files.data) + len(files.deletes) > _MAX_FILES:
            raise refusal(source.location, f"its snapshot has more than {_MAX_FILES} files.")
    twice = len(files.data) - len({file.url for file in files.data})
    if twice:
        raise refusal(source.location, f"its snapshot lists {twice} data files twice.")
    return files


def _records(
    source: IcebergSource, path: str, is_allowed: Allowed, decode: Callable[[bytes], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    try:
        return decode(read(source.location, file_url(path), is_allowed=is_allowed, max_bytes=_MAX_MANIFEST))
    except FileNotFoundError as error:
        raise refusal(
            source.location, f"{path} is missing. Use a newer metadata file, if there is one.", file=path
        ) from error
    except CorruptIcebergMetadata as error:
        raise refusal(
            source.location, f"{path} cannot be read as Avro ({error.__cause__!r}).", file=path
        ) from error


def _take(
    source: IcebergSource,
    manifest: Mapping[str, Any],
    entry: Mapping[str, Any],
    files: SnapshotFiles,
    *,
    holds_deletes: bool,
) -> None:
    file = entry["data_file"]
    path, content = str(file["file_path"]), file["content"] or DATA
    if content == _EQUALITY_DELETES:
        raise unsupported(
            source.location,
            f"'{path}' contains equality deletes, which Delta does not support. Compact the table with Iceberg "
            "first, which applies them: CALL system.rewrite_data_files(...).",
            file=path,
            feature="equality-deletes",
        )
    if holds_deletes != (content == _POSITION_DELETES):
        raise ValueError(f"'{path}' has content {content}, which is invalid there")
    if file.get("key_metadata") is not None:
        raise unsupported(source.location, f"'{path}' is encrypted.", file=path)
    sequence = entry.get("sequence_number")
    sequence = int(manifest["sequence_number"] or 0) if sequence is None else int(sequence)
    partition = Partition(int(manifest["partition_spec_id"]), tuple((file["partition"] or {}).values()))
    form, url = str(file["file_format"]).upper(), file_url(path)
    extent = _extent(file) if form == "PUFFIN" and holds_deletes else None
    if form != "PARQUET" and extent is None:
        raise unsupported(
            source.location,
            f"'{path}' has format {form[:20]}, but a Delta table can only have Parquet files. Rewrite it with "
            "Iceberg first.",
            file=path,
        )
    if holds_deletes:
        files.deletes.append(
            DeleteFile(path, url, int(file["record_count"]), sequence, partition, _referenced(file), extent)
        )
        return
    snapshot = int(entry.get("snapshot_id") or manifest.get("added_snapshot_id") or 0)
    files.data.append(
        IcebergDataFile(
            path=path,
            url=url,
            size=int(file["file_size_in_bytes"]),
            records=int(file["record_count"]),
            sequence=sequence,
            partition=partition,
            modified=source.times.get(snapshot, max(source.times.values(), default=0)),
            nulls=_by_id(file.get("null_value_counts")),
            nans=_by_id(file.get("nan_value_counts")),
            lower=_by_id(file.get("lower_bounds")),
            upper=_by_id(file.get("upper_bounds")),
        )
    )


def _extent(file: Mapping[str, Any]) -> tuple[int, int]:
    return int(file["content_offset"]), int(file["content_size_in_bytes"])


def _referenced(file: Mapping[str, Any]) -> str | None:
    found = file.get("referenced_data_file")
    return None if found is None else str(found)


def _by_id(pairs: Any) -> dict[int, Any]:
    """Return a map that Avro stores as a list of pairs, because its keys are not text."""
    return {int(pair["key"]): pair["value"] for pair in pairs or ()}
