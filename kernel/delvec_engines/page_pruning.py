"""Which rows of large files a predicate needs, by the page indexes of the files.

Spark writes row groups of millions of rows in pages of 20,000 rows, and DuckDB, which skips row groups by their bounds,
would decode the predicate's columns for all of them. Restricted to rows by number, it skips other pages, too. Page
indexes lie before a file's footer, so one read returns both.

Measured on one file of 5 M rows in one row group and 250 pages, on 2 cores: choosing rows takes 3 ms.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_engines.calendar import may_ask_for_early
from delvec_engines.repeated_rows import occurrence_columns
from delvec_engines.row_ids import file_default
from delvec_engines.scan import Scan
from delvec_errors import DelvecError
from delvec_kernel.data_skipping.page_selection import (
    ColumnPages,
    bounds_of_pages,
    is_understood,
    joined_pages,
    rows_that_may_match,
)
from delvec_kernel.data_skipping.truth import columns_of
from delvec_kernel.expressions.expression import Expression
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_mapping import mapping_mode
from delvec_kernel.schema.types import DataType, StructField, StructType
from delvec_kernel.statistics.bounds import Bounds, Path
from delvec_parquet.file_end import FileEnd
from delvec_parquet.footer import Footer, RowGroup, parse
from delvec_parquet.page_index import page_bounds, page_starts
from delvec_parquet.primitive_columns import Column, flat_columns
from delvec_storage import files as storage

__all__ = ["RowRanges", "row_ranges"]

RowRanges = Sequence[range]
"""Ascending, without overlaps; empty if no row is needed."""

_MAX_FILES: Final = 16
"""Maximum large files: each that is not read as a whole takes a statement."""
_MIN_ROWS: Final = 1 << 18
"""Minimum rows of a file: DuckDB reads a column of fewer in about 10 ms."""
_MIN_GROUP_ROWS: Final = 100_000
"""Minimum mean rows of a file's row groups: DuckDB skips smaller ones itself."""
_MIN_REMOTE_BYTES: Final = 64 << 20
"""Minimum size of a file in an object store, where reading its end takes a round trip."""
_MAX_READ: Final = 0.5
"""Maximum part of a file's rows to read by number: a statement for each file costs more than the other half."""
_TAIL_BYTES: Final = 128 << 10
_ROWS_PER_FOOTER_BYTE: Final = 64
_ROWS_PER_INDEX_BYTE: Final = 16
"""Parsing a byte takes a third of a microsecond, in which DuckDB reads ten rows."""


def row_ranges(
    scan: Scan,
    predicate: Predicate | Expression | None,
    relation: str = "",
    others: Mapping[Path, tuple[Any, Any]] | None = None,
) -> dict[str, RowRanges]:
    """Return the rows to read of each file, by path; files that have to be read as a whole are left out.

    Never fails: the engine reports what is wrong with a file.

    Args:
        scan: the files.
        predicate: only rows for which it is TRUE are needed.
        relation: the scan's name in an expression.
        others: least and greatest values of the columns of another relation, by relation and name.
    """
    if predicate is None:
        return {}
    files = _worthwhile(scan)
    if not 0 < len(files) <= _MAX_FILES:
        return {}
    page_filter = _Wanted.of(scan, predicate, relation, others or {})
    if not page_filter.columns:
        return {}
    if len(files) == 1 or all(is_local for _, _, is_local in files):
        candidate_ranges = [_rows_of(scan, path, size, page_filter) for path, size, _ in files]
    else:
        with ThreadPoolExecutor(len(files), "delvec-page-indexes") as pool:
            candidate_ranges = list(
                pool.map(lambda each: _rows_of(scan, each[0], each[1], page_filter), files)
            )
    return {
        path: rows for (path, _, _), rows in zip(files, candidate_ranges, strict=True) if rows is not None
    }


@dataclass(frozen=True)
class _Wanted:
    """What to look for in each file.

    Attributes:
        predicate: as given.
        schema: what it was parsed against.
        columns: the stored columns that it reads, by their paths in it.
        others: as for :func:`row_ranges`.
        by_id: whether columns are found by field id.
        is_mapped: whether they are found by physical name or field id.
    """

    predicate: Predicate | Expression
    schema: StructType
    columns: Mapping[Path, StructField]
    others: Mapping[Path, tuple[Any, Any]]
    by_id: bool
    is_mapped: bool

    @classmethod
    def of(
        cls,
        scan: Scan,
        predicate: Predicate | Expression,
        relation: str,
        others: Mapping[Path, tuple[Any, Any]],
    ) -> "_Wanted":
        prefix = (relation,) if relation else ()
        not_stored = {name.lower() for name in (*scan.partition_columns, *occurrence_columns(scan))}
        columns: dict[Path, StructField] = {}
        for path in columns_of(predicate):
            names = path[len(prefix) :]
            if path[: len(prefix)] != prefix or len(names) != 1 or names[0] not in scan.schema:
                continue
            item = scan.schema.field(names[0])
            if item.name.lower() not in not_stored and file_default(item) is None:
                columns[path] = item
        if may_ask_for_early(predicate.text, [item.type for item in columns.values()]):
            # The bounds may be in Spark 2's calendar, and only files that are read are checked for it.
            columns = {}
        mode = mapping_mode(scan.configuration)
        schema = predicate.relations if isinstance(predicate, Expression) else predicate.schema
        return cls(predicate, schema, columns, others, mode == "id", mode != "none")

    def chosen(self, columns: Sequence[Column], names: Sequence[str]) -> dict[Path, tuple[Column, DataType]]:
        """Return the columns of a file that are certainly the predicate's, and whose bounds are understood."""
        predicate_columns: dict[Path, tuple[Column, DataType]] = {}
        for path, item in self.columns.items():
            name = item.physical_name if self.is_mapped else item.name
            if self.by_id:
                same = [
                    each for each in columns if each.field_id is not None and each.field_id == item.field_id
                ]
                alike = len(same)
            else:
                same = [each for each in columns if each.name == name]
                alike = sum(each.lower() == name.lower() for each in names)
            if len(same) == alike == 1 and is_understood(same[0], item.type):
                predicate_columns[path] = same[0], item.type
        return predicate_columns


def _worthwhile(scan: Scan) -> list[tuple[str, int, bool]]:
    """Return path, size and whether it is on disk, of each file with enough rows."""
    large = scan.files.filter(pc.greater_equal(scan.files["num_records"], _MIN_ROWS))
    found = []
    for path, size in zip(large["path"].to_pylist(), large["size"].to_pylist(), strict=True):
        is_local = scan.location.startswith("file:") and ("://" not in path or path.startswith("file:"))
        if is_local or size >= _MIN_REMOTE_BYTES:
            found.append((path, size, is_local))
    return found


def _rows_of(scan: Scan, path: str, size: int, page_filter: _Wanted) -> RowRanges | None:
    """Return the rows to read of one file, or None for all."""
    try:
        footer, tail = _footer(scan, path, size)
        if footer is None:
            return None
        chosen = page_filter.chosen(*flat_columns(footer))
        pages = _pages(scan, path, footer, tail, chosen)
        if not pages:
            return None
        candidate_ranges = rows_that_may_match(
            page_filter.predicate, page_filter.schema, pages, footer.num_rows, page_filter.others
        )
    except (
        DelvecError,
        OSError,
        ValueError,
        LookupError,
        ArithmeticError,
        RecursionError,
        pa.ArrowException,
    ):
        return None
    return candidate_ranges if sum(map(len, candidate_ranges)) <= _MAX_READ * footer.num_rows else None


def _footer(scan: Scan, path: str, size: int) -> tuple[Footer | None, FileEnd]:
    start = max(0, size - _TAIL_BYTES)
    end = FileEnd(_read(scan, path, [(start, size)])[0], size)
    place = end.footer_range(path)
    data = None if place is None else end.get(*place)
    if place is None or data is None:
        # So long a footer would take too long to parse.
        return None, end
    footer = parse(data, place[0])
    rows, groups = footer.num_rows, len(footer.row_groups)
    is_large = (
        rows >= _MIN_ROWS and rows >= groups * _MIN_GROUP_ROWS and rows >= len(data) * _ROWS_PER_FOOTER_BYTE
    )
    return (footer if is_large else None), end


def _read(scan: Scan, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
    found = storage.read_ranges(scan.location, path, ranges, is_allowed=scan.roots.allows)
    if any(len(data) != end - start for data, (start, end) in zip(found, ranges, strict=True)):
        raise ValueError("the file is shorter than its footer says")
    return found


def _pages(
    scan: Scan, path: str, footer: Footer, tail: FileEnd, columns: Mapping[Path, tuple[Column, DataType]]
) -> dict[Path, ColumnPages]:
    """Return the pages of those columns that have page indexes."""
    indexes = [
        found
        for column, _ in columns.values()
        for group in footer.row_groups
        for found in _indexes(group, column)
    ]
    if not indexes or sum(end - start for start, end in indexes) * _ROWS_PER_INDEX_BYTE > footer.num_rows:
        return {}
    texts = {each: tail.get(*each) for each in indexes}
    missing = [each for each, text in texts.items() if text is None]
    if missing:
        texts |= dict(zip(missing, map(bytes, _read(scan, path, missing)), strict=True))
    pages: dict[Path, ColumnPages] = {}
    for place, (column, data_type) in columns.items():
        first, groups = 0, []
        for group in footer.row_groups:
            groups.append((first, _pages_of(group, column, data_type, texts)))
            first += group.num_rows
        if any(known is not None for _, known in groups):
            pages[place] = joined_pages(data_type, groups)
    return pages


def _indexes(group: RowGroup, column: Column) -> list[tuple[int, int]]:
    chunk = group.chunks[column.number]
    both = chunk.column_index, chunk.offset_index
    return [each for each in both if each is not None] if None not in both else []


def _pages_of(
    group: RowGroup, column: Column, data_type: DataType, texts: Mapping[tuple[int, int], bytes | None]
) -> tuple[npt.NDArray[np.int64], Bounds] | None:
    """Return the starts and bounds of a column chunk's pages; None if they are unknown or not to be relied on."""
    indexes = _indexes(group, column)
    if not indexes or group.chunks[column.number].num_values != group.num_rows:
        return None
    bounds_text, starts_text = (texts[each] for each in indexes)
    if bounds_text is None or starts_text is None:
        return None
    try:
        pages = page_bounds(bounds_text)
        starts = page_starts(starts_text, group.chunks[column.number], group.num_rows)
        if len(pages) != len(starts):
            return None
        return starts, bounds_of_pages(pages, column, data_type)
    except (ValueError, IndexError):
        return None
