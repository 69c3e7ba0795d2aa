"""Replicas and workers are replaced under load: clients that check readiness and retry see no error."""

import itertools
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow as pa
import pytest
from tests.chaos.campaign import read_with_deltalake
from tests.chaos.load_balancer import LoadBalancer
from tests.chaos.replica import Replica

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient

SCHEMA = pa.schema([("id", pa.int64())])
COMMITS = 2
"""Commits per writer between two steps of a restart."""


class Load:
    """Two writers and a reader that must not see any error."""

    def __init__(self, lakes, location):
        self._lakes, self._location = lakes, location
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self.appended = []

    def __enter__(self):
        self._pool = ThreadPoolExecutor(3)
        self._futures = [self._pool.submit(self._write, lake) for lake in self._lakes]
        self._futures.append(self._pool.submit(self._read, self._lakes[0]))
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._pool.shutdown()
        for future in self._futures:
            future.result()

    def pass_on(self):
        """Wait until several more commits are acknowledged."""
        end = len(self.appended) + COMMITS * len(self._lakes)
        while len(self.appended) < end and not any(future.done() for future in self._futures):
            time.sleep(0.01)

    def _write(self, lake):
        table = lake.table(self._location)
        while not self._stop.is_set():
            number = next(self._numbers)
            table.append(pa.table({"id": [number]}, schema=SCHEMA))
            self.appended.append(number)

    def _read(self, lake):
        table = lake.table(self._location)
        while not self._stop.is_set():
            table.count()


def lakes_of(*transports, url="http://127.0.0.1:1"):
    return [Connection(ServiceClient(url, transport=transport)) for transport in transports]


@pytest.fixture
def replica(tmp_path, postgres):
    numbers, made = itertools.count(), []

    def start(**settings):
        made.append(Replica(next(numbers), tmp_path, str(tmp_path), postgres.url, **settings))
        made[-1].start(fault_points="before-put:delay=0.05%30")
        assert made[-1].wait(), made[-1].tail()
        return made[-1]

    yield start
    for one in made:
        one.kill()


@pytest.mark.full("test_chaos.py kills and starts replicas under load")
def test_replicas_are_replaced_under_load_without_a_failed_request(tmp_path, replica):
    location = str(tmp_path / "table")
    settings = {"DELVEC_DRAIN_SECONDS": "2"}
    replicas = [replica(**settings)]

    def ports():
        return [one.port for one in replicas]

    with LoadBalancer(ports) as balancer, LoadBalancer(ports) as other:
        lakes = lakes_of(balancer, other)
        lakes[0].create_table(location, SCHEMA)
        with Load(lakes, location) as load:
            load.pass_on()
            old = replicas[0]
            replicas.append(replica(**settings))
            load.pass_on()
            old.send(signal.SIGTERM)
            while old.ready():
                time.sleep(0.01)
            # Not ready, but it still answers clients that have not noticed.
            with httpx.Client(base_url=old.url) as client:
                answer = client.get("/v1/tables")
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
            load.pass_on()
            assert old.ended() == -signal.SIGTERM
            replicas.remove(old)
            load.pass_on()
    assert sorted(read_with_deltalake(location)) == sorted(load.appended)


@pytest.mark.full("starts and replaces workers under load")
def test_workers_share_a_port_and_are_replaced_under_load(tmp_path, replica):
    location = str(tmp_path / "table")
    service = replica(DELVEC_WORKERS="2", DELVEC_LOG_LEVEL="info")
    lakes = lakes_of(None, None, url=service.url)
    lakes[0].create_table(location, SCHEMA)
    with Load(lakes, location) as load:
        load.pass_on()
        service.send(signal.SIGHUP)
        while service.log.read_text().count("Started server process") < 4:
            load.pass_on()
        load.pass_on()
    service.send(signal.SIGTERM)
    assert service.ended() == 0
    for lake in lakes:
        lake.close()
    assert sorted(read_with_deltalake(location)) == sorted(load.appended)


@pytest.mark.full("starts services in processes")
def test_workers_without_a_shared_store_are_refused_at_startup(tmp_path):
    service = Replica(0, tmp_path, str(tmp_path), "sqlite://", DELVEC_WORKERS="2")
    service.start()
    assert service.ended() == 2
    assert "cannot share an in-memory database" in service.tail()
