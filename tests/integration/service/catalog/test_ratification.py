"""Staged commits: what is published, what is refused, and what a replay or a lost race gets."""

import json
import os
from pathlib import Path

import pytest
from pyroaring import BitMap64
from tests.support.catalog_client import BASE, ManagedTable

from delvec_kernel.deletion_vectors.deletion_vector import inline

ERROR = {"InvalidParameterValueException": 400, "CommitVersionConflictException": 409}


def published(table, version):
    return (Path(table.folder) / "_delta_log" / f"{version:020}.json").read_bytes()


def staged_files(table):
    return sorted((Path(table.folder) / "_delta_log" / "_staged_commits").glob("*.json"))


def refused(table, body, match, kind="InvalidParameterValueException"):
    before = table.version()
    answer = table.update(body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (ERROR[kind], kind), answer.text
    assert match in error["message"], error["message"]
    assert error["code"] == answer.status_code
    assert table.version() == before


def test_a_staged_commit_is_published_as_it_is(people):
    answer = people.commit([people.file([1, 2, 3])])
    assert answer["latest-table-version"] == 1
    assert answer["commits"] == []
    (staged,) = staged_files(people)
    assert published(people, 1) == staged.read_bytes()


def test_a_replay_is_answered_and_commits_nothing(people):
    body = people.staged([people.file([1])])
    assert people.update(body).status_code == 200
    people.commit([people.file([2])])
    again = people.update(body)
    assert again.status_code == 200
    assert again.json()["latest-table-version"] == 2


def test_a_lost_race_is_a_conflict(people):
    first, second = (people.staged([people.file([n])], version=1) for n in (1, 2))
    assert people.update(first).status_code == 200
    refused(people, second, "Another commit has version 1", "CommitVersionConflictException")


def test_who_lost_the_race_may_report_the_winners_version_as_published(people):
    """delta-spark lists the log for its report after it has chosen its version."""
    first, second = (people.staged([people.file([n])], version=1) for n in (1, 2))
    assert people.update(first).status_code == 200
    second["updates"][1]["latest-published-version"] = 1
    refused(people, second, "Another commit has version 1", "CommitVersionConflictException")


def test_a_commit_of_delvec_itself_wins_the_race(people, client):
    body = people.staged([people.file([1])])
    ours = client.post(
        "/v1/tables/sales.people/commits",
        json={"read-version": 0, "operation": "WRITE", "adds": [people.file([7])["add"]]},
    )
    assert ours.status_code == 200, ours.text
    refused(people, body, "Another commit has version 1", "CommitVersionConflictException")
    assert people.commit([people.file([2])])["latest-table-version"] == 2


def test_versions_do_not_skip(people):
    refused(people, people.staged([people.file([1])], version=2), "newest version is 0")


def damaged(text):
    def change(table):
        body = table.staged([table.file([1])])
        path = staged_files(table)[-1]
        path.write_text(text(path.read_text()))
        body["updates"][0]["commit"]["file-size"] = path.stat().st_size
        return body

    return change


def wrong(**changes):
    def change(table):
        body = table.staged([table.file([1])])
        body["updates"][0]["commit"].update(changes)
        return body

    return change


def actions(make, **commit_info):
    return lambda table: table.staged(make(table), **commit_info)


def live(table):
    lines = published(table, 1).decode().splitlines()
    return next(json.loads(line)["add"] for line in lines if '"add"' in line)


def remove(add, **fields):
    return {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, **fields}}


VECTOR = inline(BitMap64(range(6))).to_json()
ELSEWHERE = {"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 40}
CASES = {
    "a file that is missing": (
        wrong(**{"file-name": f"{2:020}.11111111-1111-4111-8111-111111111111.json"}),
        "does not exist",
    ),
    "another name": (
        wrong(**{"file-name": "../00000000000000000000.json"}),
        "is not the name of a staged commit",
    ),
    "a file of another version": (
        wrong(**{"file-name": f"{3:020}.11111111-1111-4111-8111-111111111111.json"}),
        "is not the name",
    ),
    "another size": (wrong(**{"file-size": 7}), "bytes in storage, but 7"),
    "another time": (wrong(timestamp=5), "but the request says 5"),
    "a damaged file": (damaged(lambda text: text[:-20]), "cannot be read"),
    "no commitInfo first": (damaged(lambda text: text.split("\n", 1)[1]), "does not begin with a commitInfo"),
    "two commitInfos": (damaged(lambda text: text.split("\n", 1)[0] + "\n" + text), "several 'commitInfo'"),
    "no txnId": (actions(lambda table: [table.file([1])], txnId=""), "that has a txnId"),
    "a txnId of before": (
        actions(lambda table: [table.file([1])], txnId="one"),
        "which version 1 has already",
    ),
    "a time of before": (
        actions(lambda table: [table.file([1])], inCommitTimestamp=1000),
        "must be later than",
    ),
    "a time that leaves none for others": (
        actions(lambda table: [table.file([1])], inCommitTimestamp=2**63 - 2),
        "more than a day after the service's clock",
    ),
    "a file twice": (actions(lambda table: [table.file([1])] * 2), "is added twice in one commit"),
    "a file that is not there": (
        actions(lambda table: [table.file([1], path="no.parquet")]),
        "does not exist in storage",
    ),
    "a file of another size": (actions(lambda table: [table.file([1], size=1)]), "but 1 in the request"),
    "a file elsewhere": (
        actions(lambda table: [table.file([1], path="file:///etc/passwd")]),
        "Name a new file by its URL-encoded path",
    ),
    "a live file again": (
        actions(lambda table: [{"add": {**live(table), "deletionVector": VECTOR}}]),
        "is added again, with another deletion vector",
    ),
    "a live file again, as new rows": (
        actions(lambda table: [{"add": live(table)}]),
        "readers of changes would see its rows twice",
    ),
    "changes without a feed": (
        actions(
            lambda table: [
                table.file([1]),
                {
                    "cdc": {
                        "path": "_change_data/c.parquet",
                        "partitionValues": {},
                        "size": 1,
                        "dataChange": False,
                    }
                },
            ]
        ),
        "does not have delta.enableChangeDataFeed=true",
    ),
    "damaged statistics": (
        actions(lambda table: [table.file([1], stats="{")]),
        "statistics that are not JSON",
    ),
    "a removed file that is not live": (
        actions(lambda _: [remove({"path": "no.parquet"})]),
        "is not a live file of version 1",
    ),
    "a removed file with another vector": (
        actions(lambda table: [remove(live(table), deletionVector=VECTOR)]),
        "but the live file has None",
    ),
    "a file added and removed": (
        actions(lambda table: [remove(live(table)), {"add": live(table)}]),
        "both adds and removes the file",
    ),
    "a vector without a count": (
        actions(
            lambda table: [
                remove(live(table)),
                {"add": {**live(table), "stats": "{}", "deletionVector": VECTOR}},
            ]
        ),
        "no numRecords in its statistics",
    ),
    "a vector of more rows than the file": (
        actions(lambda table: [remove(live(table)), {"add": {**live(table), "deletionVector": VECTOR}}]),
        "deletion vector of 6 rows",
    ),
    "a vector with a row beyond the file": (
        actions(
            lambda table: [
                remove(live(table)),
                {"add": {**live(table), "deletionVector": inline(BitMap64([7])).to_json()}},
            ]
        ),
        "no row index 7",
    ),
    "a vector that is not there": (
        actions(
            lambda table: [
                remove(live(table)),
                {"add": {**live(table), "deletionVector": {**VECTOR, **ELSEWHERE, "cardinality": 2}}},
            ]
        ),
        "does not exist in storage",
    ),
    "a hidden file": (actions(lambda table: [table.file([1], path="_part.parquet")]), "special meaning"),
    "a file in the log": (
        actions(lambda table: [table.file([1], path="_delta_log/part.parquet")]),
        "special meaning",
    ),
    "a file outside the table": (
        actions(lambda table: [table.file([1], path="../part.parquet")]),
        "outside table",
    ),
    "half a character": (
        actions(lambda table: [table.file([1], stats='{"numRecords":1,"minValues":{"a":"\\ud800"}}')]),
        "lone surrogate",
    ),
    "another partitioning": (
        actions(lambda table: [table.file([1], partitionValues={"x": "1"})]),
        "is partitioned by",
    ),
    "a checkpoint's action": (
        actions(lambda _: [{"checkpointMetadata": {"version": 1}}]),
        "has a 'checkpointMetadata'",
    ),
    "no feature": (
        actions(
            lambda _: [
                {
                    "protocol": {
                        "minReaderVersion": 3,
                        "minWriterVersion": 7,
                        "readerFeatures": [],
                        "writerFeatures": [],
                    }
                }
            ]
        ),
        "catalogManaged is missing",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_refused_and_nothing_is_committed(people, case):
    people.commit([people.file([1, 2, 3])], txnId="one")
    make, match = CASES[case]
    kind = "InvalidParameterValueException"
    body = make(people)
    if case == "no feature":
        answer = people.update(body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")
        assert match in answer.json()["error"]["message"]
    else:
        refused(people, body, match, kind)
    assert people.version() == 1
    assert people.commit([people.file([4])])["latest-table-version"] == 2


@pytest.mark.parametrize("operation", ["DELETE", "WRITE", "anything"])
@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"deletionVector": inline(BitMap64([9])).to_json()}, "lacks 5 of the 5 rows"),
        ({}, "5 deleted rows would come back"),
    ],
    ids=["another vector", "no vector"],
)
def test_rows_deleted_before_do_not_come_back(people, client, operation, fields, match):
    people.commit([people.file(range(10))])
    deleted = client.post("/v1/tables/sales.people/delete", json={"predicate": "id < 5"})
    assert deleted.status_code == 200, deleted.text
    add = next(
        action["add"]
        for action in client.get("/v1/tables/sales.people/commits/2").json()["actions"]
        if "add" in action
    )
    vector = add.pop("deletionVector")
    body = people.staged(
        [remove(add, deletionVector=vector), {"add": {**add, **fields}}], operation=operation
    )
    refused(people, body, match)


@pytest.mark.parametrize(("operation", "status"), [("RESTORE", 200), ("WRITE", 400)])
def test_only_a_restore_brings_old_files_back(people, operation, status):
    add = people.file([1, 2, 3])
    people.commit([add])
    people.commit([remove(add["add"])])
    os.utime(Path(people.folder) / add["add"]["path"], (1_000_000_000, 1_000_000_000))
    answer = people.update(people.staged([add], operation=operation))
    assert answer.status_code == status, answer.text
    assert status == 200 or "was written" in answer.text


def test_a_lost_database_loses_no_commit_and_a_replay_is_still_known(people, client):
    body = people.staged([people.file([1])])
    assert people.update(body).status_code == 200
    with client.service.database.write() as session:
        for table in ("transactions", "own_commits", "snapshots"):
            session.connection().exec_driver_sql(f"DELETE FROM {table}")
    client.service.loader.discard(people.location)
    assert people.version() == 1
    assert people.update(body).status_code == 200
    assert people.version() == 1


def test_a_path_table_has_no_staged_commits(client, tmp_path):
    made = client.post(
        "/v1/tables",
        json={
            "name": "sales.plain",
            "schema": {
                "type": "struct",
                "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
            },
        },
    )
    table = ManagedTable(client, "plain")
    loaded = table.load()
    assert loaded["metadata"]["table-type"] == "EXTERNAL"
    assert "commits" not in loaded
    table.uuid, table.folder = made.json()["id"], made.json()["location"].removeprefix("file://")
    answer = table.update(table.staged([table.file([1])], version=1))
    assert answer.status_code == 400
    assert "is not managed by the catalog" in answer.text
    assert client.get(f"{BASE}/tables/delvec.sales.plain").json()["table_type"] == "EXTERNAL"


def test_maintenance_leaves_open_commits_alone_and_collects_old_ones(people, client):
    people.commit([people.file([1, 2])])
    open_commit = people.staged([people.file([3])])
    (published_file,) = (path for path in staged_files(people) if path.name.startswith(f"{1:020}"))
    os.utime(published_file, (1_000_000_000, 1_000_000_000))
    for request, body in (
        ("vacuum", {"retention-hours": 168}),
        ("checkpoint", {"clean-up": True}),
    ):
        answer = client.post(f"/v1/tables/sales.people/{request}", json=body)
        assert answer.status_code < 300, answer.text
    assert [path.name for path in staged_files(people)] == [open_commit["updates"][0]["commit"]["file-name"]]
    assert people.update(open_commit).status_code == 200


def test_a_replay_whose_file_is_gone_is_no_lost_race(people):
    body = people.staged([people.file([1])])
    assert people.update(body).status_code == 200
    staged_files(people)[0].unlink()
    answer = people.update(body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "CommitStateUnknownException")
    assert people.version() == 1
