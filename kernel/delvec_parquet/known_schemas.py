"""Schemas of Parquet files, parsed once.

Most files of a table have the same schema in the same bytes, which are compared instead of parsed.

Tested in `tests/unit/storage/test_parquet_schemas.py`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from delvec_errors import CorruptTable
from delvec_parquet.file_schema import END_BYTES, FileSchema, has_column_orders, schema_of_footer
from delvec_parquet.parquet_file import TRAILER_BYTES, footer_size

__all__ = ["KnownSchemas"]

_FIRST_READ_BYTES: Final = 4 << 10
"""Bytes of a footer to read first."""
_MAX_KNOWN: Final = 64


class KnownSchemas:
    """Schemas that were read; thread-safe. Equal schemas of its files are one object."""

    def __init__(self) -> None:
        self._recent: deque[tuple[bytes, bool, FileSchema]] = deque(maxlen=_MAX_KNOWN)

    def of_file(self, read: Callable[[int, int], bytes], size: int, path: str) -> FileSchema | None:
        """Return a file's schema; None if the file is not Parquet.

        Args:
            read: reads the file from one offset to another.
            size: the size of the file in bytes.
            path: the path, as in the log, for errors.

        Raises:
            CorruptTable: the schema is damaged.
            UnusableFile: the footer exceeds 256 MiB.
        """
        end = read(max(0, size - TRAILER_BYTES - END_BYTES), size)
        length = footer_size(end[-TRAILER_BYTES:], size, path)
        if length is None:
            return None
        has_orders = has_column_orders(end[:-TRAILER_BYTES])
        start = size - TRAILER_BYTES - length
        data = read(start, start + min(length, _FIRST_READ_BYTES))
        for encoded, its_order, schema in self._recent.copy():
            if its_order != has_orders:
                continue
            if len(encoded) > len(data):
                data = read(start, start + min(length, len(encoded)))
            if data.startswith(encoded):
                return schema
        if length > len(data):
            data = read(start, start + length)
        try:
            schema, schema_end = schema_of_footer(data, has_orders=has_orders)
        except (ValueError, IndexError, RecursionError) as error:
            raise CorruptTable(
                f"The footer of the data file '{path}' is damaged: {error}; restore the file from a backup.",
                file=path,
            ) from error
        schema = next((each for _, _, each in self._recent.copy() if each == schema), schema)
        self._recent.appendleft((data[:schema_end], has_orders, schema))
        return schema
