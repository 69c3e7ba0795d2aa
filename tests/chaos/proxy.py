"""An HTTP proxy in front of several replicas that misbehaves as networks and gateways do."""

import http.client
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TIMEOUT_SECONDS = 60
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})


@dataclass(frozen=True)
class Chances:
    """The probability of each fault per request; at most one strikes a request.

    Attributes:
        drop_request: the connection breaks and nothing is forwarded.
        drop_reply: the request is forwarded, but the connection breaks instead of a reply.
        cut_reply: only half of the reply arrives.
        duplicate: the request is forwarded twice concurrently, usually to two replicas; one reply is passed on.
        replay: the request is forwarded again, up to a second after its reply was passed on.
        refuse: 503 with Retry-After; nothing is forwarded.
        gateway_timeout: the request is forwarded, and the answer is 504.
        delay: the request waits.
    """

    drop_request: float = 0.02
    drop_reply: float = 0.05
    cut_reply: float = 0.02
    duplicate: float = 0.06
    replay: float = 0.06
    refuse: float = 0.04
    gateway_timeout: float = 0.02
    delay: float = 0.08


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    headers: dict
    body: bytes

    @property
    def key(self):
        return next(
            (value for name, value in self.headers.items() if name.lower() == "idempotency-key"), None
        )


@dataclass(frozen=True)
class _Reply:
    status: int
    headers: list
    body: bytes


class BadGatewayError(Exception):
    """A replica closed the connection after receiving the request, or none accepted it.

    Attributes:
        sent: whether a replica may have executed it.
    """

    def __init__(self, *, sent):
        super().__init__(sent)
        self.sent = sent


class Proxy:
    """A context manager; serves on ``url``.

    Args:
        ports: the replicas' ports.
        seed: for its random choices.
        chances: fault probabilities; :attr:`calm` turns all faults off.

    Attributes:
        faults: how often each fault struck.
        repeated: idempotency keys of commits forwarded more than once for one request.
    """

    def __init__(self, ports, seed, chances=Chances()):
        self.ports = list(ports)
        self.chances = chances
        self.calm = False
        self.faults = Counter()
        self.repeated = set()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._later = ThreadPoolExecutor(16, "chaos-replay")
        self._pending = []
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._later.shutdown(cancel_futures=True)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def settle(self):
        """Wait until all scheduled replays have been sent."""
        with self._lock:
            pending, self._pending = self._pending, []
        for one in pending:
            one.result(_TIMEOUT_SECONDS)

    def fault(self):
        """Return the fault that strikes the next request, or None."""
        with self._lock:
            if self.calm:
                return None
            dice = self._random.random()
            for name in Chances.__dataclass_fields__:
                dice -= getattr(self.chances, name)
                if dice < 0:
                    self.faults[name] += 1
                    return name
        return None

    def pause(self, most):
        with self._lock:
            seconds = self._random.uniform(0, most)
        time.sleep(seconds)

    def forward(self, request):
        """Send a request to a running replica; return its reply.

        Raises:
            BadGatewayError: none accepted it, or the one that did broke off.
        """
        with self._lock:
            ports = self._random.sample(self.ports, len(self.ports))
        for port in ports:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
            try:
                try:
                    connection.connect()
                except OSError:
                    continue  # nothing was sent, so the next replica may get it
                connection.request(request.method, request.path, request.body, request.headers)
                response = connection.getresponse()
                return _Reply(response.status, response.getheaders(), response.read())
            except (OSError, http.client.HTTPException) as error:
                raise BadGatewayError(sent=True) from error
            finally:
                connection.close()
        raise BadGatewayError(sent=False)

    def twice(self, request):
        """Send a request twice concurrently; return one of the replies."""
        self._note_repeated(request)
        other = self._later.submit(self._again, request, 0.02)
        try:
            return self.forward(request)
        finally:
            other.result()

    def later(self, request):
        """Schedule a replay of a request."""
        self._note_repeated(request)
        with self._lock:
            self._pending.append(self._later.submit(self._again, request, 1.0))

    def _again(self, request, most):
        self.pause(most)
        try:
            self.forward(request)
        except BadGatewayError:
            with self._lock:
                self.faults["repetition that broke off"] += 1

    def _note_repeated(self, request):
        if request.key is not None:
            with self._lock:
                self.repeated.add(request.key)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner = None

    def log_message(self, *_):
        pass

    def _serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        request = _Request(self.command, self.path, headers, self.rfile.read(length))
        fault = self.owner.fault()
        try:
            self._answer(request, fault)
        except BadGatewayError as error:
            # Like a gateway: 502 means that the request may have arrived, 503 that it did not.
            self._say(502 if error.sent else 503, {} if error.sent else {"Retry-After": "0"})
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _serve  # noqa: N815 - http.server's names

    def _answer(self, request, fault):
        owner = self.owner
        if fault == "drop_request":
            self.close_connection = True
            return
        if fault == "refuse":
            self._say(503, {"Retry-After": "0"})
            return
        if fault == "delay":
            owner.pause(0.3)
        reply = owner.twice(request) if fault == "duplicate" else owner.forward(request)
        if fault == "drop_reply":
            self.close_connection = True
        elif fault == "gateway_timeout":
            self._say(504, {})
        elif fault == "cut_reply":
            self._reply(reply, len(reply.body) // 2)
            self.close_connection = True
        else:
            if fault == "replay":
                owner.later(request)
            self._reply(reply, len(reply.body))

    def _reply(self, reply, length):
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body[:length])
        self.wfile.flush()

    def _say(self, status, headers):
        body = b"the gateway says no"
        self._reply(_Reply(status, [*headers.items(), ("Content-Type", "text/plain")], body), len(body))
