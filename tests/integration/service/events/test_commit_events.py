"""Commits become events, whoever made them, and whatever happens to the service in between."""

import json
import shutil

import httpx
import pytest
from tests.chaos.replica import Replica
from tests.integration.service.conftest import SCHEMA

from delvec_errors import ServiceUnavailable
from delvec_service.events import commit_events


@pytest.fixture
def settings(tmp_path):
    return {"roots": (str(tmp_path),), "database_url": f"sqlite:///{tmp_path / 'store.db'}"}


def create(client, folder, **body):
    request = {"location": str(folder), "schema": SCHEMA, **body}
    client.post("/v1/tables", json=request).raise_for_status()


def alter(client, table, value):
    body = {"changes": [{"change": "set-properties", "properties": {"x": value}}]}
    answer = client.post(f"/v1/tables/{table}/alter", json=body)
    answer.raise_for_status()
    return answer.json()["version"]


def commits(client, **query):
    assert client.service.events.wait(30)
    answer = client.get("/v1/events", params={"type": "delvec.commit", **query})
    answer.raise_for_status()
    return answer.json()["events"]


def versions(client, **query):
    return [event["data"]["version"] for event in commits(client, **query)]


def by_hand(folder, version, operation="WRITE"):
    """Commit as another writer does."""
    name = folder / "_delta_log" / f"{version:020d}.json"
    name.write_text(json.dumps({"commitInfo": {"operation": operation, "engineInfo": "other"}}) + "\n")


def test_every_commit_is_an_event_of_its_own(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        for value in "abc":
            alter(client, "people", value)
        events = commits(client)

    assert [event["data"]["version"] for event in events] == [0, 1, 2, 3]
    assert len({event["id"] for event in events}) == 4
    assert [event["data"]["operation"] for event in events] == ["CREATE TABLE"] + ["SET TBLPROPERTIES"] * 3
    assert events[0]["specversion"] == "1.0"
    assert events[0]["subject"] == "people"
    assert events[0]["source"].startswith("/v1/tables/")


def test_commits_of_other_writers_are_events(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        by_hand(tmp_path / "people", 1, "DELETE")
        (_, foreign) = commits(client)
    assert foreign["data"]["operation"] == "DELETE"
    assert foreign["data"]["engineInfo"] == "other"


def test_the_event_of_a_huge_commit_has_its_gist_only(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        name = tmp_path / "people" / "_delta_log" / f"{1:020d}.json"
        info = {
            "operation": "WRITE",
            "readVersion": 0,
            "userMetadata": "x" * 1_000_000,
            "isolationLevel": "y" * 2000,
        }
        name.write_text(json.dumps({"commitInfo": info}) + "\n")
        (_, foreign) = commits(client)
    assert foreign["data"].pop("timestamp") > 0
    assert foreign["data"] == {"version": 1, "operation": "WRITE", "readVersion": 0}


@pytest.mark.full("kills a process and waits for its leases")
def test_a_commit_whose_process_died_is_an_event(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
    replica = Replica(0, tmp_path, str(tmp_path), settings["database_url"])
    replica.start(fault_points="after-put:kill")
    assert replica.wait(), replica.tail()
    with httpx.Client(base_url=replica.url, timeout=60) as client, pytest.raises(httpx.TransportError):
        alter(client, "people", "a")
    assert replica.ended() == -9, replica.tail()
    with running(**settings) as client:
        assert versions(client) == [0, 1]


def test_a_commit_made_while_the_database_was_away_is_an_event(running, settings, tmp_path, monkeypatch):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        assert versions(client) == [0]
        store = client.service.events.store
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "record", _away)
            alter(client, "people", "a")
            assert client.service.events.wait(30)
        assert versions(client) == [0, 1]


def _away(*_args):
    raise ServiceUnavailable("away")


def test_a_lost_database_loses_no_event(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        alter(client, "people", "a")
        before = commits(client)
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    with running(**settings) as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people")}).raise_for_status()
        after = commits(client)
    assert [event["id"] for event in after] == [event["id"] for event in before]


def test_a_long_history_from_before_the_registration_is_no_event(running, settings, tmp_path, monkeypatch):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        alter(client, "people", "a")
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    monkeypatch.setattr(commit_events, "_CLOCKS", -commit_events._CLOCKS)
    with running(**settings) as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people")}).raise_for_status()
        assert versions(client) == []
        alter(client, "people", "b")
        assert versions(client) == [2]


def test_a_table_in_the_place_of_another_begins_again(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        alter(client, "people", "a")
        assert versions(client) == [0, 1]
        shutil.rmtree(tmp_path / "people")
        create(client, tmp_path / "people", properties={"y": "2"})
        assert versions(client) == [0, 1, 0]
        assert len({event["id"] for event in commits(client)}) == 3


def test_a_replaced_commit_is_another_event(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        by_hand(tmp_path / "people", 1, "WRITE")
        assert versions(client) == [0, 1]
        by_hand(tmp_path / "people", 1, "DELETE")
        assert [event["data"].get("operation") for event in commits(client)][-1] == "DELETE"


def test_an_incomplete_commit_waits(running, settings, tmp_path):
    with running(**settings) as client:
        create(client, tmp_path / "people")
        file = tmp_path / "people" / "_delta_log" / f"{1:020d}.json"
        file.write_text('{"commitInfo": {"opera')
        assert versions(client) == [0]
        by_hand(tmp_path / "people", 1)
        by_hand(tmp_path / "people", 2)
        assert versions(client) == [0, 1, 2]


def test_many_commits_are_recorded_in_batches(running, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(commit_events, "_BATCH", 3)
    with running(**settings) as client:
        create(client, tmp_path / "people")
        for version in range(1, 9):
            by_hand(tmp_path / "people", version)
        assert versions(client) == list(range(9))


def test_two_replicas_record_each_commit_once(running, settings, tmp_path):
    with running(**settings) as one, running(**settings) as two:
        create(one, tmp_path / "people")
        for value, client in enumerate((one, two, one, two)):
            alter(client, "people", str(value))
        for client in (one, two):
            assert versions(client) == [0, 1, 2, 3, 4]


def test_nothing_is_recorded_if_that_is_off(running, settings, tmp_path):
    with running(**settings, event_days=0) as client:
        create(client, tmp_path / "people")
        assert client.service.events.wait(10)
        assert client.service.events.store.outbox().position == 0
        answer = client.get("/v1/events")
        assert answer.status_code == 400
        assert "DELVEC_EVENT_DAYS" in answer.json()["error"]["message"]
