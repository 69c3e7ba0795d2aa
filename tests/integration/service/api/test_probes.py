"""Probes: by GET and HEAD, and of a process whose database does not answer."""

import asyncio
import gc
import socket
import threading
from urllib.parse import urlsplit

import pytest
from tests.support.served import served

from delvec_errors import ServiceUnavailable
from delvec_service.api import probes_routes


def test_an_error_that_comes_after_the_probe_was_answered_is_not_logged(monkeypatch):
    monkeypatch.setattr(probes_routes, "_READY_SECONDS", 0.05)
    answers, asked = threading.Event(), threading.Event()

    class Database:
        def check(self):
            asked.set()
            assert answers.wait(60)
            raise ServiceUnavailable("The database is starting.")

    unheard = []

    async def probe():
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unheard.append(context["message"])
        )
        readiness = probes_routes.Readiness(Database())
        with pytest.raises(ServiceUnavailable, match="has not answered"):
            await readiness.check()
        assert asked.is_set()
        answers.set()
        await asyncio.wait((readiness._asked,))
        del readiness
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(probe())
    gc.collect()
    assert unheard == []


def test_probes_answer_head_as_get_without_a_body(tmp_path):
    def sent(address, method, path):
        with socket.create_connection(address, timeout=60) as stream:
            stream.sendall(
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            head, _, body = b"".join(iter(lambda: stream.recv(65536), b"")).partition(b"\r\n\r\n")
        lines = [
            line for line in head.lower().split(b"\r\n") if not line.startswith((b"date", b"x-request-id"))
        ]
        return lines, body

    with served(tmp_path, "secret") as url:
        at = urlsplit(url)
        for path in ("/livez", "/readyz"):
            got, body = sent((at.hostname, at.port), "GET", path)
            assert got[0] == b"http/1.1 200 ok"
            assert body == b'{"status":"ok"}'
            assert sent((at.hostname, at.port), "HEAD", path) == (got, b"")
