"""Foreign commits that are written to the log incrementally."""

import json
import os
import time

import pytest

from delvec_errors import CorruptLog
from delvec_kernel import locations
from delvec_service.commits.commit_log import CommitLog
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore


def lines(table, *names):
    """The lines of a foreign commit that adds files; its first n are a commit, too."""
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}
    adds = [
        {
            "add": {
                "path": name,
                "size": table.write_file(name, [number * 1000])["size"],
                "partitionValues": {},
                "modificationTime": 1,
                "dataChange": True,
                "stats": '{"numRecords":1}',
            }
        }
        for number, name in enumerate(names)
    ]
    return [json.dumps(action) + "\n" for action in [info, *adds]]


class Growing:
    """A commit that is written in pieces."""

    def __init__(self, table, version):
        self.path = table.log / f"{version:020}.json"

    def write(self, text):
        with self.path.open("a") as file:
            file.write(text)


def planned(table, **request):
    answer = table.client.post(f"{table.url}/plan", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def paths(table):
    return {file["path"] for file in planned(table)["files"]}


OURS = {"a.parquet", "b.parquet"}


def test_a_commit_that_appears_line_by_line_is_read_as_it_is_by_then(filled):
    info, *adds = lines(filled, "1.parquet", "2.parquet", "3.parquet")
    growing = Growing(filled, 2)
    growing.write(info)
    for number, add in enumerate(adds, 1):
        growing.write(add)
        assert paths(filled) == OURS | {f"{n}.parquet" for n in range(1, number + 1)}


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_a_commit_that_is_cut_short_is_no_version_yet(filled, cut):
    text = "".join(lines(filled, "1.parquet"))
    growing = Growing(filled, 2)
    growing.write(text[:cut] if cut else "")
    if cut == -1:
        # Only the final newline is missing, so it is complete.
        assert planned(filled)["version"] == 2
        return
    assert planned(filled)["version"] == 1
    fresh = SnapshotLoader().load(ObjectStore(locations.canonical(str(filled.folder))), "people")
    assert fresh.version == 1
    growing.write(text[cut:])
    assert planned(filled)["version"] == 2
    assert paths(filled) == OURS | {"1.parquet"}


def test_a_commit_that_stays_cut_short_is_damage(filled, error):
    growing = Growing(filled, 2)
    growing.write(lines(filled, "1.parquet")[1][:30])
    os.utime(growing.path, (time.time() - 60,) * 2)
    answer = filled.client.post(f"{filled.url}/plan", json={})
    assert answer.status_code == 422
    assert error(answer)["type"] == "CorruptLog"


@pytest.mark.parametrize("others", [(), (3,), (3, 4)])
@pytest.mark.parametrize("cut", [0, 1, 20])
def test_only_the_newest_commit_may_be_cut_short(filled, error, cut, others):
    """Else a read would go back in time: rows of the later versions would disappear."""
    assert planned(filled)["version"] == 1
    text = "".join(lines(filled, "1.parquet"))
    growing = Growing(filled, 2)
    growing.write(text[:cut])
    for version in others:
        Growing(filled, version).write("".join(lines(filled, f"{version}.parquet")))
    location = locations.canonical(str(filled.folder))
    answer = filled.client.post(f"{filled.url}/plan", json={})
    if not others:
        assert answer.json()["version"] == SnapshotLoader().load(ObjectStore(location), "people").version == 1
        return
    assert (answer.status_code, error(answer)["type"]) == (422, "CorruptLog")
    with pytest.raises(CorruptLog, match="damaged at version 2"):
        SnapshotLoader().load(ObjectStore(location), "people")
    growing.write(text[cut:])
    assert planned(filled)["version"] == max(others)
    assert paths(filled) == OURS | {"1.parquet", *(f"{version}.parquet" for version in others)}


def test_of_two_commits_cut_short_the_first_is_damage(filled, error):
    for version in (2, 3):
        Growing(filled, version).write(lines(filled, "1.parquet")[1][:30])
    answer = filled.client.post(f"{filled.url}/plan", json={})
    assert (answer.status_code, error(answer)["type"]) == (422, "CorruptLog")


def test_what_grew_below_newer_commits_is_read_again(filled):
    info, first, second = lines(filled, "1.parquet", "2.parquet")
    growing = Growing(filled, 2)
    growing.write(info + first)
    assert paths(filled) == OURS | {"1.parquet"}
    Growing(filled, 3).write("".join(lines(filled, "3.parquet")))
    assert paths(filled) == OURS | {"1.parquet", "3.parquet"}
    growing.write(second)
    assert paths(filled) == OURS | {"1.parquet", "2.parquet", "3.parquet"}


def test_no_commit_follows_one_that_grew_since_it_was_read(filled, monkeypatch):
    """The late lines remove the file whose rows our commit deletes."""
    info, *_ = lines(filled)
    late = json.dumps({"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": True}}) + "\n"
    growing = Growing(filled, 2)
    growing.write(info)
    assert planned(filled)["version"] == 2
    create, grown = CommitLog.create, []

    def growing_first(self, table, version, data):
        if not grown:
            grown.append(version)
            growing.write(late)
        return create(self, table, version, data)

    monkeypatch.setattr(CommitLog, "create", growing_first)
    answer = filled.delete({"a.parquet": [0]}, read_version=1)
    assert grown == [3]
    # The rows are gone by the other commit, and there is nothing left to do.
    assert answer.status_code == 200, answer.text
    assert filled.version() == 2
    assert paths(filled) == {"b.parquet"}


def test_a_commit_goes_on_after_one_that_grew(filled, monkeypatch):
    info, first, second = lines(filled, "1.parquet", "2.parquet")
    growing = Growing(filled, 2)
    growing.write(info + first)
    create, grown = CommitLog.create, []

    def growing_first(self, table, version, data):
        if not grown:
            grown.append(version)
            growing.write(second)
        return create(self, table, version, data)

    monkeypatch.setattr(CommitLog, "create", growing_first)
    answer = filled.append(filled.write_file("mine.parquet", [7]), read_version=1)
    assert answer.status_code == 200, answer.text
    assert answer.json()["version"] == 3
    assert paths(filled) == OURS | {"1.parquet", "2.parquet", "mine.parquet"}


def test_the_database_is_not_believed_where_a_commit_changed_after_it(tmp_path, running, create):
    database = f"sqlite:///{tmp_path / 'kept.db'}"
    with running(database_url=database) as client:
        table = create(client, tmp_path / "people")
        info, first, second = lines(table, "1.parquet", "2.parquet")
        growing = Growing(table, 1)
        growing.write(info + first)
        assert table.append(table.write_file("mine.parquet", [7])).json()["version"] == 2
        assert client.service.loader.flush()
    time.sleep(0.02)
    growing.write(second)
    with running(database_url=database) as client:
        table.client = client
        assert paths(table) == {"1.parquet", "2.parquet", "mine.parquet"}


def test_own_commits_are_not_looked_at_again(filled, monkeypatch):
    """Commits that appear atomically cost nothing extra on the hot path."""
    looked = []
    head = ObjectStore.head
    monkeypatch.setattr(ObjectStore, "head", lambda self, path: looked.append(path) or head(self, path))
    for number in range(3):
        assert filled.delete({"a.parquet": [number]}).status_code == 200
    loader = filled.client.service.loader
    assert not loader._tables[locations.canonical(str(filled.folder))].young._files
    assert [path for path in looked if path.endswith(".json")] == []
