"""Puffin files: deletion vector blobs and a footer that lists them (Iceberg's Puffin spec).

A blob of type ``deletion-vector-v1`` equals a framed deletion vector in a Delta file, byte for byte: size, magic number,
bitmap and CRC-32. Blobs are therefore copied without decoding.

Tested in `tests/unit/iceberg/test_delete_formats.py`.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

from delvec_errors import CorruptIcebergMetadata

__all__ = ["DELETION_VECTOR", "FOOTER_TRAILER_BYTES", "Blob", "PuffinWriter", "footer_size", "read_footer"]

DELETION_VECTOR: Final = "deletion-vector-v1"
FOOTER_TRAILER_BYTES: Final = 12
"""The footer's payload size, flags and magic number, after its JSON."""
_MAGIC: Final = b"PFA1"
_TRAILER: Final = struct.Struct("<iI4s")


@dataclass(frozen=True)
class Blob:
    """One deletion vector of a Puffin file.

    Attributes:
        offset: the offset of the size field, in the file.
        length: in bytes, including size field and CRC-32.
        referenced_data_file: the data file's path as in its manifest.
        cardinality: deleted rows.
    """

    offset: int
    length: int
    referenced_data_file: str
    cardinality: int


class PuffinWriter:
    """Writes deletion vectors as one Puffin file.

    Args:
        file: open for writing, in binary, at its start.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._blobs: list[Blob] = []
        self.size = file.write(_MAGIC)

    def add(self, data: bytes | memoryview, referenced_data_file: str, cardinality: int) -> Blob:
        """Append a deletion vector and return its location.

        Args:
            data: size, magic number, bitmap and CRC-32, as in a Delta deletion vector file.
            referenced_data_file: the data file's path as in its manifest.
            cardinality: deleted rows.
        """
        blob = Blob(self.size, len(data), referenced_data_file, cardinality)
        self._file.write(data)
        self.size += len(data)
        self._blobs.append(blob)
        return blob

    def finish(self, properties: Mapping[str, str]) -> int:
        """Write the footer and return the file's size in bytes."""
        payload = json.dumps(
            {"blobs": [_blob_json(blob) for blob in self._blobs], "properties": dict(properties)}
        ).encode()
        self._file.write(_MAGIC + payload + _TRAILER.pack(len(payload), 0, _MAGIC))
        self.size += len(_MAGIC) + len(payload) + _TRAILER.size
        return self.size


def _blob_json(blob: Blob) -> dict[str, Any]:
    return {
        "type": DELETION_VECTOR,
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": blob.offset,
        "length": blob.length,
        "properties": {
            "referenced-data-file": blob.referenced_data_file,
            "cardinality": str(blob.cardinality),
        },
    }


def footer_size(trailer: bytes | memoryview, path: str) -> int:
    """Return the footer's size, from the start of its magic number to the end of the file.

    Args:
        trailer: the file's last 12 bytes.
        path: the path, for errors.

    Raises:
        CorruptIcebergMetadata: it is not a Puffin file, or its footer is compressed.
    """
    if len(trailer) == FOOTER_TRAILER_BYTES:
        size, flags, magic = _TRAILER.unpack(trailer)
        if magic == _MAGIC and flags == 0 and size >= 0:
            return int(size) + FOOTER_TRAILER_BYTES + len(_MAGIC)
    raise CorruptIcebergMetadata(
        f"The file '{path}' does not end like a Puffin file with an uncompressed footer; restore it from a "
        "backup, or convert the table again.",
        file=path,
    )


def read_footer(footer: bytes | memoryview, path: str) -> Sequence[Blob]:
    """Return the deletion vectors that a footer lists.

    Args:
        footer: the last :func:`footer_size` bytes of the file.
        path: the path, for errors.

    Raises:
        CorruptIcebergMetadata: it is not a footer, or lists other blobs than deletion vectors.
    """
    data = bytes(footer)
    try:
        blobs = json.loads(data.removeprefix(_MAGIC)[:-FOOTER_TRAILER_BYTES])["blobs"]
        return [_blob(blob) for blob in blobs]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptIcebergMetadata(
            f"The footer of the Puffin file '{path}' does not list deletion vectors: {error!r}; restore it from a "
            "backup, or convert the table again.",
            file=path,
        ) from error


def _blob(blob_metadata: Mapping[str, Any]) -> Blob:
    if blob_metadata["type"] != DELETION_VECTOR or blob_metadata.get("compression-codec") is not None:
        raise ValueError(str(blob_metadata["type"])[:80])
    properties = blob_metadata["properties"]
    return Blob(
        int(blob_metadata["offset"]),
        int(blob_metadata["length"]),
        str(properties["referenced-data-file"]),
        int(properties["cardinality"]),
    )
