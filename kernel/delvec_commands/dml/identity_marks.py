"""The highest value of an identity column in the rows of a table, including values that users inserted."""

import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.reading import ReadableTable
from delvec_engines.identity_values import high_water_mark
from delvec_engines.scan import Scan
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import IDENTITY_START, IDENTITY_STEP, StructField
from delvec_kernel.statistics.bounds import parsed_bounds

__all__ = ["reached"]


def reached(table: ReadableTable, column: str, version: int) -> int | None:
    """Return the highest value in a version, or the lowest if the column's step is negative.

    Reads only files whose statistics allow a value beyond the high-water mark and beyond all values known exactly from
    statistics.

    Args:
        table: the table.
        column: its SQL name.
        version: the version of the table.

    Returns:
        None if no row has a value, or the column is not an identity column.

    Raises:
        CorruptTable: or a subclass: the log, a data file or a deletion vector is damaged or missing.
    """
    name = column[1:-1].replace("``", "`") if column.startswith("`") else column
    scan, _ = table.plan(version=version, stats=True)
    field = next((each for each in scan.schema.fields if each.name.lower() == name.lower()), None)
    start, step = (
        (None, None)
        if field is None
        else (field.metadata.get(key) for key in (IDENTITY_START, IDENTITY_STEP))
    )
    if field is None or not isinstance(start, int) or not isinstance(step, int) or not step:
        return None
    rises = step > 0
    furthest = max if rises else min
    mark = high_water_mark(field)
    ends = [
        *_exact_ends(scan, field, rises=rises),
        *([] if mark is None or (mark - start) * step < 0 else [mark]),
    ]
    furthest_value = furthest(ends, default=None)
    quoted = backticked(field.name)
    beyond = (
        f"{quoted} IS NOT NULL"
        if furthest_value is None
        else f"{quoted} {'>' if rises else '<'} {furthest_value}"
    )
    for batch in table.scan([field.name], beyond, version).to_batches():
        batch_furthest = pc.min_max(batch.column(0))["max" if rises else "min"].as_py()
        furthest_value = (
            furthest(each for each in (furthest_value, batch_furthest) if each is not None)
            if batch_furthest is not None
            else furthest_value
        )
    return furthest_value


def _exact_ends(scan: Scan, field: StructField, *, rises: bool) -> list[int]:
    """Return the last value of each file with exact statistics, that is without deleted rows."""
    files = scan.files.filter(pc.is_null(scan.files["deletion_vector"]))
    stats, num_records = (_one_chunk(files[name]) for name in ("stats", "num_records"))
    bounds = parsed_bounds(stats, num_records, {(field.physical_name,): field.type})[(field.physical_name,)]
    ends = bounds.high if rises else bounds.low
    return [] if ends is None or bounds.exact is None else ends.filter(bounds.exact).to_pylist()


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
