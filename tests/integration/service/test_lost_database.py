"""Requests that are repeated after the service's database was lost: the log has what they committed."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import update
from tests.support.tables import ids

import delvec
from delvec_service.commits import commit_log
from delvec_service.commits.post_commit import PostCommit
from delvec_service.store.models import TableRow

ROWS = pa.table({"id": range(10), "age": pa.array(range(0, 100, 10), pa.int32()), "name": ["n"] * 10})
PROPERTIES = {"delta.columnMapping.mode": "name"}
BODIES = {
    "update": {"set": {"age": "age + 1"}, "predicate": "id = 3"},
    "delete": {"predicate": "name = 'n'"},
    "optimize": {},
    "purge": {"purge": True},
    "restore": {"version": 2},
    "alter": {"changes": [{"change": "drop-columns", "columns": ["name"]}]},
    "clone": {"replace": True},
}
"""By command."""


@pytest.fixture
def lake(tmp_path):
    """Another process, with a database of its own."""
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'other.db'}") as connection:
        yield connection


@pytest.fixture
def people(lake, tmp_path):
    """A table of two files, one with a deletion vector; its newest version is 3."""
    table = lake.create_table(tmp_path / "people", ROWS.schema, properties=PROPERTIES)
    table.append(ROWS.slice(0, 5))
    table.append(ROWS.slice(5))
    table.delete("id = 9")
    return table


@pytest.fixture
def empty(lake, tmp_path):
    return lake.create_table(tmp_path / "empty", ROWS.schema, properties=PROPERTIES)


def sent(client, people, empty, command, key="k", **body):
    """Register the table, send a command under a key, and return the version that it has committed."""
    for table, name in ((people, "t"), (empty, "source")):
        client.post("/v1/tables", json={"location": table.location, "name": name}).raise_for_status()
    path = (
        "/v1/tables/source/clone"
        if command == "clone"
        else f"/v1/tables/t/{command.replace('purge', 'optimize')}"
    )
    place = {"location": people.location} if command == "clone" else {}
    answer = client.post(path, json=BODIES[command] | place | body, headers={"Idempotency-Key": key})
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


def change(people, command):
    """Commit as others do after the command: what it did once, a repetition would do again, or undo."""
    if command == "alter":
        people.alter.add_columns("name string")
    people.append(ROWS.slice(0, 1))
    people.append(ROWS.slice(1, 1))
    return people.version()


def rows(people):
    return sorted(map(str, people.to_arrow().to_pylist()))


@pytest.mark.parametrize("base", [{"read-version": 3}, {}], ids=["read-version", "none"])
@pytest.mark.parametrize("command", BODIES)
@pytest.mark.every_case("each is the only one of its command")
def test_a_request_that_is_repeated_after_the_database_was_lost_takes_effect_once(
    running, people, empty, tmp_path, command, base
):
    with running(database_url=f"sqlite:///{tmp_path / 'first.db'}") as client:
        assert sent(client, people, empty, command, **base) == 4
    newest = change(people, command)
    before = rows(people)

    with running(database_url=f"sqlite:///{tmp_path / 'second.db'}") as client:
        assert sent(client, people, empty, command, **base) == 4
        assert sent(client, people, empty, command, **base) == 4

    assert people.version() == newest
    assert rows(people) == before


@pytest.mark.parametrize("command", ["restore", "alter", "clone"])
@pytest.mark.every_case("each is the only one of its command")
def test_a_request_whose_process_ended_after_its_commit_takes_effect_once(
    running, people, empty, tmp_path, monkeypatch, command
):
    database = f"sqlite:///{tmp_path / 'one.db'}"
    with running(database_url=database) as client, monkeypatch.context() as patch:
        patch.setattr(PostCommit, "run", lambda *_: 1 / 0)
        with pytest.raises(AssertionError, match="failed unexpectedly"):
            sent(client, people, empty, command)
    newest = change(people, command)
    before = rows(people)

    with running(database_url=database) as client:
        assert sent(client, people, empty, command) == 4

    assert people.version() == newest
    assert rows(people) == before


def test_only_versions_are_searched_whose_notes_a_database_may_have_lost(running, people, empty, monkeypatch):
    now, hour = time.time(), 3600
    for version, age in enumerate([26 * hour, 25 * hour, 23 * hour, -hour]):
        file = Path(people.location.removeprefix("file://"), "_delta_log", f"{version:020}.json")
        os.utime(file, (now - age, now - age))
    searched = []
    plain = commit_log.CommitLog.newest_first

    def counted(self, table, first, last):
        searched.append(range(first, last + 1))
        return plain(self, table, first, last)

    monkeypatch.setattr(commit_log.CommitLog, "newest_first", counted)
    with running() as client:
        assert sent(client, people, empty, "update") == 4
        long_ago = datetime.now(UTC) - timedelta(seconds=client.service.settings.idempotency_seconds + 1)
        with client.service.database.write() as session:
            session.execute(update(TableRow).values(created_at=long_ago))
        assert sent(client, people, empty, "delete", "l") == 5

    assert [each for each in searched if each] == [range(2, 3)]


def test_no_more_versions_are_searched_than_the_newest_ten_thousand(
    running, people, empty, tmp_path, monkeypatch
):
    monkeypatch.setattr(commit_log, "_MAX_SEARCHED_VERSIONS", 2)
    with running(database_url=f"sqlite:///{tmp_path / 'first.db'}") as client:
        assert sent(client, people, empty, "update") == 4
    people.append(ROWS.slice(0, 1))

    with running(database_url=f"sqlite:///{tmp_path / 'second.db'}") as client:
        assert sent(client, people, empty, "update") == 4
    people.append(ROWS.slice(0, 1))
    with running(database_url=f"sqlite:///{tmp_path / 'third.db'}") as client:
        assert sent(client, people, empty, "update") == 7


def test_a_vacuum_that_is_repeated_deletes_nothing_that_is_needed(running, people, empty, tmp_path):
    people.delete("id = 3")
    before = rows(people)
    body = {"retention-hours": 0, "enforce-retention-duration": False}
    for number in range(2):
        with running(database_url=f"sqlite:///{tmp_path / f'{number}.db'}") as client:
            client.post("/v1/tables", json={"location": people.location, "name": "t"}).raise_for_status()
            answer = client.post("/v1/tables/t/vacuum", json=body, headers={"Idempotency-Key": "k"})
            answer.raise_for_status()
        people.append(ROWS.slice(0, 1))

    assert len(rows(people)) == len(before) + 2
    assert set(ids(people)) == set(range(9)) - {3}
