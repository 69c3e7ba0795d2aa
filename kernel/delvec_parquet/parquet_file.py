"""Opens Parquet files with pyarrow: the only module that does, since a file is hostile until its footer is checked.

A footer may claim any size, which reading would allocate, and pyarrow aborts the process over some footers. So the footer
is read once, checked (:mod:`delvec_parquet.footer_check`), and given to pyarrow, which does not read it again.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_errors import UnusableFile
from delvec_parquet.footer_check import check_footer

__all__ = [
    "MAX_FOOTER_BYTES",
    "TRAILER_BYTES",
    "checked_footer",
    "footer_size",
    "open_parquet",
    "parsed_footer",
    "plain_type",
    "read_footer",
]

MAX_FOOTER_BYTES: Final = 1 << 28
TRAILER_BYTES: Final = 8
"""The footer length and the magic number at the end of a file."""
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 64 * 1024
"""Read first: most footers are shorter, and each read is a request to an object store."""


def open_parquet(source: pa.NativeFile | bytes, path: str, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file whose footer is sound.

    Args:
        source: the file, which must stay open, or its content.
        path: the path, for errors.
        options: the options of :class:`pyarrow.parquet.ParquetFile`.

    Raises:
        pa.ArrowInvalid: it is not a Parquet file, or its footer is damaged or contradicts itself.
        UnusableFile: its footer has more than 256 MiB.
        OSError: it cannot be read.
    """
    file = pa.BufferReader(source) if isinstance(source, bytes) else source
    return pq.ParquetFile(file, metadata=read_footer(file, path), **options)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with plain text and binary at every depth, to which values can be cast.

    Arrow reads values as the file's writer had them in memory, and has few functions of views and dictionaries.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def read_footer(source: pa.NativeFile, path: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file; raises what :func:`open_parquet` does."""
    return parsed_footer(checked_footer(source, path))


def checked_footer(source: pa.NativeFile, path: str) -> bytes:
    """Return the bytes of a Parquet file's footer, which is sound; raises what :func:`open_parquet` does."""
    size = source.size()
    tail = source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    length = footer_size(tail[-TRAILER_BYTES:], size, path)
    if length is None:
        raise pa.ArrowInvalid("It is not a Parquet file: it does not end with a footer")
    if length + TRAILER_BYTES > len(tail):
        tail = source.read_at(length + TRAILER_BYTES, size - length - TRAILER_BYTES)
    footer: bytes = tail[-TRAILER_BYTES - length : -TRAILER_BYTES]
    try:
        check_footer(footer)
    except (ValueError, IndexError) as error:
        raise pa.ArrowInvalid(f"Its Parquet footer is damaged: {error}") from error
    return footer


def parsed_footer(footer: bytes) -> pq.FileMetaData:
    """Return the footer that :func:`checked_footer` has read.

    Raises:
        pa.ArrowInvalid: it is damaged.
    """
    trailer = len(footer).to_bytes(4, "little") + _MAGIC
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + footer + trailer))
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(
            f"Its Parquet footer is damaged: a column's name is not UTF-8: {error}"
        ) from error


def footer_size(trailer: bytes, size: int, path: str) -> int | None:
    """Return the footer's size in bytes, or None if the file is not Parquet.

    Args:
        trailer: the last 8 bytes.
        size: the size of the file.
        path: the path, for errors.

    Raises:
        UnusableFile: the footer exceeds 256 MiB, unlike that of any real file.
    """
    length = int.from_bytes(trailer[:4], "little")
    if trailer[4:] != _MAGIC or length > size - TRAILER_BYTES:
        return None
    if length > MAX_FOOTER_BYTES:
        raise UnusableFile(
            f"The Parquet file '{path}' has a footer of {length:,} bytes, which is more than the limit of "
            f"{MAX_FOOTER_BYTES:,}.",
            file=path,
            size=length,
            limit=MAX_FOOTER_BYTES,
        )
    return length
