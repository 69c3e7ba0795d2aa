"""CONVERT of an Iceberg table: a Delta log with its data files, and deletion vectors for its deleted rows.

Tested in `tests/integration/client/test_iceberg_import.py`.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from pyroaring import BitMap64

from delvec_contract.tables import ConvertRequest
from delvec_errors import DelvecError, LocationNotAllowed
from delvec_kernel import locations
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import Action, AddFile, DomainMetadata, Metadata, Protocol
from delvec_kernel.alter_table.definition import Definition
from delvec_kernel.alter_table.first_version import first_version
from delvec_kernel.deletion_vectors import dv_packing
from delvec_kernel.schema.column_mapping import MAX_COLUMN_ID, MODE
from delvec_kernel.schema.types import StructType
from delvec_kernel.transaction.cloning import Clone, first_version_of
from delvec_service.cloning.iceberg_columns import ColumnsInFiles, delta_schema
from delvec_service.cloning.iceberg_deletes import deleted_rows
from delvec_service.cloning.iceberg_files import footers, partition_columns, statistics
from delvec_service.cloning.iceberg_manifests import IcebergDataFile, SnapshotFiles, snapshot_files
from delvec_service.cloning.iceberg_metadata import IcebergSource, load_table, refusal
from delvec_service.store.objects import ObjectStore
from delvec_storage.files import Allowed

__all__ = ["Imported", "import_iceberg", "remove_vectors"]

_WIDENING: Final = "delta.enableTypeWidening"


@dataclass(frozen=True)
class Imported:
    """Version 0 of the new table.

    Attributes:
        metrics: Delta's operationMetrics.
        vectors: the deletion vector files that were written, relative to the table's location.
    """

    actions: Sequence[Action]
    metrics: dict[str, int]
    vectors: Sequence[str]


def import_iceberg(
    canonical: str,
    source: str,
    request: ConvertRequest,
    is_allowed: Allowed,
    *,
    properties: Mapping[str, str],
    transaction_id: str,
    engine_info: str,
) -> Imported:
    """Write the deletion vectors of a table with the data files of an Iceberg table; return its first version.

    Args:
        canonical: location of the Delta table.
        source: canonical URL of the Iceberg table's directory, or of one of its metadata files.
        request: the other options.
        is_allowed: decides by URL what may be read, and what the log may refer to.
        properties: the properties of the Delta table.
        transaction_id: the transaction id of version 0.
        engine_info: for its commitInfo.

    Raises:
        UnsupportedOperation: the table uses something that Delta does not support; the message names it.
        BadRequest: there is no Iceberg table.
        InvalidTableChange: its files contradict each other, or are missing.
        LocationNotAllowed: a file is outside the roots.
        StorageError: storage did not answer.
    """
    table = load_table(source, is_allowed)
    schema = delta_schema(table)
    files = snapshot_files(table, is_allowed)
    _check_roots(table, files, is_allowed)
    partitions = partition_columns(table, schema, files.data)
    by_name = {field.name: field.field_id for field in schema.fields}
    columns = ColumnsInFiles(table, schema, frozenset(by_name[name] or 0 for name in partitions))
    has = {
        file.url: columns.take(file.path, footer) for file, footer in footers(table, files.data, is_allowed)
    }
    _check_partition_columns(table, files.data, columns, has)
    mode, mapped_schema = columns.mapped()
    now = time.time_ns() // 1_000_000
    clone = _definition(
        table,
        schema,
        mapped_schema,
        list(partitions),
        request,
        properties,
        mode=mode,
        widens=columns.widens_types,
        now=now,
    )
    rows = deleted_rows(table, files.data, files.deletes, is_allowed)
    # Readers gain nothing from a file whose rows are all deleted.
    live = [file for file in files.data if len(rows.get(file.url, ())) < file.records or not file.records]
    adds = [
        AddFile(
            path=_log_path(file, canonical),
            partition_values={
                mapped_schema.field(name).physical_name: texts[file.url] for name, texts in partitions.items()
            },
            size=file.size,
            modification_time=file.modified,
            stats=statistics(
                file, mapped_schema, list(partitions), clone.metadata.configuration, has[file.url]
            )
            if request.collect_statistics
            else None,
        )
        for file in live
    ]
    vectors = [(add.path, rows[file.url]) for add, file in zip(adds, live, strict=True) if file.url in rows]
    with_vectors, vector_paths = _with_vectors(
        adds, vectors, canonical, clone.metadata.configuration, is_allowed
    )
    metrics = {
        "numConvertedFiles": len(adds),
        "numDeletionVectorsAdded": len(vectors),
        "numDeletedRows": sum(len(bitmap) for _, bitmap in vectors),
    }
    actions = first_version_of(
        clone,
        with_vectors,
        location=canonical,
        parameters={
            "numFiles": len(adds),
            "partitionedBy": json.dumps(list(partitions), separators=(",", ":"), ensure_ascii=False),
            "collectStats": request.collect_statistics,
            "sourceFormat": "iceberg",
            "sourceMetadata": table.metadata,
            "sourceSnapshotId": str(table.snapshot_id),
        },
        metrics=metrics,
        transaction_id=transaction_id,
        engine_info=engine_info,
        now=now,
        operation="CONVERT",
    )
    return Imported(actions, metrics, vector_paths)


def remove_vectors(canonical: str, vectors: Sequence[str], is_allowed: Allowed) -> None:
    """Delete deletion vector files that no version refers to."""
    objects = ObjectStore(canonical, is_allowed=is_allowed)
    for path in vectors:
        with suppress(DelvecError):
            objects.delete(path)


def _check_roots(table: IcebergSource, files: SnapshotFiles, is_allowed: Allowed) -> None:
    named = [(file.url, file.path) for file in files.data] + [(file.url, file.path) for file in files.deletes]
    for url, path in named:
        if not is_allowed(url):
            raise LocationNotAllowed(
                f"The Iceberg table at {table.location} cannot be imported: its file {url} is outside the roots "
                "that tables may use; add its directory to the service's DELVEC_ROOTS, or to roots= of connect().",
                location=table.location,
                file=path,
            )


def _check_partition_columns(
    table: IcebergSource,
    files: Sequence[IcebergDataFile],
    columns: ColumnsInFiles,
    has: Mapping[str, frozenset[int]],
) -> None:
    """Reject files that leave a column's value to their partition, unless it is a Delta partition column."""
    for file in files:
        fields = zip(table.specs.get(file.partition.spec_id, ()), file.partition.values, strict=False)
        for field, value in fields:
            known = has[file.url] | columns.elsewhere
            if field.transform == "identity" and value is not None and field.source_id not in known:
                raise refusal(
                    table.location,
                    f"'{file.path}' lacks the column with field id {field.source_id}, whose value is in its "
                    "partition, and the partition specs of other files differ. Rewrite it with Iceberg first.",
                    file=file.path,
                )


def _definition(
    table: IcebergSource,
    schema: StructType,
    mapped_schema: StructType,
    partitions: Sequence[str],
    request: ConvertRequest,
    properties: Mapping[str, str],
    *,
    mode: str,
    widens: bool,
    now: int,
) -> Clone:
    """Return protocol and metadata; columns keep Iceberg's field ids."""
    wanted = {**properties, MODE: mode, **({_WIDENING: "true"} if widens else {})}
    empty = first_version(
        Definition(schema, partitions, wanted, request.description),
        metadata_id=str(uuid.uuid4()),
        transaction_id="",
        engine_info="",
        now=now,
    )
    [protocol] = [action for action in empty if isinstance(action, Protocol)]
    [metadata] = [action for action in empty if isinstance(action, Metadata)]
    configuration = {**metadata.configuration, MAX_COLUMN_ID: str(table.last_column_id)}
    return Clone(
        replace(
            metadata,
            schema_string=json_text(mapped_schema.to_json()),
            configuration=configuration,
            created_time=now,
        ),
        protocol,
        tuple(action for action in empty if isinstance(action, DomainMetadata)),
    )


def _log_path(file: IcebergDataFile, canonical: str) -> str:
    """Return the path of a file in the log: relative if it is in the table's own directory."""
    if locations.within(file.url, canonical):
        return locations.log_path(unquote(locations.relative_to(canonical, file.url)))
    # Hadoop and the Rust readers support s3a; Hadoop without connector settings does not support s3.
    return locations.spark_file_path(f"s3a{file.url[2:]}" if file.url.startswith("s3://") else file.url)


def _with_vectors(
    adds: Sequence[AddFile],
    vectors: Sequence[tuple[str, BitMap64]],
    canonical: str,
    configuration: Mapping[str, str],
    is_allowed: Allowed,
) -> tuple[list[AddFile], list[str]]:
    """Write the deletion vectors; return the files with them, and the paths of the deletion vector files."""
    packed_files = dv_packing.pack(vectors, prefix_length=dv_packing.prefix_length(configuration))
    objects = ObjectStore(canonical, is_allowed=is_allowed)
    vector_paths: list[str] = []
    try:
        for one in packed_files:
            vector_paths.append(one.path)
            objects.put(one.path, one.content)
    except DelvecError:
        remove_vectors(canonical, vector_paths, is_allowed)
        raise
    descriptors = {path: descriptor for one in packed_files for path, descriptor in one.entries.items()}
    return [replace(add, deletion_vector=descriptors.get(add.path)) for add in adds], vector_paths
