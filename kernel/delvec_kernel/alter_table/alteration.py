"""The changes of one request, applied in order to one version of a table."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delvec_errors import InvalidTableChange
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol
from delvec_kernel.alter_table import columns, definition, identity, properties, row_tracking_change
from delvec_kernel.alter_table import definition as whole_schema
from delvec_kernel.alter_table.change_types import (
    AddColumns,
    AddConstraint,
    AddFeature,
    AdvanceIdentity,
    ChangeColumn,
    ClusterBy,
    DropColumns,
    DropConstraint,
    DropFeature,
    RenameColumn,
    ReplaceSchema,
    ReplaceTable,
    SetComment,
    SetProperties,
    SyncIdentity,
    TableChange,
    UnsetProperties,
    UpgradeProtocol,
    WriteChange,
)
from delvec_kernel.alter_table.drop_feature import drop_feature
from delvec_kernel.alter_table.table_update import Recorded, Requirement, TableState, TableUpdate
from delvec_kernel.schema.types import StructType

__all__ = ["Alteration", "Requirement", "altered"]


@dataclass(frozen=True)
class Alteration:
    """The result of applying a request's changes to a version.

    Attributes:
        metadata: the new metadata, None if unchanged.
        protocol: the new protocol, None if unchanged.
        domains: domain metadata to set.
        operation: as in Delta's history.
        parameters: operationParameters, JSON values.
        requirements: conditions on existing rows; check them before the commit.
    """

    metadata: Metadata | None
    protocol: Protocol | None
    domains: tuple[DomainMetadata, ...]
    operation: str
    parameters: Mapping[str, Any]
    requirements: tuple[Requirement, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self.metadata is None and self.protocol is None and not self.domains


def _unknown_state() -> TableState:
    raise AssertionError("This change depends on the table's files, which are not read here.")


def altered(
    changes: Sequence[TableChange | WriteChange],
    *,
    metadata: Metadata,
    protocol: Protocol,
    domains: Mapping[str, DomainMetadata],
    schema: StructType,
    catalog_id: str = "",
    new_name: Callable[[], str] = lambda: f"col-{uuid.uuid4()}",
    state: Callable[[], TableState] = _unknown_state,
) -> Alteration:
    """Apply changes in order, each to the result of the previous ones.

    Args:
        changes: at least one.
        metadata: the metadata of the version, like the next three.
        protocol: the protocol of a table that Delvec can write.
        domains: by name.
        schema: parsed from the metadata.
        catalog_id: the id that the table has in its catalog, or would have, for changes that depend on it.
        new_name: returns a new physical name.
        state: computes the version's state, for changes that depend on it.

    Raises:
        InvalidTableChange: the table does not allow a change.
        BadRequest: or a subclass: a value, a type, a name or an expression is invalid.
    """
    update = TableUpdate(metadata, protocol, domains, schema, new_name, state, catalog_id)
    entries = [_apply(update, change) for change in changes]
    if update.requirements and any(isinstance(change, RenameColumn | DropColumns) for change in changes):
        raise InvalidTableChange(
            "A request that adds a constraint or NOT NULL cannot also rename or drop columns, because rows "
            "are checked by their stored column names; send two requests."
        )
    row_tracking_change.check_row_ids(update)
    new_metadata, new_protocol, new_domains = update.finish()
    operation = _merge_history(entries)
    return Alteration(
        new_metadata,
        new_protocol,
        new_domains,
        operation.operation,
        {name: _parameter(value) for name, value in operation.parameters.items()},
        tuple(update.requirements),
    )


_APPLY: Final[Mapping[type, Callable[[TableUpdate, Any], Recorded]]] = {
    AddColumns: columns.add_columns,
    RenameColumn: columns.rename_column,
    DropColumns: columns.drop_columns,
    ChangeColumn: columns.change_column,
    SetProperties: properties.set_properties,
    UnsetProperties: properties.unset_properties,
    AddConstraint: properties.add_constraint,
    DropConstraint: properties.drop_constraint,
    AddFeature: properties.add_feature,
    DropFeature: drop_feature,
    UpgradeProtocol: properties.upgrade_protocol,
    SetComment: properties.set_comment,
    ClusterBy: properties.cluster_by,
    ReplaceSchema: whole_schema.replace_schema,
    ReplaceTable: definition.replace_table,
    AdvanceIdentity: identity.advance_identity,
    SyncIdentity: identity.sync_identity,
}


def _apply(update: TableUpdate, change: TableChange | WriteChange) -> Recorded:
    return _APPLY[type(change)](update, change)


def _merge_history(entries: Sequence[Recorded]) -> Recorded:
    """Merge several changes into one history entry: Delta's own operation if there is one, else a list."""
    first = entries[0]
    if len(entries) == 1:
        return first
    if len({each.operation for each in entries}) == 1 and first.listed is not None:
        name = first.listed
        values = [each.parameters[name] for each in entries]
        if first.operation == "CHANGE COLUMN":
            column_entries = [
                {
                    **each.parameters["column"],
                    **{key: each.parameters[key] for key in ("position",) if key in each.parameters},
                }
                for each in entries
            ]
            return Recorded("CHANGE COLUMNS", {"columns": column_entries})
        if isinstance(values[0], dict):
            merged: Any = {key: value for each in values for key, value in each.items()}
        else:
            merged = [value for each in values for value in each]
        return Recorded(first.operation, {**first.parameters, name: merged})
    return Recorded(
        "ALTER TABLE",
        {"changes": [{"operation": each.operation, "parameters": dict(each.parameters)} for each in entries]},
    )


def _parameter(value: Any) -> Any:
    """Return a parameter as Delta writes it: lists and objects as JSON text, Booleans unchanged."""
    if isinstance(value, str | bool):
        return value
    return json_text(value)
