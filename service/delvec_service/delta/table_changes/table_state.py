"""What of a version's files and log a change of the table may depend on."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from delvec_service.delta.snapshot import Snapshot

__all__ = ["TableState", "files_by_row_ids"]


@dataclass(frozen=True, slots=True)
class TableState:
    """Counts of live files, and how far the log reaches back.

    Attributes:
        version: the table's.
        deletion_vectors: files that have one.
        with_row_ids: files that have row ids.
        without_row_ids: files that have none.
        oldest_version: the oldest that the log still has.
    """

    version: int
    deletion_vectors: int
    with_row_ids: int
    without_row_ids: int
    oldest_version: int

    @classmethod
    def of(cls, snapshot: Snapshot, oldest_version: int) -> "TableState":
        """Return the state of a version.

        Raises:
            SegmentsLost: the store lost what the snapshot needs; load it again.
        """
        return cls(
            snapshot.version,
            snapshot.num_deletion_vectors,
            files_by_row_ids(snapshot, have=True).num_rows,
            files_by_row_ids(snapshot, have=False).num_rows,
            oldest_version,
        )


def files_by_row_ids(snapshot: Snapshot, *, have: bool) -> pa.Table:
    """Return ``path`` and ``num_records`` of the live files that have row ids, or have none.

    Raises:
        SegmentsLost: the store lost what the snapshot needs; load it again.
    """
    files = snapshot.live.columns(["path", "num_records", "base_row_id", "default_row_commit_version"])
    ids, versions = files["base_row_id"], files["default_row_commit_version"]
    wanted = pc.or_(pc.is_valid(ids), pc.is_valid(versions)) if have else pc.is_null(ids)
    return files.filter(wanted).select(["path", "num_records"])
