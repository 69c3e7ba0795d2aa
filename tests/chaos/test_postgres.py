"""PostgreSQL crashes, runs out of connections, or is restored from a dump, under running services.

Acknowledged commits are in the table once, failures name the cause, and no deleted row comes back.
"""

import itertools
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pyarrow as pa
import pytest
from tests.chaos.campaign import read_with_deltalake
from tests.chaos.oracle import Log
from tests.support.suites import some_in_gate

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_errors import DelvecError, ServiceUnavailable
from delvec_service.commits import fault_points

SCHEMA = pa.schema([("id", pa.int64())])


def lake_of(client):
    # Not closed: that would close the service, which belongs to the client.
    return Connection(ServiceClient("http://embedded", transport=client._transport, sleep=lambda _: None))


def rows(*ids):
    return pa.table({"id": list(ids)}, schema=SCHEMA)


class Writers:
    """Threads that append and delete through several services until they are stopped.

    Attributes:
        there: ids with an acknowledged append and no acknowledged DELETE.
        unknown: ids whose append or DELETE failed but may have taken effect.
        errors: errors raised, by class.
    """

    def __init__(self, tables):
        self._tables = tables
        self._stop = threading.Event()
        self._numbers = itertools.count(1000)
        self._lock = threading.Lock()
        self.there, self.unknown, self.errors, self.done = set(), set(), set(), 0

    def __enter__(self):
        self._pool = ThreadPoolExecutor(len(self._tables))
        self._futures = [self._pool.submit(self._write, table) for table in self._tables]
        return self

    def __exit__(self, *_):
        self._stop.set()
        for future in self._futures:
            future.result()  # re-raises anything that is not a DelvecError
        self._pool.shutdown()

    def wait_for(self, more):
        """Wait until this many more commands have been acknowledged."""
        end = self.done + more
        while self.done < end and not any(future.done() for future in self._futures):
            threading.Event().wait(0.02)

    def _write(self, table):
        while not self._stop.is_set():
            with self._lock:
                number = next(self._numbers)
            if self._try(number, lambda n=number: table.append(rows(n)), self.there.add) and number % 3 == 0:
                self._try(number, lambda n=number: table.delete(f"id = {n}"), self.there.discard)

    def _try(self, number, command, acknowledged):
        try:
            command()
        except DelvecError as error:
            with self._lock:
                self.unknown.add(number)
                self.errors.add(type(error).__name__)
            threading.Event().wait(0.05)
            return False
        with self._lock:
            acknowledged(number)
            self.done += 1
        return True


def check(location, writers, before=frozenset()):
    """Compare the table with the writers' answers, and check the log's invariants."""
    found = read_with_deltalake(location)
    assert len(found) == len(set(found)), "a row is there twice"
    known = (writers.there | before) - writers.unknown
    assert set(found) - writers.unknown == known
    log = Log()
    log.read(location)
    assert set(log.keys.values()) == {1}


@pytest.mark.timeout(600)
@pytest.mark.full("repeats the crash of the test below")
def test_repeated_crashes_of_the_server_lose_nothing(tmp_path, running, postgres):
    location = tmp_path / "table"
    with running(database_url=postgres.url) as one, running(database_url=postgres.url) as two:
        lakes = [lake_of(one), lake_of(two)]
        lakes[0].create_table(str(location), SCHEMA).append(rows(1, 2, 3))
        with Writers([lake.table(str(location)) for lake in lakes]) as writers:
            for _ in range(3):
                writers.wait_for(3)
                postgres.stop(how=signal.SIGQUIT)
                postgres.start()
            writers.wait_for(3)
        assert sorted(lakes[1].table(str(location)).to_arrow()["id"].to_pylist()) == sorted(
            read_with_deltalake(location)
        )
    check(location, writers, {1, 2, 3})


@pytest.mark.full("waits for an outage of a minute")
@pytest.mark.timeout(600)
def test_a_one_minute_outage_fails_requests_with_clear_errors_and_loses_none(tmp_path, running, postgres):
    location = tmp_path / "table"
    with running(database_url=postgres.url) as one, running(database_url=postgres.url) as two:
        lakes = [lake_of(one), lake_of(two)]
        lakes[0].create_table(str(location), SCHEMA).append(rows(1, 2, 3))
        with Writers([lake.table(str(location)) for lake in lakes]) as writers:
            writers.wait_for(3)
            postgres.stop()
            end = time.monotonic() + 60
            while time.monotonic() < end:
                assert (one.get("/livez").status_code, one.get("/readyz").status_code) == (200, 503)
                with suppress(ServiceUnavailable):  # either this error or the right rows
                    assert {1, 2, 3} <= set(lakes[0].table(str(location)).to_arrow()["id"].to_pylist())
                time.sleep(0.5)
            postgres.start()
            writers.wait_for(6)
    assert writers.errors <= {"ServiceUnavailable", "CommitOutcomeUnknown"}
    check(location, writers, {1, 2, 3})


@pytest.mark.parametrize(
    "point",
    some_in_gate(
        ["before-ledger", "after-ledger", "before-put", "after-put", "before-close"],
        ["before-put", "after-put"],
        "the other moments of the same commit",
    ),
)
def test_a_server_crash_in_mid_commit_leaves_a_commit_that_a_retry_settles(
    tmp_path, running, postgres, point
):
    location = tmp_path / "table"
    with running(database_url=postgres.url, log_maintenance=False) as client:
        table = lake_of(client).create_table(str(location), SCHEMA)
        table.append(rows(*range(10)))
        with fault_points.armed(**{point.replace("-", "_"): lambda: postgres.stop(how=signal.SIGQUIT)}):
            try:
                table.delete("id = 3", retries=0)
                acknowledged = True
            except DelvecError:
                acknowledged = False

        left = sorted(read_with_deltalake(location))
        assert left in ([*range(10)], [0, 1, 2, *range(4, 10)])
        assert not (acknowledged and 3 in left)
        postgres.start()
        table.delete("id = 3")
        assert sorted(read_with_deltalake(location)) == [0, 1, 2, *range(4, 10)]
        assert client.get("/readyz").status_code == 200


def take_all(url, connections):
    """Open connections until the server refuses one."""
    while True:
        connections.append(psycopg.connect(url))


@pytest.mark.timeout(600)
@pytest.mark.full("waits for the end of a pool")
def test_a_server_out_of_connections_is_a_transient_error(tmp_path, running, postgres):
    location = tmp_path / "table"
    postgres.execute("ALTER SYSTEM SET max_connections = 12")
    postgres.stop()
    postgres.start()
    with running(database_url=postgres.url, log_maintenance=False) as client:
        table = lake_of(client).create_table(str(location), SCHEMA)
        table.append(rows(1, 2, 3))
        tables = [lake_of(client).table(str(location)) for _ in range(4)]
        flood = []
        try:
            with pytest.raises(psycopg.OperationalError, match=r"clients|connections|slots"):
                take_all(postgres.url, flood)
            with Writers(tables) as writers:
                threading.Event().wait(2)
                assert client.get("/livez").status_code == 200
        finally:
            for each in flood:
                each.close()
        assert writers.errors <= {"ServiceUnavailable"}
        end = time.monotonic() + 60  # the server notices the closed connections later than we do
        while client.get("/readyz").status_code != 200 and time.monotonic() < end:
            time.sleep(0.05)
        table.append(rows(4))
    check(location, writers, {1, 2, 3, 4})


@pytest.mark.timeout(600)
def test_a_database_restored_under_live_services_forgets_no_commit(tmp_path, running, postgres):
    location = tmp_path / "table"
    with running(database_url=postgres.url) as one, running(database_url=postgres.url) as two:
        lakes = [lake_of(one), lake_of(two)]
        table = lakes[0].create_table(str(location), SCHEMA)
        table.append(rows(1, 2, 3))
        saved = postgres.dump()
        path = table.plan()[0].files["path"][0].as_py()
        body = {"read-version": 1, "operation": "DELETE", "removes": [{"path": path}]}
        headers = {"Idempotency-Key": "since-the-dump"}
        first = one.post(f"/v1/tables/{table.name}/commits", json=body, headers=headers)
        assert first.status_code == 200, first.text
        with Writers([lake.table(str(location)) for lake in lakes]) as writers:
            writers.wait_for(4)
            for _ in range(2):
                postgres.restore(saved)
                writers.wait_for(4)

        # Commits made since the dump are found in the log.
        for client in (one, two):
            again = client.post(f"/v1/tables/{table.name}/commits", json=body, headers=headers)
            assert again.status_code == 200, again.text
            assert again.json()["version"] == first.json()["version"]
        for lake in lakes:
            read = lake.table(str(location)).to_arrow()["id"].to_pylist()
            assert sorted(read) == sorted(read_with_deltalake(location))
    check(location, writers)
