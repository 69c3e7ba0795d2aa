"""A table as its owner wants it: created, or put in the place of what is there."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from delvec.http.service_client import ServiceClient, request
from delvec.reading import ReadableTable
from delvec.transaction import Metrics, Transaction, begin
from delvec_kernel import locations
from delvec_kernel.errors import BadRequest
from delvec_kernel.schema.types import StructType
from delvec_kernel.wire import ReplaceTable, TableRequest

__all__ = ["REPLACING", "TableDefinition", "location_of", "property_text", "replace_table"]

REPLACING: Final = "CREATE OR REPLACE TABLE"
_EVERYTHING: Final = "true"
_METRICS: Final = {"numRemovedFiles": 0, "numRemovedBytes": 0}


@dataclass(frozen=True)
class TableDefinition:
    """What a table is to be.

    Attributes:
        schema: partition columns included.
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

    def creation(self, location: str | None, name: str | None) -> TableRequest:
        """Return what the service is asked for a new table."""
        return request(
            TableRequest,
            location=location,
            name=name,
            table_schema=self.schema.to_json(),
            partition_columns=list(self.partition_by),
            properties=dict(self.properties),
            description=self.description,
            cluster_by=list(self.cluster_by),
        )

    def replacement(self) -> ReplaceTable:
        """Return the change of a table that is there."""
        return request(
            ReplaceTable,
            change="replace-table",
            table_schema=self.schema.to_json(),
            partition_columns=list(self.partition_by),
            properties=dict(self.properties),
            description=self.description,
            cluster_by=list(self.cluster_by),
        )

    def recorded(self) -> dict[str, str]:
        """Return what the table's history says, under Delta's names."""
        found = {
            "isManaged": "false",
            "partitionBy": json.dumps(list(self.partition_by), separators=(",", ":"), ensure_ascii=False),
            "clusterBy": json.dumps(list(self.cluster_by), separators=(",", ":"), ensure_ascii=False),
            "properties": json.dumps(dict(self.properties), separators=(",", ":"), ensure_ascii=False),
        }
        return found if self.description is None else {**found, "description": self.description}


def replace_table(
    service: ServiceClient, table: ReadableTable, definition: TableDefinition, operation: str
) -> Metrics:
    """Replace columns, properties and rows of a table, in one version; what it was stays readable by version.

    Args:
        service: of the table.
        table: that is replaced.
        definition: what it is to be; it has no rows then.
        operation: as the table's history names it.

    Raises:
        InvalidTableChange: or a sibling: the table cannot be so.
        AppendOnlyTable: the table does not allow rows to be removed.
        ConcurrentModification: or a subclass: another writer changed the table meanwhile.
    """
    begun, _ = begin(service, table.id, operation)
    transaction = Transaction(
        service,
        table.id,
        operation,
        begun.version,
        read_mark=begun.read_mark,
        transaction_id=begun.transaction_id,
        engine_info=table.engine.name,
        predicate=_EVERYTHING,
        operation_parameters=definition.recorded(),
    )
    transaction.change_table([definition.replacement()])
    scan, _ = table.plan(version=begun.version)
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
    """Return a property as Delta writes it: ``True`` is ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
