"""Packing deletion vectors into shared files: one file, many deletion vectors, one descriptor each.

PROTOCOL.md, "Deletion Vector File Storage Format". A file starts with the version byte; each deletion vector
takes 8 bytes more than its ``sizeInBytes``. Bins are filled in order (next fit), so that deletion vectors of
neighbouring data files stay neighbours and are fetched with one request.
"""

import secrets
import string
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pyroaring import BitMap64

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
from delvec_kernel.errors import InvalidCommit
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
    """Where one deletion vector goes in its file.

    Attributes:
        offset: of the size field.
        size_in_bytes: of magic number and bitmap.
    """

    offset: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class AllocatedFile:
    """A file that someone else writes.

    Attributes:
        path: relative to the table's location, URL-encoded.
        path_or_inline_dv: prefix and UUID as descriptors spell them.
        size: bytes of the whole file.
        extents: by the caller's key, in file order.
    """

    path: str
    path_or_inline_dv: str
    size: int
    extents: Mapping[str, Extent]


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file ready to be put.

    Attributes:
        path: relative to the table's location, URL-encoded.
        content: the bytes, version byte included.
        entries: the descriptor of each deletion vector in it, by the caller's key, in file order.
    """

    path: str
    content: bytes
    entries: Mapping[str, Descriptor]


def prefix_length(configuration: Mapping[str, str]) -> int:
    """Return how long a random prefix the table wants: 0 unless ``delta.randomizeFilePrefixes`` is true."""
    if not is_true(configuration, "delta.randomizeFilePrefixes"):
        return 0
    text = configuration.get("delta.randomPrefixLength", "").strip()
    length = int(text) if text.isascii() and text.isdigit() else _DEFAULT_PREFIX_LENGTH
    return min(length, _MAX_PREFIX_LENGTH) or _DEFAULT_PREFIX_LENGTH


def random_prefix(length: int) -> str:
    """Return ``length`` random letters and digits; the directory that a file goes to."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(length))


def pack(
    bitmaps: Iterable[tuple[str, BitMap64]],
    *,
    target_size: int = DEFAULT_TARGET_SIZE,
    prefix_length: int = 0,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    random_prefix: Callable[[int], str] = random_prefix,
) -> list[PackedFile]:
    """Pack deletion vectors, in the order given, into files of about ``target_size`` bytes.

    The same bitmaps with the same UUIDs and prefixes give the same bytes. A deletion vector larger than
    ``target_size`` gets a file of its own. Without bitmaps there is no file.

    Args:
        bitmaps: a key of the caller's (a data file's path) and all of its deleted rows.
        target_size: bytes of a file.
        prefix_length: letters of the random directory that each file goes to; 0 for none.
        new_uuid: names a file.
        random_prefix: makes a prefix of a length.

    Raises:
        InvalidCommit: a key comes twice, or a deletion vector is empty or too large for the format.
    """
    payloads: dict[str, bytes] = {}
    cardinalities: dict[str, int] = {}
    sizes: list[tuple[str, int]] = []
    for key, bitmap in bitmaps:
        if not bitmap:
            raise InvalidCommit(f"The deletion vector of file '{key}' is empty; leave it out.", file=key)
        payloads[key], cardinalities[key] = encode(bitmap), len(bitmap)
        sizes.append((key, len(payloads[key])))
    allocated = allocate(
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
        for file in allocated
    ]


def allocate(
    sizes: Iterable[tuple[str, int]],
    *,
    target_size: int = DEFAULT_TARGET_SIZE,
    prefix_length: int = 0,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    random_prefix: Callable[[int], str] = random_prefix,
) -> list[AllocatedFile]:
    """Decide files, prefixes, UUIDs and offsets for deletion vectors that someone else writes.

    Args:
        sizes: a key of the caller's and ``sizeInBytes`` of each deletion vector.
        target_size: bytes of a file.
        prefix_length: letters of the random directory that each file goes to; 0 for none.
        new_uuid: names a file.
        random_prefix: makes a prefix of a length.

    Raises:
        InvalidCommit: a key comes twice, or a deletion vector is too large for the format.
    """
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
    """Name files whose deletion vectors, and where each is, someone else decides; ``size`` and ``extents`` are empty."""
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
