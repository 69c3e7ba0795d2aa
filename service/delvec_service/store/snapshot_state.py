"""A snapshot without its files, as bytes; and checksums of what a database may damage.

Tested in `tests/integration/contract/test_snapshot_store.py`.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

import xxhash

from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol, Txn
from delvec_kernel.file_index.file_counts import FileCounts
from delvec_kernel.file_index.live_files import LiveFiles, LiveSegment
from delvec_kernel.log.log_segment import ListedFile
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.store.file_index_engine import FILE_INDEX_ENGINE

__all__ = ["FORMAT", "LogFileId", "StoredSegment", "checksum", "decode_state", "digest", "encode_state"]

FORMAT: Final = 2
"""The format of states and of segments; increase it when the encoding of either changes."""

_SIGNED: Final = 2**63
_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class LogFileId:
    """The log file that identifies a version: a different size or time means another log."""

    name: str
    size: int
    last_modified_ms: int

    @classmethod
    def of(cls, file: ListedFile) -> "LogFileId":
        """Return the mark of a file in a listing."""
        return cls(file.name, file.size, file.last_modified_ms)

    @property
    def e_tag(self) -> None:
        """Not stored."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A member of a snapshot's live files, with ``dead`` as bytes."""

    segment_id: str
    num_rows: int
    dead: bytes

    @classmethod
    def of(cls, member: LiveSegment) -> "StoredSegment":
        """Return the stored form of a member."""
        return cls(member.segment.id, member.segment.num_rows, member.dead.tobytes())


def encode_state(snapshot: Snapshot) -> bytes:
    """Return everything but the files."""
    document = {
        "location": snapshot.location,
        "timestamp": snapshot.timestamp,
        "inCommitTimestamp": snapshot.in_commit_timestamp,
        "checkpointVersion": snapshot.checkpoint_version,
        "protocol": snapshot.protocol.to_json(),
        "metadata": snapshot.metadata.to_json(),
        "txns": [txn.to_json() for txn in snapshot.txns.values()],
        "domainMetadata": [domain.to_json() for domain in snapshot.domain_metadata.values()],
        "counts": asdict(snapshot.live.counts),
    }
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), _LEVEL)


def decode_state(state: bytes, version: int, members: Iterable[LiveSegment]) -> Snapshot:
    """Return the snapshot of a state and its files.

    Raises:
        ValueError: or another error: they do not match what was encoded.
    """
    document: dict[str, Any] = json.loads(zlib.decompress(state))
    txns = [Txn.from_json(value) for value in document["txns"]]
    domains = [DomainMetadata.from_json(value) for value in document["domainMetadata"]]
    location = document["location"]
    return Snapshot(
        location=location,
        version=version,
        timestamp=document["timestamp"],
        protocol=Protocol.from_json(document["protocol"]),
        metadata=Metadata.from_json(document["metadata"]),
        live=LiveFiles.restored(location, members, FileCounts(**document["counts"]), FILE_INDEX_ENGINE),
        txns={txn.app_id: txn for txn in txns},
        domain_metadata={domain.domain: domain for domain in domains},
        in_commit_timestamp=document["inCommitTimestamp"],
        checkpoint_version=document["checkpointVersion"],
    )


def checksum(data: bytes, *owner: str) -> int:
    """Return a checksum as a signed 64-bit number; the same data of another owner has a different one."""
    seed = xxhash.xxh3_64_intdigest("/".join(owner).encode())
    return xxhash.xxh3_64_intdigest(data, seed) - _SIGNED


def digest(
    table_id: str, version: int, mark: LogFileId, state: bytes, members: Iterable[StoredSegment]
) -> int:
    """Return one checksum over everything that the database stores of a snapshot in several rows."""
    found = xxhash.xxh3_64(f"{FORMAT}/{table_id}/{version}/{mark}/{len(state)}/".encode())
    found.update(state)
    for member in members:
        found.update(f"/{member.segment_id}/{member.num_rows}/{len(member.dead)}/".encode())
        found.update(member.dead)
    return found.intdigest() - _SIGNED
