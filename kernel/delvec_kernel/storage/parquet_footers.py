"""Checks of Parquet footer sizes before reading: a file claims any size, and reading allocates that much memory."""

from typing import Final

import pyarrow as pa

from delvec_kernel.errors import UnusableFile

__all__ = ["MAX_FOOTER_BYTES", "TRAILER_BYTES", "check_footer", "footer_size"]

MAX_FOOTER_BYTES: Final = 1 << 28
TRAILER_BYTES: Final = 8
"""The footer length and the magic number at the end of a file."""
_MAGIC: Final = b"PAR1"


def footer_size(trailer: bytes, size: int, path: str) -> int | None:
    """Return the footer's size in bytes, or None if the file is not Parquet.

    Args:
        trailer: the last 8 bytes.
        size: of the file.
        path: for errors.

    Raises:
        UnusableFile: the footer exceeds 256 MiB, unlike that of any real file.
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
    """Reject an open file whose footer is too large; does not check that it is Parquet.

    Raises:
        UnusableFile: see :func:`footer_size`.
        OSError: it cannot be read.
    """
    size = source.size()
    # Smaller files cannot have a larger footer, and checking costs a request in an object store.
    if size > MAX_FOOTER_BYTES:
        footer_size(source.read_at(TRAILER_BYTES, size - TRAILER_BYTES), size, path)
