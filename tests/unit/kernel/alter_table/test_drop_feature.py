"""Dropping features: which ones can be dropped, what must be turned off first, and the resulting protocol."""

import json

import pytest
from pydantic import TypeAdapter
from tests.support.schema_json import field

from delvec_contract.alterations import AnyTableChange
from delvec_errors import InvalidTableChange
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol
from delvec_kernel.alter_table.alteration import altered
from delvec_kernel.alter_table.change_types import DropFeature
from delvec_kernel.alter_table.drop_feature import properties_turned_off
from delvec_kernel.alter_table.table_update import TableState, TableUpdate
from delvec_kernel.schema.types import StructType

CHANGES = TypeAdapter(list[AnyTableChange])
LEGACY = ("appendOnly", "invariants")


class Table:
    """A version of a table with a feature."""

    def __init__(self, *features, fields=(), domains=None, protocol=None, configuration=None, **state):
        self.metadata = Metadata(
            "id",
            json.dumps({"type": "struct", "fields": list(fields or [field("id")])}),
            configuration=configuration or {},
        )
        readers = tuple(
            name
            for name in features
            if name
            in ("deletionVectors", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "timestampNtz")
        )
        reader = 3 if readers else 2 if "columnMapping" in features else 1
        self.protocol = protocol or Protocol(reader, 7, readers or None, (*LEGACY, *features))
        self.domains = domains or {}
        counts = {"deletion_vectors": 0, "with_row_ids": 0, "without_row_ids": 0, "oldest_version": 0}
        self.state = TableState(version=7, **(counts | state))

    @property
    def schema(self):
        return StructType.from_json(json.loads(self.metadata.schema_string))

    def drop(self, feature, **more):
        changes = CHANGES.validate_python([{"change": "drop-feature", "feature": feature, **more}])
        return altered(
            changes,
            metadata=self.metadata,
            protocol=self.protocol,
            domains=self.domains,
            schema=self.schema,
            state=lambda: self.state,
        )

    def first(self, feature):
        update = TableUpdate(
            self.metadata, self.protocol, self.domains, self.schema, lambda: "x", lambda: self.state
        )
        return properties_turned_off(update, DropFeature(feature=feature))


UNUSED = [
    "allowColumnDefaults",
    "changeDataFeed",
    "checkConstraints",
    "clustering",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
]


@pytest.mark.parametrize("feature", UNUSED)
def test_writer_features_are_dropped_in_one_step(feature):
    needs = ("domainMetadata",) if feature == "clustering" else ()
    made = Table(*needs, feature).drop(feature.upper())

    left = made.protocol.writer_features or ("appendOnly", "invariants")
    assert set(left) == {*LEGACY, *needs}
    assert made.metadata is None
    assert made.operation == "DROP FEATURE"
    assert made.parameters == {"featureName": feature, "truncateHistory": False}


def test_remaining_features_are_written_as_a_legacy_version_if_possible():
    assert Table("inCommitTimestamp").drop("inCommitTimestamp").protocol == Protocol(1, 2)
    old = Table(protocol=Protocol(1, 3))
    assert old.drop("checkConstraints").protocol == Protocol(1, 2)
    assert old.drop("invariants").protocol == Protocol(1, 7, None, ("appendOnly", "checkConstraints"))


READERS = {
    "deletionVectors": ({"delta.enableDeletionVectors": "true"}, {"delta.enableDeletionVectors": None}),
    "typeWidening": ({"delta.enableTypeWidening": "true"}, {"delta.enableTypeWidening": None}),
    "v2Checkpoint": ({"delta.checkpointPolicy": "v2"}, {"delta.checkpointPolicy": "classic"}),
    "vacuumProtocolCheck": ({}, {}),
}


@pytest.mark.parametrize("feature", READERS)
def test_reader_features_are_turned_off_first_and_protect_older_checkpoints(feature):
    on, off = READERS[feature]
    assert Table(feature, configuration=on).first(feature) == off
    if off:
        with pytest.raises(InvalidTableChange, match="was set again in the meantime"):
            Table(feature, configuration=on).drop(feature)

    table = Table(feature, configuration={name: value for name, value in off.items() if value})
    assert table.first(feature) == {}
    made = table.drop(feature)

    assert made.protocol == Protocol(1, 7, None, (*LEGACY, "checkpointProtection"))
    assert made.metadata.configuration["delta.requireCheckpointProtectionBeforeVersion"] == "8"


IN_USE = {
    "appendOnly": ({"configuration": {"delta.appendOnly": "true"}}, "delta.appendOnly is true"),
    "invariants": ({"fields": [field("id", nullable=False)]}, "columns are NOT NULL.*: id"),
    "checkConstraints": ({"configuration": {"delta.constraints.old": "id > 1"}}, "constraints old"),
    "changeDataFeed": ({"configuration": {"delta.enableChangeDataFeed": "true"}}, "unset it first"),
    "generatedColumns": ({"fields": [field("a", **{"delta.generationExpression": "1"})]}, "columns: a"),
    "identityColumns": ({"fields": [field("a", **{"delta.identity.start": 1})]}, "columns: a"),
    "allowColumnDefaults": ({"fields": [field("a", CURRENT_DEFAULT="1")]}, "dropped first: a"),
    "columnMapping": ({"configuration": {"delta.columnMapping.mode": "name"}}, "physical column names"),
    "deletionVectors": ({"deletion_vectors": 2}, "2 files have deletion vectors"),
    "typeWidening": ({"fields": [field("a", **{"delta.typeChanges": []})]}, "still have the old types"),
    "domainMetadata": ({"domains": {"mine": DomainMetadata("mine", "{}")}}, "set: mine"),
    "checkpointProtection": (
        {"configuration": {"delta.requireCheckpointProtectionBeforeVersion": "5"}, "oldest_version": 4},
        "versions from 4 on, and those before 5",
    ),
}


@pytest.mark.parametrize("feature", IN_USE)
def test_features_in_use_are_not_dropped_and_the_error_says_why(feature):
    facts, why = IN_USE[feature]
    with pytest.raises(InvalidTableChange, match=why):
        Table(feature, **facts).first(feature) if feature != "checkpointProtection" else Table(
            feature, **facts
        ).drop(feature, truncate_history=True)


def test_features_that_cannot_be_dropped_are_refused():
    with pytest.raises(InvalidTableChange, match="does not have the feature 'v2Checkpoint'"):
        Table("deletionVectors").drop("v2Checkpoint")
    with pytest.raises(InvalidTableChange, match="'timestampNtz' cannot be dropped; write the rows"):
        Table("timestampNtz").drop("timestampNtz")
    with pytest.raises(InvalidTableChange, match="clustering depends on it"):
        Table("domainMetadata", "clustering").drop("domainMetadata")
    with pytest.raises(InvalidTableChange, match="with truncate-history"):
        Table("checkpointProtection").drop("checkpointProtection")
    with pytest.raises(InvalidTableChange, match="without truncate-history"):
        Table("appendOnly").drop("appendOnly", truncate_history=True)


def test_checkpoint_protection_is_dropped_after_the_protected_versions_are_deleted():
    required = {"delta.requireCheckpointProtectionBeforeVersion": "5"}
    table = Table("checkpointProtection", configuration=required, oldest_version=5)

    made = table.drop("checkpointProtection", truncate_history=True)

    assert made.protocol == Protocol(1, 2)
    assert made.metadata.configuration == {}


def test_dropping_in_commit_timestamps_removes_their_properties():
    names = ("enableInCommitTimestamps", "inCommitTimestampEnablementVersion")
    configuration = {f"delta.{name}": "1" for name in names} | {"team": "red"}
    made = Table("inCommitTimestamp", configuration=configuration).drop("inCommitTimestamp")

    assert made.metadata.configuration == {"team": "red"}


def test_domain_metadata_of_delta_itself_is_removed():
    cluster = DomainMetadata("delta.clustering", '{"clusteringColumns":[]}')
    table = Table("domainMetadata", "clustering", domains={"delta.clustering": cluster})

    made = table.drop("clustering")

    assert [(each.domain, each.removed) for each in made.domains] == [("delta.clustering", True)]


def test_row_tracking_is_dropped_once_suspended_and_no_file_has_row_ids():
    names = {
        "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
    }
    domains = {"delta.rowTracking": DomainMetadata("delta.rowTracking", '{"rowIdHighWaterMark":9}')}
    on = Table("domainMetadata", "rowTracking", configuration={"delta.enableRowTracking": "true"})
    off = {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"}
    assert on.first("rowTracking") == off

    facts = {"configuration": off | names, "domains": domains}
    with pytest.raises(InvalidTableChange, match="3 files got row ids"):
        Table("domainMetadata", "rowTracking", with_row_ids=3, **facts).drop("rowTracking")
    made = Table("domainMetadata", "rowTracking", **facts).drop("rowTracking")

    assert made.protocol.writer_features == (*LEGACY, "domainMetadata")
    assert made.metadata.configuration == {}
    assert [(each.domain, each.removed) for each in made.domains] == [("delta.rowTracking", True)]
