"""``/v1/events``: pages, waiting, streams, and who may read what."""

import json
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from tests.integration.service.conftest import SCHEMA
from tests.support.served import served

from delvec_service.api import events_routes

ADMIN = "the-configured-token"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def guarded(running, tmp_path):
    """A service with the tables ``sales.orders`` and ``hr.people``, and tokens of readers of each namespace."""
    settings = {"roots": (str(tmp_path),), "database_url": f"sqlite:///{tmp_path / 'store.db'}"}
    with running(token=ADMIN, **settings) as client:
        client.headers.update(bearer(ADMIN))
        client.tokens = {}
        for name in ("sales.orders", "hr.people"):
            client.post("/v1/tables", json={"name": name, "schema": SCHEMA}).raise_for_status()
        for namespace in ("sales", "hr"):
            made = client.post("/v1/tokens", json={"name": namespace}).json()
            client.tokens[namespace] = bearer(made["token"])
            grant = {"grantee": namespace, "role": "reader", "namespace": namespace}
            client.post("/v1/grants", json=grant).raise_for_status()
        assert client.service.events.wait(30)
        yield client


def page(client, headers=None, **query):
    answer = client.get("/v1/events", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def subjects(found):
    return [event["subject"] for event in found["events"]]


def alter(client, table, value):
    body = {"changes": [{"change": "set-properties", "properties": {"x": value}}]}
    client.post(f"/v1/tables/{table}/alter", json=body).raise_for_status()


def test_a_reader_gets_events_of_its_tables_only(guarded):
    assert sorted(subjects(page(guarded))) == ["hr.people", "sales.orders"]
    for namespace, table in (("sales", "sales.orders"), ("hr", "hr.people")):
        seen = page(guarded, guarded.tokens[namespace])
        assert subjects(seen) == [table]
        assert seen["cursor"] == page(guarded)["cursor"]
    refused = guarded.get("/v1/events", params={"table": "hr.people"}, headers=guarded.tokens["sales"])
    assert refused.status_code == 404


def test_events_are_filtered(guarded):
    assert subjects(page(guarded, table="sales.orders")) == ["sales.orders"]
    assert subjects(page(guarded, namespace="hr")) == ["hr.people"]
    assert subjects(page(guarded, type="delvec.health")) == []
    assert guarded.get("/v1/events", params={"type": "delvec.nothing"}).status_code == 400


def test_a_cursor_resumes_after_an_event(guarded):
    whole = page(guarded)
    first = page(guarded, limit=1)
    assert first["events"] == whole["events"][:1]
    assert first["cursor"] == first["events"][0]["sequence"]
    assert page(guarded, cursor=first["cursor"])["events"] == whole["events"][1:]
    assert page(guarded, cursor=whole["cursor"])["events"] == []
    assert page(guarded, cursor="latest")["events"] == []


def test_a_cursor_of_a_lost_database_begins_again(guarded):
    assert len(page(guarded, cursor="00000001-0000000000000000999")["events"]) == 2


def test_a_cursor_before_expired_events_says_so(guarded):
    store = guarded.service.events.store
    cursor = page(guarded, limit=1)["cursor"]
    assert page(guarded, cursor=cursor)["complete"]
    store.expire(datetime.now(UTC) + timedelta(days=1))
    assert not page(guarded, cursor=cursor)["complete"]
    assert page(guarded)["complete"]


def test_maintenance_is_an_event(guarded):
    run = {
        "id": "run-1",
        "type": "system.data-compaction",
        "state": "done",
        "reason": "small files",
        "started-at": "2026-11-20T12:00:00Z",
        "ended-at": "2026-11-20T12:01:00Z",
    }
    answer = guarded.post("/v1/tables/sales.orders/maintenance-runs", json=run)
    assert answer.status_code == 200, answer.text
    (event,) = page(guarded, type="delvec.maintenance")["events"]
    assert (event["data"]["id"], event["time"]) == ("run-1", "2026-11-20T12:01:00Z")


def test_a_request_waits_for_the_next_event(guarded):
    cursor = page(guarded)["cursor"]
    began = time.monotonic()
    assert page(guarded, cursor=cursor, wait=0.5)["events"] == []
    assert time.monotonic() - began >= 0.5
    timer = threading.Timer(0.5, alter, (guarded, "sales.orders", "1"))
    timer.start()
    assert subjects(page(guarded, cursor=cursor, wait=30)) == ["sales.orders"]
    timer.join()


def test_a_waiting_request_ignores_what_its_principal_may_not_read(guarded):
    cursor = page(guarded)["cursor"]
    alter(guarded, "hr.people", "1")
    seen = page(guarded, guarded.tokens["sales"], cursor=cursor, wait=1.5)
    assert seen["events"] == []


def test_a_principal_that_takes_all_places_to_wait_makes_room_for_others(guarded, monkeypatch):
    monkeypatch.setattr(events_routes, "_MAX_WAITING", 3)
    cursor = page(guarded)["cursor"]

    def status(name, seconds):
        return guarded.get(
            "/v1/events", params={"cursor": cursor, "wait": seconds}, headers=guarded.tokens[name]
        ).status_code

    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(status, "sales", 20) for _ in range(3)]
        while not hasattr(guarded.app.state, "event_tail") or status("sales", 0.1) == 200:
            pass
        assert status("sales", 1) == 503
        assert status("hr", 0.5) == 200
        done, _ = wait(waits, timeout=10, return_when=FIRST_COMPLETED)
        assert [each.result() for each in done] == [200]
        assert status("sales", 0.1) == 200
        alter(guarded, "sales.orders", "1")


def streamed(lines):
    """Yield the fields of the server-sent events in lines."""
    fields = {}
    for line in lines:
        if not line and fields:
            yield fields
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setattr(events_routes, "STREAM_SECONDS", 30)
    with served(tmp_path, ADMIN) as url:
        yield url


@pytest.mark.full("half a minute, until the server has ended its streams")
def test_a_stream_resumes_where_it_was_interrupted(url):
    accept = {"Accept": "text/event-stream"}
    with httpx.Client(base_url=url, headers=bearer(ADMIN), timeout=60) as client:
        client.post("/v1/tables", json={"name": "people", "schema": SCHEMA}).raise_for_status()
        for value in "ab":
            alter(client, "people", value)
        with client.stream("GET", "/v1/events", headers=accept) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            one, two, three = (
                event for event, _ in zip(streamed(answer.iter_lines()), range(3), strict=False)
            )
        assert [json.loads(each["data"])["data"]["version"] for each in (one, two, three)] == [0, 1, 2]
        assert one["event"] == "delvec.commit"

        with client.stream("GET", "/v1/events", headers={**accept, "Last-Event-ID": two["id"]}) as answer:
            events_after = streamed(answer.iter_lines())
            assert next(events_after) == three
            alter(client, "people", "c")
            assert json.loads(next(events_after)["data"])["data"]["version"] == 3


def test_a_stream_ends_so_that_permissions_are_checked_again(url, monkeypatch):
    monkeypatch.setattr(events_routes, "STREAM_SECONDS", 0.5)
    with (
        httpx.Client(base_url=url, headers=bearer(ADMIN), timeout=60) as client,
        client.stream("GET", "/v1/events", headers={"Accept": "text/event-stream"}) as answer,
    ):
        assert list(streamed(answer.iter_lines())) == []


def test_an_error_before_a_stream_is_an_answer(url):
    answer = httpx.get(f"{url}/v1/events", headers={"Accept": "text/event-stream"})
    assert answer.status_code == 401
