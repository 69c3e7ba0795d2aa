"""What a commit says about the table itself, as a catalog wants to be told."""

import json

from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol
from delvec_service.catalog_client.table_changes import updates_of
from delvec_service.store.commit_coordinator import TableChange

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {
                "name": "tags",
                "type": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
                "nullable": True,
                "metadata": {},
            }
        ],
    }
)
BEFORE = Metadata("id", SCHEMA, ("a",), {"kept": "1", "changed": "1", "dropped": "1"}, description="x")


def test_a_commit_of_rows_says_nothing():
    assert updates_of(TableChange(None, None, [], BEFORE)) == []
    assert updates_of(TableChange(None, BEFORE, [], BEFORE)) == []


def test_only_differences_are_sent():
    after = Metadata("id", SCHEMA, ("a",), {"kept": "1", "changed": "2", "new": "3"}, description="x")
    assert updates_of(TableChange(None, after, [], BEFORE)) == [
        {"action": "set-properties", "updates": {"changed": "2", "new": "3"}},
        {"action": "remove-properties", "removals": ["dropped"]},
    ]


def test_columns_are_hyphenated_and_a_protocol_is_whole():
    after = Metadata("id", SCHEMA, (), BEFORE.configuration)
    protocol = Protocol(3, 7, ("catalogManaged",), ("catalogManaged", "inCommitTimestamp"))
    empty = Metadata("id", '{"type":"struct","fields":[]}', ("a",), BEFORE.configuration, description="x")
    found = {each["action"]: each for each in updates_of(TableChange(protocol, after, [], empty))}
    assert found["set-columns"]["columns"]["fields"][0]["type"] == {
        "type": "map",
        "key-type": "string",
        "value-type": "long",
        "value-contains-null": True,
    }
    assert found["set-partition-columns"]["partition-columns"] == []
    assert found["set-table-comment"]["comment"] == ""
    assert found["set-protocol"]["protocol"] == {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": ["catalogManaged"],
        "writer-features": ["catalogManaged", "inCommitTimestamp"],
    }


def test_only_the_domains_of_the_api_are_sent():
    domains = [
        DomainMetadata("delta.rowTracking", '{"rowIdHighWaterMark":7}'),
        DomainMetadata("delta.clustering", "{}", removed=True),
        DomainMetadata("mine", "{}"),
    ]
    assert updates_of(TableChange(None, None, domains, None)) == [
        {"action": "set-domain-metadata", "updates": {"delta.rowTracking": {"rowIdHighWaterMark": 7}}},
        {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
    ]
