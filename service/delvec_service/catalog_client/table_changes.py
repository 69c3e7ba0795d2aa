"""What a commit says about the table itself, in the words of the Unity Catalog Delta API.

A catalog does not read the log: a commit that changes columns, properties or protocol repeats them in its request.

Tested in `tests/unit/service/catalog_client/test_table_changes.py`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from delvec_contract.unity_catalog import hyphenated
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol
from delvec_service.store.commit_coordinator import TableChange

__all__ = ["updates_of"]

_DOMAINS: Final = ("delta.clustering", "delta.rowTracking")
"""The API knows no others."""


def updates_of(change: TableChange) -> list[dict[str, Any]]:
    """Return the actions of an update request that repeat a change."""
    return [
        *_protocol(change.protocol),
        *_metadata(change.metadata, change.before),
        *_domains(change.domains),
    ]


def _protocol(protocol: Protocol | None) -> Iterator[dict[str, Any]]:
    if protocol is not None:
        yield {
            "action": "set-protocol",
            "protocol": {
                "min-reader-version": protocol.min_reader_version,
                "min-writer-version": protocol.min_writer_version,
                "reader-features": list(protocol.reader_features or ()),
                "writer-features": list(protocol.writer_features or ()),
            },
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
    in_api = [each for each in domains if each.domain in _DOMAINS]
    updates = {each.domain: json.loads(each.configuration) for each in in_api if not each.removed}
    removed = [each.domain for each in in_api if each.removed]
    if updates:
        yield {"action": "set-domain-metadata", "updates": updates}
    if removed:
        yield {"action": "remove-domain-metadata", "domains": removed}
