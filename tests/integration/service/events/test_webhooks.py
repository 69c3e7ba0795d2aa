"""Webhooks get every event, in order, signed, and again until they accept it."""

import base64
import json
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr, ValidationError

from delvec_service.config import Settings, Webhook
from delvec_service.events import webhooks
from delvec_service.events.webhooks import Webhooks, signature
from delvec_service.store.database import Database
from delvec_service.store.event_store import Event, EventStore
from delvec_service.store.registry import Registry

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()


class Receiver:
    """An HTTP server that keeps what it gets, and answers with the given statuses first, then with 204."""

    def __init__(self, *statuses, headers=()):
        self.requests, self.statuses = [], list(statuses)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers.items()), body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()

            do_GET = do_POST  # noqa: N815 - as the base class calls it

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?key=1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def ids(self):
        return [headers["webhook-id"] for _, headers, _ in self.requests]

    def wait(self, count):
        end = time.monotonic() + 15
        while len(self.requests) < count and time.monotonic() < end:
            time.sleep(0.02)
        return self.ids

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.close()


@pytest.fixture
def store(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    store = EventStore(database)
    store.tables = [
        Registry(database).add(f"file:///data/{name}", name, name)[0] for name in ("sales.a", "hr.b")
    ]
    store.database = database
    yield store
    database.close()


def record(store, *names, table=0, type_="delvec.commit"):
    with store.database.write() as session:
        table_id = store.tables[table].id
        store.add(
            session, [Event(name, table_id, type_, datetime.now(UTC), {"version": 1}) for name in names]
        )


@pytest.fixture
def delivering(store, receiver):
    """``delivering(**fields)`` starts deliveries to the receiver; they begin with the next event."""
    running = []

    def start(*, private=True, first_pause=0.05, **fields):
        url = fields.pop("url", receiver.url)
        webhook = Webhook(name="hook", url=url, secret=SecretStr(fields.pop("secret", SECRET)), **fields)
        hooks = Webhooks(store, [webhook], "", private=private, first_pause=first_pause)
        running.append(hooks)
        store.take("hook", "nobody", 0)  # it exists from now on
        hooks.start()
        return hooks

    yield start
    for hooks in running:
        hooks.close()


def test_events_arrive_in_order_and_signed(store, receiver, delivering):
    record(store, "before")
    delivering(secret=f"{SECRET} {OTHER}")
    record(store, "1", "2")
    record(store, "3")

    assert receiver.wait(3) == ["1", "2", "3"]
    path, headers, body = receiver.requests[0]
    assert path == "/hook?key=1"
    assert headers["Content-Type"] == "application/cloudevents+json"
    assert (json.loads(body)["id"], json.loads(body)["subject"]) == ("1", "sales.a")
    stamp = headers["webhook-timestamp"]
    assert abs(int(stamp) - time.time()) < 60
    assert headers["webhook-signature"] == " ".join(
        signature(key, "1", stamp, body) for key in (SECRET, OTHER)
    )


def test_the_signature_is_that_of_standard_webhooks():
    """The example of its specification's libraries."""
    assert (
        signature(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            b'{"test": 2432232314}',
        )
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.full("waits between deliveries")
def test_a_delivery_is_repeated_with_its_id_until_it_is_accepted(store, receiver, delivering):
    receiver.statuses[:] = [500, 410, 302]
    delivering()
    record(store, "1", "2")
    assert receiver.wait(5) == ["1", "1", "1", "1", "2"]
    assert [json.loads(body)["id"] for _, _, body in receiver.requests] == receiver.ids


def test_a_failed_delivery_is_not_repeated_before_its_pause_has_passed(store, delivering):
    receiver = Receiver(500)
    delivering(url=receiver.url, first_pause=60)
    record(store, "1")
    receiver.wait(1)
    time.sleep(2.5)
    assert receiver.ids == ["1"]
    receiver.close()


def test_only_wanted_events_are_sent(store, receiver, delivering):
    delivering(types=("delvec.commit",), tables=("sales.*",))
    record(store, "1", table=1)
    record(store, "2", type_="delvec.health")
    record(store, "3")
    assert receiver.wait(1) == ["3"]


def test_redirects_are_not_followed(store, delivering):
    target = Receiver()
    server = Receiver(302, headers=[("Location", target.url)])
    delivering(url=server.url)
    record(store, "1")
    server.wait(2)
    server.close()
    target.close()
    assert target.requests == []


def test_private_addresses_are_refused(store, receiver, delivering, monkeypatch):
    failures = []
    monkeypatch.setattr(webhooks.logger, "warning", lambda *_, **fields: failures.append(fields["reason"]))
    delivering(private=False)
    record(store, "1")
    end = time.monotonic() + 15
    while not failures and time.monotonic() < end:
        time.sleep(0.02)
    assert "private address 127.0.0.1" in failures[0]
    assert receiver.requests == []


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1", "0.0.0.0"]
)
def test_a_name_with_a_private_address_is_refused(monkeypatch, address):
    monkeypatch.setattr(webhooks.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 443))])
    with pytest.raises(ValueError, match="private address"):
        webhooks._target("https://example.com/hook", private=False)


def test_one_of_two_replicas_delivers_and_the_other_takes_over(store, receiver, delivering):
    one = delivering()
    delivering()
    record(store, *"123456789")
    assert receiver.wait(9) == list("123456789")
    one.close()
    record(store, "a", "b")
    assert receiver.wait(11) == list("123456789ab")


@pytest.fixture
def two(store, receiver):
    """``two(url)`` starts deliveries to a slow receiver, and to the usual one."""
    running = []

    def start(url):
        hooks = [
            Webhook(name=name, url=at, secret=SecretStr(SECRET))
            for name, at in (("slow", url), ("hook", receiver.url))
        ]
        for hook in hooks:
            store.take(hook.name, "nobody", 0)
        running.append(Webhooks(store, hooks, "", private=True, first_pause=0.05))
        running[0].start()

    yield start
    for hooks in running:
        hooks.close()


class Dripping:
    """A server that sends an answer without end, a byte at a time."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/"
        self.accepted = 0
        self.is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self.accepted += 1
                threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection):
        with suppress(OSError), connection:
            while not self.is_closed:
                connection.sendall(b"H")
                time.sleep(0.05)

    def close(self):
        self.is_closed = True
        self._server.close()


@pytest.fixture
def dripping():
    server = Dripping()
    yield server
    server.close()


def test_a_slow_receiver_holds_up_no_other(store, receiver, two, dripping, monkeypatch):
    monkeypatch.setattr(webhooks, "_TIMEOUT_SECONDS", 20.0)
    two(dripping.url)
    record(store, "1")
    end = time.monotonic() + 15
    while not dripping.accepted and time.monotonic() < end:
        time.sleep(0.02)
    record(store, "2", "3")
    assert receiver.wait(3) == list("123")
    assert dripping.accepted == 1
    dripping.close()


def test_a_delivery_has_a_deadline_however_often_bytes_arrive(store, two, dripping, monkeypatch):
    monkeypatch.setattr(webhooks, "_TIMEOUT_SECONDS", 0.5)
    two(dripping.url)
    record(store, "1")
    end = time.monotonic() + 15
    while dripping.accepted < 2 and time.monotonic() < end:
        time.sleep(0.02)
    assert dripping.accepted >= 2


def test_webhooks_that_share_a_thread_take_turns(store, receiver, two, monkeypatch):
    other = Receiver()
    monkeypatch.setattr(webhooks, "_WORKERS", 1)
    monkeypatch.setattr(webhooks, "_TURN_SECONDS", 0.0)
    record(store, "0")
    two(other.url)
    record(store, *"123456789")
    assert receiver.wait(9) == other.wait(9) == list("123456789")
    assert abs(len(receiver.requests) - len(other.requests)) <= 1
    other.close()


@pytest.mark.parametrize(
    "webhook",
    [
        {"url": "http://example.com/"},
        {"url": "https://user:password@example.com/"},
        {"secret": "whsec_c2hvcnQ="},
        {"secret": "not base64 at all!"},
        {"types": ["delvec.nothing"]},
        {"name": "a b"},
    ],
)
def test_invalid_webhooks_are_refused_without_their_secrets(webhook):
    fields = {"name": "hook", "url": "https://example.com/", "secret": SECRET, **webhook}
    with pytest.raises(ValidationError) as error:
        Settings(webhooks=json.dumps([fields]))
    assert fields["secret"] not in str(error.value)


def test_webhooks_of_a_service(running, receiver, tmp_path):
    hook = {"name": "hook", "url": receiver.url, "secret": SECRET}
    settings = {
        "roots": (str(tmp_path),),
        "database_url": f"sqlite:///{tmp_path / 'store.db'}",
        "webhooks": json.dumps([hook]),
        "webhook_private_addresses": True,
    }
    with running(**settings) as client:
        schema = {
            "type": "struct",
            "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
        }
        client.service.events.store.take("hook", "nobody", 0)
        client.post("/v1/tables", json={"name": "people", "schema": schema}).raise_for_status()
        receiver.wait(1)
        (sent,) = [json.loads(body) for _, _, body in receiver.requests]
        (event,) = client.get("/v1/events").json()["events"]
    assert sent == event
