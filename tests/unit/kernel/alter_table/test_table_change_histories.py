"""Random sequences of table changes always leave a valid table."""

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from delvec_contract.alterations import AnyTableChange
from delvec_errors import BadRequest
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.alter_table.alteration import altered
from delvec_kernel.features.protocol_upgrade import supported
from delvec_kernel.schema.column_mapping import all_fields, is_mapped
from delvec_kernel.schema.types import StructType

CHANGE = TypeAdapter(AnyTableChange)
NAMES = st.sampled_from(["a", "b", "B", "c", "s", "list", "p", "`x y`"])
PATHS = st.one_of(
    NAMES, st.tuples(NAMES, NAMES).map(".".join), st.sampled_from(["list.element", "list.element.c"])
)
STRUCT = {"type": "struct", "fields": [{"name": "c", "type": "integer", "nullable": True, "metadata": {}}]}
LIST = {"type": "array", "elementType": STRUCT, "containsNull": True}
TYPES = st.sampled_from(
    ["byte", "integer", "long", "double", "string", "date", "decimal(10,0)", "decimal(20,2)", STRUCT, LIST]
)
PLACES = st.one_of(st.just({}), st.just({"first": True}), NAMES.map(lambda name: {"after": name.strip("`")}))
PROPERTIES = st.sampled_from(
    [
        {"delta.columnMapping.mode": "name"},
        {"delta.enableTypeWidening": "true"},
        {"delta.enableTypeWidening": "false"},
        {"delta.enableDeletionVectors": "true"},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.dataSkippingStatsColumns": "a,s.c,`x y`"},
        {"team": "red"},
    ]
)
CHANGES = st.one_of(
    st.builds(
        lambda column, kind, place: {
            "change": "add-columns",
            "columns": [{"column": column, "type": kind, **place}],
        },
        PATHS,
        TYPES,
        PLACES,
    ),
    st.builds(
        lambda column, to: {"change": "rename-column", "column": column, "to": to.strip("`")}, PATHS, NAMES
    ),
    st.builds(lambda column: {"change": "drop-columns", "columns": [column]}, PATHS),
    st.builds(lambda column, kind: {"change": "change-column", "column": column, "type": kind}, PATHS, TYPES),
    st.builds(
        lambda column, what: {"change": "change-column", "column": column, **what},
        PATHS,
        st.sampled_from([{"nullable": False}, {"nullable": True}, {"comment": "x"}, {"first": True}]),
    ),
    st.builds(lambda properties: {"change": "set-properties", "properties": properties}, PROPERTIES),
    st.builds(
        lambda column: {"change": "add-constraint", "name": "k", "expression": f"{column} IS NOT NULL"}, PATHS
    ),
    st.just({"change": "drop-constraint", "name": "k"}),
    st.builds(
        lambda columns: {"change": "cluster-by", "columns": columns}, st.lists(PATHS, max_size=2, unique=True)
    ),
)


def first():
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [
            ("a", "byte"),
            ("s", STRUCT),
            ("list", LIST),
            ("p", "integer"),
        ]
    ]
    return Metadata("id", json.dumps({"type": "struct", "fields": fields}), (), {})


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(CHANGES, max_size=12),
    protocol=st.sampled_from([Protocol(1, 1), Protocol(1, 2), Protocol(2, 5), Protocol(1, 7, None, ())]),
    partitioned=st.booleans(),
)
def test_every_sequence_of_changes_leaves_a_valid_table(changes, protocol, partitioned):
    metadata, domains, numbers = first(), {}, itertools.count()
    if partitioned:
        metadata = Metadata("id", metadata.schema_string, ("p",), {})
    for change in changes:
        before, schema = supported(protocol), StructType.from_json(metadata.schema_string)
        try:
            made = altered(
                [CHANGE.validate_python(change)],
                metadata=metadata,
                protocol=protocol,
                domains=domains,
                schema=schema,
                new_name=lambda: f"col-{next(numbers)}",
            )
        except BadRequest:
            continue
        stays = {
            field.metadata["delta.columnMapping.id"]: field.physical_name
            for field in all_fields(schema)
            if is_mapped(metadata.configuration)
        }
        metadata, protocol = made.metadata or metadata, made.protocol or protocol
        domains |= {each.domain: each for each in made.domains}
        assert supported(protocol) >= before
        _check(metadata, protocol, domains, stays)


def _check(metadata, protocol, domains, stays):
    schema = StructType.from_json(metadata.schema_string)  # names differ by more than case
    fields = list(all_fields(schema))
    assert set(metadata.partition_columns) <= set(schema.names)
    assert len(schema.names) > len(metadata.partition_columns)
    assert supported(protocol) >= _needed(metadata.configuration)
    if is_mapped(metadata.configuration):
        ids = [field.metadata["delta.columnMapping.id"] for field in fields]
        assert len(ids) == len(set(ids))
        assert max([*ids, *stays]) <= int(metadata.configuration["delta.columnMapping.maxColumnId"])
        assert all(stays.get(field.field_id, field.physical_name) == field.physical_name for field in fields)
        for struct in [schema, *(field.type for field in fields if isinstance(field.type, StructType))]:
            physical = [field.physical_name for field in struct.fields]
            assert len(physical) == len(set(physical))
    else:
        assert not [field for field in fields if field.field_id is not None or " " in field.name]
    if domains:
        for path in json.loads(domains["delta.clustering"].configuration)["clusteringColumns"]:
            kind = schema
            for name in path:
                (field,) = [each for each in kind.fields if each.physical_name == name]
                kind = field.type


def _needed(configuration):
    brings = {
        "delta.enableDeletionVectors": "deletionVectors",
        "delta.enableTypeWidening": "typeWidening",
        "delta.enableChangeDataFeed": "changeDataFeed",
        "delta.constraints.k": "checkConstraints",
    }
    on = {feature for name, feature in brings.items() if configuration.get(name) not in (None, "false")}
    return on | ({"columnMapping"} if is_mapped(configuration) else set())
