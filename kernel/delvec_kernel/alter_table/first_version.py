"""The first version of a table: its protocol, metadata and commitInfo (PROTOCOL.md, "Change Metadata").

Rejects properties and column metadata that need more than Delvec implements, so that Delvec never creates a table
that it cannot write.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import Action, CommitInfo, Metadata, Protocol
from delvec_kernel.alter_table.definition import NO_FILES, Definition, define
from delvec_kernel.alter_table.table_update import TableUpdate
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.schema.types import StructType
from delvec_kernel.table_properties import IN_COMMIT_TIMESTAMPS, IN_COMMIT_TIMESTAMPS_SINCE, is_true

__all__ = ["are_enabled", "enabled_since", "first_version"]

_INITIAL_PROTOCOL: Final = Protocol(1, 2)
"""The protocol with which delta-spark starts."""


def first_version(
    definition: Definition,
    *,
    metadata_id: str,
    transaction_id: str,
    engine_info: str,
    now: int,
    catalog_id: str = "",
    new_name: Callable[[], str] = lambda: f"col-{uuid.uuid4()}",
) -> list[Action]:
    """Return the actions of version 0.

    Deletion vectors are enabled by default.

    Args:
        definition: the definition of the table.
        metadata_id: a new UUID.
        transaction_id: recorded as txnId.
        engine_info: recorded as engineInfo.
        now: milliseconds since the epoch.
        catalog_id: the id that the table has in its catalog, if it may be a managed one.
        new_name: returns a new physical name, for column mapping.

    Raises:
        InvalidSchema: a name, a type or a partition column is invalid.
        BadRequest: or a subclass: a property is unknown or has an invalid value; a constraint or a clustering column
            is invalid.
    """
    empty = Metadata(
        id=metadata_id, schema_string="", partition_columns=(), configuration={}, created_time=now
    )
    update = TableUpdate(empty, _INITIAL_PROTOCOL, {}, StructType(()), new_name, lambda: NO_FILES, catalog_id)
    define(update, definition)
    metadata, protocol, domains = update.finish()
    assert metadata is not None  # noqa: S101 - define() has set the schema
    info = CommitInfo(
        timestamp=now,
        in_commit_timestamp=now if are_enabled(metadata) else None,
        operation="CREATE TABLE",
        operation_parameters={
            "partitionBy": json_text(list(metadata.partition_columns)),
            "clusterBy": json_text(list(definition.cluster_by)),
            "description": metadata.description,
            "isManaged": str(is_catalog_managed(protocol or _INITIAL_PROTOCOL)).lower(),
            "properties": json_text(dict(metadata.configuration)),
        },
        isolation_level="Serializable",
        is_blind_append=True,
        operation_metrics={},
        engine_info=engine_info,
        txn_id=transaction_id,
    )
    return [info, protocol or _INITIAL_PROTOCOL, metadata, *domains]


def are_enabled(metadata: Metadata) -> bool:
    """Whether in-commit timestamps are enabled."""
    return is_true(metadata.configuration, IN_COMMIT_TIMESTAMPS)


def enabled_since(metadata: Metadata, version: int, timestamp: int) -> Metadata:
    """Return metadata that records when in-commit timestamps were enabled.

    Args:
        metadata: the metadata of the commit that enables them, which is not the table's first.
        version: the version of that commit.
        timestamp: the timestamp of that commit, milliseconds since the epoch.
    """
    since = dict(zip(IN_COMMIT_TIMESTAMPS_SINCE, (str(version), str(timestamp)), strict=True))
    return replace(metadata, configuration={**metadata.configuration, **since})
