"""The SQL of a planned scan: table columns, typed partition values, and a filter of deleted rows.

Columns are found by physical name or field id, and get internal names, so that no column of a table
collides with DuckDB's ``filename``, ``file_row_number`` and ``file_index``. Values that differ by file (partition
values, deleted rows) come from a lookup: one row of lists, indexed by the file's position. DuckDB evaluates it
once per vector of rows, and compares the file's name with the planned name at that position each time: a wrong
match would silently return deleted rows.

Measured on one file of 10 M rows and 8 columns, 2 cores, milliseconds::

    deleted                             none   1 row   1 %   30 %
    all columns to Arrow                 411     466   474    417
    an aggregate of each column          363     407   406    378
    sum of one INTEGER column             15      46    46     67

Testing a bit costs 3 ns per row, which only matters in trivial scans. Alternatives, all columns to Arrow,
on a slower day (no deletion vector: 450)::

    lists, get_bit (this)                        400   400    345
    join on file_index, get_bit                  470   540    450
    words of 64 bits in a list                   480   460    410
    anti join on (file, row)                     590   540    780
    list of Booleans                            2075  2100   1960

All but the last lose the order of rows, as does any lookup that is a join, this one too:
:mod:`~delvec_engines.duckdb.file_order` reads where the order matters. The cost of a list grows with its length, hence ``_MAX_FILES``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec_engines.data_file import DataFile
from delvec_engines.duckdb.file_columns import FileColumn, columns_in, mapping, whole
from delvec_engines.duckdb.file_names import FILE_ENDS, file_list, file_names, is_remote, read_as_bytes
from delvec_engines.duckdb.lookup import (
    FILENAME,
    LOOKUP,
    add_occurrences,
    as_row,
    joined,
    looked_up,
    quoted,
    string_literal,
)
from delvec_engines.duckdb.pushed_filters import has_text
from delvec_engines.duckdb.variants import looks_shredded
from delvec_engines.file_schemas import file_schemas, mismatch
from delvec_engines.footers import rows_in
from delvec_engines.internal_names import INTERNAL
from delvec_engines.page_pruning import RowRanges
from delvec_engines.repeated_rows import occurrence_columns
from delvec_engines.row_ids import BASE_ROW_ID, file_default
from delvec_engines.scan import Scan
from delvec_errors import UnsupportedReaderFeature, UnsupportedTable
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_mapping import all_fields, mapping_mode
from delvec_kernel.schema.file_types import FileTypeMismatch, naming
from delvec_kernel.schema.types import (
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    all_types,
    has_float,
    has_variant,
)

__all__ = [
    "LOOKUP",
    "ScanSource",
    "check_files",
    "left_out",
    "quoted",
    "sources",
    "string_literal",
]

FILE_HASH: Final = INTERNAL("file_hash")
FILE_INDEX: Final = INTERNAL("file_index")
ROW_INDEX: Final = INTERNAL("row_index")

LIVE: Final = INTERNAL("live")
_POSITIONS: Final = (
    f"CAST(f.file_index AS BIGINT) AS {FILE_INDEX}",
    f"hash(f.{FILENAME}) AS {FILE_HASH}",
    f"f.file_row_number AS {ROW_INDEX}",
)
_SCHEMA: Final = "MAP(VARCHAR, STRUCT(name VARCHAR, type VARCHAR, default_value VARCHAR))"
"""The type of read_parquet's ``schema``."""
_VOID: Final = PrimitiveType("void")
_NAME: Final = INTERNAL("name")
"""A column of a scan's files: their names in DuckDB."""
_MAX_ROWS: Final = 1 << 31
_MAX_BITS: Final = 1 << 32
"""Maximum rows of files with deletion vectors per statement: one bit each, 512 MiB."""
_MANY_ROWS: Final = 1 << 26
"""Row count above which the log is not trusted, and the footer is read."""
_MAX_FILES: Final = 256
"""Maximum files per statement with a lookup."""


@dataclass(frozen=True)
class ScanSource:
    """The part of a scan that one statement reads: files that all have a deletion vector, or none.

    Attributes:
        files: the part of ``Scan.files``.
        names: DuckDB's names of the files, in the order of ``files``.
        lookup: the table to register as ``LOOKUP``; None if nothing differs by file.
        sql: a SELECT without WHERE of the requested columns under their own names.
        live: the condition of live rows; None without deleted rows.
        nameable: columns that a WHERE appended to ``sql`` may use.
    """

    files: pa.Table
    names: Sequence[str]
    lookup: pa.Table | None
    sql: str
    live: str | None
    nameable: frozenset[str] = frozenset()

    def select(
        self, columns: str, predicate: str | None, reads: Collection[str] = (), *, strictly: bool = False
    ) -> str:
        """Return a SELECT of ``columns`` of the live rows that satisfy ``predicate``.

        Args:
            columns: the select list, in SQL.
            predicate: in SQL.
            reads: the columns that the predicate reads.
            strictly: evaluate the predicate for live rows only, which prevents its pushdown.
        """
        if strictly and predicate is not None:
            condition = predicate if self.live is None else f"CASE WHEN {self.live} THEN ({predicate}) END"
            return f"SELECT {columns} FROM ({self.sql}) AS {INTERNAL('scan')} WHERE {condition}"  # noqa: S608
        filtered = None if predicate is None else self.filtered(predicate, reads)
        conditions = [each for each in (self.live, predicate if filtered is None else None) if each]
        where = " WHERE " + " AND ".join(f"({each})" for each in conditions) if conditions else ""
        return f"SELECT {columns} FROM ({filtered or self.sql}) AS {INTERNAL('scan')}{where}"  # noqa: S608 - made of quoted parts

    def filtered(self, condition: str, reads: Collection[str]) -> str | None:
        """Return ``sql`` with a condition on unqualified columns appended; None if it has to go into an outer query.

        DuckDB evaluates it while reading, and converts other columns only for rows that satisfy it. A
        condition in an outer query is evaluated later, unless it only compares a column with a constant.
        """
        return f"{self.sql} WHERE {condition}" if reads and self.nameable.issuperset(reads) else None


def sources(
    scan: Scan,
    columns: Iterable[str],
    predicate: Predicate | None = None,
    *,
    filter_columns: Collection[str] = (),
    deletion_vectors: bool = True,
    deleted_rows: Mapping[str, BitMap64] | None = None,
    positions: bool = False,
    within: Mapping[str, RowRanges] | None = None,
    shields_text: bool = False,
) -> Iterator[ScanSource]:
    """Split a scan into parts that one statement each can read.

    Before the first, all files are checked for types that are not the table's.

    Args:
        scan: the plan.
        columns: the columns to select, spelled as in the schema.
        predicate: filter of the statement.
        filter_columns: other columns by which the statement, or a query around it, filters or joins.
        deletion_vectors: leave out deleted rows; otherwise all physical rows are read.
        deleted_rows: more rows to leave out, by path.
        positions: also select ``FILE_INDEX``, ``FILE_HASH`` and ``ROW_INDEX``.
        within: the physical rows to read, by path, of files of which not all are. Files without any are left out.
        shields_text: keep filters of text and binary columns out of the Parquet reader, for queries whose conditions are
            not shielded one by one; see :mod:`~delvec_engines.duckdb.pushed_filters`.

    Raises:
        CorruptDeletionVector: or a subclass, naming the table, the version and the file.
        CorruptTable: or a subclass: a file is missing, or does not have the table's types; names it.
        UnsupportedTable: DuckDB cannot read a column as the table's type; names the file.
    """
    filter_columns = frozenset(filter_columns) | (predicate.columns if predicate is not None else frozenset())
    used = set(columns) | filter_columns
    fields = [field for field in scan.schema.fields if field.name in used]
    _check_types(scan, fields, predicate)
    for part, file_columns in _parts(scan, fields):
        statement = _Statement(
            part, fields, filter_columns, file_columns, positions=positions, shields_text=shields_text
        )
        for piece, rows in _ranges(part, within or {}):
            yield from statement.sources(
                piece.files, rows, deleted_rows or {}, deletion_vectors=deletion_vectors
            )


def check_files(scan: Scan) -> None:
    """Check that DuckDB can read all columns of all files, before a command writes anything.

    Raises:
        DelvecError: as :func:`sources`.
    """
    _parts(scan, scan.schema.fields)


_FileColumns = Mapping[str, FileColumn]


def _parts(scan: Scan, fields: Sequence[StructField]) -> list[tuple[Scan, _FileColumns]]:
    """Split a scan, whose files get their names, into files whose columns are read in the same way."""
    as_bytes = read_as_bytes(StructType(tuple(fields)))
    names = file_names(scan.location, scan.files, scan.roots, as_bytes=as_bytes)
    named_scan = replace(scan, files=scan.files.append_column(_NAME, pa.array(names, pa.string())))
    absent = {name.lower() for name in scan.partition_columns} | occurrence_columns(scan)
    stored_fields = [each for each in fields if each.name.lower() not in absent and each.type != _VOID]
    if not stored_fields:
        return [(named_scan, {})]
    by = naming(mapping_mode(scan.configuration))
    columns_by_schema: dict[int, tuple[FileColumn, ...]] = {}
    places: dict[tuple[FileColumn, ...], list[int]] = {}
    local = [None if is_remote(name) else name for name in names]
    for place, schema in enumerate(file_schemas(scan, local, ends=FILE_ENDS)):
        columns = columns_by_schema.get(id(schema))
        if columns is None:
            try:
                columns = columns_by_schema[id(schema)] = columns_in(schema, stored_fields, by)
            except FileTypeMismatch as error:
                raise mismatch(DataFile.of(scan, scan.files["path"][place].as_py()), error) from error
        places.setdefault(columns, []).append(place)
    return [
        (
            named_scan
            if len(chosen) == len(scan)
            else replace(named_scan, files=named_scan.files.take(pa.array(chosen))),
            dict(zip((each.name for each in stored_fields), columns, strict=True)),
        )
        for columns, chosen in places.items()
    ]


def _ranges(scan: Scan, within: Mapping[str, RowRanges]) -> Iterator[tuple[Scan, RowRanges | None]]:
    """Split a scan, in file order, into files that are read as a whole, and files of which only some rows are.

    Args:
        scan: the plan.
        within: the rows to read, by path. Files without any are left out.
    """
    if not within:
        yield scan, None
        return
    start = 0
    for place, path in enumerate(scan.files["path"].to_pylist()):
        if path in within:
            if start < place:
                yield scan.slice(start, place - start), None
            if within[path]:
                yield scan.slice(place, 1), within[path]
            start = place + 1
    if start < len(scan):
        yield scan.slice(start), None


def left_out(scan: Scan, files: pa.Table, gone: Mapping[str, BitMap64] | None = None) -> list[BitMap64]:
    """Return for each of ``files`` the rows in its deletion vector or in ``gone``."""
    vectors, more = scan.deletion_vectors, gone or {}
    has_vector = pc.is_valid(files["deletion_vector"]).to_pylist()
    return [
        (vectors[path] if has else BitMap64()) | more.get(path, BitMap64())
        for path, has in zip(files["path"].to_pylist(), has_vector, strict=True)
    ]


def check_names(table: str, fields: Iterable[StructField]) -> None:
    """Refuse columns and fields whose names DuckDB does not support, and structs without fields.

    Raises:
        UnsupportedTable: a name is empty or contains a NUL character, or a struct is empty.
    """
    for item in fields:
        reason = _beyond_names(item)
        if reason is not None:
            raise UnsupportedTable(
                f"Column {item.name!r} of table '{table}' {reason}, which DuckDB does not support; leave the column out, "
                "or use Spark.",
                table=table,
                column=item.name,
            )


def _beyond_names(item: StructField) -> str | None:
    for each in (item, *all_fields(item.type)):
        if "\0" in each.name + each.physical_name:
            return "has a NUL character in its name or in that of a field"
        if not each.name or not each.physical_name:
            return "has an empty name, or a field with one"
    return "has a struct without fields" if StructType(()) in all_types(item.type) else None


def _check_types(scan: Scan, fields: Sequence[StructField], predicate: Predicate | None) -> None:
    check_names(scan.name, fields)
    variants = [item for item in fields if has_variant(item.type)]
    for item in variants:
        if predicate is not None and item.name in predicate.columns:
            raise UnsupportedReaderFeature(
                f"The predicate {predicate.text!r} reads column '{item.name}' of table '{scan.name}' (version "
                f"{scan.version}), of type variant, which DuckDB reads but does not evaluate as Spark does. Use Spark, "
                "or leave the column out of the predicate.",
                table=scan.name,
                version=scan.version,
                column=item.name,
                features=["variantType"],
            )
    if variants and any(looks_shredded(item.type) for item in fields):
        raise UnsupportedTable(
            f"Table '{scan.name}' (version {scan.version}) has columns of type variant and a struct of metadata, value and "
            "typed_value, which looks like a variant in a file; read them with Spark, or one at a time.",
            table=scan.name,
            version=scan.version,
            column=variants[0].name,
        )


def _groups(bits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split files into groups (start, count) whose bits fit into memory."""
    start = total = 0
    for position, count in enumerate(bits):
        if position > start and (total + count > _MAX_BITS or position - start >= _MAX_FILES):
            yield start, position - start
            start, total = position, 0
        total += count
    yield start, len(bits) - start


@dataclass(frozen=True)
class _Statement:
    """What the statements over files with the same columns select.

    Attributes:
        scan: the files' scan.
        fields: the columns.
        filtered: names of those by which the rows are filtered.
        file_columns: how they are read from the files, by name.
        positions: whether positions are selected.
        shields_text: as in :func:`sources`.
    """

    scan: Scan
    fields: Sequence[StructField]
    filtered: frozenset[str]
    file_columns: _FileColumns
    positions: bool
    shields_text: bool

    def sources(
        self,
        files: pa.Table,
        rows: RowRanges | None,
        deleted_rows: Mapping[str, BitMap64],
        *,
        deletion_vectors: bool,
    ) -> Iterator[ScanSource]:
        """Yield the parts of ``files``, of which only ``rows`` are read, without those in ``deleted_rows``."""
        scan = self.scan
        partitioned = {name.lower() for name in scan.partition_columns}
        by_file = any(
            item.name.lower() in partitioned or file_default(item) is not None for item in self.fields
        )
        size = _MAX_FILES if by_file else files.num_rows
        plain, with_vector = files, files.slice(0, 0)
        vectors = files["deletion_vector"]
        if deleted_rows or (deletion_vectors and vectors.null_count < files.num_rows):
            has_vector = pc.is_valid(vectors)
            if deleted_rows:
                paths = files["path"]
                has_vector = pc.or_(
                    has_vector, pc.is_in(paths, value_set=pa.array(list(deleted_rows), paths.type))
                )
            plain, with_vector = files.filter(pc.invert(has_vector)), files.filter(has_vector)
        for start in range(0, plain.num_rows, size or 1):
            yield self._source(plain.slice(start, size), None, rows)
        if with_vector.num_rows:
            with_vector, excluded_bitmaps = _plausible(
                scan, with_vector, left_out(scan, with_vector, deleted_rows)
            )
            ends = [bitmap.max() + 1 if bitmap else 0 for bitmap in excluded_bitmaps]
            counts = with_vector["num_records"].to_pylist()
            for start, count in _groups(
                [max(end, bits or 0) for end, bits in zip(ends, counts, strict=True)]
            ):
                yield self._source(
                    with_vector.slice(start, count), excluded_bitmaps[start : start + count], rows
                )

    def _may_mislead(self, kind: DataType) -> bool:
        """Return whether DuckDB gets filters that it pushes into the reader wrong for columns of a type."""
        return isinstance(kind, StructType) or has_float(kind) or (self.shields_text and has_text(kind))

    def _source(
        self, files: pa.Table, bitmaps: Sequence[BitMap64] | None, rows: RowRanges | None
    ) -> ScanSource:
        scan = self.scan
        names = files[_NAME].to_pylist()
        files = files.drop_columns([_NAME])
        partition_names = {name.lower() for name in scan.partition_columns}
        by_occurrence = occurrence_columns(scan)
        select_list: list[str] = []
        plain: list[StructField] = []
        lookup: dict[str, pa.Array] = {}
        fields = [item for item in self.fields if item.name not in by_occurrence]
        for number, item in enumerate(fields):
            if item.type == _VOID:
                value = "NULL"
            elif item.name.lower() in partition_names:
                lookup[f"p{number}"] = scan.partition_column(item, files)
                value = looked_up(f"p{number}")
            else:
                column = self.file_columns[item.name]
                is_filtered = item.name in self.filtered
                value = column.compared if is_filtered else column.value
                if is_filtered and self._may_mislead(item.type):
                    value = whole(value)
                if (stands_for := file_default(item)) is not None:
                    lookup[f"p{number}"] = files[stands_for].combine_chunks()
                    place = " + f.file_row_number" if stands_for == BASE_ROW_ID else ""
                    value = f"coalesce({value}, {looked_up(f'p{number}')}{place})"
                elif not column.may_fail:
                    plain.append(item)
            select_list.append(f"{value} AS {quoted(item.name)}")
        select_list += _POSITIONS if self.positions else ()
        select_list += [add_occurrences(files, lookup)] if by_occurrence else ()
        if bitmaps is not None:
            counts = files["num_records"].to_pylist()
            _check_rows(scan, files, bitmaps)
            lookup["deleted"], lookup["bits"] = _bits(bitmaps, counts)
            bit = f"get_bit({looked_up('deleted')}, CAST(f.file_row_number AS INTEGER)) = {int(scan.marked_only)}"
            if None in counts:
                # This test costs half as much again, so only for files without numRecords.
                bit = f"CASE WHEN f.file_row_number < {looked_up('bits')} THEN {bit} ELSE {not scan.marked_only} END"
            select_list.append(f"{bit} AS {LIVE}")
        read = [each.read for each in self.file_columns.values() if each.read]
        # DuckDB needs at least one column in the schema; no file has this one.
        schema = ", ".join(read or [mapping(INTERNAL("none"), "c", PrimitiveType("boolean"))])
        sql = f"SELECT {', '.join(select_list) or 'NULL AS ' + INTERNAL('none')} FROM {_physical(names, schema, rows)} AS f"  # noqa: S608
        live = None if bitmaps is None else LIVE
        if not lookup:
            return ScanSource(files, names, None, sql, live, _nameable(plain, lookup, len(fields)))
        lookup["names"] = pa.array(names, pa.string())
        bits = "* EXCLUDE (deleted), deleted::BIT[] AS deleted" if bitmaps is not None else "*"
        # DuckDB estimates a scan at one row, and would keep all its rows in memory if the lookup looked larger.
        # With QUALIFY, which is true of its only row, DuckDB expects less than one.
        one = f"SELECT {bits} FROM {LOOKUP} QUALIFY row_number() OVER () = 1"  # noqa: S608
        sql = f"{sql} CROSS JOIN ({one}) AS l"
        # Filter live rows before the join, which would otherwise carry the bits with each row.
        sql = joined(f"SELECT * FROM ({sql}) WHERE {LIVE}", by_occurrence) if by_occurrence else sql  # noqa: S608
        nameable = frozenset[str]() if by_occurrence else _nameable(plain, lookup, len(fields))
        return ScanSource(files, names, as_row(lookup), sql, live, nameable)


def _physical(names: Sequence[str], schema: str, rows: RowRanges | None) -> str:
    """Return what reads the columns of ``schema``, the entries of a JSON object, from files, with the place of each row."""
    # DuckDB binds an SQL map entry by entry, twice, which for thousands of columns takes longer than to read a file.
    read = (
        f"read_parquet({file_list(names)}, schema={string_literal(f'{{{schema}}}')}::JSON::{_SCHEMA}, filename='{FILENAME}', "
        "file_row_number=true, hive_partitioning=false)"
    )
    if rows is None:
        return read
    # What is outside DuckDB does not read: whole row groups, and pages of others.
    inside = " OR ".join(
        f"(file_row_number >= {each.start} AND file_row_number < {each.stop})" for each in rows
    )
    return f"(SELECT *, file_index FROM {read} WHERE {inside})"  # noqa: S608


def _nameable(plain: Sequence[StructField], lookup: Collection[str], columns: int) -> frozenset[str]:
    """Return the columns that a WHERE of the scan's own SELECT can refer to by name.

    In a WHERE, a name refers to an input column before a selected one. Nested columns are excluded:
    DuckDB pushes field extraction, too, see :func:`~delvec_engines.duckdb.file_columns.whole`.
    """
    taken = {"f", "l", FILENAME, "file_row_number", "file_index", *lookup}
    taken |= {f"c{number}" for number in range(columns)}
    flat = (item for item in plain if isinstance(item.type, (PrimitiveType, DecimalType)))
    return frozenset(item.name for item in flat if item.name.lower() not in taken)


def _bits(bitmaps: Sequence[BitMap64], counts: Sequence[int | None]) -> tuple[pa.Array, pa.Array]:
    """Return for each file one bit per row, set if the row is deleted, and the number of bits.

    There are as many bits as rows, or up to the last deleted row if numRecords is unknown. DuckDB fails on a
    row beyond the bits.
    """
    packed_bits = []
    for bitmap, count in zip(bitmaps, counts, strict=True):
        rows = np.frombuffer(bitmap.to_array(), np.uint64)
        # At least one bit: DuckDB has no empty bit string.
        flags = np.zeros(max(1, count or 0, int(rows[-1]) + 1 if len(rows) else 0), np.bool_)
        flags[rows] = True
        packed_bits.append(np.packbits(flags).tobytes())
    return pa.array(packed_bits, pa.large_binary()), pa.array(
        [8 * len(each) for each in packed_bits], pa.int64()
    )


def _plausible(scan: Scan, files: pa.Table, bitmaps: Sequence[BitMap64]) -> tuple[pa.Table, list[BitMap64]]:
    """Return both, with row counts from footers if the log claims very many: a hostile log could exhaust memory."""
    counts, bounded_bitmaps = files["num_records"].to_pylist(), list(bitmaps)
    for number, path in enumerate(files["path"].to_pylist()):
        bitmap = bounded_bitmaps[number]
        if max(counts[number] or 0, bitmap.max() + 1 if bitmap else 0) > _MANY_ROWS:
            try:
                rows = rows_in(scan, path)
            except (OSError, pa.ArrowException):
                # DuckDB's error for the file is more specific.
                rows = 0
            counts[number] = rows
            bounded_bitmaps[number] = bitmap & BitMap64(range(rows))
    position = files.schema.get_field_index("num_records")
    return files.set_column(position, "num_records", pa.array(counts, pa.int64())), bounded_bitmaps


def _check_rows(scan: Scan, files: pa.Table, bitmaps: Sequence[BitMap64]) -> None:
    columns = (files[name].to_pylist() for name in ("path", "num_records"))
    for path, count, bitmap in zip(*columns, bitmaps, strict=True):
        if max(count or 0, bitmap.max() + 1 if bitmap else 0) > _MAX_ROWS - 8:
            raise UnsupportedTable(
                f"The file '{path}' of table '{scan.name}' (version {scan.version}) has a deletion vector and more "
                f"than {_MAX_ROWS:,} rows, which the DuckDB engine cannot address; read it with Spark.",
                table=scan.name,
                version=scan.version,
                file=path,
            )
