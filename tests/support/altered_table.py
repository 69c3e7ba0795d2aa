"""A table that changes alter without I/O, and the JSON of changes."""

import itertools
import json

from pydantic import TypeAdapter
from tests.support.schema_json import field, struct

from delvec_contract.alterations import AnyTableChange
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.alter_table.alteration import altered
from delvec_kernel.schema.types import StructType

CHANGES = TypeAdapter(list[AnyTableChange])
NEW = Protocol(3, 7, ("deletionVectors",), ("appendOnly", "invariants", "deletionVectors"))


PEOPLE = struct(
    field("id", nullable=False),
    field("name", "string"),
    field("home", struct(field("city", "string"), field("zip", "integer"))),
    field("tags", {"type": "array", "elementType": "integer", "containsNull": True}),
    field("country", "string"),
)


class Table:
    """A version of a table, updated by changes."""

    def __init__(
        self, schema=PEOPLE, *, protocol=NEW, configuration=None, partitioned=("country",), domains=None
    ):
        self.metadata = Metadata(
            id="the-id",
            schema_string=json.dumps(schema),
            partition_columns=tuple(partitioned),
            configuration=dict(configuration or {}),
        )
        self.protocol = protocol
        self.domains = dict(domains or {})

    @property
    def fields(self):
        return json.loads(self.metadata.schema_string)["fields"]

    @property
    def names(self):
        return [each["name"] for each in self.fields]

    def field(self, *path):
        fields = self.fields
        for name in path:
            (found,) = [each for each in fields if each["name"] == name]
            fields = found["type"].get("fields") if isinstance(found["type"], dict) else None
        return found

    def alter(self, *changes, counter=None):
        """Apply changes and become the new version."""
        numbers = counter or itertools.count(1)
        made = altered(
            CHANGES.validate_python(list(changes)),
            metadata=self.metadata,
            protocol=self.protocol,
            domains=self.domains,
            schema=StructType.from_json(self.metadata.schema_string),
            new_name=lambda: f"col-{next(numbers)}",
        )
        self.metadata = made.metadata or self.metadata
        self.protocol = made.protocol or self.protocol
        self.domains |= {each.domain: each for each in made.domains}
        return made


def add(column, kind="long", **more):
    return {"change": "add-columns", "columns": [{"column": column, "type": kind, **more}]}


def change(column, **what):
    return {"change": "change-column", "column": column, **what}


def put(**properties):
    return {
        "change": "set-properties",
        "properties": {f"delta.{k.replace('__', '.')}": v for k, v in properties.items()},
    }


MAP = put(columnMapping__mode="name")
