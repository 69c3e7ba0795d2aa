"""Definitions for CREATE TABLE and REPLACE TABLE.

Tested in `tests/integration/engines/test_definitions.py`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from delvec_commands.reading import ReadableTable
from delvec_commands.table_service import TableService, request
from delvec_commands.transaction import Metrics, Transaction, begin
from delvec_contract.tables import TableRequest
from delvec_errors import BadRequest
from delvec_kernel import locations
from delvec_kernel.alter_table.change_types import ReplaceTable
from delvec_kernel.schema.types import StructType

__all__ = ["REPLACING", "TableDefinition", "location_of", "property_text", "replace_table"]

REPLACING: Final = "CREATE OR REPLACE TABLE"
_EVERYTHING: Final = "true"
_METRICS: Final = {"numRemovedFiles": 0, "numRemovedBytes": 0}


@dataclass(frozen=True)
class TableDefinition:
    """The definition of a new or replaced table.

    Attributes:
        schema: including partition columns.
        partition_by: columns, in order.
        properties: the user's own and ``delta.*``.
        description: free text.
        cluster_by: clustering columns.
    """

    schema: StructType
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    cluster_by: Sequence[str] = ()

    def creation(self, location: str | None, name: str | None, *, is_managed: bool = False) -> TableRequest:
        """Return the request that creates the table."""
        return request(
            TableRequest,
            location=location,
            name=name,
            table_schema=self.schema.to_json(),
            partition_columns=list(self.partition_by),
            properties=dict(self.properties),
            description=self.description,
            cluster_by=list(self.cluster_by),
            managed=is_managed,
        )

    def replacement(self) -> ReplaceTable:
        """Return the change that replaces an existing table."""
        return request(
            ReplaceTable,
            table_schema=self.schema.to_json(),
            partition_columns=list(self.partition_by),
            properties=dict(self.properties),
            description=self.description,
            cluster_by=list(self.cluster_by),
        )

    def recorded(self) -> dict[str, str]:
        """Return the operation parameters for the table's history."""
        operation_parameters = {
            "isManaged": "false",
            "partitionBy": json.dumps(list(self.partition_by), separators=(",", ":"), ensure_ascii=False),
            "clusterBy": json.dumps(list(self.cluster_by), separators=(",", ":"), ensure_ascii=False),
            "properties": json.dumps(dict(self.properties), separators=(",", ":"), ensure_ascii=False),
        }
        return (
            operation_parameters
            if self.description is None
            else {**operation_parameters, "description": self.description}
        )


def replace_table(
    service: TableService, table: ReadableTable, definition: TableDefinition, operation: str
) -> Metrics:
    """Replace schema and properties of a table and remove its rows, in one commit; time travel still reads the old table.

    Args:
        service: of the table.
        table: the table to replace.
        definition: the new definition.
        operation: its name in the table's history.

    Raises:
        InvalidTableChange: or a related error: the definition is invalid.
        AppendOnlyTable: the table does not allow rows to be removed.
        ConcurrentModification: or a subclass: another writer changed the table meanwhile.
    """
    begin_response, _ = begin(service, table.id, operation)
    transaction = Transaction(
        service,
        table.id,
        operation,
        begin_response.version,
        read_mark=begin_response.read_mark,
        transaction_id=begin_response.transaction_id,
        engine_info=table.engine.name,
        predicate=_EVERYTHING,
        operation_parameters=definition.recorded(),
    )
    transaction.change_table([definition.replacement()])
    scan, _ = table.plan(version=begin_response.version)
    transaction.remove(scan.files["path"].to_pylist())
    return Metrics.of(transaction.commit(), _METRICS)


def location_of(name_or_location: str | os.PathLike[str]) -> str | None:
    """Return the absolute location, or None for a name.

    Raises:
        BadRequest: it is empty.
    """
    text = os.fspath(name_or_location)
    if not text.strip():
        raise BadRequest("the name or location of the table must not be empty")
    is_location = not isinstance(name_or_location, str) or text.startswith(".") or "/" in text or "\\" in text
    return locations.absolute(text) if is_location else None


def property_text(value: object) -> str:
    """Return a property value as text: ``True`` becomes ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
