"""Computes statistics of data files over their live rows, in this process for every engine.

Tested in `tests/integration/client/dml/test_statistics.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec_engines.calendar import is_legacy
from delvec_engines.data_file import DataFile, open_data_file, position_of, reading, to_table_type
from delvec_engines.file_schemas import checked_schema
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable
from delvec_kernel.schema.column_mapping import is_mapped, mapping_mode
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType, arrow_type, has_variant
from delvec_kernel.statistics.file_statistics import Number, StatisticsCollector, dump, indexed_columns, load

__all__ = ["live_statistics"]

_CONCURRENT: Final = 4
_BATCH_ROWS: Final = 64 * 1024
_VECTOR_BYTES: Final = 32 << 20
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})


def live_statistics(scan: Scan) -> Mapping[str, str]:
    """Return the ``stats`` of each file of the scan, by path: bounds and null counts of the live rows, ``tightBounds`` true.

    ``numRecords`` counts physical rows. Four files are read at a time, 65,536 rows of each.

    Raises:
        MissingDataFile: a file is missing from storage.
        CorruptTable: or a subclass: a file or a deletion vector cannot be read, or a file has not the rows that the log says.
        UnusableFile: a footer has more than 256 MiB.
        StorageError: storage did not answer.
    """
    stats_by_path: dict[str, str] = {}
    with ThreadPoolExecutor(_CONCURRENT, "delvec-statistics") as pool:
        for part in scan.parts(_VECTOR_BYTES):
            vectors = part.deletion_vectors
            paths, counts = (part.files[name].to_pylist() for name in ("path", "num_records"))

            def one(
                path: str,
                count: int | None,
                part: Scan = part,
                vectors: Mapping[str, BitMap64] = vectors,
            ) -> str:
                return _of_file(part, path, count, vectors.get(path, BitMap64()))

            stats_by_path.update(zip(paths, pool.map(one, paths, counts), strict=True))
    return stats_by_path


def _of_file(scan: Scan, path: str, count: int | None, deletion_vector: BitMap64) -> str:
    has_mapping = is_mapped(scan.configuration)
    schema = _without_variants(scan.schema)
    leaves = indexed_columns(schema, scan.partition_columns, scan.configuration)
    wanted = list(dict.fromkeys(leaf[0].name for leaf in leaves))
    fields = [schema.field(name) for name in wanted]
    collector = StatisticsCollector(schema, scan.partition_columns, scan.configuration)
    file = DataFile.of(scan, path)
    with open_data_file(file) as parquet_file, reading(file):
        rows = parquet_file.metadata.num_rows
        if (count is not None and rows != count) or (deletion_vector and deletion_vector.max() >= rows):
            raise CorruptTable(
                f"The data file '{path}' of table '{scan.name}' (version {scan.version}) has {rows} rows, but the log "
                "says "
                f"{count} and deletes row {deletion_vector.max() if deletion_vector else 'none'}; run `delvec check`.",
                table=scan.name,
                version=scan.version,
                file=path,
            )
        checked_schema(file, parquet_file.metadata, fields, mapping_mode(scan.configuration))
        for batch in _live_rows(parquet_file, fields, deletion_vector, has_mapping=has_mapping):
            collector.update(batch)
        footer = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in (parquet_file.metadata.metadata or {}).items()
        }
    stats = load(collector.to_json())
    if is_legacy(footer):
        # Spark reads early dates and timestamps of such a file in another calendar.
        for bounds in (stats["minValues"], stats["maxValues"]):
            _drop(bounds, [leaf for leaf in leaves if _is_time(leaf[-1])])
    return dump(stats | {"numRecords": Number(rows)})


def _without_variants(schema: StructType) -> StructType:
    """Return the schema without variants, which have no bounds and, shredded, are no values to Arrow."""
    fields = []
    for item in schema.fields:
        if isinstance(item.type, StructType):
            inner = _without_variants(item.type)
            fields += [replace(item, type=inner)] if inner.fields else []
        elif not has_variant(item.type):
            fields.append(item)
    return StructType(tuple(fields))


def _live_rows(
    parquet_file: pq.ParquetFile,
    fields: Sequence[StructField],
    deletion_vector: BitMap64,
    *,
    has_mapping: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows with the table's types and names; columns that the file lacks are NULL."""
    names = parquet_file.schema_arrow.names
    places = [position_of(field, names, has_mapping=has_mapping) for field in fields]
    chosen = [names[place] for place in places if place is not None]
    first = 0
    for batch in parquet_file.iter_batches(_BATCH_ROWS, columns=chosen):
        size = batch.num_rows
        deleted_rows = (
            deletion_vector & BitMap64(range(first, first + size)) if deletion_vector else BitMap64()
        )
        columns = []
        for field, place in zip(fields, places, strict=True):
            target = arrow_type(field.type)
            columns.append(
                pa.nulls(size, target)
                if place is None
                else to_table_type(batch.column(names[place]), field.type, target, has_mapping=has_mapping)
            )
        rows = pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
        if deleted_rows:
            is_live = np.ones(size, np.bool_)
            is_live[np.asarray(deleted_rows.to_array(), np.int64) - first] = False
            rows = rows.filter(pa.array(is_live))
        yield rows
        first += size


def _is_time(field: StructField) -> bool:
    return isinstance(field.type, PrimitiveType) and field.type.name in _TIMES


def _drop(bounds: dict[str, Any], leaves: Sequence[Sequence[StructField]]) -> None:
    for leaf in leaves:
        tree: Any = bounds
        for field in leaf[:-1]:
            tree = tree.get(field.physical_name, {})
        tree.pop(leaf[-1].physical_name, None)
