import itertools
import json

import pytest

from delvec_errors import BadRequest, InvalidSchema, InvalidTableChange, UnknownColumn
from delvec_kernel.actions.actions import CommitInfo, Metadata, Protocol
from delvec_kernel.alter_table.definition import Definition
from delvec_kernel.alter_table.first_version import first_version
from delvec_kernel.log.commit_file import serialize_commit
from delvec_kernel.schema.types import StructType


def schema(**columns):
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()
    ]
    return StructType.from_json({"type": "struct", "fields": fields})


def create(schema, *, partition_columns=(), properties=None, description=None, cluster_by=()):
    names = (f"col-{number}" for number in itertools.count())
    return first_version(
        Definition(schema, partition_columns, properties or {}, description, cluster_by),
        new_name=lambda: next(names),
        metadata_id="the-id",
        transaction_id="the-transaction",
        engine_info="Delvec/0",
        now=1_700_000_000_000,
    )


def test_a_new_table_has_deletion_vectors_and_the_features_that_delta_spark_lists():
    info, protocol, metadata = create(schema(id="long", country="string"), partition_columns=["Country"])

    assert protocol == Protocol(3, 7, ("deletionVectors",), ("appendOnly", "invariants", "deletionVectors"))
    assert isinstance(metadata, Metadata)
    assert metadata.configuration == {"delta.enableDeletionVectors": "true"}
    assert metadata.partition_columns == ("country",)
    assert metadata.created_time == 1_700_000_000_000
    assert isinstance(info, CommitInfo)
    assert info.operation == "CREATE TABLE"
    assert info.operation_parameters == {
        "partitionBy": '["country"]',
        "clusterBy": "[]",
        "description": None,
        "isManaged": "false",
        "properties": '{"delta.enableDeletionVectors":"true"}',
    }
    assert (info.txn_id, info.engine_info, info.is_blind_append) == ("the-transaction", "Delvec/0", True)


def test_the_log_entry_starts_with_commit_info():
    lines = serialize_commit(create(schema(id="long"), description="people")).splitlines()

    assert [next(iter(json.loads(line))) for line in lines] == ["commitInfo", "protocol", "metaData"]
    assert json.loads(lines[2])["metaData"]["description"] == "people"


@pytest.mark.parametrize(
    ("columns", "properties", "expected"),
    [
        ({"id": "long"}, {"delta.enableDeletionVectors": "FALSE"}, Protocol(1, 2)),
        (
            {"at": "timestamp_ntz"},
            {"delta.enableDeletionVectors": "false"},
            Protocol(3, 7, ("timestampNtz",), ("appendOnly", "invariants", "timestampNtz")),
        ),
        (
            {"at": {"type": "array", "elementType": "timestamp_ntz", "containsNull": True}},
            {},
            Protocol(
                3,
                7,
                ("timestampNtz", "deletionVectors"),
                ("appendOnly", "invariants", "timestampNtz", "deletionVectors"),
            ),
        ),
        (
            {"id": "long"},
            {"delta.enableChangeDataFeed": "true", "delta.enableInCommitTimestamps": "true"},
            Protocol(
                3,
                7,
                ("deletionVectors",),
                ("appendOnly", "invariants", "changeDataFeed", "deletionVectors", "inCommitTimestamp"),
            ),
        ),
        (
            {"id": "long"},
            {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "false"},
            Protocol(1, 7, None, ("appendOnly", "invariants", "changeDataFeed")),
        ),
        (
            {"id": "long"},
            {"delta.constraints.positive": "id > 0", "delta.enableDeletionVectors": "false"},
            Protocol(1, 3),
        ),
        (
            {"id": "long"},
            {"delta.columnMapping.mode": "id", "delta.enableDeletionVectors": "false"},
            Protocol(2, 7, None, ("appendOnly", "invariants", "columnMapping")),
        ),
        (
            {"id": "long"},
            {
                "delta.enableRowTracking": "true",
                "delta.enableTypeWidening": "true",
                "delta.checkpointPolicy": "v2",
                "delta.feature.vacuumProtocolCheck": "supported",
            },
            Protocol(
                3,
                7,
                ("vacuumProtocolCheck", "deletionVectors", "typeWidening", "v2Checkpoint"),
                (
                    "appendOnly",
                    "invariants",
                    "vacuumProtocolCheck",
                    "deletionVectors",
                    "typeWidening",
                    "v2Checkpoint",
                    "domainMetadata",
                    "rowTracking",
                ),
            ),
        ),
    ],
)
def test_the_protocol_is_what_schema_and_properties_need(columns, properties, expected):
    assert create(schema(**columns), properties=properties)[1] == expected


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_get_ids_and_physical_names(mode):
    inner = {"type": "struct", "fields": [{"name": "x y", "type": "long", "nullable": True, "metadata": {}}]}
    metadata = create(
        schema(id="long", s=inner), properties={"delta.columnMapping.mode": mode, "team": "red"}
    )[2]

    found = StructType.from_json(json.loads(metadata.schema_string))
    fields = [*found.fields, *found.fields[1].type.fields]
    assert [field.metadata for field in fields] == [
        {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number - 1}"}
        for number in (1, 2, 3)
    ]
    assert metadata.configuration == {
        "delta.enableDeletionVectors": "true",
        "delta.columnMapping.mode": mode,
        "delta.columnMapping.maxColumnId": "3",
        "team": "red",
    }


def test_a_new_table_is_clustered_by_physical_names():
    info, protocol, _, domain = create(
        schema(id="long", s="string"), cluster_by=["S"], properties={"delta.columnMapping.mode": "name"}
    )
    assert json.loads(domain.configuration)["clusteringColumns"] == [["col-1"]]
    assert {"clustering", "domainMetadata"} <= set(protocol.writer_features)
    assert info.operation_parameters["clusterBy"] == '["S"]'


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"properties": {"delta.constraints.c": "nope > 1"}}, UnknownColumn, "nope"),
        ({"properties": {"delta.constraints.c": "rand() > 1"}}, InvalidTableChange, "nondeterministic"),
        ({"properties": {"delta.dataSkippingStatsColumns": "nope"}}, BadRequest, "nope"),
        ({"properties": {"delta.feature.allowNothing": "supported"}}, InvalidTableChange, "allowNothing"),
        ({"cluster_by": ["nope"]}, UnknownColumn, "nope"),
        ({"cluster_by": ["id"], "partition_columns": ["s"]}, InvalidTableChange, "partitioned"),
        (
            {"properties": {"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": "true"}},
            InvalidTableChange,
            "cannot both be true",
        ),
    ],
)
def test_properties_that_contradict_the_columns_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        create(schema(id="long", s="string"), **options)


def test_with_in_commit_timestamps_the_first_version_has_one():
    info = create(schema(id="long"), properties={"delta.enableInCommitTimestamps": "true"})[0]

    assert next(iter(info.to_json())) == "inCommitTimestamp"
    assert info.in_commit_timestamp == info.timestamp


def test_properties_of_users_are_kept_and_deltas_are_spelled_as_delta_does():
    metadata = create(
        schema(id="long"),
        properties={"owner": "Ann", "DELTA.APPENDONLY": "True", "delta.checkpointInterval": " 20 "},
    )[2]

    assert metadata.configuration == {
        "delta.enableDeletionVectors": "true",
        "owner": "Ann",
        "delta.appendOnly": "true",
        "delta.checkpointInterval": "20",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.enableDeletionVector", "true"),
        ("delta.columnMapping.mode", "physical"),
        ("delta.columnMapping.maxColumnId", "7"),
        ("delta.enableIcebergCompatV2", "true"),
        ("delta.feature.v2Checkpoint", "off"),
        ("delta.enableDeletionVectors", "yes"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "often"),
        ("delta.checkpointPolicy", "v3"),
        ("delta.isolationLevel", "Snapshot"),
    ],
)
def test_unsupported_properties_are_refused_by_name(name, value):
    with pytest.raises(BadRequest, match=name.replace(".", r"\.")):
        create(schema(id="long"), properties={name: value})


@pytest.mark.parametrize(
    ("columns", "partition_columns", "message"),
    [
        ({}, [], "at least one column"),
        ({"a b": "long"}, [], "column name 'a b'"),
        ({"a": {"type": "struct", "fields": [{"name": "x=", "type": "long"}]}}, [], "column name 'x='"),
        ({"_metadata": "long"}, [], "reserved"),
        ({"a": "void", "b": "long"}, [], "void"),
        ({"a": "long"}, ["b"], "'b' is not in the schema"),
        ({"a": "long"}, ["a"], "at least one column that is not"),
        ({"a": "long", "b": "long"}, ["a", "A"], "listed twice"),
        (
            {"a": {"type": "array", "elementType": "long", "containsNull": True}, "b": "long"},
            ["a"],
            "cannot partition",
        ),
    ],
)
def test_invalid_schemas_are_refused(columns, partition_columns, message):
    for name, kind in columns.items():
        if isinstance(kind, dict) and kind["type"] == "struct":
            columns = {name: {**kind, "fields": [{"nullable": True, "metadata": {}, **kind["fields"][0]}]}}
    with pytest.raises(InvalidSchema, match=message):
        create(schema(**columns), partition_columns=partition_columns)


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 2, "delta.identity.allowExplicitInsert": False}


@pytest.mark.parametrize(
    ("kind", "metadata", "message"),
    [
        ("long", {"delta.invariants": "{}"}, "does not enforce"),
        ("long", {"delta.generationExpression": "id + 1"}, "which may only read columns of the table"),
        ("long", {"delta.generationExpression": "("}, "cannot be|generation expression"),
        ("long", {"CURRENT_DEFAULT": "other"}, "which may only read columns of the table"),
        ("long", {"CURRENT_DEFAULT": 1}, "not a string"),
        ("long", {"CURRENT_DEFAULT": "DATE '2024-01-01'"}, "cannot be cast to its type long"),
        ("long", {"CURRENT_DEFAULT": "1", **IDENTITY}, "can have only one of"),
        ("integer", IDENTITY, "type long"),
        ("long", {**IDENTITY, "delta.identity.step": 0}, "a step other than 0"),
        ("long", {"delta.identity.start": 1}, "a step other than 0"),
        ("long", {"delta.identity.highWaterMark": 5}, "does not enforce"),
    ],
)
def test_invalid_column_rules_are_refused(kind, metadata, message):
    fields = [
        {"name": "id", "type": kind, "nullable": True, "metadata": metadata},
        {"name": "other", "type": "long", "nullable": True, "metadata": {}},
    ]
    with pytest.raises(InvalidSchema, match=message):
        create(StructType.from_json({"type": "struct", "fields": fields}))


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        ({"delta.generationExpression": "other + 1"}, "generatedColumns"),
        ({"delta.generationExpression": "soundex(other)"}, "generatedColumns"),
        (IDENTITY, "identityColumns"),
        ({"CURRENT_DEFAULT": "1"}, "allowColumnDefaults"),
    ],
)
def test_computed_columns_need_their_feature(metadata, feature):
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": metadata},
        {"name": "other", "type": "long", "nullable": True, "metadata": {}},
    ]
    _, protocol, found = create(StructType.from_json({"type": "struct", "fields": fields}))
    assert feature in protocol.writer_features
    assert json.loads(found.schema_string)["fields"] == fields


def test_a_comment_on_a_column_is_kept():
    field = {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "who"}}

    metadata = create(StructType.from_json({"type": "struct", "fields": [field]}))[2]

    assert json.loads(metadata.schema_string)["fields"] == [field]
