"""Tables of another catalog: what is read, and whose a version is, whatever the catalog answers."""

import json
import os
import threading

import pyarrow as pa
import pytest
from tests.support.foreign_catalog import ForeignTable, error

import delvec
from delvec_errors import (
    CatalogUnavailable,
    CommitOutcomeUnknown,
    InvalidCommit,
    MissingLogFile,
    PermissionDenied,
    ServiceUnavailable,
    StorageError,
    TableNotFound,
    TooManyRequests,
    UnsupportedOperation,
    UnsupportedReaderFeature,
)
from delvec_service.catalog_client.unity_catalog import CatalogAnswer, UnityCatalog
from delvec_service.maintenance.log_cleanup import clean_up
from delvec_service.store.managed_log import ManagedLog


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for module in ("store.managed_log", "catalog_client.catalog_table", "catalog_client.unity_catalog"):
        monkeypatch.setattr(f"delvec_service.{module}._PAUSE_SECONDS", 0.001)


def ids(table, **options):
    return sorted(table.to_arrow(**options)["id"].to_pylist())


def rows(*values):
    return pa.table({"id": pa.array(values, pa.int64())})


def updates(server, path="people"):
    return [each for each in server.requests if each[0] == "POST" and each[1].endswith(path)]


def instead(server, *answers, method="POST"):
    """Have the server answer requests of a method with each of some functions of what does the request, then as always."""
    waiting = list(answers)

    def answer(asked, path, body, act):
        return waiting.pop(0)(act) if asked == method and path.endswith("/people") and waiting else act()

    server.instead = answer


# --- reading --------------------------------------------------------------------------------------------


def test_unpublished_versions_are_read(theirs, people):
    theirs.append([1, 2])
    theirs.append([3])
    assert theirs.published() == [0]
    assert ids(people) == [1, 2, 3]
    assert ids(people, version=1) == [1, 2]
    assert [each["version"] for each in people.history()][:2] == [2, 1]


def test_a_version_above_the_catalogs_latest_is_not_read(theirs, people):
    theirs.append([1])
    staged = theirs.stage([2])
    (theirs.log / f"{2:020}.json").write_bytes(
        (theirs.log / "_staged_commits" / staged["file-name"]).read_bytes()
    )
    assert ids(people) == [1]


def test_the_catalogs_file_counts_and_not_a_log_entry_of_somebody_else(theirs, people):
    theirs.append([1])
    other = theirs.stage([2], version=1)
    (theirs.log / f"{1:020}.json").write_bytes(
        (theirs.log / "_staged_commits" / other["file-name"]).read_bytes()
    )
    assert ids(people) == [1]


def test_what_the_catalog_published_meanwhile_is_the_same_version(server, theirs, people):
    theirs.append([1])
    assert ids(people) == [1]
    name = theirs.commits.pop(1)["file-name"]
    (theirs.log / "_staged_commits" / name).rename(theirs.log / f"{1:020}.json")
    assert ids(people) == [1]
    theirs.append([2])
    assert ids(people) == [1, 2]


def test_a_location_is_not_read_without_the_catalog(theirs, people, lake, tmp_path):
    theirs.append([1])
    assert ids(lake.table(theirs.folder)) == [1]  # this connection knows whose it is
    lake._service.service.loader.flush()
    database = f"sqlite:///{tmp_path / 'store0.db'}"
    with (
        delvec.connect(database_url=database, roots=[tmp_path / "lake"]) as other,
        pytest.raises(UnsupportedReaderFeature, match="through the catalog"),
    ):
        other.table(theirs.folder).to_arrow()


# --- commits --------------------------------------------------------------------------------------------


def test_a_commit_is_ratified_published_and_reported(server, theirs, people):
    theirs.append([1, 2])
    people.append(rows(3, 4))
    people.delete("id in (2, 3)")
    assert theirs.latest == 3
    assert theirs.published() == [0, 1, 2, 3]
    assert theirs.commits == {}
    assert ids(people) == [1, 4]


def test_a_change_of_the_table_is_repeated_to_the_catalog(theirs, people):
    people.alter.set_properties({"team.owner": "me"})
    people.alter.add_columns("tags array<string>")
    people.alter.unset_properties(["team.owner"])
    by_action = {each["action"]: each for each in theirs.updates}
    assert by_action["set-properties"]["updates"] == {"team.owner": "me"}
    assert by_action["remove-properties"]["removals"] == ["team.owner"]
    tags = by_action["set-columns"]["columns"]["fields"][-1]
    assert tags["type"] == {"type": "array", "element-type": "string", "contains-null": True}


def effect_lost(act):
    act()
    return error(500, "InternalServerErrorException")


def connection_lost(act):
    act()


def as_conflict(act):
    act()
    return error(409, "CommitVersionConflictException")


def refused_after_the_effect(act):
    act()
    return error(400, "InvalidParameterValueException")


def nonsense(act):
    act()
    return 200, b"<html>proxy</html>"


@pytest.mark.parametrize(
    "answer", [effect_lost, connection_lost, as_conflict, refused_after_the_effect, nonsense]
)
def test_a_commit_whose_answer_is_lost_or_wrong_is_made_once(server, theirs, people, answer):
    instead(server, answer)
    people.append(rows(1, 2))
    assert theirs.latest == 1
    assert theirs.published() == [0, 1]
    assert ids(people) == [1, 2]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _act: error(500, "InternalServerErrorException"),
        lambda _act: error(503, "TemporarilyUnavailable"),
        lambda _act: error(409, "UpdateRequirementConflictException"),
        lambda _act: None,
        lambda _act: (429, b"slow down"),
    ],
)
def test_a_request_without_an_effect_is_sent_again(server, theirs, people, answer):
    instead(server, answer, answer)
    people.append(rows(1))
    assert theirs.latest == 1
    assert ids(people) == [1]


def test_an_answer_that_never_comes_leaves_the_outcome_open(server, theirs, people):
    kept = []

    def later(act):
        kept.append(act)
        return error(500, "CommitStateUnknownException")

    instead(server, *[later] * 200)
    with pytest.raises(CommitOutcomeUnknown):
        people.append(rows(1))
    assert theirs.latest == 0
    server.instead = None
    for act in kept:  # now they arrive
        act()
    assert theirs.latest == 1
    assert ids(people) == [1]


def test_an_accepted_commit_that_the_catalog_does_not_have_is_not_believed(server, theirs, people):
    instead(server, *[lambda _act: (200, theirs.answer())] * 200)
    with pytest.raises(CommitOutcomeUnknown, match="does not list it"):
        people.append(rows(1))
    server.instead = None
    assert ids(people) == []


def test_a_lost_race_is_rebased_by_rows(server, theirs, people):
    theirs.append([1, 2, 3])

    def overtaken(act):
        server.instead = None
        theirs.append([4])
        return act()

    instead(server, overtaken)
    people.delete("id = 2")
    assert theirs.latest == 3
    assert ids(people) == [1, 3, 4]


def test_a_full_list_is_published_first(theirs, people):
    for number in range(10):
        theirs.append([number])
    people.append(rows(99))
    assert theirs.latest == 11
    assert theirs.published() == list(range(12))
    assert ids(people) == [*range(10), 99]


def test_a_version_that_could_not_be_published_is_read_and_published_later(
    theirs, people, connected, monkeypatch
):
    def broken(*_):
        raise StorageError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(ManagedLog, "publish", broken)
        people.append(rows(1))
    assert theirs.published() == [0]
    other = connected().table("main.sales.people")
    assert ids(other) == ids(people) == [1]
    other.append(rows(2))
    assert theirs.published() == [0, 1, 2]
    assert ids(people) == [1, 2]


def test_old_staged_commits_that_are_versions_are_not_cleaned_up(theirs, people, lake):
    theirs.append([1])
    theirs.allowed = ["METADATA_CLEANUP"]
    lost = theirs.stage([2], version=1)["file-name"]
    for path in (theirs.log / "_staged_commits").iterdir():
        os.utime(path, (0, 0))
    tables = lake._service.service.tables
    cleaned = clean_up(tables.open("main.sales.people"), lake._service.service.loader)
    assert [path.rpartition("/")[2] for path in cleaned.deleted] == [lost]
    assert ids(people) == [1]


def test_a_catalog_that_takes_nothing_is_reported_and_nothing_is_committed(server, theirs, people):
    instead(server, *[lambda _act: error(429, "TooManyRequestsException")] * 40)
    with pytest.raises(TooManyRequests):
        people.append(rows(1))
    assert theirs.latest == 0


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(400, "InvalidParameterValueException", "bad file"), InvalidCommit),
        (error(403, "PermissionDeniedException"), PermissionDenied),
        ((401, b""), PermissionDenied),
        ((404, {"error_code": "TABLE_DOES_NOT_EXIST", "message": "gone"}), TableNotFound),
        ((413, b""), InvalidCommit),
    ],
)
def test_a_refused_commit_is_an_error(server, theirs, people, answer, raised):
    instead(server, lambda _act: answer)
    with pytest.raises(raised):
        people.append(rows(1))
    assert theirs.latest == 0
    assert len(updates(server)) == 1


def test_a_catalog_that_is_gone_is_reported_and_nothing_is_committed(theirs, people, monkeypatch):
    people.append(rows(1))
    monkeypatch.setattr(UnityCatalog, "update", lambda *_: CatalogAnswer(-1, said="connection refused"))
    with pytest.raises(ServiceUnavailable, match="nothing was committed"):
        people.append(rows(2))
    assert theirs.latest == 1


def test_writers_at_once_lose_nothing(server, theirs, connected):
    tables = [connected().table("main.sales.people") for _ in range(2)]
    theirs.append(list(range(100, 110)))

    def write(number, table):
        for each in range(3):
            table.append(rows(10 * number + each))
            table.delete(f"id = {100 + 5 * number + each}")

    threads = [threading.Thread(target=write, args=each) for each in enumerate(tables)]
    for thread in threads:
        thread.start()
    for each in range(3):
        with server.lock:
            theirs.append([1000 + each])
    for thread in threads:
        thread.join()
    assert (
        ids(tables[0])
        == ids(tables[1])
        == [
            *(0, 1, 2, 10, 11, 12),
            *(103, 104, 108, 109),
            *(1000, 1001, 1002),
        ]
    )
    assert theirs.latest == 16
    staged = {path.name for path in (theirs.log / "_staged_commits").iterdir()}
    assert {name for version, name in theirs.names.items()} <= staged


# --- answers that cannot be true ------------------------------------------------------------------------


def test_a_stale_answer_is_asked_again(server, theirs, people):
    old = json.dumps(theirs.answer()).encode()
    theirs.append([1])
    assert ids(people) == [1]
    instead(server, *[lambda _act: (200, old)] * 3, method="GET")
    assert ids(people) == [1]
    instead(server, *[lambda _act: (200, old)] * 100, method="GET")
    with pytest.raises(CatalogUnavailable, match="stale"):
        people.to_arrow()


def changed(theirs, **changes):
    answer = theirs.answer()
    commit = changes.pop("commit", None)
    if commit is not None:
        answer["commits"] = [{**each, **commit} for each in answer["commits"]]
    return 200, {**answer, **changes}


@pytest.mark.parametrize(
    ("change", "raised", "match"),
    [
        ({"latest-table-version": 9}, MissingLogFile, "neither the log nor the catalog"),
        ({"latest-table-version": None}, CatalogUnavailable, "no latest-table-version"),
        ({"latest-table-version": 0}, CatalogUnavailable, "above the latest"),
        ({"commit": {"file-name": "../../../secret.json"}}, CatalogUnavailable, "names"),
        ({"commit": {"file-name": f"{2:020}.x/{1:020}.json"}}, CatalogUnavailable, "names"),
        ({"commit": {"file-size": 5}}, Exception, "bytes"),
        ({"commits": [{}] * 2000}, CatalogUnavailable, "at most 1000"),
        ({"commits": "x" * 100}, CatalogUnavailable, "not one of the Unity Catalog Delta API"),
    ],
)
def test_a_false_answer_is_refused(server, theirs, people, change, raised, match):
    theirs.append([1])
    instead(server, *[lambda _act: changed(theirs, **change)] * 100, method="GET")
    with pytest.raises(raised, match=match):
        people.to_arrow()
    server.instead = None
    assert ids(people) == [1]


def test_another_table_under_the_name_is_not_the_opened_one(server, theirs, people, tmp_path, lake):
    theirs.append([1])
    other = server.tables["main.sales.people"] = ForeignTable(tmp_path / "lake" / "successor")
    other.append([7])
    with pytest.raises(TableNotFound, match="another table"):
        people.to_arrow()
    with pytest.raises(TableNotFound, match="another table"):
        people.append(rows(8))
    assert ids(lake.table("main.sales.people")) == [7]


# --- maintenance ----------------------------------------------------------------------------------------


def test_only_the_maintenance_that_the_catalog_allows_is_done(theirs, people):
    for number in range(3):
        people.append(rows(number))
    for command in (people.optimize, lambda: people.vacuum(0, enforce_retention_duration=False)):
        with pytest.raises(UnsupportedOperation, match="allowed-maintenance-operations"):
            command()
    theirs.allowed = ["DATA_REORGANIZATION", "DATA_CLEANUP"]
    people.optimize()
    assert ids(people) == [0, 1, 2]
    theirs.append([3])
    people.vacuum(0, enforce_retention_duration=False)
    assert ids(people) == [0, 1, 2, 3]


def test_a_checkpoint_is_of_a_published_version(theirs, people):
    theirs.append([1])
    theirs.append([2])
    people.checkpoint()
    assert theirs.published() == [0, 1, 2]
    assert theirs.commits == {}
    assert ids(people) == [1, 2]
