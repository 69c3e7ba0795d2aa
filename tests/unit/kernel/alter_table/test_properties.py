"""Setting properties, and the features and versions of the protocol."""

import json

import pytest
from tests.support.altered_table import NEW, Table, put

from delvec_errors import BadRequest, InvalidTableChange, UnknownColumn
from delvec_kernel.actions.actions import Protocol
from delvec_kernel.features.protocol_upgrade import supported


@pytest.mark.parametrize(
    ("before", "properties", "after"),
    [
        (
            Protocol(1, 2),
            {"enableDeletionVectors": "true"},
            Protocol(3, 7, ("deletionVectors",), ("appendOnly", "invariants", "deletionVectors")),
        ),
        (
            Protocol(2, 5),
            {"enableDeletionVectors": "true"},
            Protocol(
                3,
                7,
                ("columnMapping", "deletionVectors"),
                (
                    "appendOnly",
                    "invariants",
                    "checkConstraints",
                    "changeDataFeed",
                    "generatedColumns",
                    "columnMapping",
                    "deletionVectors",
                ),
            ),
        ),
        (Protocol(1, 2), {"appendOnly": "true"}, Protocol(1, 2)),
        (Protocol(1, 1), {"appendOnly": "true"}, Protocol(1, 7, None, ("appendOnly",))),
        (
            Protocol(1, 2),
            {"enableChangeDataFeed": "true"},
            Protocol(1, 7, None, ("appendOnly", "invariants", "changeDataFeed")),
        ),
        (Protocol(1, 4), {"columnMapping__mode": "name"}, Protocol(2, 5)),
        (Protocol(1, 3), {"enableChangeDataFeed": "false"}, Protocol(1, 3)),
        (
            NEW,
            {"checkpointPolicy": "v2"},
            Protocol(
                3,
                7,
                ("deletionVectors", "v2Checkpoint"),
                ("appendOnly", "invariants", "deletionVectors", "v2Checkpoint"),
            ),
        ),
        (
            Protocol(1, 7, None, ("appendOnly",)),
            {"enableInCommitTimestamps": "true"},
            Protocol(1, 7, None, ("appendOnly", "inCommitTimestamp")),
        ),
    ],
)
def test_a_property_adds_its_feature_and_a_legacy_protocol_lists_its_implied_features(
    before, properties, after
):
    table = Table(protocol=before, partitioned=())

    table.alter(put(**properties))

    assert table.protocol == after


@pytest.mark.parametrize("reader", [1, 2])
@pytest.mark.parametrize("writer", range(1, 7))
def test_no_feature_is_lost_when_an_old_protocol_gets_a_list(reader, writer):
    table = Table(protocol=Protocol(reader, writer))
    before = supported(table.protocol)

    table.alter(put(enableDeletionVectors="true"))

    assert supported(table.protocol) == before | {"deletionVectors"}
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (3, 7)
    assert set(table.protocol.reader_features) == {"deletionVectors"} | (before & {"columnMapping"})


@pytest.mark.parametrize(
    ("before", "reader", "writer", "after"),
    [
        (Protocol(1, 2), 1, 4, Protocol(1, 4)),
        (Protocol(1, 2), 2, 5, Protocol(2, 5)),
        (Protocol(1, 4), 1, 2, Protocol(1, 4)),
        (Protocol(1, 2), 3, 7, Protocol(1, 2)),
        (Protocol(1, 7, None, ("checkConstraints",)), 1, 2, Protocol(1, 3)),
    ],
)
def test_upgrading_versions_adds_their_implied_features(before, reader, writer, after):
    table = Table(protocol=before)

    made = table.alter(
        {"change": "upgrade-protocol", "min-reader-version": reader, "min-writer-version": writer}
    )

    assert table.protocol == after
    assert made.operation == "UPGRADE PROTOCOL"


def test_reader_features_need_writer_features():
    with pytest.raises(InvalidTableChange, match="writer version 7"):
        Table().alter({"change": "upgrade-protocol", "min-reader-version": 3, "min-writer-version": 5})


def test_a_feature_is_added_with_its_dependencies():
    table = Table(protocol=Protocol(1, 2))

    made = table.alter({"change": "add-feature", "feature": "DomainMetadata"})

    assert table.protocol == Protocol(1, 7, None, ("appendOnly", "invariants", "domainMetadata"))
    assert made.metadata is None
    assert made.operation == "SET TBLPROPERTIES"
    assert json.loads(made.parameters["properties"]) == {"delta.feature.domainMetadata": "supported"}


def test_properties_are_set_as_delta_spells_them():
    table = Table()

    made = table.alter(
        {"change": "set-properties", "properties": {"Delta.AppendOnly": " TRUE ", "team": "red"}},
        {"change": "set-comment", "comment": "people we know"},
    )

    assert table.metadata.configuration == {"delta.appendOnly": "true", "team": "red"}
    assert table.metadata.description == "people we know"
    assert made.operation == "SET TBLPROPERTIES"
    assert json.loads(made.parameters["properties"]) == {
        "Delta.AppendOnly": " TRUE ",
        "team": "red",
        "comment": "people we know",
    }


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("delta.apendOnly", "true", InvalidTableChange, "did you mean delta.appendOnly"),
        ("delta.nothingOfTheKind", "1", InvalidTableChange, "does not know"),
        ("delta.appendOnly", "yes", BadRequest, "true or false"),
        ("delta.checkpointInterval", "0", BadRequest, "at least 1"),
        ("delta.logRetentionDuration", "1 month", BadRequest, "interval 30 days"),
        ("delta.targetFileSize", "large", BadRequest, "a size such as 128mb"),
        ("delta.columnMapping.mode", "id", InvalidTableChange, "when the table is created"),
        ("delta.columnMapping.maxColumnId", "9", InvalidTableChange, "maintained by writers"),
        ("delta.enableIcebergCompatV2", "true", InvalidTableChange, "does not implement"),
        ("delta.constraints.positive", "id > 0", InvalidTableChange, "constraint"),
        ("delta.minReaderVersion", "9", BadRequest, "use 1 to 3"),
        ("delta.minWriterVersion", "five", BadRequest, "use 1 to 7"),
        ("delta.feature.spam", "supported", InvalidTableChange, "does not know the table feature"),
        ("delta.feature.v2Checkpoint", "true", BadRequest, "supported"),
        ("delta.dataSkippingStatsColumns", "id,nothing", UnknownColumn, "nothing"),
        ("delta.dataSkippingStatsColumns", "id,home.zip,ID", InvalidTableChange, "twice"),
        ("comment", "x", InvalidTableChange, "comment of the table"),
        ("a b", "x", BadRequest, "not a valid name"),
    ],
)
def test_unknown_and_harmful_properties_are_refused(name, value, error, message):
    with pytest.raises(error, match=message):
        Table().alter({"change": "set-properties", "properties": {name: value}})


def test_versions_among_properties_upgrade_the_protocol_as_in_delta():
    table = Table()
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.minReaderVersion": "2",
        "delta.minWriterVersion": "5",
    }

    table.alter({"change": "set-properties", "properties": properties})

    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) >= (2, 5)
    assert not {name for name in table.metadata.configuration if "Version" in name}
    upgraded = table.protocol
    table.alter({"change": "set-properties", "properties": {"delta.minReaderVersion": "1", "x": "y"}})
    assert table.protocol == upgraded


def test_unknown_properties_are_set_on_request():
    table = Table()

    table.alter({"change": "set-properties", "properties": {"delta.new": "1"}, "allow-unknown": True})

    assert table.metadata.configuration == {"delta.new": "1"}


def test_unsetting_properties():
    table = Table(configuration={"delta.appendOnly": "true", "team": "red"})

    made = table.alter({"change": "unset-properties", "names": ["delta.appendonly", "team"]})

    assert table.metadata.configuration == {}
    assert made.operation == "UNSET TBLPROPERTIES"
    assert made.parameters == {"properties": '["delta.appendOnly","team"]', "ifExists": False}
    with pytest.raises(InvalidTableChange, match="not set"):
        table.alter({"change": "unset-properties", "names": ["team"]})
    assert table.alter({"change": "unset-properties", "names": ["team"], "if-exists": True}).is_empty
