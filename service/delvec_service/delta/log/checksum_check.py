"""Whether a version is what its checksum says (PROTOCOL.md, "Version Checksum File")."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from delvec_service.delta.actions import Metadata, Protocol
from delvec_service.delta.log.log_json import shown
from delvec_service.delta.log.version_checksum import VersionChecksum
from delvec_service.delta.snapshot import Snapshot

__all__ = ["ChecksumPolicy", "Contradiction", "contradiction"]

ChecksumPolicy: TypeAlias = Literal["check", "warn", "ignore"]
"""What to do about a checksum that contradicts the log: refuse the version, say so in the service's log, or not look."""


@dataclass(frozen=True)
class Contradiction:
    """One field in which a version differs from its checksum.

    Attributes:
        field: as the checksum spells it.
        said: by the checksum.
        found: by replay.
    """

    field: str
    said: str
    found: str


def contradiction(checksum: VersionChecksum, snapshot: Snapshot) -> Contradiction | None:
    """Return the first field in which they differ, or None.

    Transactions are compared where both know the application: they expire, and each writer decides when. The
    in-commit timestamp is not compared: it is the commit's to say.
    """
    for field, said, found in _pairs(checksum, snapshot):
        if said is not None and said != found:
            return Contradiction(field, shown(said), shown(found))
    return None


def _pairs(checksum: VersionChecksum, snapshot: Snapshot) -> Iterator[tuple[str, Any, Any]]:
    yield "numFiles", checksum.num_files, snapshot.num_files
    yield "tableSizeBytes", checksum.table_size_bytes, snapshot.size_in_bytes
    yield "numDeletionVectorsOpt", checksum.num_deletion_vectors, snapshot.num_deletion_vectors
    yield "numDeletedRecordsOpt", checksum.num_deleted_records, snapshot.num_deleted_rows
    yield "protocol", _protocol(checksum.protocol), _protocol(snapshot.protocol)
    said, found = _metadata(checksum.metadata), _metadata(snapshot.metadata)
    for name in said:
        yield f"metadata.{name}", said[name], found[name]
    if checksum.set_transactions is not None:
        known = {txn.app_id: txn.version for txn in checksum.set_transactions if txn.app_id in snapshot.txns}
        yield "setTransactions", known, {app_id: snapshot.txns[app_id].version for app_id in known}
    if checksum.domain_metadata is not None:
        domains = {one.domain: one.configuration for one in checksum.domain_metadata if not one.removed}
        live = {name: one.configuration for name, one in snapshot.domain_metadata.items()}
        yield "domainMetadata", domains, live


def _protocol(protocol: Protocol) -> tuple[int, int, frozenset[str], frozenset[str]]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )


def _metadata(metadata: Metadata) -> Mapping[str, Any]:
    try:
        schema = json.loads(metadata.schema_string)
    except (ValueError, RecursionError):
        schema = metadata.schema_string
    return {
        "id": metadata.id,
        "schemaString": schema,
        "partitionColumns": metadata.partition_columns,
        "configuration": dict(metadata.configuration),
    }
