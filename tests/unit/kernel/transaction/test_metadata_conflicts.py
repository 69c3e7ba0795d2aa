"""Which changes of metadata conflict, and with what."""

import json
from dataclasses import replace

import pytest
from pyroaring import BitMap64
from tests.support.rows_in_files import SCHEMA, Facts, changes

from delvec_errors import (
    MetadataChanged,
    ProtocolChanged,
)
from delvec_kernel.actions.actions import (
    CommitInfo,
    Metadata,
    Protocol,
)
from delvec_kernel.transaction.conflict_checker import (
    CurrentTransaction,
    Passed,
    check,
)
from delvec_kernel.transaction.metadata_conflicts import conflicting_changes


def test_metadata_changes_since_an_unknown_version_conflict(table):
    ours = table.delete(table.a, [3])
    facts = Facts(2)
    table.win(CommitInfo(operation="SET"), facts.metadata)
    assert table.check(ours, facts).kind is MetadataChanged
    assert isinstance(
        check(CurrentTransaction.of(ours, facts, Facts(1)), table.winners(1), table.vectors), Passed
    )

    table.win(CommitInfo(operation="UPGRADE"), facts.protocol)

    assert (
        check(CurrentTransaction.of(ours, facts), table.winners(1)[1:], table.vectors).kind is ProtocolChanged
    )


def schema_with(**metadata):
    schema = SCHEMA.to_json()
    schema["fields"][0]["metadata"] = metadata
    return json.dumps(schema)


BEFORE = Metadata("table", schema_with(), configuration={"delta.enableRowTracking": "false"})
FEATURES = ("deletionVectors", "rowTracking", "columnMapping", "inCommitTimestamp")
NAMED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({}, []),
        ({"created_time": 7}, []),
        ({"configuration": {"delta.enableDeletionVectors": "true"}}, []),
        ({"configuration": {"delta.enableDeletionVectors": "false"}}, ["delta.enableDeletionVectors"]),
        (
            {
                "configuration": {
                    "delta.enableRowTracking": "true",
                    "delta.rowTracking.materializedRowIdColumnName": "_row",
                    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
                }
            },
            [],
        ),
        (
            {"configuration": {"delta.rowTracking.materializedRowIdColumnName": "_row"}},
            ["delta.rowTracking.materializedRowIdColumnName"],
        ),
        (
            {
                "configuration": {
                    "delta.enableInCommitTimestamps": "true",
                    "delta.inCommitTimestampEnablementVersion": "2",
                    "delta.inCommitTimestampEnablementTimestamp": "2",
                }
            },
            [],
        ),
        ({"configuration": {"delta.checkpointPolicy": "v2"}}, []),
        ({"configuration": {"delta.checkpointPolicy": "classic"}}, ["delta.checkpointPolicy"]),
        ({"configuration": NAMED}, []),
        (
            {
                "configuration": NAMED,
                "schema_string": schema_with(
                    **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
                ),
            },
            [],
        ),
        (
            {
                "configuration": NAMED,
                "schema_string": schema_with(
                    **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
                ),
            },
            ["schema"],
        ),
        ({"schema_string": schema_with(**{"delta.columnMapping.id": 1})}, ["schema"]),
        ({"configuration": {"delta.columnMapping.mode": "id"}}, ["delta.columnMapping.mode"]),
        ({"schema_string": schema_with(**{"delta.identity.highWaterMark": 7})}, []),
        ({"schema_string": schema_with(comment="the number")}, ["schema"]),
        ({"schema_string": schema_with().replace('"long"', '"string"')}, ["schema"]),
        ({"schema_string": schema_with().replace("true", "false")}, ["schema"]),
        ({"schema_string": "no schema"}, ["schema"]),
        ({"configuration": {"delta.constraints.c": "id > 0"}}, ["delta.constraints.c"]),
        ({"partition_columns": ("id",)}, ["partition columns"]),
        ({"name": "people"}, ["name"]),
        ({"description": "people"}, ["description"]),
    ],
)
def test_the_allow_list_of_metadata(change, matters):
    configuration = {**BEFORE.configuration, **change.get("configuration", {})}
    after = replace(BEFORE, **{**change, "configuration": configuration})

    assert conflicting_changes(BEFORE, after, Protocol(3, 7, (), FEATURES)) == matters


@pytest.mark.parametrize("name", ["io.unitycatalog.tableId", "ucTableId"])
def test_a_catalog_may_set_the_table_id_but_not_change_it(name):
    protocol = Protocol(3, 7, (), FEATURES)
    given = replace(BEFORE, configuration={**BEFORE.configuration, name: "1"})
    other = replace(BEFORE, configuration={**BEFORE.configuration, name: "2"})

    assert conflicting_changes(BEFORE, given, protocol) == []
    assert (
        conflicting_changes(given, other, protocol) == conflicting_changes(given, BEFORE, protocol) == [name]
    )


def test_materialized_row_id_columns_may_be_named_only_when_row_tracking_is_enabled():
    protocol, name = Protocol(3, 7, (), FEATURES), "delta.rowTracking.materializedRowIdColumnName"
    on = {"delta.enableRowTracking": "true", name: "_row"}
    off = {"delta.enableRowTracking": "false", name: "_other"}
    before, after = (replace(BEFORE, configuration=each) for each in (on, {**on, name: "_other"}))

    assert conflicting_changes(before, after, protocol) == [name]
    assert conflicting_changes(before, replace(BEFORE, configuration=off), protocol) == [
        "delta.enableRowTracking",
        name,
    ]


@pytest.mark.parametrize("name", ["delta.enableDeletionVectors", "delta.enableRowTracking"])
def test_a_property_without_its_feature_conflicts(name):
    after = replace(BEFORE, configuration={**BEFORE.configuration, name: "true"})

    assert conflicting_changes(BEFORE, after, Protocol(3, 7, (), ())) == [name]


def test_enabling_row_tracking_conflicts_only_with_copied_rows(table):
    """Copies were written without row ids; new rows get theirs, and deletes need none."""
    off = replace(Facts(1), protocol=Protocol(3, 7, FEATURES, FEATURES), metadata=BEFORE)
    appended, deleted = changes("WRITE", 1, adds=[table.file([8])]), table.delete(table.a, [3])
    copied = changes("UPDATE", 1, adds=[table.file([3])], row_deletes={table.a.path: BitMap64([3])})
    on = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
    }
    table.win(replace(BEFORE, configuration=on))

    assert isinstance(table.check(appended, off), Passed)
    assert isinstance(table.check(deleted, off), Passed)
    verdict = table.check(copied, off)
    assert verdict.kind is MetadataChanged
    assert "delta.enableRowTracking" in verdict.error("people").message
