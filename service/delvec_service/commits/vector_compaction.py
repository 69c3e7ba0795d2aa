"""Moves the deletion vectors of many small files, or of mostly unused files, into few files.

No data file or row changes. The commit uses the deleted rows of the version right before it,
so it never conflicts with other commits: a deletion vector replaced by another commit is written in its new state.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import ConcurrentWrite
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_maintenance.compaction import RepackedVectors, repack
from delvec_service.commits.commit import Commits, Committed, NothingToDo
from delvec_service.commits.commit_checks import check_repacking
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO

__all__ = ["RepackResult", "VectorCompaction"]

_COMMIT_BYTES: Final = 64 << 20
"""Bytes of deletion vectors per commit; in memory they may take many times as much."""
_ATTEMPTS: Final = 5


@dataclass(frozen=True)
class RepackResult:
    """What was done, or would be done.

    Attributes:
        found: the deletion vectors worth compacting.
        version: the last version that was created, or None.
    """

    found: RepackedVectors
    version: int | None = None


class VectorCompaction:
    """Compacts files of deletion vectors.

    Args:
        loader: reads snapshots.
        commits: commits.
        target_bytes: the approximate size of deletion vector files.
    """

    def __init__(self, loader: SnapshotLoader, commits: Commits, target_bytes: int) -> None:
        self._loader = loader
        self._commits = commits
        self._target = target_bytes

    def run(
        self, table: OpenTable, *, dry_run: bool = False, user_metadata: str | None = None
    ) -> RepackResult:
        """Compact deletion vectors where it pays off, in several commits.

        Raises:
            InvalidTableChange: there is something to compact, and the table has deletion vectors turned off; also
                with ``dry_run``.
            UnsupportedTable: or a subclass: Delvec cannot write the table.
            CorruptDeletionVector: or a subclass: one cannot be read; its commit was not made.
            ConcurrentWrite: other commits keep changing the table's metadata.
            StorageError: storage did not answer.
        """
        snapshot = self._loader.load(table.objects, table.name)
        check_writable(snapshot.protocol, snapshot.metadata, table.name)
        files = snapshot.live.columns(["path", "deletion_vector"])
        repack_plan = repack(files, self._target)
        if not len(repack_plan.files):
            return RepackResult(repack_plan)
        check_repacking(table, snapshot)
        if dry_run:
            return RepackResult(repack_plan)
        version = None
        for paths in _batches(files.take(pa.array(repack_plan.files))):
            version = self._commit(table, paths, snapshot.version, user_metadata) or version
        return RepackResult(repack_plan, version)

    def _commit(
        self, table: OpenTable, paths: Sequence[str], read_version: int, user_metadata: str | None
    ) -> int | None:
        changes = Changes(
            operation="OPTIMIZE",
            read_version=read_version,
            transaction_id=str(uuid.uuid4()),
            engine_info=ENGINE_INFO,
            repacked=paths,
            data_change=False,
            parameters={"predicate": "[]", "deletionVectors": "true"},
            user_metadata=user_metadata,
        )
        for _ in range(_ATTEMPTS):
            result = self._commits.commit(table, changes)
            if isinstance(result, Committed):
                return result.version
            if isinstance(result, NothingToDo):
                return None
            # Another commit changed the table's metadata; the next attempt finds again what to compact.
            latest = self._loader.load(table.objects, table.name)
            changes = replace(changes, read_version=latest.version, transaction_id=str(uuid.uuid4()))
        raise ConcurrentWrite(
            f"Other commits keep changing table '{table.name}', so all {_ATTEMPTS} attempts to compact its deletion "
            "vectors lost the race. Try again.",
            table=table.name,
            version=read_version,
        )


def _batches(files: pa.Table) -> Iterator[list[str]]:
    """Yield groups of paths whose deletion vectors have about this many bytes, in the order of their files."""
    files = files.combine_chunks()
    order = pc.sort_indices(pc.struct_field(files["deletion_vector"].combine_chunks(), "pathOrInlineDv"))
    files = files.take(order)
    sizes = (
        pc.struct_field(files["deletion_vector"].combine_chunks(), "sizeInBytes").to_numpy().astype(np.int64)
    )
    numbers = np.cumsum(sizes) // _COMMIT_BYTES
    borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), files.num_rows]
    for start, end in pairwise(borders):
        yield files["path"].slice(start, end - start).to_pylist()
