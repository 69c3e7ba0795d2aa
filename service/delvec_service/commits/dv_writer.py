"""Writing the deletion vectors of one commit, over all its attempts."""

from collections.abc import Iterable, Mapping, Sequence

from pyroaring import BitMap64

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors import dv_packing
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.errors import ServiceUnavailable
from delvec_kernel.transaction.commit_builder import Marked
from delvec_service.commits import fault_points
from delvec_service.commits.dv_cache import DeletionVectorCache
from delvec_service.logs import logger
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable

__all__ = ["VectorWriter", "files_named"]


class VectorWriter:
    """Deletion vector files of one version to be. What an attempt that lost has written is used again where it can be.

    Args:
        table: the table.
        ledger: knows of each file before its first byte.
        vectors: gets what is written.
        transaction_id: whose files they are.
        operation: Delta's operation name.
        target_bytes: about how large files get.
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
        self, marked: Sequence[Marked], configuration: Mapping[str, str], *, may_fail: bool
    ) -> dict[str, Descriptor]:
        """Return the descriptor of each file's deletion vector, by the file's path; durable when this returns.

        Args:
            marked: the files, and their rows.
            configuration: the table's properties.
            may_fail: whether to give up where the ledger does not answer. Once the commit was tried, it goes on: a
                file that the ledger does not know is found by its name.

        Raises:
            ServiceUnavailable: the database does not answer; nothing was written.
            StorageError: storage did not answer.
        """
        found: dict[str, Descriptor] = {}
        new: list[tuple[str, BitMap64]] = []
        for one in marked:
            path = one.file.path
            if one.written is not None:
                found[path] = one.written
                continue
            rows, descriptor = self._written.get(path, (None, None))
            if descriptor is not None and rows == one.rows:
                found[path] = descriptor
            else:
                new.append((path, one.rows))
        if new:
            found.update(self._write_new(new, configuration, may_fail=may_fail))
        return found

    def _write_new(
        self, new: list[tuple[str, BitMap64]], configuration: Mapping[str, str], *, may_fail: bool
    ) -> dict[str, Descriptor]:
        packed = dv_packing.pack(
            new, target_size=self._target, prefix_length=dv_packing.prefix_length(configuration)
        )
        fault_points.reach("before-ledger")
        self._announce([file.path for file in packed], may_fail=may_fail)
        fault_points.reach("after-ledger")
        for file in packed:
            self._table.objects.put(file.path, file.content)
        fault_points.reach("after-deletion-vectors")
        descriptors = {path: descriptor for file in packed for path, descriptor in file.entries.items()}
        for path, rows in new:
            self._written[path] = rows, descriptors[path]
            self._vectors.keep(self._table.location, descriptors[path], rows)
        return descriptors

    def _announce(self, paths: list[str], *, may_fail: bool) -> None:
        try:
            self._ledger.announce(
                self._table.record.id, self._transaction, self._operation, paths, "deletion-vector"
            )
        except ServiceUnavailable as error:
            if may_fail:
                raise
            logger.warning("files not announced", transaction=self._transaction, reason=error.message)
        self.files += paths


def files_named(adds: Iterable[AddFile]) -> list[str]:
    """Return the files of deletion vectors, in the table, that files of a commit have."""
    found = (None if add.deletion_vector is None else add.deletion_vector.relative_path() for add in adds)
    return sorted({path for path in found if path is not None})
