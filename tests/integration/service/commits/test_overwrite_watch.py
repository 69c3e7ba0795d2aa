"""Commits replaced by another writer are detected, reported, and dropped from memory and database."""

import json
import threading
import time
import uuid
from dataclasses import replace

import pytest
from tests.support.in_process_service import running_service

from delvec_errors import ServiceUnavailable
from delvec_kernel.locations import table_id
from delvec_service.commits import fault_points
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.store.own_commits import OwnCommit, OwnCommitStore

WAIT = 60


@pytest.fixture
def client(tmp_path):
    """With a database that outlives the service."""
    with running_service(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        yield client


def replace_commit(table, version, *, engine="a writer that renames", adds=()):
    """Replace a commit, as a writer that checks and then renames would."""
    info = {"operation": "WRITE", "engineInfo": engine, "txnId": str(uuid.uuid4()), "timestamp": 1}
    actions = [{"commitInfo": info}, *({"add": {**add, "dataChange": True}} for add in adds)]
    assert table.client.service.log_maintenance.wait(WAIT)  # the checksum is always written first
    temporary = table.log / f".{version}.tmp"
    temporary.write_text("\n".join(map(json.dumps, actions)))
    temporary.rename(table.log / f"{version:020}.json")
    return info["txnId"]


def own(table):
    return table.client.service.overwrite_watch


def overwritten(table):
    assert own(table).wait(WAIT)
    return table.client.get(f"{table.url}/health").json()["overwritten-commits"]


def num_files(table):
    return table.client.get(f"{table.url}/snapshot").json()["num-files"]


def test_nothing_is_said_of_commits_that_stay(filled):
    filled.delete({"a.parquet": [1]})

    assert overwritten(filled) == []


def test_a_newest_commit_that_was_replaced_is_found(filled):
    key = filled.append(filled.write_file("c.parquet", [1])).json()["transaction-id"]
    assert num_files(filled) == 3
    other = replace_commit(filled, 2)

    (found,) = overwritten(filled)

    assert found.pop("found-at")
    assert found == {
        "version": 2,
        "transaction-id": key,
        "by-operation": "WRITE",
        "by-engine": "a writer that renames",
        "by-transaction-id": other,
    }
    assert num_files(filled) == 2


def test_a_commit_that_others_follow_is_found_and_what_was_read_is_forgotten(filled):
    for name in ("c.parquet", "d.parquet", "e.parquet"):
        filled.append(filled.write_file(name, [1]))
    assert num_files(filled) == 5
    filled.client.service.loader.flush()
    replace_commit(filled, 3)

    (found,) = overwritten(filled)

    assert found["version"] == 3
    assert num_files(filled) == 4


def test_a_file_that_was_only_written_again_is_still_the_commit(filled):
    answer = filled.delete({"a.parquet": [1]})
    path = filled.log / f"{answer.json()['version']:020}.json"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)

    assert overwritten(filled) == []


@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_check_reports_a_damaged_own_commit(filled, is_replaced):
    for name in ("c.parquet", "d.parquet"):
        filled.append(filled.write_file(name, [1]))
    path = filled.log / f"{2:020}.json"
    path.write_bytes(path.read_bytes()[:50])
    if is_replaced:
        replace_commit(filled, 3)

    checked = filled.client.get(f"{filled.url}/check")

    assert checked.status_code == 200, checked.text
    assert ("readable-commit", 2) in [
        (one["invariant"], one["version"]) for one in checked.json()["findings"]
    ]


def test_a_table_that_was_made_anew_in_its_place_is_no_news(filled, create):
    assert filled.client.service.log_maintenance.wait(WAIT)  # or it may write to the log in between
    filled.client.delete(filled.url)
    for path in filled.log.iterdir():
        path.unlink()
    again = create(filled.client, filled.folder)
    again.append(again.write_file("z.parquet", [1]))

    assert overwritten(again) == []


def test_a_commit_in_the_middle_of_a_suspicion_is_watched(filled, monkeypatch):
    service = filled.client.service
    objects = service.tables.open(filled.name).objects
    store = OwnCommitStore(service.database)
    commit = store.newest(table_id(objects.location))[-1]
    watch = OverwriteWatch(service.loader, store, own(filled)._answers, pause=1e-3)
    schedule = watch._worker.schedule

    def commit_once_it_was_looked_at():
        while objects.location in watch._watches:
            time.sleep(0.01)
        watch.committed(objects, filled.name, commit, [commit.key])

    other = threading.Thread(target=commit_once_it_was_looked_at)

    def scheduled(key, item, *, after=0.0):
        if not after and other.ident is None:
            other.start()
            other.join(1)  # it must wait until the suspicion is settled
        schedule(key, item, after=after)

    monkeypatch.setattr(watch._worker, "schedule", scheduled)
    watch.suspect(objects, filled.name)
    other.join(WAIT)
    assert watch._worker.wait(WAIT)
    assert objects.location in watch._watches
    watch.close()


def test_a_look_that_ends_late_leaves_the_watch_that_was_begun_since(filled):
    service = filled.client.service
    objects = service.tables.open(filled.name).objects
    store = OwnCommitStore(service.database)
    commit = store.newest(table_id(objects.location))[-1]
    watch = OverwriteWatch(service.loader, store, own(filled)._answers, pause=WAIT)
    watch.suspect(objects, filled.name)
    ended = watch._watches[objects.location]
    assert watch._worker.wait(WAIT)
    assert objects.location not in watch._watches

    watch.committed(objects, filled.name, commit, [commit.key])
    watch._look(ended)

    assert watch.version_of(objects.location, commit.key) == commit.version
    watch.close()


def test_a_check_finds_what_happened_while_no_service_ran(filled, running, tmp_path):
    filled.delete({"a.parquet": [1]})
    filled.delete({"a.parquet": [2]})
    replace_commit(filled, 2)

    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        checked = client.get(f"{filled.url}/check").json()
        (finding,) = [one for one in checked["findings"] if one["invariant"] == "own-commit"]
        assert (finding["severity"], finding["version"]) == ("error", 2)
        assert "a writer that renames" in finding["message"]
        (found,) = client.get(f"{filled.url}/health").json()["overwritten-commits"]
        assert found["version"] == 2


def test_a_writer_that_asks_again_is_told(filled, error):
    request = {"transaction_id": "mine", "read_version": 1}
    add = filled.write_file("c.parquet", [1])
    assert filled.append(add, **request).json()["version"] == 2
    replace_commit(filled, 2)

    answers = [filled.append(add, **request) for _ in range(2)]

    for answer in answers:
        assert answer.status_code == 409
        found = error(answer)
        assert found["type"] == "CommitOverwritten"
        assert found["details"]["conflict"]["winning-version"] == 2
        assert found["details"]["transaction_id"] == "mine"
    assert filled.version() == 2
    assert filled.append(add, transaction_id="again").json()["version"] == 3


@pytest.fixture
def seldom(running, create, tmp_path):
    """A table with a file at version 1, of a service that looks at a log by itself only after an hour."""
    with running(database_url=f"sqlite:///{tmp_path / 'seldom.db'}") as client:
        table = create(client, tmp_path / "seldom")
        own(table)._pause = 3600.0
        assert table.append(table.write_file("a.parquet", range(10))).status_code == 200
        yield table


def found_by_itself(table, count):
    """Return the versions of ``count`` replaced commits, once the service has found them without a request for it."""
    location = table.client.service.tables.open(table.name).objects.location
    end = time.monotonic() + WAIT
    while len(found := own(table).overwritten(location)) < count and time.monotonic() < end:
        time.sleep(0.02)  # the watch reports them one by one
    return sorted(one.version for one in found)


def test_a_writer_that_asks_again_has_the_log_looked_at(seldom, error):
    """Other replaced commits are reported, and caches are dropped, without waiting."""
    own(seldom).wait(WAIT)  # the watch over the table has been set up with its long pause
    request = {"transaction_id": "mine", "read_version": 1}
    add = seldom.write_file("c.parquet", [1])
    assert seldom.append(add, **request).json()["version"] == 2
    assert seldom.append(seldom.write_file("d.parquet", [1]), transaction_id="theirs").json()["version"] == 3
    seldom.client.service.loader.flush()
    replace_commit(seldom, 2)
    replace_commit(seldom, 3)

    assert error(seldom.append(add, **request))["type"] == "CommitOverwritten"

    assert found_by_itself(seldom, 2) == [2, 3]


def test_what_a_reader_finds_replaced_has_the_log_looked_at(seldom):
    assert own(seldom).wait(WAIT)
    seldom.append(seldom.write_file("c.parquet", [1]))
    replace_commit(seldom, 2)

    assert num_files(seldom) == 1  # it reads the log again, and says so

    assert found_by_itself(seldom, 1) == [2]


def test_another_replica_tells_the_writer_too(filled, running, error, tmp_path):
    request = {"read-version": 1, "operation": "WRITE", "adds": [filled.write_file("c.parquet", [1])]}
    headers = {"Idempotency-Key": "mine"}
    first = filled.client.post(f"{filled.url}/commits", json=request, headers=headers)
    assert first.json()["version"] == 2
    replace_commit(filled, 2)
    assert len(overwritten(filled)) == 1

    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        again = client.post(f"{filled.url}/commits", json=request, headers=headers)

    assert error(again)["type"] == "CommitOverwritten"
    assert filled.version() == 2


def test_a_commit_that_read_what_is_gone_is_told(filled, error):
    filled.append(filled.write_file("c.parquet", [1, 2]))
    replace_commit(filled, 2, adds=[filled.write_file("d.parquet", [3])])

    answer = filled.delete({"c.parquet": [0]}, read_version=2)

    assert answer.status_code == 409
    found = error(answer)
    assert found["type"] == "CommitOverwritten"
    assert "Version 2 of the table is not" in found["message"]
    assert filled.delete({"d.parquet": [0]}, read_version=2).json()["version"] == 3


def test_a_database_that_is_away_does_not_keep_it_from_being_found(filled, monkeypatch):
    filled.delete({"a.parquet": [1]})
    for method in ("newest", "note", "overwritten"):
        monkeypatch.setattr(OwnCommitStore, method, away)
    replace_commit(filled, 2)

    assert [one["version"] for one in overwritten(filled)] == [2]


def away(*_arguments, **_options):
    raise ServiceUnavailable("the database is away")


def test_what_is_old_is_not_watched_any_more(filled):
    service = filled.client.service
    objects = service.tables.open(filled.name).objects
    watcher = OverwriteWatch(
        service.loader, OwnCommitStore(service.database), own(filled)._answers, watch_seconds=0
    )
    watcher.committed(objects, filled.name, OwnCommit(1, "key", 10, "m"), ["key"])

    assert watcher.wait(WAIT)

    assert objects.location not in watcher._watches
    assert objects.location in own(filled)._watches
    watcher.close()


def plan(table):
    return table.client.post(f"{table.url}/plan", json={}).json()


MARKS = {
    "plan": lambda table: plan(table)["read-mark"],
    "snapshot": lambda table: table.client.get(f"{table.url}/snapshot").json()["read-mark"],
    "begin": lambda table: table.client.post(f"{table.url}/transactions", json={"operation": "WRITE"}).json()[
        "read-mark"
    ],
}


@pytest.mark.parametrize("source", MARKS)
@pytest.mark.parametrize("followed", [False, True], ids=["newest", "followed by others"])
def test_a_commit_that_rests_on_a_version_that_is_gone_is_told(filled, error, source, followed):
    """All its files exist, but so do changes that it did not see."""
    filled.append(filled.write_file("c.parquet", [1]))
    mark = MARKS[source](filled)
    if followed:
        filled.append(filled.write_file("d.parquet", [1]))
    replace_commit(filled, 2, adds=[filled.write_file("theirs.parquet", [77])])

    told = error(filled.delete({"a.parquet": [0]}, read_version=2, read_mark=mark))

    assert (told["type"], told["retryable"]) == ("CommitOverwritten", True)
    assert told["details"]["version"] == 2
    assert filled.version() == (3 if followed else 2)
    assert num_files(filled) == (4 if followed else 3)
    again = filled.delete({"a.parquet": [0]}, read_mark=MARKS[source](filled))
    assert again.status_code == 200, again.text


def _mark_of(table, version):
    return table.client.get(f"{table.url}/snapshot", params={"version": version}).json()["read-mark"]


def test_a_version_that_stays_has_one_mark_in_every_replica(filled, running, tmp_path):
    before = [_mark_of(filled, version) for version in range(2)]
    filled.delete({"a.parquet": [1]})
    with running(database_url=f"sqlite:///{tmp_path / 'other.db'}") as client:
        client.post("/v1/tables", json={"location": str(filled.folder), "name": filled.name})
        theirs = [_mark_of(replace(filled, client=client), version) for version in range(3)]
    assert theirs == [*before, plan(filled)["read-mark"]]
    assert len(set(theirs)) == 3


def test_a_mark_that_passed_is_asked_again_where_another_commit_was_first(filled, error):
    """The read version can be replaced between two attempts, too."""
    mark, service = plan(filled)["read-mark"], filled.client.service
    appended = filled.write_file("first.parquet", [5])

    def another_first():
        filled.append(appended, read_version=1)
        replace_commit(filled, 1, adds=[filled.write_file("theirs.parquet", [7])])

    once = iter([another_first])

    def before_put():
        for call in once:
            call()

    with fault_points.armed(before_put=before_put):
        told = error(filled.append(filled.write_file("second.parquet", [6]), read_version=1, read_mark=mark))
    assert told["type"] == "CommitOverwritten", told
    assert service.loader.load(service.tables.open(filled.name).objects, "people").version == 2


def test_a_mark_says_nothing_where_the_log_was_cleaned_up(filled):
    """What cannot be told is no reason to refuse: that its winners are gone is another error's matter."""
    mark = plan(filled)["read-mark"]
    assert filled.delete({"a.parquet": [0]}, read_mark="0-0").status_code == 409
    assert filled.client.post(f"{filled.url}/checkpoint").status_code < 300
    (filled.log / f"{1:020}.json").unlink()
    answer = filled.delete({"a.parquet": [0]}, read_version=1, read_mark=mark)
    assert answer.status_code == 200, answer.text
