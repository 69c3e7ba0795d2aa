"""The first version of a table: its protocol, metadata and commitInfo (PROTOCOL.md, "Change Metadata").

Whatever a property or a column's metadata would need beyond what Delvec implements is refused by name, because a table
that Delvec creates and then cannot write helps nobody.
"""

import uuid
from collections.abc import Callable
from typing import Final

from delvec.protocol.types import StructType
from delvec_service.delta.actions import Action, CommitInfo, Metadata, Protocol
from delvec_service.delta.log.log_json import json_text
from delvec_service.delta.table_changes.definition import NO_FILES, Definition, define
from delvec_service.delta.table_changes.draft import Draft
from delvec_service.delta.table_changes.in_commit_timestamps import are_enabled

__all__ = ["first_version"]

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
    draft = Draft(empty, _WEAKEST, {}, StructType(()), new_name, lambda: NO_FILES)
    define(draft, definition)
    metadata, protocol, domains = draft.finish()
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
