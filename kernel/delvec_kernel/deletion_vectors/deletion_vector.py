"""Deletion vectors: descriptors, and bitmaps of row indexes as bytes.

PROTOCOL.md, "Deletion Vectors" and "Deletion Vector File Storage Format". Integers by offset::

    file            version 0x01 | framed | framed | ...
    framed          u32 big-endian size | encoded | u32 big-endian CRC-32 of encoded
    encoded         u32 little-endian magic | bitmap
    bitmap          u64 little-endian count | (u32 little-endian high bits | 32-bit Roaring)*

An inline deletion vector is ``encoded`` as Z85, without size and CRC. An older magic number marks another bitmap
layout, which is read but never written.
"""

import re
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeGuard
from urllib.parse import quote

from pyroaring import BitMap64

from delvec_errors import (
    CorruptDeletionVector,
    DeletionVectorCardinalityMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    InvalidCommit,
)
from delvec_kernel.deletion_vectors import z85

__all__ = [
    "FILE_VERSION",
    "FRAME_OVERHEAD",
    "MAX_OFFSET",
    "MAX_ROW_INDEX",
    "Descriptor",
    "Where",
    "check_rows_exist",
    "check_size",
    "check_storable",
    "decode",
    "decode_inline",
    "decode_uuid",
    "deserialize_bitmap",
    "encode",
    "encode_uuid",
    "file_name",
    "frame",
    "inline",
    "is_file_name",
    "portable_record_in_file",
    "portable_record_inline",
    "record_in_file",
    "serialize_bitmap",
    "unframe",
]

FILE_VERSION: Final = b"\x01"
FRAME_OVERHEAD: Final = 8  # size and CRC-32
MAX_OFFSET: Final = 2**31 - 1
# The limit of delta-spark's array of 32-bit bitmaps.
MAX_ROW_INDEX: Final = ((2**31 - 2) << 32) | 0x8000_0000

_PORTABLE: Final = struct.pack("<I", 1681511377)
_NATIVE: Final = struct.pack("<I", 1681511376)
_BE32: Final = struct.Struct(">I")
_LE32: Final = struct.Struct("<I")
_UUID_TEXT: Final = 20
_STORAGE_TYPES: Final = frozenset("upi")
_FILE_NAME: Final = re.compile(r"deletion_vector_[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\.bin")
_ADVICE: Final = "restore that file from a backup, or restore the table to a version before it"
_ADVICE_INLINE: Final = "restore the table to a version before that log entry"


@dataclass(frozen=True, slots=True)
class Where:
    """The table, version and data file of an error.

    Attributes:
        file: the data file's path as in the log.
    """

    table: str
    version: int | None
    file: str

    def __str__(self) -> str:
        version = "" if self.version is None else f", version {self.version}"
        return f"file '{self.file}' (table '{self.table}'{version})"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Locates a deletion vector and counts its rows (PROTOCOL.md, "Deletion Vector Descriptor Schema").

    Attributes:
        storage_type: ``u`` relative file named by UUID, ``p`` absolute URL, ``i`` inline.
        path_or_inline_dv: prefix and Z85 of the UUID; URL-encoded absolute path; Z85 of the bytes.
        offset: the offset of the size field in the file; None only if inline or from another writer.
        size_in_bytes: magic number and bitmap, without size field and CRC.
        cardinality: number of deleted rows.
    """

    storage_type: str
    path_or_inline_dv: str
    offset: int | None
    size_in_bytes: int
    cardinality: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the ``deletionVector`` object of an action; unknown fields are ignored.

        Raises:
            CorruptDeletionVector: a field is missing or has the wrong type, or the storage type is unknown.
        """
        storage_type, text = value.get("storageType"), value.get("pathOrInlineDv")
        offset = value.get("offset")
        size, cardinality = value.get("sizeInBytes"), value.get("cardinality")
        if not isinstance(storage_type, str) or storage_type not in _STORAGE_TYPES:
            raise CorruptDeletionVector(
                f"A deletion vector has storage type {str(storage_type)[:80]!r}, which Delvec does not "
                "support; read the table with a reader that does."
            )
        if (
            not isinstance(text, str)
            or not _is_count(size, MAX_OFFSET)
            or not _is_count(cardinality, 2**63 - 1)
            or not (offset is None or _is_count(offset, MAX_OFFSET))
        ):
            raise CorruptDeletionVector(
                f"A deletion vector descriptor is malformed: {str(dict(value))[:300]}; restore the log file "
                "that contains it from a backup."
            )
        return cls(storage_type, text, offset, size, cardinality)

    def to_json(self) -> dict[str, Any]:
        """Return the ``deletionVector`` object of an action; an inline one has no offset."""
        value: dict[str, Any] = {
            "storageType": self.storage_type,
            "pathOrInlineDv": self.path_or_inline_dv,
            "offset": self.offset,
            "sizeInBytes": self.size_in_bytes,
            "cardinality": self.cardinality,
        }
        if self.offset is None:
            del value["offset"]
        return value

    @property
    def is_inline(self) -> bool:
        """Whether the deletion vector is stored in the log."""
        return self.storage_type == "i"

    @property
    def unique_id(self) -> str:
        """The identity that replay and conflict checks compare, together with the data file's path."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"

    @property
    def byte_range(self) -> tuple[int, int]:
        """The (start, end) of the bytes in the file that :func:`unframe` needs."""
        # A missing offset means 0 in the protocol, where the version byte is, but 1 in kernel-rs: read one
        # byte more to cover both.
        start, slack = (0, 1) if self.offset is None else (self.offset, 0)
        return start, start + self.size_in_bytes + FRAME_OVERHEAD + slack

    def relative_path(self) -> str | None:
        """Return the file's path below the table's location, URL-encoded; None unless the storage type is ``u``.

        Raises:
            CorruptDeletionVector: the text does not contain a UUID, or the prefix leads out of the table's directory.
        """
        if self.storage_type != "u":
            return None
        prefix, identifier = decode_uuid(self.path_or_inline_dv)
        return quote(f"{prefix}/{file_name(identifier)}" if prefix else file_name(identifier))

    def absolute_path(self, location: str) -> str | None:
        """Return the file's URL, for a table at the canonical ``location``; None if inline.

        Raises:
            CorruptDeletionVector: see :meth:`relative_path`.
        """
        if self.storage_type == "p":
            return self.path_or_inline_dv
        relative = self.relative_path()
        return None if relative is None else f"{location.rstrip('/')}/{relative}"


def _is_count(value: Any, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def file_name(identifier: uuid.UUID) -> str:
    """Return the file name for a relative descriptor with this UUID."""
    return f"deletion_vector_{identifier}.bin"


def is_file_name(path: str) -> bool:
    """Whether the last part of a path has the form of :func:`file_name`."""
    return _FILE_NAME.fullmatch(path.rpartition("/")[2]) is not None


def encode_uuid(prefix: str, identifier: uuid.UUID) -> str:
    """Return ``pathOrInlineDv`` of a relative descriptor; ``prefix`` is a directory or empty."""
    return prefix + z85.encode(identifier.bytes)


def decode_uuid(text: str) -> tuple[str, uuid.UUID]:
    """Return prefix and UUID of a relative descriptor's ``pathOrInlineDv``.

    Raises:
        CorruptDeletionVector: the last 20 characters are not a Z85 UUID, or the prefix is not a directory name.
    """
    prefix, encoded = text[:-_UUID_TEXT], text[-_UUID_TEXT:]
    try:
        identifier = uuid.UUID(bytes=z85.decode(encoded))
    except ValueError as error:
        raise CorruptDeletionVector(
            f"The deletion vector path '{text[:100]}' does not end in a UUID of 20 characters; {_ADVICE}."
        ) from error
    if prefix and ("\0" in prefix or any(part in {"", ".", ".."} for part in prefix.split("/"))):
        raise CorruptDeletionVector(
            f"The deletion vector path '{text[:100]}' has the prefix '{prefix[:80]}', which is not a directory "
            f"of the table; {_ADVICE}."
        )
    return prefix, identifier


def serialize_bitmap(bitmap: BitMap64) -> bytes:
    """Return ``bitmap``, which is not modified, as compact portable 64-bit Roaring bytes.

    Raises:
        InvalidCommit: see :func:`check_storable`.
    """
    check_storable(bitmap)
    compact = bitmap.copy()
    compact.run_optimize()
    return bytes(compact.serialize())


def check_storable(bitmap: BitMap64) -> None:
    """Refuse rows that no deletion vector can have.

    Raises:
        InvalidCommit: a row index is larger than Delta can store.
    """
    if bitmap and bitmap.max() > MAX_ROW_INDEX:
        raise InvalidCommit(
            f"Row index {bitmap.max()} is above {MAX_ROW_INDEX}, the largest that a deletion vector can "
            "hold; send row indexes that start at 0 in each file."
        )


def deserialize_bitmap(data: bytes | memoryview) -> BitMap64:
    """Parse portable 64-bit Roaring bytes; bytes after the bitmap are ignored, as in other readers.

    Raises:
        CorruptDeletionVector: the bytes are not a valid bitmap.
    """
    if len(data) < 8:  # noqa: PLR2004 - the count of buckets
        raise CorruptDeletionVector("The bytes are too short for a bitmap; send them again in full.")
    try:
        # Checks all bounds and, since pyroaring 1.0.1, the invariants of containers.
        bitmap = BitMap64.deserialize(bytes(data))
    except ValueError as error:
        raise CorruptDeletionVector(
            "The bytes are not a 64-bit Roaring bitmap in the portable layout."
        ) from error
    if bitmap and bitmap.max() >= 2**63:
        raise CorruptDeletionVector("The bitmap has row indexes above 2^63, which no file can have.")
    return bitmap


def encode(bitmap: BitMap64) -> bytes:
    """Return magic number and bitmap, whose length is ``sizeInBytes``."""
    return _PORTABLE + serialize_bitmap(bitmap)


def decode(data: bytes | memoryview) -> BitMap64:
    """Parse the output of :func:`encode`, or the older layout.

    Raises:
        CorruptDeletionVector: the magic number is unknown or the bitmap is invalid.
    """
    view = memoryview(data)
    magic = bytes(view[:4])
    if magic == _PORTABLE:
        return deserialize_bitmap(view[4:])
    if magic == _NATIVE:
        return _deserialize_native(view[4:])
    raise CorruptDeletionVector(f"The deletion vector starts with the unknown magic number 0x{magic.hex()}.")


def _deserialize_native(view: memoryview) -> BitMap64:
    """Parse the layout of magic number 1681511376: a count, then length and 32-bit Roaring by high bits."""
    result, position = BitMap64(), 4
    junk = CorruptDeletionVector("The bytes are not a Roaring bitmap array in the native layout.")
    if len(view) < position:
        raise junk
    (count,) = _LE32.unpack_from(view)
    if count * 4 > len(view) - position:
        raise junk
    for key in range(count):
        if len(view) - position < _LE32.size:
            raise junk
        (length,) = _LE32.unpack_from(view, position)
        position += _LE32.size
        if length > len(view) - position:
            raise junk
        result |= deserialize_bitmap(struct.pack("<QI", 1, key) + view[position : position + length])
        position += length
    return result


def frame(payload: bytes) -> bytes:
    """Add size and CRC-32 to the output of :func:`encode`, as stored in files."""
    return b"".join((_BE32.pack(len(payload)), payload, _BE32.pack(zlib.crc32(payload))))


def check_size(buffer: bytes | memoryview, descriptor: Descriptor, where: Where) -> memoryview:
    """Return the bytes from the size field on, after comparing it with the descriptor; needs the first five bytes only.

    Raises:
        DeletionVectorTruncated: the file ends before the size field does.
        DeletionVectorSizeMismatch: the size in the file differs from the descriptor's.
    """
    view = memoryview(buffer)
    size = descriptor.size_in_bytes
    if descriptor.offset is None and bytes(view[:1]) == FILE_VERSION and bytes(view[:4]) != _BE32.pack(size):
        view = view[1:]
    if len(view) < _BE32.size:
        raise _failure(DeletionVectorTruncated, descriptor, where, f"has only {len(view)} bytes left")
    (stored_size,) = _BE32.unpack_from(view)
    if stored_size != size:
        raise _failure(
            DeletionVectorSizeMismatch,
            descriptor,
            where,
            f"is {stored_size} bytes in its file but {size} bytes in the log",
            expected=size,
            found=stored_size,
        )
    return view


def record_in_file(buffer: bytes | memoryview, descriptor: Descriptor, where: Where) -> memoryview:
    """Return a deletion vector as framed in its file, verified but not decoded.

    Args:
        buffer: the file's bytes in ``descriptor.byte_range``, fewer if the file is shorter.
        descriptor: from the log.
        where: its data file, for errors.

    Raises:
        DeletionVectorTruncated: the file ends before the deletion vector does.
        DeletionVectorSizeMismatch: the size in the file differs from the descriptor's.
        DeletionVectorChecksumMismatch: the CRC-32 is wrong.
    """
    view = check_size(buffer, descriptor, where)
    size = descriptor.size_in_bytes
    if len(view) < size + FRAME_OVERHEAD:
        raise _failure(
            DeletionVectorTruncated,
            descriptor,
            where,
            f"needs {size + FRAME_OVERHEAD} bytes, but its file ends after {len(view)}",
            expected=size + FRAME_OVERHEAD,
            found=len(view),
        )
    payload = view[4 : 4 + size]
    (checksum,) = _BE32.unpack_from(view, 4 + size)
    if zlib.crc32(payload) != checksum:
        raise _failure(
            DeletionVectorChecksumMismatch,
            descriptor,
            where,
            f"has CRC-32 {zlib.crc32(payload):08x}, not {checksum:08x} as its file says",
        )
    return view[: size + FRAME_OVERHEAD]


def unframe(buffer: bytes | memoryview, descriptor: Descriptor, where: Where) -> BitMap64:
    """Return the deleted rows of a deletion vector in a file; see :func:`record_in_file` for the arguments.

    Raises:
        DeletionVectorCardinalityMismatch: the number of rows differs from the descriptor's.
        CorruptDeletionVector: or a subclass: see :func:`record_in_file`; the magic number is unknown or the bitmap invalid.
    """
    return _checked(record_in_file(buffer, descriptor, where)[4:-4], descriptor, where)


def portable_record_in_file(
    buffer: bytes | memoryview, descriptor: Descriptor, where: Where
) -> bytes | memoryview:
    """Return a deletion vector as framed in its file, converted to the portable layout if it has the older one.

    Raises:
        CorruptDeletionVector: or a subclass: see :func:`record_in_file` and, for the older layout, :func:`unframe`.
    """
    record = record_in_file(buffer, descriptor, where)
    payload = record[4:-4]
    return record if bytes(payload[:4]) == _PORTABLE else frame(encode(_checked(payload, descriptor, where)))


def decode_inline(descriptor: Descriptor, where: Where) -> BitMap64:
    """Return the deleted rows of an inline deletion vector.

    Raises:
        DeletionVectorTruncated: the text is shorter than ``sizeInBytes``.
        DeletionVectorCardinalityMismatch: the number of rows differs from the descriptor's.
        CorruptDeletionVector: the text is not Z85, the magic number is unknown or the bitmap is invalid.
    """
    if not descriptor.size_in_bytes and not descriptor.path_or_inline_dv and not descriptor.cardinality:
        return BitMap64()  # delta-spark's form of an empty deletion vector
    return _checked(_inline_payload(descriptor, where), descriptor, where)


def portable_record_inline(descriptor: Descriptor, where: Where) -> bytes:
    """Return an inline deletion vector as framed in a file, in the portable layout.

    Raises:
        CorruptDeletionVector: or a subclass: the text is too short or not Z85; for the older layout see :func:`decode_inline`.
    """
    payload = _inline_payload(descriptor, where)
    is_portable = bytes(payload[:4]) == _PORTABLE
    return frame(bytes(payload) if is_portable else encode(_checked(payload, descriptor, where)))


def _inline_payload(descriptor: Descriptor, where: Where) -> memoryview:
    size = descriptor.size_in_bytes
    try:
        payload = z85.decode(descriptor.path_or_inline_dv)
    except ValueError as error:
        raise _failure(CorruptDeletionVector, descriptor, where, f"is unreadable: {error}") from error
    if len(payload) < size:
        raise _failure(
            DeletionVectorTruncated,
            descriptor,
            where,
            f"has only {len(payload)} of its {size} bytes",
            expected=size,
            found=len(payload),
        )
    return memoryview(payload)[:size]


def inline(bitmap: BitMap64) -> Descriptor:
    """Return an inline descriptor of ``bitmap``."""
    payload = encode(bitmap)
    return Descriptor("i", z85.encode(payload), None, len(payload), len(bitmap))


def check_rows_exist(rows: BitMap64, num_records: int | None, descriptor: Descriptor, where: Where) -> None:
    """Check that a deletion vector marks only rows of its data file.

    Otherwise the number of rows that the log states differs from that of a read, as in delta-spark 4.4.

    Args:
        rows: that it marks.
        num_records: physical rows of the file by its statistics; None if they do not say.
        descriptor: the descriptor of the deletion vector.
        where: the file.

    Raises:
        CorruptDeletionVector: it marks another row.
    """
    if num_records is not None and rows and rows.max() >= num_records:
        raise _failure(
            CorruptDeletionVector,
            descriptor,
            where,
            f"marks row {rows.max()}, but the file has {num_records} rows by its statistics, so it may belong to another file "
            "(if the statistics are wrong, `delvec repair` corrects them)",
        )


def _checked(payload: memoryview, descriptor: Descriptor, where: Where) -> BitMap64:
    try:
        bitmap = decode(payload)
    except CorruptDeletionVector as error:
        problem = error.message[0].lower() + error.message[1:].rstrip(".")
        raise _failure(CorruptDeletionVector, descriptor, where, f"is unreadable: {problem}") from error
    if len(bitmap) != descriptor.cardinality:
        raise _failure(
            DeletionVectorCardinalityMismatch,
            descriptor,
            where,
            f"marks {len(bitmap)} rows, not {descriptor.cardinality} as the log says",
            expected=descriptor.cardinality,
            found=len(bitmap),
        )
    return bitmap


def _failure(
    error: type[CorruptDeletionVector], descriptor: Descriptor, where: Where, problem: str, **facts: Any
) -> CorruptDeletionVector:
    if descriptor.is_inline:
        place, name, advice = "inline in the log", None, _ADVICE_INLINE
    else:
        name = descriptor.relative_path() or descriptor.path_or_inline_dv
        place, advice = f"in '{name}' at offset {descriptor.offset or 0}", _ADVICE
    return error(
        f"The deletion vector of {where}, {place}, {problem}; {advice}.",
        table=where.table,
        version=where.version,
        file=where.file,
        deletion_vector=name,
        **facts,
    )
