"""What a commit says about the table itself, in the words of the Unity Catalog Delta API.

A catalog does not read the log: a commit that changes columns, properties or protocol repeats them in its request.

Tested in `tests/unit/service/catalog_client/test_table_changes.py`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from delvec_contract.unity_catalog import hyphenated
from delvec_kernel.actions.actions import (
    Action,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    first_of,
)
from delvec_service.store.commit_coordinator import TableChange

__all__ = ["creation_of", "updates_of"]

_DOMAINS: Final = {"delta.clustering": "clusteringColumns", "delta.rowTracking": "rowIdHighWaterMark"}
"""The API knows no others, and of each only this."""


def updates_of(change: TableChange) -> list[dict[str, Any]]:
    """Return the actions of an update request that repeat a change."""
    return [
        *_protocol(change.protocol),
        *_metadata(change.metadata, change.before),
        *_domains(change.domains),
    ]


def creation_of(actions: Sequence[Action], name: str, location: str) -> dict[str, Any]:
    """Return the body of the request that creates a table.

    Args:
        actions: of version 0.
        name: of the table, in its schema.
        location: as the catalog spells it.
    """
    info, protocol = first_of(CommitInfo, actions), first_of(Protocol, actions)
    metadata = first_of(Metadata, actions)
    if info is None or protocol is None or metadata is None:
        raise AssertionError(f"version 0 of {name} has all three")
    domains = _domains_in_api([each for each in actions if isinstance(each, DomainMetadata)])
    return {
        "name": name,
        "table-type": "MANAGED",
        "location": location,
        "columns": hyphenated(json.loads(metadata.schema_string)),
        "partition-columns": list(metadata.partition_columns),
        "protocol": _protocol_json(protocol),
        "properties": dict(metadata.configuration),
        "last-commit-timestamp-ms": info.in_commit_timestamp,
        **({"comment": metadata.description} if metadata.description else {}),
        **({"domain-metadata": domains} if domains else {}),
    }


def _protocol(protocol: Protocol | None) -> Iterator[dict[str, Any]]:
    if protocol is not None:
        yield {"action": "set-protocol", "protocol": _protocol_json(protocol)}


def _protocol_json(protocol: Protocol) -> dict[str, Any]:
    return {
        "min-reader-version": protocol.min_reader_version,
        "min-writer-version": protocol.min_writer_version,
        "reader-features": list(protocol.reader_features or ()),
        "writer-features": list(protocol.writer_features or ()),
    }


def _metadata(after: Metadata | None, before: Metadata | None) -> Iterator[dict[str, Any]]:
    if after is None:
        return
    old: Mapping[str, str] = {} if before is None else before.configuration
    new = after.configuration
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    dropped = sorted(old.keys() - new.keys())
    if changed:
        yield {"action": "set-properties", "updates": changed}
    if dropped:
        yield {"action": "remove-properties", "removals": dropped}
    if before is None or before.schema_string != after.schema_string:
        yield {"action": "set-columns", "columns": hyphenated(json.loads(after.schema_string))}
    if before is None or list(before.partition_columns) != list(after.partition_columns):
        yield {"action": "set-partition-columns", "partition-columns": list(after.partition_columns)}
    if before is None or before.description != after.description:
        yield {"action": "set-table-comment", "comment": after.description or ""}


def _domains(domains: Sequence[DomainMetadata]) -> Iterator[dict[str, Any]]:
    updates = _domains_in_api(domains)
    removed = [each.domain for each in domains if each.domain in _DOMAINS and each.removed]
    if updates:
        yield {"action": "set-domain-metadata", "updates": updates}
    if removed:
        yield {"action": "remove-domain-metadata", "domains": removed}


def _domains_in_api(domains: Sequence[DomainMetadata]) -> dict[str, Any]:
    found = {
        each.domain: json.loads(each.configuration)
        for each in domains
        if each.domain in _DOMAINS and not each.removed
    }
    return {domain: {_DOMAINS[domain]: value.get(_DOMAINS[domain])} for domain, value in found.items()}
