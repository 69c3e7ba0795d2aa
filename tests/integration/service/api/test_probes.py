"""Probes of a process whose database does not answer."""

import asyncio
import gc
import threading

import pytest

from delvec_errors import ServiceUnavailable
from delvec_service.api import probes


def test_an_error_that_comes_after_the_probe_was_answered_is_not_logged(monkeypatch):
    monkeypatch.setattr(probes, "_READY_SECONDS", 0.05)
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
        readiness = probes.Readiness(Database())
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
