"""CONVERT TO DELTA: Parquet files, of a directory or an Iceberg table, become a table; only a log is written.

Tested in `tests/integration/client/test_convert.py`.
"""

import json
import time
import uuid
from dataclasses import dataclass, replace
from typing import Final

from delvec_contract.tables import ConvertRequest
from delvec_errors import (
    BadRequest,
    CommitOutcomeUnknown,
    DelvecError,
    InvalidTableChange,
    UnsupportedOperation,
)
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol
from delvec_kernel.alter_table.definition import Definition
from delvec_kernel.alter_table.first_version import first_version
from delvec_kernel.locations import within
from delvec_kernel.schema.column_mapping import MODE
from delvec_kernel.schema.types import StructField, StructType
from delvec_kernel.transaction.cloning import Clone, first_version_of
from delvec_service.cloning.iceberg_import import import_iceberg, remove_vectors
from delvec_service.cloning.iceberg_metadata import iceberg_directory
from delvec_service.cloning.parquet_directory import ParquetDirectory
from delvec_service.store.clones import CloneStore
from delvec_service.store.objects import ObjectStore
from delvec_service.store.registry import TableRecord
from delvec_service.tables.new_table import ENGINE_INFO
from delvec_service.tables.places import UNRESTRICTED, Requester
from delvec_service.tables.registry import Tables
from delvec_storage.roots import Roots

__all__ = ["Converted", "convert"]

_ICEBERG: Final = (".metadata.json", "version-hint.text")


@dataclass(frozen=True)
class Converted:
    """The result.

    Attributes:
        version: the created version; None if it already was a table.
        metrics: Delta's operationMetrics.
    """

    record: TableRecord
    version: int | None
    metrics: dict[str, int]


def convert(
    tables: Tables,
    clones: CloneStore,
    request: ConvertRequest,
    transaction_id: str,
    requester: Requester = UNRESTRICTED,
) -> Converted:
    """Turn a directory of Parquet files or an Iceberg table into a Delta table once, even if requested repeatedly.

    Args:
        tables: determines where tables may be.
        clones: records that the table needs the files of an Iceberg table elsewhere.
        request: the directory.
        transaction_id: the transaction id of version 0.
        requester: who asks.

    Raises:
        UnsupportedOperation: a directory of Parquet files is an Iceberg table, or an Iceberg table uses something
            that Delta does not support.
        BadRequest: there are no files, or the partition columns differ.
        InvalidTableChange: or a sibling: files contradict each other, or are not suitable for a table.
        LocationNotAllowed: the location is outside the roots, or inside or above another table.
        PermissionDenied: it is not the requester's.
        StorageError: storage did not answer.
    """
    canonical = tables.place(request.location, request.name, transaction_id, requester)
    roots = tables.roots_at(canonical, request.name)
    made = tables.was_begun(canonical, request.name, transaction_id)
    if made is not None:
        # As in delta-spark: it is as requested.
        record, _ = tables.register(canonical, request.name, requester)
        return Converted(record, 0 if made else None, {})
    engine_info = f"{request.engine_info} {ENGINE_INFO}" if request.engine_info else ENGINE_INFO
    if request.source_format == "iceberg":
        return _convert_iceberg(
            tables, clones, roots, request, canonical, transaction_id, engine_info, requester
        )
    roots = tables.roots_of_files(canonical, roots)
    _check_format(canonical, roots)
    partitions = StructType(())
    if request.partition_schema is not None:
        given = StructType.from_json(request.partition_schema)
        partitions = StructType(tuple(StructField(field.name, field.type) for field in given.fields))
    parquet_directory = ParquetDirectory.read(canonical, partitions, roots.allows)
    now = time.time_ns() // 1_000_000
    columns = [field.name for field in partitions.fields]
    definition = Definition(parquet_directory.schema, columns, _properties(request), request.description)
    metadata_id = str(uuid.uuid4())
    empty = first_version(
        definition,
        metadata_id=metadata_id,
        transaction_id=transaction_id,
        engine_info=engine_info,
        now=now,
    )
    [protocol] = [action for action in empty if isinstance(action, Protocol)]
    [metadata] = [action for action in empty if isinstance(action, Metadata)]
    domains = tuple(action for action in empty if isinstance(action, DomainMetadata))
    adds = parquet_directory.adds(
        parquet_directory.schema, columns, metadata.configuration if request.collect_statistics else None
    )
    metrics = {"numConvertedFiles": len(adds)}
    actions = first_version_of(
        Clone(replace(metadata, created_time=now), protocol, domains),
        adds,
        location=canonical,
        parameters={
            "numFiles": len(adds),
            "partitionedBy": json.dumps(columns, separators=(",", ":"), ensure_ascii=False),
            "collectStats": request.collect_statistics,
            "sourceFormat": request.source_format,
        },
        metrics=metrics,
        transaction_id=transaction_id,
        engine_info=engine_info,
        now=now,
        operation="CONVERT",
    )
    record, version = tables.begin(canonical, request.name, transaction_id, actions, requester)
    return Converted(record, version, metrics)


def _convert_iceberg(
    tables: Tables,
    clones: CloneStore,
    roots: Roots,
    request: ConvertRequest,
    canonical: str,
    transaction_id: str,
    engine_info: str,
    requester: Requester,
) -> Converted:
    if request.partition_schema is not None:
        raise BadRequest("The partition columns of an Iceberg table are in its metadata; leave them out.")
    source = canonical if request.source is None else roots.canonical(request.source)
    home = iceberg_directory(source)
    roots = tables.roots_of_files(canonical, roots, [home])
    iceberg_import = import_iceberg(
        canonical,
        source,
        request,
        roots.allows,
        properties=_properties(request),
        transaction_id=transaction_id,
        engine_info=engine_info,
    )
    if not within(home, canonical):
        clones.record(canonical, home, 0)
    try:
        record, version = tables.begin(
            canonical, request.name, transaction_id, iceberg_import.actions, requester
        )
    except CommitOutcomeUnknown:
        raise
    except DelvecError:
        remove_vectors(canonical, iceberg_import.vectors, roots.allows)
        raise
    return Converted(record, version, iceberg_import.metrics)


def _properties(request: ConvertRequest) -> dict[str, str]:
    for name, value in request.properties.items():
        lower = name.lower()
        if lower.startswith("delta.constraints.") or (
            lower == MODE.lower() and value.strip().lower() != "none"
        ):
            raise InvalidTableChange(
                f"The property '{name}' cannot be set during the conversion, because existing files do not support "
                "it; set it afterwards, when their rows can be checked.",
                property=name,
            )
    return dict(request.properties)


def _check_format(location: str, roots: Roots) -> None:
    """Reject Iceberg tables: their directories contain files that their metadata no longer refers to."""
    objects = ObjectStore(location, is_allowed=roots.allows)
    if any(each.name.endswith(_ICEBERG) for each in objects.list_from("metadata")):
        raise UnsupportedOperation(
            f"{location} is an Iceberg table, and not all Parquet files there belong to it. Import it with the "
            "source format iceberg (`delvec iceberg import`), which reads its metadata.",
            operation="CONVERT",
            location=location,
        )
