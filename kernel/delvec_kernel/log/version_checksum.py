"""Version checksums: ``<version>.crc`` files with totals of a version (PROTOCOL.md, "Version Checksum File").

Readers may verify replay against them, and delta-spark derives the next checksum from the previous one. A missing
checksum is legal; a wrong one is not.

Tested in `tests/integration/service/snapshots/test_version_checksums.py` and
`tests/integration/service/maintenance/test_log_maintenance.py`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from delvec_kernel.actions.action_json import (
    MAX_ACTION_BYTES,
    MalformedActionError,
    json_text,
    present,
    read_integer,
    read_object,
    read_text,
    required_integer,
    shown,
)
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol, Txn
from delvec_kernel.features.table_features import reader_features
from delvec_kernel.snapshot.snapshot import Snapshot

__all__ = ["ChecksumPolicy", "Contradiction", "VersionChecksum", "checksum_name", "contradiction"]

_MAX_LISTED: Final = 100
"""Longer lists of transactions or domains are omitted, since readers load the file with every commit."""


def checksum_name(version: int) -> str:
    """Return the name of a version's checksum in ``_delta_log``."""
    return f"{version:020d}.crc"


@dataclass(frozen=True)
class VersionChecksum:
    """Totals of a version; None where not recorded.

    Attributes:
        txn_id: the transaction id of the commit.
        table_size_bytes: of the live files, without deletion vectors.
        num_files: live files.
        num_deleted_records: total cardinality of the deletion vectors of live files.
        num_deletion_vectors: live files with a deletion vector.
        in_commit_timestamp: milliseconds since the epoch, if the table has them enabled.
        set_transactions: all transaction identifiers.
        domain_metadata: all domains that were not removed.
    """

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    txn_id: str | None = None
    num_deleted_records: int | None = None
    num_deletion_vectors: int | None = None
    in_commit_timestamp: int | None = None
    set_transactions: Sequence[Txn] | None = None
    domain_metadata: Sequence[DomainMetadata] | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, txn_id: str | None) -> Self:
        """Return the checksum of a version that transaction ``txn_id`` committed."""
        with_vectors = "deletionVectors" in reader_features(snapshot.protocol)
        # Readers drop expired transactions, at times that this writer cannot know.
        expiring = "delta.setTransactionRetentionDuration" in snapshot.configuration
        txns = sorted(snapshot.txns.values(), key=lambda txn: txn.app_id)
        domains = sorted(snapshot.domain_metadata.values(), key=lambda item: item.domain)
        has_timestamps = snapshot.in_commit_timestamps_enabled
        return cls(
            table_size_bytes=snapshot.size_in_bytes,
            num_files=snapshot.num_files,
            metadata=snapshot.metadata,
            protocol=snapshot.protocol,
            txn_id=txn_id,
            num_deleted_records=snapshot.num_deleted_rows if with_vectors else None,
            num_deletion_vectors=snapshot.num_deletion_vectors if with_vectors else None,
            in_commit_timestamp=snapshot.in_commit_timestamp if has_timestamps else None,
            set_transactions=None if expiring or len(txns) > _MAX_LISTED else txns,
            domain_metadata=None if len(domains) > _MAX_LISTED else domains,
        )

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """Parse a checksum file; None if it is corrupt or exceeds 64 MiB, which readers treat as missing."""
        if len(data) > MAX_ACTION_BYTES:
            return None
        try:
            json_object = json.loads(data)
            protocol, metadata = read_object(json_object, "protocol"), read_object(json_object, "metadata")
            if protocol is None or metadata is None:
                return None
            return cls(
                table_size_bytes=required_integer(json_object, "tableSizeBytes"),
                num_files=required_integer(json_object, "numFiles"),
                metadata=Metadata.from_json(metadata),
                protocol=Protocol.from_json(protocol),
                txn_id=read_text(json_object, "txnId"),
                num_deleted_records=read_integer(json_object, "numDeletedRecordsOpt"),
                num_deletion_vectors=read_integer(json_object, "numDeletionVectorsOpt"),
                in_commit_timestamp=read_integer(json_object, "inCommitTimestampOpt"),
                set_transactions=_listed(json_object.get("setTransactions"), Txn),
                domain_metadata=_listed(json_object.get("domainMetadata"), DomainMetadata),
            )
        except (ValueError, TypeError, AttributeError, RecursionError, MalformedActionError):
            return None

    def serialize(self) -> bytes:
        """Return the content of the file: one JSON object."""
        document = present(
            txnId=self.txn_id,
            tableSizeBytes=self.table_size_bytes,
            numFiles=self.num_files,
            numDeletedRecordsOpt=self.num_deleted_records,
            numDeletionVectorsOpt=self.num_deletion_vectors,
            numMetadata=1,
            numProtocol=1,
            inCommitTimestampOpt=self.in_commit_timestamp,
            setTransactions=_documents(self.set_transactions),
            domainMetadata=_documents(self.domain_metadata),
            metadata=self.metadata.to_json(),
            protocol=self.protocol.to_json(),
        )
        return json_text(document).encode()


def _documents(actions: Sequence[Txn | DomainMetadata] | None) -> list[dict[str, Any]] | None:
    return None if actions is None else [action.to_json() for action in actions]


def _listed(found: Any, kind: Any) -> list[Any] | None:
    return None if found is None else [kind.from_json(item) for item in found]


ChecksumPolicy: TypeAlias = Literal["check", "warn", "ignore"]
"""What to do if a checksum contradicts the log: reject the version, log a warning, or skip the check."""


@dataclass(frozen=True)
class Contradiction:
    """A field in which a version differs from its checksum.

    Attributes:
        field: as named in the checksum.
        said: the value in the checksum.
        found: the value from replay.
    """

    field: str
    said: str
    found: str


def contradiction(checksum: VersionChecksum, snapshot: Snapshot) -> Contradiction | None:
    """Return the first field that differs, or None.

    Transactions are compared only for applications that both sides know, since writers expire them at different times.
    The in-commit timestamp is not compared, since only the commit is authoritative for it.
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
