"""Files removed from a table that may still be in storage, according to the tombstones in its log.

Tested in `tests/integration/service/scans/test_history_detail_health.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD
from delvec_kernel.file_index.file_rows import DELETION_VECTOR
from delvec_kernel.locations import canonical_log_paths
from delvec_kernel.snapshot.snapshot import Snapshot

__all__ = ["RemovedFiles"]

_REMOVED: Final = pa.schema([("path", pa.string()), ("time", pa.int64()), ("size", pa.int64())])


@dataclass(frozen=True)
class RemovedFiles:
    """Totals of a version's tombstones.

    Attributes:
        num_files: data files that are no longer live.
        size_in_bytes: their size, where the log has it.
        num_expired: those past the retention period.
        expired: paths and sizes of the largest of these.
        dead_vector_bytes: bytes of replaced or removed deletion vectors in files that also contain live ones.
    """

    num_files: int = 0
    size_in_bytes: int = 0
    num_expired: int = 0
    expired_bytes: int = 0
    expired: tuple[tuple[str, int], ...] = ()
    dead_vector_bytes: int = 0

    @classmethod
    def of(
        cls, tombstones: Iterable[pa.RecordBatch], snapshot: Snapshot, *, before: int, num_traced: int = 0
    ) -> "RemovedFiles":
        """Summarize the tombstones of a version.

        Args:
            tombstones: TOMBSTONES.
            snapshot: the version.
            before: milliseconds since the epoch; files removed earlier may be deleted.
            num_traced: the number of paths to keep.
        """
        removed_batches: list[pa.RecordBatch] = []
        vectors: list[pa.Array] = []
        for batch in tombstones:
            paths = canonical_log_paths(batch.column("path"), snapshot.location)
            columns = [paths, batch.column("deletionTimestamp"), batch.column("size")]
            removed_batches.append(pa.RecordBatch.from_arrays(columns, schema=_REMOVED))
            vectors.append(batch.column("deletionVector").drop_null())
        if not sum(batch.num_rows for batch in removed_batches):
            return cls()
        # A file has a tombstone for each of its earlier deletion vectors, and may itself still be live.
        by_path = (
            pa.Table.from_batches(removed_batches)
            .group_by("path")
            .aggregate([("time", "max"), ("size", "max")])
        )
        live = canonical_log_paths(
            snapshot.live.columns(["path"])["path"].combine_chunks(), snapshot.location
        )
        gone = by_path.filter(pc.invert(pc.is_in(by_path["path"], value_set=live)))
        old = gone.filter(pc.fill_null(pc.less(gone["time_max"], before), fill_value=True))
        largest = old.sort_by([("size_max", "descending"), ("path", "ascending")]).slice(0, num_traced)
        return cls(
            num_files=gone.num_rows,
            size_in_bytes=_sum(gone["size_max"]),
            num_expired=old.num_rows,
            expired_bytes=_sum(old["size_max"]),
            expired=tuple(
                (row["path"], row["size_max"] or 0) for row in largest.to_pylist() if row["path"] is not None
            ),
            dead_vector_bytes=_dead_vector_bytes(vectors, snapshot),
        )


def _dead_vector_bytes(removed: list[pa.Array], snapshot: Snapshot) -> int:
    live = snapshot.live.columns(["deletion_vector"])["deletion_vector"].drop_null().combine_chunks()
    dead = pa.concat_arrays(removed) if removed else pa.array([], DELETION_VECTOR)
    if not len(live) or not len(dead):
        return 0
    dead_files, dead_ids = _names(dead)
    live_files, live_ids = _names(live)
    in_live_file = pc.and_(
        pc.is_in(dead_files, value_set=live_files.drop_null()),
        pc.invert(pc.is_in(dead_ids, value_set=live_ids.drop_null())),
    )
    in_live_file = pc.fill_null(in_live_file, fill_value=False)
    ids = dead_ids.filter(in_live_file).to_numpy(zero_copy_only=False)
    _, first = np.unique(ids.astype(str), return_index=True)
    sizes = pc.struct_field(dead, "sizeInBytes").filter(in_live_file).take(pa.array(first))
    return _sum(sizes) + FRAME_OVERHEAD * len(first)


def _names(vectors: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return the file and the identity of each deletion vector as text; null for inline ones."""
    kind, text, offset = (
        pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    stored = pc.if_else(pc.is_in(kind, value_set=pa.array(["u", "p"])), text, None)
    files = pc.binary_join_element_wise(kind, stored, ":")
    place = pc.fill_null(offset, 0).cast(pa.string())
    return files, pc.binary_join_element_wise(files, place, "@")


def _sum(values: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
