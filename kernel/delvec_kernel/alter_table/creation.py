"""The first version of a table: its protocol, metadata and commitInfo (PROTOCOL.md, "Change Metadata").

Properties and column metadata that need more than Delvec implements are refused by name, because a table that
Delvec creates but cannot write is of no use.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import Action, CommitInfo, Metadata, Protocol
from delvec_kernel.alter_table.definition import NO_FILES, Definition, define
from delvec_kernel.alter_table.table_update import TableUpdate
from delvec_kernel.schema.types import StructType
from delvec_kernel.table_properties import is_true

__all__ = ["are_enabled", "enabled_since", "first_version"]

_WEAKEST: Final = Protocol(1, 2)
"""What delta-spark begins with."""


def first_version(
    definition: Definition,
    *,
    metadata_id: str,
    transaction_id: str,
    engine_info: str,
    now: int,
    new_name: Callable[[], str] = lambda: f"col-{uuid.uuid4()}",
) -> list[Action]:
    """Return the actions of version 0.

    Deletion vectors are enabled unless the properties say otherwise.

    Args:
        definition: of the table.
        metadata_id: a new UUID.
        transaction_id: recorded as txnId.
        engine_info: recorded as engineInfo.
        now: milliseconds since the epoch.
        new_name: gives physical names, where columns are mapped.

    Raises:
        InvalidSchema: a name, a type or a partition column cannot be.
        BadRequest: or a subclass: a property is unknown, or its value is not one; a constraint or a clustering column
            cannot be.
    """
    empty = Metadata(
        id=metadata_id, schema_string="", partition_columns=(), configuration={}, created_time=now
    )
    update = TableUpdate(empty, _WEAKEST, {}, StructType(()), new_name, lambda: NO_FILES)
    define(update, definition)
    metadata, protocol, domains = update.finish()
    assert metadata is not None  # noqa: S101 - it has columns now
    info = CommitInfo(
        timestamp=now,
        in_commit_timestamp=now if are_enabled(metadata) else None,
        operation="CREATE TABLE",
        operation_parameters={
            "partitionBy": json_text(list(metadata.partition_columns)),
            "clusterBy": json_text(list(definition.cluster_by)),
            "description": metadata.description,
            "isManaged": "false",
            "properties": json_text(dict(metadata.configuration)),
        },
        isolation_level="Serializable",
        is_blind_append=True,
        operation_metrics={},
        engine_info=engine_info,
        txn_id=transaction_id,
    )
    return [info, protocol or _WEAKEST, metadata, *domains]


_ENABLED: Final = "delta.enableInCommitTimestamps"
_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


def are_enabled(metadata: Metadata) -> bool:
    """Whether every commit has to say when it was made."""
    return is_true(metadata.configuration, _ENABLED)


def enabled_since(metadata: Metadata, version: int, timestamp: int) -> Metadata:
    """Return metadata by which readers know which versions have timestamps.

    Args:
        metadata: of the commit that turns them on; it is not the table's first.
        version: of that commit.
        timestamp: of that commit, milliseconds since the epoch.
    """
    since = {_VERSION: str(version), _TIMESTAMP: str(timestamp)}
    return replace(metadata, configuration={**metadata.configuration, **since})
