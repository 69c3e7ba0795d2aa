"""Delivers events to webhooks, in order, each until it is accepted or expires: Standard Webhooks 1.0.

A replica that delivers has a lease on the webhook. A process that dies between an answer and the note of it makes the next
one deliver the same event again, with the same id.

Tested in `tests/integration/service/events/test_webhooks.py`.
"""

import base64
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from delvec_contract.events import CloudEvent
from delvec_errors import ServiceUnavailable
from delvec_service.background_worker import BackgroundWorker
from delvec_service.config import Webhook
from delvec_service.events.cloud_events import cloud_event
from delvec_service.logs import logger
from delvec_service.store.event_store import Delivery, EventStore

__all__ = ["Webhooks", "signature"]

_POLL_SECONDS: Final = 1.0
"""How often to look for the events of other replicas."""
_PAGE: Final = 100
_LEASE_SECONDS: Final = 60.0
_TIMEOUT_SECONDS: Final = 15.0
"""To connect, and again for the whole answer."""
_WORKERS: Final = 8
_TURN_SECONDS: Final = 10.0
"""After which a webhook with more events lets others of its thread go first."""
_FIRST_PAUSE: Final = 5.0
_LONGEST_PAUSE: Final = 3600.0
_SECRET: Final = "whsec_"  # noqa: S105 - how secrets begin
_SUCCESS: Final = range(200, 300)


class Webhooks:
    """The deliveries of this process; safe to share between threads.

    Args:
        store: the outbox.
        webhooks: where to deliver what.
        catalog: the catalog of the tables' names.
        private: whether webhooks may be at private addresses.
        first_pause: seconds after the first failed attempt; each further pause is twice as long.
    """

    def __init__(
        self,
        store: EventStore,
        webhooks: Sequence[Webhook],
        catalog: str,
        *,
        private: bool = False,
        first_pause: float = _FIRST_PAUSE,
    ) -> None:
        self._store = store
        self._webhooks = webhooks
        self._catalog = catalog
        self._private = private
        self._first_pause = first_pause
        self._owner = str(uuid.uuid4())
        # A slow receiver holds up its own events, and those of others only where there are many webhooks.
        self._workers = [BackgroundWorker("delvec-webhooks", self._run) for _ in webhooks[:_WORKERS]]
        self._worker_of = {
            webhook.name: self._workers[number % _WORKERS] for number, webhook in enumerate(webhooks)
        }

    def start(self) -> None:
        """Deliver from now on."""
        for webhook in self._webhooks if self._store.is_enabled else ():
            self._worker_of[webhook.name].schedule(webhook.name, webhook)

    def close(self) -> None:
        """Stop after the deliveries under way."""
        end = time.monotonic() + _TIMEOUT_SECONDS
        for worker in self._workers:
            worker.close(0)
        for worker in self._workers:
            worker.close(max(0.0, end - time.monotonic()))

    def _run(self, webhook: Webhook) -> None:
        more = False
        try:
            delivery = self._store.take(webhook.name, self._owner, _LEASE_SECONDS)
            if delivery is not None:
                more = self._deliver(webhook, delivery)
        except ServiceUnavailable as error:
            logger.warning("events not delivered", webhook=webhook.name, reason=error.message)
        finally:
            self._worker_of[webhook.name].schedule(
                webhook.name, webhook, after=0.0 if more else _POLL_SECONDS
            )

    def _deliver(self, webhook: Webhook, delivery: Delivery) -> bool:
        """Deliver events, a page at most, until the turn is over; return whether more may be due."""
        turn_ends = time.monotonic() + _TURN_SECONDS
        outbox = self._store.outbox()
        page = self._store.page(self._catalog, delivery.position, types=webhook.types, limit=_PAGE)
        for stored_event in page:
            attempts = delivery.attempts
            failure = (
                self._send(webhook, cloud_event(outbox, stored_event))
                if webhook.wants(stored_event.table_name)
                else None
            )
            if failure is not None:
                pause = min(self._first_pause * 2**attempts, _LONGEST_PAUSE)
                logger.warning(
                    "event not delivered",
                    webhook=webhook.name,
                    event_id=stored_event.event.id,
                    reason=failure,
                    again_in=pause,
                )
                failed = Delivery(delivery.position, min(attempts + 1, 30))
                self._store.delivered(webhook.name, self._owner, failed, pause=pause)
                return False
            delivery = Delivery(stored_event.position, 0)
            if time.monotonic() >= turn_ends:
                return self._store.delivered(webhook.name, self._owner, delivery)
            if not self._store.delivered(webhook.name, self._owner, delivery, keep=_LEASE_SECONDS):
                return False  # it took so long that another process took over
        # What comes after a page that is not full is of other tables and types.
        is_last = len(page) < _PAGE
        end = Delivery(max(outbox.position, delivery.position) if is_last else delivery.position, 0)
        return self._store.delivered(webhook.name, self._owner, end) and not is_last

    def _send(self, webhook: Webhook, event: CloudEvent) -> str | None:
        """Send one event; return why it was not accepted, or None."""
        body = event.model_dump_json(by_alias=True).encode()
        timestamp = str(int(datetime.now(UTC).timestamp()))
        secrets = webhook.secret.get_secret_value().split()
        headers = {
            "Content-Type": "application/cloudevents+json",
            "User-Agent": "delvec",
            "webhook-id": event.id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(signature(secret, event.id, timestamp, body) for secret in secrets),
        }
        try:
            status = _post(_target(webhook.url, private=self._private), body, headers)
        except (OSError, ValueError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"[:300]
        return None if status in _SUCCESS else f"the receiver answered with status {status}"


def signature(secret: str, id_: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a delivery, as Standard Webhooks defines it."""
    key = base64.b64decode(secret.removeprefix(_SECRET))
    signed = hmac.digest(key, b".".join([id_.encode(), timestamp.encode(), body]), hashlib.sha256)
    return f"v1,{base64.b64encode(signed).decode()}"


@dataclass(frozen=True)
class _Target:
    """Where a request goes: ``address`` was checked, so the name is not looked up again."""

    is_encrypted: bool
    host: str
    port: int
    path: str
    address: str


def _target(url: str, *, private: bool) -> _Target:
    """Return where a webhook's requests go.

    Raises:
        ValueError: it is at a private address, and that is not allowed.
        OSError: its name cannot be resolved.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_encrypted = parts.scheme == "https"
    port = parts.port or (443 if is_encrypted else 80)
    addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    refused = [each for each in addresses if not ipaddress.ip_address(each.partition("%")[0]).is_global]
    if refused and not private:
        raise ValueError(
            f"{host} has the private address {refused[0]}; DELVEC_WEBHOOK_PRIVATE_ADDRESSES would allow it"
        )
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return _Target(is_encrypted, host, port, path, addresses[0])


def _post(target: _Target, body: bytes, headers: dict[str, str]) -> int:
    """Send a request without following redirects, and return the status of the answer."""
    kind = http.client.HTTPSConnection if target.is_encrypted else http.client.HTTPConnection
    connection = kind(target.host, target.port, timeout=_TIMEOUT_SECONDS)
    raw = socket.create_connection((target.address, target.port), _TIMEOUT_SECONDS)
    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        with suppress(OSError):
            socket.socket.shutdown(raw, socket.SHUT_RDWR)

    # The socket's own timeout begins anew with each byte.
    deadline = threading.Timer(_TIMEOUT_SECONDS, cut)
    deadline.daemon = True
    try:
        if target.is_encrypted:
            raw = ssl.create_default_context().wrap_socket(
                raw, server_hostname=target.host, do_handshake_on_connect=False
            )
        deadline.start()
        if isinstance(raw, ssl.SSLSocket):
            raw.do_handshake()
        connection.sock = raw
        connection.request("POST", target.path, body, headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set():
            raise TimeoutError(f"no answer within {_TIMEOUT_SECONDS:g} seconds") from error
        raise
    finally:
        deadline.cancel()
        connection.close()
        raw.close()
