"""Deletion vectors that the client writes, to files assigned by the service.

Tested in `tests/integration/client/dml/test_row_commands.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from delvec_contract.commits import AllocateRequest, AllocateResponse
from delvec_kernel.deletion_vectors.deletion_vector import FILE_VERSION, Descriptor, encode, frame
from delvec_storage import files as storage

__all__ = ["SENT_BYTES", "DeletionVectorFiles", "VectorFile"]

SENT_BYTES: Final = 16 << 20
"""Bytes of bitmaps up to which a command sends deleted rows; beyond that, it sends descriptors.

The service holds several copies of a request, so this also bounds its memory.
"""


@dataclass(frozen=True)
class VectorFile:
    """A deletion vector file to be written; sent to executors.

    Attributes:
        path: relative to the table's location, URL-encoded.
        path_or_inline_dv: its value in descriptors.
    """

    path: str
    path_or_inline_dv: str

    def write(self, location: str, payloads: Sequence[bytes]) -> list[int]:
        """Write encoded deletion vectors one after the other, durably; return the offset of each.

        The same payloads make the same file, so a task can be retried.

        Raises:
            StorageError: the file cannot be written.
        """
        content = bytearray(FILE_VERSION)
        offsets = []
        for payload in payloads:
            offsets.append(len(content))
            content.extend(frame(payload))
        storage.write_file(location, self.path, bytes(content), durable=True)
        return offsets


@dataclass(frozen=True)
class DeletionVectorFiles:
    """The files that a command may write deletion vectors to before it commits.

    Attributes:
        allocate: has the service assign files, which it records in its ledger before they are written.
        location: the location of the table.
        transaction_id: the transaction id of the commit that will refer to them.
    """

    allocate: Callable[[AllocateRequest], AllocateResponse]
    location: str
    transaction_id: str

    def files(self, count: int) -> list[VectorFile]:
        """Return new files, for writers that do not yet know the size of their deletion vectors.

        Raises:
            InvalidCommit: the table does not have deletion vectors enabled.
        """
        allocation = self.allocate(AllocateRequest(transaction_id=self.transaction_id, files=count))
        return [VectorFile(file.file, file.path_or_inline_dv) for file in allocation.files]

    def write(self, vectors: Mapping[str, BitMap64]) -> dict[str, Descriptor]:
        """Write deletion vectors, several to a file, durably; return their descriptors by data file.

        Args:
            vectors: all deleted rows of each data file, by its path; none is empty.

        Raises:
            InvalidCommit: the table does not have deletion vectors enabled, or a row index is too large.
            StorageError: a file cannot be written.
        """
        if not vectors:
            return {}
        payloads = {path: encode(rows) for path, rows in vectors.items()}
        sizes = [len(payload) for payload in payloads.values()]
        allocation = self.allocate(AllocateRequest(transaction_id=self.transaction_id, sizes=sizes))
        files: dict[str, bytearray] = {}
        descriptors: dict[str, Descriptor] = {}
        for (path, payload), place in zip(payloads.items(), allocation.deletion_vectors, strict=True):
            content = files.setdefault(place.file, bytearray(FILE_VERSION))
            content.extend(bytes(place.offset - len(content)))
            content.extend(frame(payload))
            descriptors[path] = Descriptor(
                storage_type=place.storage_type,
                path_or_inline_dv=place.path_or_inline_dv,
                offset=place.offset,
                size_in_bytes=place.size_in_bytes,
                cardinality=len(vectors[path]),
            )
        for name, content in files.items():
            storage.write_file(self.location, name, bytes(content), durable=True)
        return descriptors
