"""Tombstones of removed files, which checkpoints must keep (PROTOCOL.md, "Action Reconciliation").

Snapshots do not include them, so they are read from the previous checkpoint and the commits after it. For a file with
one deletion vector the last action counts: an ``add`` ends the tombstone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, DelvecError, UnusableFile
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import AddFile, RemoveFile, Sidecar
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.file_rows import DELETION_VECTOR, TEXT_MAP
from delvec_kernel.locations import canonical_log_path, canonical_log_paths
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.snapshot.replay import Commit
from delvec_parquet.parquet_file import open_parquet, plain_type

__all__ = [
    "TOMBSTONES",
    "Changes",
    "sidecars_in_parquet",
    "tombstones_in_manifest",
    "tombstones_in_parquet",
    "vector_files_without_tombstone",
]

TOMBSTONES: Final = pa.schema(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", TEXT_MAP),
        ("size", pa.int64()),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
"""One row per tombstone, with the fields of ``remove`` except statistics and tags."""

_BATCH_ROWS: Final = 32 * 1024
# Arrow raises many kinds of errors for corrupt Parquet.
_PARQUET_ERRORS: Final = (
    pa.ArrowException,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    UnusableFile,
)
_Key = tuple[str, str | None]


@dataclass(frozen=True)
class Changes:
    """The last file actions of a run of commits, by path and deletion vector.

    Attributes:
        location: the table's canonical location, against which relative paths are resolved.
        last: the last action on each file; None for an ``add``.
    """

    location: str
    last: Mapping[_Key, RemoveFile | None]

    @classmethod
    def of(cls, commits: Iterable[Commit], location: str) -> "Changes":
        """Collect the actions of replayed commits, whose paths are therefore valid, in ascending order."""
        last: dict[_Key, RemoveFile | None] = {}
        for commit in commits:
            for action in commit.actions:
                # No commit both adds and removes the same file with the same deletion vector.
                if isinstance(action, AddFile | RemoveFile):
                    remove = action if isinstance(action, RemoveFile) else None
                    last[_key(action.path, action.deletion_vector, location)] = remove
        return cls(location, last)

    def tombstones(self, since: int) -> pa.RecordBatch:
        """Return the tombstones left by these commits and newer than ``since`` (milliseconds since the epoch)."""
        removed = [remove for remove in self.last.values() if remove is not None]
        return _batch([remove for remove in removed if (remove.deletion_timestamp or 0) > since])

    def remaining(self, older: pa.RecordBatch, since: int) -> pa.RecordBatch:
        """Return the older tombstones that neither these commits nor expiry have ended."""
        kept = pc.greater(older.column("deletionTimestamp"), since)
        # A missing timestamp counts as oldest.
        older = older.filter(pc.fill_null(kept, fill_value=False))
        if not self.last or not older.num_rows:
            return older
        keys = pc.binary_join_element_wise(
            canonical_log_paths(older.column("path"), self.location),
            pc.fill_null(_unique_ids(older.column("deletionVector")), ""),
            "\0",
        )
        said = pa.array([f"{path}\0{vector or ''}" for path, vector in self.last], pa.string())
        return older.filter(pc.invert(pc.is_in(keys, value_set=said)))


def tombstones_in_parquet(source: pa.NativeFile, where: LogFile) -> Iterator[pa.RecordBatch]:
    """Yield the tombstones in a Parquet checkpoint, a part of one, or a sidecar, as TOMBSTONES.

    Args:
        source: the file, open for random access: only the columns of ``remove`` are read.
        where: where it is, for errors.

    Raises:
        CorruptLog: the file cannot be read.
    """
    try:
        file = open_parquet(source, where.name)
        position = file.schema_arrow.get_field_index("remove")
        if position < 0 or not pa.types.is_struct(file.schema_arrow.field(position).type):
            return
        present = {field.name for field in file.schema_arrow.field(position).type}
        columns = [f"remove.{name}" for name in TOMBSTONES.names if name in present]
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
            removes = batch.column(0)
            removes = removes.cast(plain_type(removes.type))
            removes = removes.filter(pc.is_valid(pc.struct_field(removes, "path")))
            if len(removes):
                yield _conformed(removes)
    except _PARQUET_ERRORS as error:
        raise _unreadable(where, error) from error


def sidecars_in_parquet(source: pa.NativeFile, where: LogFile) -> list[str]:
    """Return the paths of the sidecars that a checkpoint file references, as written there.

    Raises:
        CorruptLog: the file cannot be read.
    """
    try:
        file = open_parquet(source, where.name)
        position = file.schema_arrow.get_field_index("sidecar")
        if position < 0 or not pa.types.is_struct(file.schema_arrow.field(position).type):
            return []
        paths: list[str | None] = pc.struct_field(
            file.read(columns=["sidecar.path"])["sidecar"], "path"
        ).to_pylist()
        return [path for path in paths if path is not None]
    except _PARQUET_ERRORS as error:
        raise _unreadable(where, error) from error


def tombstones_in_manifest(data: bytes, where: LogFile) -> tuple[pa.RecordBatch, list[str]]:
    """Return the tombstones and the sidecar paths in a JSON manifest of a V2 checkpoint.

    Raises:
        CorruptLog: the manifest cannot be read.
    """
    actions = parse_commit(data, where)
    sidecars = [action.path for action in actions if isinstance(action, Sidecar)]
    return _batch([action for action in actions if isinstance(action, RemoveFile)]), sidecars


def vector_files_without_tombstone(tombstones: Iterable[pa.RecordBatch], location: str) -> list[str]:
    """Return the deletion vector files of removed files, except those with a separate tombstone.

    A client without deletion vector support sees only separate tombstones.

    Args:
        tombstones: the tombstones of one version, TOMBSTONES.
        location: the table's canonical location; files outside it are ignored, like in VACUUM.

    Returns:
        Paths as in the log, in order.
    """
    vector_paths: set[str] = set()
    own: set[str] = set()
    for batch in tombstones:
        vectors = batch.column("deletionVector")
        own.update(
            canonical_log_paths(batch.column("path").filter(pc.is_null(vectors)), location).to_pylist()
        )
        kinds, texts = vectors.flatten()[:2]
        for kind in ("u", "p"):
            vector_texts = pc.unique(texts.filter(pc.fill_null(pc.equal(kinds, kind), fill_value=False)))
            vector_paths.update(
                path for text in vector_texts.to_pylist() if (path := _file_of(kind, text, location))
            )
    return sorted(vector_paths - own)


def _file_of(kind: str, text: str, location: str) -> str | None:
    """Return the path of a deletion vector file; None if it is not in the table."""
    try:
        named = Descriptor(kind, text, 1, 1, 1).absolute_path(location)
        path = canonical_log_path(named or "", location)
    except DelvecError:
        return None
    return None if "://" in path else path


def _unreadable(where: LogFile, error: Exception) -> CorruptLog:
    reason = (str(error) or type(error).__name__).partition("\n")[0][:200]
    return where.corrupt(f"is not a readable Parquet checkpoint ({reason})")


def _conformed(removes: pa.StructArray) -> pa.RecordBatch:
    remove_fields = {field.name: removes.field(index) for index, field in enumerate(removes.type)}
    columns = []
    for field in TOMBSTONES:
        if field.name not in remove_fields:
            columns.append(pa.nulls(len(removes), field.type))
        elif field.name == "deletionVector":
            columns.append(_vectors(remove_fields[field.name]))
        else:
            columns.append(remove_fields[field.name].cast(field.type))
    batch = pa.RecordBatch.from_arrays(columns, schema=TOMBSTONES)
    batch.validate(full=True)  # Arrow does not check strings for valid UTF-8 on read
    return batch


def _vectors(found: pa.StructArray) -> pa.Array:
    names = {field.name: index for index, field in enumerate(found.type)}
    parts = found.flatten()
    columns = [
        parts[names[field.name]].cast(field.type) if field.name in names else pa.nulls(len(found), field.type)
        for field in DELETION_VECTOR
    ]
    # Some writers use a struct with an empty storage type for no deletion vector.
    absent = pc.fill_null(pc.equal(columns[0], ""), fill_value=True)
    return pa.StructArray.from_arrays(columns, fields=list(DELETION_VECTOR), mask=absent)


def _unique_ids(vectors: pa.StructArray) -> pa.Array:
    """Return the :attr:`Descriptor.unique_id` of each deletion vector, null for none."""
    kind, text, offset = vectors.flatten()[:3]
    named = pc.binary_join_element_wise(kind, text, "")
    at = pc.binary_join_element_wise(named, offset.cast(pa.string()), "@")
    return pc.coalesce(at, named)


def _key(path: str, vector: Descriptor | None, location: str) -> _Key:
    return canonical_log_path(path, location), None if vector is None else vector.unique_id


def _batch(removes: Sequence[RemoveFile]) -> pa.RecordBatch:
    vectors = [remove.deletion_vector for remove in removes]
    values = [remove.partition_values for remove in removes]
    columns: dict[str, list[Any]] = {
        "path": [remove.path for remove in removes],
        "deletionTimestamp": [remove.deletion_timestamp for remove in removes],
        "extendedFileMetadata": [remove.extended_file_metadata for remove in removes],
        "partitionValues": [None if pairs is None else list(pairs.items()) for pairs in values],
        "size": [remove.size for remove in removes],
        "deletionVector": [None if vector is None else vector.to_json() for vector in vectors],
        "baseRowId": [remove.base_row_id for remove in removes],
        "defaultRowCommitVersion": [remove.default_row_commit_version for remove in removes],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in TOMBSTONES]
    return pa.RecordBatch.from_arrays(arrays, schema=TOMBSTONES)
