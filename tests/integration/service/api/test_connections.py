"""Requests as they arrive on a socket: an offer of HTTP/2 is ignored, and the body is not lost."""

import json
import socket

import pytest
from tests.support.served import served

BODY = json.dumps({"name": "orders", "schema": {"type": "struct", "fields": []}}).encode()
HEAD = (
    "POST /v1/tables HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
    "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\nUpgrade: h2c\r\n"
    f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
).encode()


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served"), "secret") as url:
        yield int(url.rpartition(":")[2])


def answered(connection):
    """Read one answer, and return its status and body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(
        next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")).split()[1]
    )
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize("cut", [None, 30, 150, 170, len(HEAD) - 2, len(HEAD), len(HEAD) + 5])
def test_a_body_survives_the_offer_of_http2(port, cut):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):  # the second on the open connection
            parts = [HEAD + BODY] if cut is None else [(HEAD + BODY)[:cut], (HEAD + BODY)[cut:]]
            for part in parts:
                connection.sendall(part)
                if len(parts) > 1:
                    pause(connection)
            status, answer = answered(connection)
            assert status == 400, answer  # a table needs a column
            assert "has no body" not in answer["error"]["message"]


def test_what_is_not_http_is_refused_at_once(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n")
        assert answered(connection)[0] == 400


def pause(connection):
    """Let the server receive the first part alone."""
    connection.settimeout(0.1)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        pass
    finally:
        connection.settimeout(20)
