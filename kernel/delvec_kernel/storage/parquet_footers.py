"""Parquet footers before they are read: a file states the size of its own footer, and reading it takes that much memory."""

from typing import Final

import pyarrow as pa

from delvec_kernel.errors import UnusableFile

__all__ = ["MAX_FOOTER_BYTES", "TRAILER_BYTES", "check_footer", "footer_size"]

MAX_FOOTER_BYTES: Final = 1 << 28
TRAILER_BYTES: Final = 8
"""At the end of a file: how long the footer is, and a magic number."""
_MAGIC: Final = b"PAR1"


def footer_size(trailer: bytes, size: int, path: str) -> int | None:
    """Return how many bytes before its last 8 are a file's footer, or None where it is no Parquet file.

    Args:
        trailer: the last 8 bytes.
        size: of the file.
        path: for errors.

    Raises:
        UnusableFile: more than 256 MiB, which no file of rows has.
    """
    length = int.from_bytes(trailer[:4], "little")
    if trailer[4:] != _MAGIC or length > size - TRAILER_BYTES:
        return None
    if length > MAX_FOOTER_BYTES:
        raise UnusableFile(
            f"The data file '{path}' has a footer of {length:,} bytes, which is more than the limit of "
            f"{MAX_FOOTER_BYTES:,}.",
            file=path,
            size=length,
            limit=MAX_FOOTER_BYTES,
        )
    return length


def check_footer(source: pa.NativeFile, path: str) -> None:
    """Refuse an open file whose footer is too large to be read; whether it is one, its reader finds out.

    Raises:
        UnusableFile: see :func:`footer_size`.
        OSError: it cannot be read.
    """
    size = source.size()
    # Smaller files are not asked: in an object store that is a request more.
    if size > MAX_FOOTER_BYTES:
        footer_size(source.read_at(TRAILER_BYTES, size - TRAILER_BYTES), size, path)
