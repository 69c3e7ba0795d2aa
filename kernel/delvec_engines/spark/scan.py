"""A planned scan as a Spark DataFrame of live rows.

Files without a deletion vector are read in a separate branch, without the cost of the filter.
Deletion vectors and partition values are looked up as :mod:`~delvec_engines.spark.file_values`.

Tested in `tests/integration/spark/test_spark_scan.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql import types as T  # noqa: N812

from delvec_engines.internal_names import INTERNAL
from delvec_engines.protocol import mark
from delvec_engines.repeated_rows import RepeatedRows, occurrence_columns
from delvec_engines.row_ids import BASE_ROW_ID, file_default
from delvec_engines.scan import Scan
from delvec_engines.spark import failures, jvm
from delvec_engines.spark.dv_filter import (
    DENSE_LIMIT,
    BitSets,
    VectorSource,
    estimated_bytes,
    is_live,
    is_live_in_task,
)
from delvec_engines.spark.file_columns import FileColumn, parts_of
from delvec_engines.spark.file_values import (
    FILE,
    SUBQUERY_LIMIT,
    FileValue,
    attach,
    constant,
    never_null,
    repeated,
)
from delvec_engines.spark.manifest import ManifestStore, file_numbers, hadoop_path
from delvec_engines.spark.session_properties import is_remote
from delvec_engines.spark.stored_schemas import stored_schemas
from delvec_errors import UnsupportedTable
from delvec_kernel.schema.column_mapping import is_mapped
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    GeospatialType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

__all__ = ["BROADCAST_LIMIT", "ROW", "ScanFrames", "spark_schema"]

ROW: Final = INTERNAL("row")
"""Column with the physical row index."""
BROADCAST_LIMIT: Final = 128 << 20
"""Maximum bytes of bit sets of deleted rows that the driver broadcasts."""

_MAX_ROWS: Final = 1 << 28
"""Maximum deleted rows that the driver converts to bit sets, which takes 8 bytes each temporarily."""
_MIN_SIZE_RATIO: Final = 8
"""Files without deletion vectors are read with the others if they are so many times fewer bytes: a second scan took 30 of 350 ms."""
_VOID: Final = PrimitiveType("void")
_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}
_IGNORE_METADATA: Final = "spark.sql.streaming.fileStreamSink.ignoreMetadata"


def spark_schema(schema: StructType) -> T.StructType:
    """Return the Spark schema, with comments, but without metadata for writers."""
    fields = [
        _logical(item) | {"metadata": _metadata(item)} | ({"type": "void"} if item.type == _VOID else {})
        for item in schema.fields
    ]
    return T.StructType.fromJson({"type": "struct", "fields": fields})


class ScanFrames:
    """Builds the DataFrames of one session.

    Args:
        spark: classic or Connect.
        manifests: writes file lists.
        subquery_limit: maximum bytes of values per file in scalar subqueries.
        dense_limit: maximum bytes of dense bit sets.
        broadcast_limit: maximum bytes of broadcast bit sets; above it, tasks read deletion vectors themselves.
    """

    def __init__(
        self,
        spark: SparkSession,
        manifests: ManifestStore,
        *,
        subquery_limit: int = SUBQUERY_LIMIT,
        dense_limit: int = DENSE_LIMIT,
        broadcast_limit: int = BROADCAST_LIMIT,
    ) -> None:
        self.spark = spark
        self._manifests = manifests
        self._subquery_limit = subquery_limit
        self._dense_limit = dense_limit
        self._broadcast_limit = broadcast_limit

    def in_tasks(self, scan: Scan) -> bool:
        """Whether tasks read the deletion vectors themselves, because they are too large for a broadcast."""
        return scan.has_deletion_vectors and estimated_bytes(scan) > self._broadcast_limit

    def live(
        self,
        scan: Scan,
        columns: Sequence[str],
        *,
        deleted_rows: Mapping[str, BitMap64] | None = None,
        strict: bool = False,
    ) -> DataFrame:
        """Return the live rows with these columns.

        Args:
            scan: the files.
            columns: in this order.
            deleted_rows: rows to leave out, by path, instead of those in the scan's deletion vectors.
            strict: whether filters on the frame may only be evaluated for live rows.

        Raises:
            CorruptDeletionVector: or a subclass; a deletion vector cannot be read.
            UnsupportedTable: with the session's settings, Spark would read wrong rows.
            EngineUnavailable: Spark cannot read from that storage.
        """
        schema = _as_is(scan, scan.schema.select(columns))
        if not len(scan):
            kind = spark_schema(schema)
            for item, field in zip(schema.fields, kind.fields, strict=True):
                field.nullable = item.nullable
            nothing = self.spark.createDataFrame([], kind)
            return nothing.alias(mark(scan)) if mark(scan) else nothing
        if deleted_rows is None:
            with_dv = pc.is_valid(scan.files["deletion_vector"])
        else:
            with_dv = pc.is_in(scan.files["path"], pa.array(list(deleted_rows), pa.string()))
        with_dv = with_dv.combine_chunks()
        if deleted_rows is None and not scan.marked_only and _are_few_without(scan, with_dv):
            with_dv = pa.repeat(True, len(scan))
        without, having = scan.filter(pc.invert(with_dv)), scan.filter(with_dv)
        branches = []
        if len(without):
            branches.append(self._branch(without, schema, None))
        if len(having):
            branches.append(self._branch(having, schema, _ExcludedRows(deleted_rows, strict=strict)))
        frame = branches[0] if len(branches) == 1 else branches[0].union(branches[1])
        if not any(map(_metadata, schema.fields)):
            return frame
        return frame.select(*map(_with_metadata, schema.fields))

    def located(
        self,
        scan: Scan,
        columns: Sequence[str],
        numbers: list[int],
        *,
        only_live: bool = False,
    ) -> DataFrame:
        """Return physical rows with these columns, :data:`FILE` and :data:`ROW`.

        Args:
            scan: not empty.
            columns: columns that the predicate reads.
            numbers: file numbers for :data:`FILE`, in the order of the scan's files.
            only_live: leave out deleted rows before any filter on the frame.
        """
        schema = _nullable(scan.schema.select(columns))
        deleted = _ExcludedRows(None, strict=True) if only_live and scan.has_deletion_vectors else None
        return self._facts(scan, self._files(scan, schema, numbers), numbers, schema, deleted, {})

    def _branch(self, scan: Scan, schema: StructType, excluded_rows: "_ExcludedRows | None") -> DataFrame:
        numbers = file_numbers(len(scan))
        constant_columns, repeats = _constants(scan, schema), bool(occurrence_columns(scan))
        varying = _partition_names(scan) - constant_columns.keys()
        # Spark generates row indexes even if a later step drops them, so only request them if needed.
        with_positions = (
            repeats
            or excluded_rows is not None
            or any(item.name in varying or file_default(item) is not None for item in schema.fields)
        )
        frame = self._files(scan, schema, numbers, with_positions=with_positions)
        frame = self._facts(scan, frame, numbers, schema, excluded_rows, constant_columns)
        if repeats:
            frame = repeated(self.spark, frame, F.expr(RepeatedRows.key(FILE, ROW)), scan, numbers)
        if repeats or _partition_names(scan) & set(schema.names):
            return frame.select(*(backticked(item.name) for item in schema.fields))
        return frame.drop(FILE, ROW) if with_positions else frame

    def _files(
        self, scan: Scan, schema: StructType, numbers: list[int], *, with_positions: bool = True
    ) -> DataFrame:
        """Return the physical rows of the files with the data columns of ``schema``, and FILE and ROW if ``with_positions``."""
        self._check_session(scan)
        partition = _partition_names(scan) | occurrence_columns(scan)
        stored = StructType(tuple(item for item in schema.fields if item.name not in partition))
        schemas = stored_schemas(self.spark, scan) if stored.fields else [None] * len(scan)
        parts = parts_of(scan, stored, schemas)
        if len(parts) == 1:
            return self._alike(scan, parts[0].columns, numbers, with_positions=with_positions)
        by_path = dict(zip(scan.files["path"].to_pylist(), numbers, strict=True))
        frames = [
            self._alike(
                part.scan,
                part.columns,
                [by_path[path] for path in part.scan.files["path"].to_pylist()],
                with_positions=with_positions,
            )
            for part in parts
        ]
        return reduce(lambda left, right: left.union(right), frames)

    def _alike(
        self, scan: Scan, file_columns: Sequence[FileColumn], numbers: list[int], *, with_positions: bool
    ) -> DataFrame:
        """Return the physical rows of files whose columns are read alike."""
        mode = "name" if is_mapped(scan.configuration) else "none"
        frame = (
            self.spark.read.schema(
                T.StructType.fromJson(
                    {
                        "type": "struct",
                        "fields": [
                            _physical(replace(each.item, type=each.read), mode)
                            for each in file_columns
                            if each.item.type != _VOID
                        ],
                    }
                )
            )
            # Prevents partition discovery from paths.
            .option("recursiveFileLookup", "true")
            .option("ignoreMissingFiles", "false")
            .option("ignoreCorruptFiles", "false")
            .parquet(self._manifests.write(scan, numbers))
        )
        converts = any(each.convert is not None for each in file_columns)
        # metadataColumn(), because a table may have a column named _metadata.
        metadata = frame.metadataColumn("_metadata") if with_positions or converts else None
        columns = [_computed(each, mode, metadata) for each in file_columns]
        places: list[Column] = []
        if with_positions and metadata is not None:
            places.append(F.unix_millis(metadata["file_modification_time"]).cast("int").alias(FILE))
            places.append(metadata["row_index"].alias(ROW))
        if any(column is not None for column in columns):
            named = (
                _named(each, mode) if column is None else column
                for column, each in zip(columns, file_columns, strict=True)
            )
            return frame.select(*named, *places)
        # All at once: each Column takes ten calls of the JVM, and many a table has hundreds.
        frame = frame.select("*", *places) if places else frame
        names = [each.item.name for each in file_columns]
        return frame if mode == "none" else frame.toDF(*names, *([FILE, ROW] if places else []))

    def _facts(
        self,
        scan: Scan,
        frame: DataFrame,
        numbers: list[int],
        schema: StructType,
        excluded_rows: "_ExcludedRows | None",
        constant_columns: Mapping[str, Column],
    ) -> DataFrame:
        """Add partition columns, and filter deleted rows; ``constant_columns`` has partition columns equal for all files."""
        if constant_columns:
            kinds = {item.name: item for item in schema.fields}
            frame = frame.select(
                "*",
                *(
                    (
                        column if kinds[name].nullable else never_null(column, _spark_type(kinds[name].type))
                    ).alias(name)
                    for name, column in constant_columns.items()
                ),
            )
        varying = _partition_names(scan) - constant_columns.keys()
        partition = [item for item in schema.fields if item.name in varying]
        tracked_fields = [item for item in schema.fields if file_default(item) is not None]
        if not partition and not tracked_fields and excluded_rows is None:
            return frame
        facts = [_partition_fact(scan, item) for item in partition]
        facts += [
            FileValue(scan.files[file_default(item)].combine_chunks(), T.LongType(), nullable=True)
            for item in tracked_fields
        ]
        sets = self._bit_sets(scan, excluded_rows) if excluded_rows is not None else None
        if excluded_rows is not None and sets is None:
            source = VectorSource.of(scan, numbers, excluded_rows.rows)
            live = is_live_in_task(source, F.col(FILE), F.col(ROW), strict=excluded_rows.strict)
            frame = frame.filter(~live if scan.marked_only else live)
        if sets is not None:
            facts += [
                FileValue(values, T.ArrayType(_spark_number(values)), nullable=False)
                for values in sets.columns.values()
            ]
        if not facts:
            return frame
        attached, value_columns = attach(
            self.spark, frame, numbers, facts, subquery_limit=self._subquery_limit
        )
        is_joined = attached is not frame
        if sets is not None:
            columns = dict(
                zip(sets.columns, value_columns[len(partition) + len(tracked_fields) :], strict=True)
            )
            live = is_live(columns, F.col(ROW), is_dense=sets.is_dense)
            attached = attached.filter(~live if scan.marked_only else live)
        if not (is_joined or partition or tracked_fields):
            return attached
        partition_columns = [
            (column if item.nullable else never_null(column, _spark_type(item.type))).alias(item.name)
            for column, item in zip(value_columns, partition, strict=False)
        ]
        ids = {
            item.name: _with_fact(item, fact)
            for item, fact in zip(tracked_fields, value_columns[len(partition) :], strict=False)
        }
        names = (ids.get(name, backticked(name)) for name in frame.columns)
        return attached.select(*names, *partition_columns)

    def _bit_sets(self, scan: Scan, deleted: "_ExcludedRows") -> BitSets | None:
        """Return the bit sets to broadcast; None if they are too large."""
        rows = deleted.rows
        if rows is None:
            if self.in_tasks(scan):
                return None
            rows = scan.deletion_vectors
        if sum(map(len, rows.values())) > _MAX_ROWS:
            # The estimate came from row counts in the log; the real size is only known now.
            return None
        paths = scan.files["path"].to_pylist()
        sets = BitSets.of([rows.get(path, BitMap64()) for path in paths], dense_limit=self._dense_limit)
        return sets if sets.nbytes <= self._broadcast_limit else None

    def _check_session(self, scan: Scan) -> None:
        if str(self.spark.conf.get(_IGNORE_METADATA, "false")).lower() == "true":
            raise UnsupportedTable(
                f"This Spark session has {_IGNORE_METADATA}=true, so Spark would not find the list of files to read "
                f"for table '{scan.name}'; unset it",
                table=scan.name,
                setting=_IGNORE_METADATA,
            )
        # Check now: later, the lazy frame would fail with a ClassNotFoundException on an executor.
        scheme = hadoop_path(scan.location).partition("://")[0]
        if scheme not in ("file", "memory") and not is_remote(self.spark):
            self._check_file_system(scan, scheme)

    def _check_file_system(self, scan: Scan, scheme: str) -> None:
        refused = failures.of_session(jvm.file_system_error(self.spark, scheme) or "", scan)
        if refused is not None:
            raise refused


@dataclass(frozen=True)
class _ExcludedRows:
    """The rows to leave out.

    Attributes:
        rows: by path; None for those in the files' deletion vectors.
        strict: whether later filters may only be evaluated for live rows.
    """

    rows: Mapping[str, BitMap64] | None
    strict: bool


def _are_few_without(scan: Scan, with_dv: pa.Array) -> bool:
    """Whether the files without deletion vectors are so small that testing their rows costs less than a second scan."""
    total, having = pc.sum(scan.files["size"]).as_py(), pc.sum(scan.files["size"].filter(with_dv)).as_py()
    return having is not None and (total - having) * _MIN_SIZE_RATIO <= having


def _with_fact(item: StructField, fact: Column) -> Column:
    """Return a column whose NULLs are replaced by the file's default, see ``row_ids.file_default``."""
    found = fact + F.col(ROW) if file_default(item) == BASE_ROW_ID else fact
    return F.coalesce(_column(item.name), found).alias(item.name)


def _as_is(scan: Scan, schema: StructType) -> StructType:
    """Return the columns, as NOT NULL only if statistics prove that these files have no NULL.

    Spark relies on NOT NULL and computes wrong results if a NULL is present; a careless writer may have written one.
    """
    wanted = [item.name for item in schema.fields if not item.nullable]
    if not wanted:
        return schema
    partition = _partition_names(scan)
    nulls = _null_counts(scan) if set(wanted) - partition else []
    mapped = is_mapped(scan.configuration)

    def has_none(item: StructField) -> bool:
        if item.name in partition:
            return bool(scan.partition_column(item).null_count == 0)
        name = item.physical_name if mapped else item.name
        return all(counts.get(name) == 0 for counts in nulls)

    return StructType(
        tuple(replace(item, nullable=item.nullable or not has_none(item)) for item in schema.fields)
    )


def _null_counts(scan: Scan) -> list[Mapping[str, Any]]:
    """Return the nullCount of each column in each file's statistics."""
    texts = scan.files["stats"].to_pylist()
    return [json.loads(text).get("nullCount") or {} if text else {} for text in texts]


def _nullable(schema: StructType) -> StructType:
    return StructType(tuple(replace(item, nullable=True) for item in schema.fields))


def _partition_names(scan: Scan) -> set[str]:
    return {scan.schema.field(name).name for name in scan.partition_columns}


def _constants(scan: Scan, schema: StructType) -> dict[str, Column]:
    """Return the partition columns with a single value in all files, which need no lookup by file."""
    names = _partition_names(scan)
    constant_columns = {
        item.name: constant(_partition_fact(scan, item))
        for item in schema.fields
        # Compare the texts first, which avoids parsing the values.
        if item.name in names and len(_partition_texts(scan, item).unique()) == 1
    }
    return {name: value for name, value in constant_columns.items() if value is not None}


def _partition_fact(scan: Scan, item: StructField) -> FileValue:
    return FileValue(scan.partition_column(item), _spark_type(item.type), nullable=True)


def _partition_texts(scan: Scan, item: StructField) -> pa.StringArray:
    name = item.physical_name if is_mapped(scan.configuration) else item.name
    return pc.map_lookup(scan.files["partition_values"].combine_chunks(), pa.scalar(name), "first")


def _with_metadata(item: StructField) -> Column | str:
    """Return a column with the metadata for readers."""
    metadata = _metadata(item)
    return _column(item.name).alias(item.name, metadata=metadata) if metadata else backticked(item.name)


def _column(name: str) -> Column:
    return F.col(backticked(name))


# --- schemas ------------------------------------------------------------------------------------------------


def _spark_type(kind: DataType) -> T.DataType:
    (item,) = spark_schema(StructType((StructField("x", kind),))).fields
    return item.dataType


def _spark_number(lists: pa.Array) -> T.DataType:
    return T.IntegerType() if lists.type.value_type == pa.int32() else T.LongType()


def _metadata(item: StructField) -> dict[str, Any]:
    return {"comment": item.metadata["comment"]} if "comment" in item.metadata else {}


def _logical(item: StructField) -> dict[str, Any]:
    return {"name": item.name, "type": _logical_type(item.type), "nullable": True, "metadata": {}}


def _logical_type(kind: DataType) -> Any:
    return _mapped_type(kind, _logical)


def _physical(item: StructField, mode: str) -> dict[str, Any]:
    """Return the field as stored in files: with physical names if column mapping is on, and field ids."""
    name = _stored_name(item, mode)
    by_id = mode == "id" and item.field_id is not None
    return {
        "name": name,
        "type": _mapped_type(_readable(item), lambda inner: _physical(replace(inner, nullable=True), mode)),
        # Spark keeps NOT NULL for files in a manifest, but not for those of a directory.
        "nullable": item.nullable,
        "metadata": {"parquet.field.id": item.field_id} if by_id else {},
    }


def _readable(item: StructField) -> DataType:
    """Return the type for reading: Spark requires decimals that can hold every value of a widened integer column."""
    before = [change.get("fromType") for change in item.metadata.get("delta.typeChanges") or ()]
    digits = max((_DIGITS.get(str(name), 0) for name in before), default=0)

    def wide(kind: DataType) -> DataType:
        if isinstance(kind, ArrayType):
            return ArrayType(wide(kind.element), kind.contains_null)
        if isinstance(kind, MapType):
            return MapType(wide(kind.key), wide(kind.value), kind.value_contains_null)
        if isinstance(kind, DecimalType) and kind.precision - kind.scale < digits:
            return DecimalType(digits + kind.scale, kind.scale)
        return kind

    return wide(item.type) if digits else item.type


def _mapped_type(kind: DataType, field: Any) -> Any:
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [field(item) for item in kind.fields]}
    if isinstance(kind, ArrayType):
        return {
            "type": "array",
            "elementType": _mapped_type(kind.element, field),
            "containsNull": kind.contains_null,
        }
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "keyType": _mapped_type(kind.key, field),
            "valueType": _mapped_type(kind.value, field),
            "valueContainsNull": kind.value_contains_null,
        }
    if isinstance(kind, GeospatialType):
        # As binary: Spark's geospatial types use their own form of WKB, and its Parquet reader does not support them.
        return kind.name
    # Files have no void columns, so any type will do for void nested in other types.
    return "integer" if kind == _VOID else kind.to_json()


def _computed(column: FileColumn, mode: str, metadata: Column | None) -> Column | None:
    """Return a stored column as the table's; None if it differs at most in its name."""
    item = column.item
    if item.type == _VOID:
        return F.lit(None).alias(item.name)
    if column.convert is not None and metadata is not None:
        value = column.convert(_column(_stored_name(item, mode)), metadata["file_path"])
    elif _physical(item, mode)["type"] == _logical(item)["type"]:
        return None
    else:
        value = _column(_stored_name(item, mode))
    # A positional cast renames nested fields.
    return value.cast(_spark_type(item.type)).alias(item.name)


def _named(column: FileColumn, mode: str) -> Column:
    return _column(_stored_name(column.item, mode)).alias(column.item.name)


def _stored_name(item: StructField, mode: str) -> str:
    return item.name if mode == "none" else item.physical_name
