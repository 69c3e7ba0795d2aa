"""Writes the deletion vectors of one commit, across all its attempts.

Tested in `tests/integration/service/commits/test_commit.py` and
`tests/integration/service/commits/test_vector_compaction.py`.
"""

from collections.abc import Iterable, Mapping, Sequence

from pyroaring import BitMap64

from delvec_errors import ServiceUnavailable
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors import dv_packing
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.transaction.commit_builder import FileWithNewVector
from delvec_service.commits import fault_points
from delvec_service.commits.dv_cache import DeletionVectorCache
from delvec_service.logs import logger
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable

__all__ = ["VectorWriter", "files_named"]


class VectorWriter:
    """The deletion vector files of the version being created. Files of lost attempts are reused where possible.

    Args:
        table: the table.
        ledger: records each file before its first byte.
        vectors: the cache to add them to.
        transaction_id: whose files they are.
        operation: Delta's operation name.
        target_bytes: the approximate size of the files.
    """

    def __init__(
        self,
        table: OpenTable,
        ledger: Ledger,
        vectors: DeletionVectorCache,
        *,
        transaction_id: str,
        operation: str,
        target_bytes: int,
    ) -> None:
        self._table = table
        self._ledger = ledger
        self._vectors = vectors
        self._transaction = transaction_id
        self._operation = operation
        self._target = target_bytes
        self._written: dict[str, tuple[BitMap64, Descriptor]] = {}
        self.files: list[str] = []

    def write(
        self, marked_files: Sequence[FileWithNewVector], configuration: Mapping[str, str], *, may_fail: bool
    ) -> dict[str, Descriptor]:
        """Write the deletion vectors durably, and return their descriptors by the data file's path.

        Args:
            marked_files: the files and their deleted rows.
            configuration: the table's properties.
            may_fail: whether to fail if the ledger does not answer. After the first attempt a commit continues: files
                missing from the ledger are found by their names.

        Raises:
            ServiceUnavailable: the database does not answer; nothing was written.
            StorageError: storage did not answer.
        """
        descriptors: dict[str, Descriptor] = {}
        new: list[tuple[str, BitMap64]] = []
        for one in marked_files:
            path = one.file.path
            if one.written is not None:
                descriptors[path] = one.written
                continue
            rows, descriptor = self._written.get(path, (None, None))
            if descriptor is not None and rows == one.rows:
                descriptors[path] = descriptor
            else:
                new.append((path, one.rows))
        if new:
            descriptors.update(self._write_new(new, configuration, may_fail=may_fail))
        return descriptors

    def _write_new(
        self, new: list[tuple[str, BitMap64]], configuration: Mapping[str, str], *, may_fail: bool
    ) -> dict[str, Descriptor]:
        packed_files = dv_packing.pack(
            new, target_size=self._target, prefix_length=dv_packing.prefix_length(configuration)
        )
        fault_points.reach("before-ledger")
        self._announce([file.path for file in packed_files], may_fail=may_fail)
        fault_points.reach("after-ledger")
        for file in packed_files:
            self._table.objects.put(file.path, file.content)
        fault_points.reach("after-deletion-vectors")
        descriptors = {path: descriptor for file in packed_files for path, descriptor in file.entries.items()}
        for path, rows in new:
            self._written[path] = rows, descriptors[path]
            self._vectors.keep(self._table.location, descriptors[path], rows)
        return descriptors

    def _announce(self, paths: list[str], *, may_fail: bool) -> None:
        try:
            self._ledger.announce(self._table.record.id, self._transaction, self._operation, paths)
        except ServiceUnavailable as error:
            if may_fail:
                raise
            logger.warning("files not announced", transaction=self._transaction, reason=error.message)
        self.files += paths


def files_named(adds: Iterable[AddFile]) -> list[str]:
    """Return the deletion vector files in the table that the files of a commit refer to."""
    found = (None if add.deletion_vector is None else add.deletion_vector.relative_path() for add in adds)
    return sorted({path for path in found if path is not None})
