"""Deletion vectors that the client writes itself, at places that the service gives out."""

from collections.abc import Mapping

from pyroaring import BitMap64

from delvec import storage
from delvec._transport import ServiceClient, answer, request, table_path
from delvec.protocol.deletion_vector import FILE_VERSION, encode, frame
from delvec.protocol.wire import AllocateRequest, AllocateResponse, DeletionVectorDescriptor

__all__ = ["write"]


def write(
    service: ServiceClient,
    table_id: str,
    location: str,
    transaction_id: str,
    vectors: Mapping[str, BitMap64],
) -> dict[str, DeletionVectorDescriptor]:
    """Write deletion vectors, several to a file, durably; return their descriptors by data file.

    Args:
        service: gives out the places; its ledger knows of the files before they are written.
        table_id: the table.
        location: of the table.
        transaction_id: of the commit that will name them.
        vectors: all deleted rows of each data file, by its path; none is empty.

    Raises:
        InvalidCommit: the table does not have deletion vectors enabled, or a row index is too large.
        StorageError: a file cannot be written.
    """
    if not vectors:
        return {}
    payloads = {path: encode(rows) for path, rows in vectors.items()}
    body = request(
        AllocateRequest,
        transaction_id=transaction_id,
        sizes=[len(payload) for payload in payloads.values()],
    )
    given = answer(AllocateResponse, service.post(table_path(table_id, "deletion-vectors"), body))
    files: dict[str, bytearray] = {}
    found: dict[str, DeletionVectorDescriptor] = {}
    for (path, payload), place in zip(payloads.items(), given.deletion_vectors, strict=True):
        content = files.setdefault(place.file, bytearray(FILE_VERSION))
        content.extend(bytes(place.offset - len(content)))
        content.extend(frame(payload))
        found[path] = DeletionVectorDescriptor(
            storage_type=place.storage_type,
            path_or_inline_dv=place.path_or_inline_dv,
            offset=place.offset,
            size_in_bytes=place.size_in_bytes,
            cardinality=len(vectors[path]),
        )
    for name, content in files.items():
        storage.write_file(location, name, bytes(content), durable=True)
    return found
