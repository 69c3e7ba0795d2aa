"""Packing deletion vectors into shared files, each located by a descriptor.

PROTOCOL.md, "Deletion Vector File Storage Format". A file starts with the version byte; each deletion vector
takes 8 bytes more than its ``sizeInBytes``. Files are filled in order (next fit), so that the deletion vectors of
neighbouring data files are adjacent and can be fetched with one request.
"""

import secrets
import string
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pyroaring import BitMap64

from delvec_errors import InvalidCommit
from delvec_kernel.deletion_vectors.deletion_vector import (
    FILE_VERSION,
    FRAME_OVERHEAD,
    MAX_OFFSET,
    Descriptor,
    encode,
    encode_uuid,
    file_name,
    frame,
)
from delvec_kernel.table_properties import is_true

__all__ = [
    "DEFAULT_TARGET_SIZE",
    "AllocatedFile",
    "Extent",
    "PackedFile",
    "allocate",
    "new_files",
    "pack",
    "prefix_length",
    "random_prefix",
]

DEFAULT_TARGET_SIZE: Final = 2 * 1024 * 1024
_DEFAULT_PREFIX_LENGTH: Final = 2
_MAX_PREFIX_LENGTH: Final = 64
_ALPHANUMERIC: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Extent:
    """The location of one deletion vector in its file.

    Attributes:
        offset: the offset of the size field.
        size_in_bytes: magic number and bitmap.
    """

    offset: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class AllocatedFile:
    """A planned file, to be written by the caller.

    Attributes:
        path: relative to the table's location, URL-encoded.
        path_or_inline_dv: prefix and UUID as encoded in descriptors.
        size: the size of the whole file, in bytes.
        extents: by the caller's key, in file order.
    """

    path: str
    path_or_inline_dv: str
    size: int
    extents: Mapping[str, Extent]


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file with its complete content.

    Attributes:
        path: relative to the table's location, URL-encoded.
        content: including the version byte.
        entries: descriptors by the caller's key, in file order.
    """

    path: str
    content: bytes
    entries: Mapping[str, Descriptor]


def prefix_length(configuration: Mapping[str, str]) -> int:
    """Return the table's random prefix length: 0 unless ``delta.randomizeFilePrefixes`` is true."""
    if not is_true(configuration, "delta.randomizeFilePrefixes"):
        return 0
    text = configuration.get("delta.randomPrefixLength", "").strip()
    length = int(text) if text.isascii() and text.isdigit() else _DEFAULT_PREFIX_LENGTH
    return min(length, _MAX_PREFIX_LENGTH) or _DEFAULT_PREFIX_LENGTH


def random_prefix(length: int) -> str:
    """Return ``length`` random letters and digits, the name of a file's directory."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(length))


def pack(
    bitmaps: Iterable[tuple[str, BitMap64]],
    *,
    target_size: int = DEFAULT_TARGET_SIZE,
    prefix_length: int = 0,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    random_prefix: Callable[[int], str] = random_prefix,
) -> list[PackedFile]:
    """Pack deletion vectors, in the given order, into files of about ``target_size`` bytes.

    The output is deterministic for given UUIDs and prefixes. A deletion vector larger than
    ``target_size`` gets a separate file. Without bitmaps there are no files.

    Args:
        bitmaps: pairs of a caller's key (a data file's path) and its complete deletion vector.
        target_size: bytes per file.
        prefix_length: length of the random directory name of each file; 0 for none.
        new_uuid: returns the UUID of a new file.
        random_prefix: returns a random prefix of a given length.

    Raises:
        InvalidCommit: a key is repeated, or a deletion vector is empty or too large for the format.
    """
    payloads: dict[str, bytes] = {}
    cardinalities: dict[str, int] = {}
    sizes: list[tuple[str, int]] = []
    for key, bitmap in bitmaps:
        if not bitmap:
            raise InvalidCommit(f"The deletion vector of file '{key}' is empty; leave it out.", file=key)
        payloads[key], cardinalities[key] = encode(bitmap), len(bitmap)
        sizes.append((key, len(payloads[key])))
    allocations = allocate(
        sizes,
        target_size=target_size,
        prefix_length=prefix_length,
        new_uuid=new_uuid,
        random_prefix=random_prefix,
    )
    return [
        PackedFile(
            file.path,
            FILE_VERSION + b"".join(frame(payloads[key]) for key in file.extents),
            {
                key: Descriptor(
                    "u", file.path_or_inline_dv, extent.offset, extent.size_in_bytes, cardinalities[key]
                )
                for key, extent in file.extents.items()
            },
        )
        for file in allocations
    ]


def allocate(
    sizes: Iterable[tuple[str, int]],
    *,
    target_size: int = DEFAULT_TARGET_SIZE,
    prefix_length: int = 0,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    random_prefix: Callable[[int], str] = random_prefix,
) -> list[AllocatedFile]:
    """Assign files, UUIDs, prefixes and offsets to deletion vectors that the caller writes.

    Args:
        sizes: pairs of a caller's key and the ``sizeInBytes`` of its deletion vector.
        target_size: bytes per file.
        prefix_length: length of the random directory name of each file; 0 for none.
        new_uuid: returns the UUID of a new file.
        random_prefix: returns a random prefix of a given length.

    Raises:
        InvalidCommit: a key is repeated, or a deletion vector is too large for the format.
    """
    # Offsets are 31-bit integers in the format, whatever target size is requested.
    # Readers address a file with 31 bits, so no target may push an offset beyond.
    limit = min(target_size, MAX_OFFSET)
    bins: list[dict[str, Extent]] = []
    end = limit
    seen: set[str] = set()
    for key, size in sizes:
        _check(key, size, seen)
        seen.add(key)
        if not bins or end + size + FRAME_OVERHEAD > limit:
            bins.append({})
            end = len(FILE_VERSION)
        bins[-1][key] = Extent(end, size)
        end += size + FRAME_OVERHEAD
    return [
        _allocated(extents, new_uuid(), random_prefix(prefix_length) if prefix_length else "")
        for extents in bins
    ]


def new_files(count: int, *, prefix_length: int = 0) -> list[AllocatedFile]:
    """Name files whose content the caller decides; ``size`` and ``extents`` are empty."""
    return [
        _named({}, 0, uuid.uuid4(), random_prefix(prefix_length) if prefix_length else "")
        for _ in range(count)
    ]


def _allocated(extents: Mapping[str, Extent], identifier: uuid.UUID, prefix: str) -> AllocatedFile:
    last = next(reversed(list(extents.values())))
    return _named(extents, last.offset + last.size_in_bytes + FRAME_OVERHEAD, identifier, prefix)


def _named(extents: Mapping[str, Extent], size: int, identifier: uuid.UUID, prefix: str) -> AllocatedFile:
    name = file_name(identifier)
    path = quote(f"{prefix}/{name}" if prefix else name)
    return AllocatedFile(path, encode_uuid(prefix, identifier), size, extents)


def _check(key: str, size: int, seen: set[str]) -> None:
    if key in seen:
        raise InvalidCommit(f"File '{key}' has two deletion vectors; send their union.", file=key)
    if not 0 < size <= MAX_OFFSET - FRAME_OVERHEAD - len(FILE_VERSION):
        raise InvalidCommit(
            f"The deletion vector of file '{key}' has {size} bytes, which is more than Delta allows; "
            "rewrite the file without its deleted rows.",
            file=key,
        )
