"""Where sorting compactions moved rows, read from row map files next to the table; recent maps are cached in memory."""

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa

from delvec_errors import StorageError, UnusableFile
from delvec_kernel.transaction.row_maps import MAX_FOLLOWED_ROWS, SCHEMA, RowMapReader, SourceRows
from delvec_kernel.transaction.transaction_changes import RowMap, RowMapFile
from delvec_parquet.parquet_file import open_parquet
from delvec_service.logs import logger
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.open_table import OpenTable

__all__ = ["RowMapCache"]

_MAX_BYTES: Final = 64 * 1024 * 1024
_BATCH_ROWS: Final = 1 << 17
_MAX_DECODED_BYTES: Final = 1 << 29


class RowMapCache:
    """Row maps by source file; safe to share between threads. A row map file never changes."""

    def __init__(self) -> None:
        self._held: LruCache[tuple[str, RowMap, str], SourceRows] = LruCache(_MAX_BYTES)

    def load(self, table: OpenTable, row_map: RowMap, sources: Collection[str]) -> Mapping[str, SourceRows]:
        """Return where the rows of these sources are now, by canonical path; unknown sources are left out.

        The result is empty if a file of the map is missing, damaged or not as the log describes it, or if there are
        too many rows to track. Without a map, the commit conflicts as usual.

        Raises:
            StorageError: storage did not answer.
        """
        held = {source: self._held.get((table.location, row_map, source)) for source in sources}
        rows_by_source = {source: rows for source, rows in held.items() if rows is not None}
        missing = [source for source in sources if source not in rows_by_source]
        if missing:
            read = _read(table, row_map, missing)
            for source, rows in read.items():
                self._held.put((table.location, row_map, source), rows, rows.nbytes)
            rows_by_source |= read
        if sum(each.total for each in rows_by_source.values()) > MAX_FOLLOWED_ROWS:
            return {}
        return rows_by_source


def _read(table: OpenTable, row_map: RowMap, sources: Collection[str]) -> Mapping[str, SourceRows]:
    reader = RowMapReader(row_map, sources, table.location)
    try:
        for file in row_map.files:
            _read_file(table, file, reader)
        return reader.finish()
    except UnusableFile as error:
        reason: object = error.message
    except StorageError:
        raise
    except (ValueError, OSError, pa.ArrowException, KeyError) as error:
        # FileNotFoundError: VACUUM has deleted it.
        reason = error
    logger.warning("row map not read", table=table.name, file=row_map.files[0].path, reason=str(reason))
    return {}


def _read_file(table: OpenTable, file: RowMapFile, reader: RowMapReader) -> None:
    with table.objects.open(file.path) as source:
        if source.size() != file.size_in_bytes:
            raise ValueError("its size differs from the log")
        parquet = open_parquet(source, file.path, read_dictionary=["source"], page_checksum_verification=True)
        metadata = parquet.metadata
        decoded = sum(metadata.row_group(each).total_byte_size for each in range(metadata.num_row_groups))
        if metadata.num_rows != file.num_rows or decoded > _MAX_DECODED_BYTES:
            raise ValueError("its rows differ from the log")
        if parquet.schema_arrow.names != SCHEMA.names:
            raise ValueError("not a row map file")
        for batch in parquet.iter_batches(_BATCH_ROWS):
            if batch.schema.types != SCHEMA.types:
                raise ValueError("not a row map file")
            reader.add(batch)
