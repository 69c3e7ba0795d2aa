"""Lost, repeated, late and rejected requests and responses: each command takes effect once."""

import itertools
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow as pa
import pytest
from tests.support.asgi_transport import EmbeddedTransport
from tests.support.tables import ids

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_errors import CommitOutcomeUnknown, ServiceUnavailable, TableNotFound
from delvec_service.app import create_app
from delvec_service.config import Settings


def reset(request):
    raise httpx.ReadError("connection reset", request=request)


def too_slow(request):
    raise httpx.ReadTimeout("no answer", request=request)


def gateway_timeout(request):
    return httpx.Response(504, text="upstream timed out", request=request)


LOST_ANSWERS = {"answer dropped": reset, "answer timed out": too_slow, "gateway timeout": gateway_timeout}
LOST_REQUESTS = ("request dropped", "late")
FAULTS = (*LOST_ANSWERS, *LOST_REQUESTS, "busy", "sent twice")
SOME_FAULTS = ("answer dropped", "late", "sent twice")


class Weather(httpx.BaseTransport):
    """A network between client and service that injects one fault per change, from a list.

    Attributes:
        faults: those to come.
        often: after those: every other request with a key meets one, when it is sent for the first time.
        counts: of those that came.
    """

    def __init__(self, inner):
        self.faults = []
        self.often = False
        self.counts = Counter()
        self._cycle = itertools.cycle([each for fault in FAULTS for each in (fault, None)])
        self._known = set()
        self._lock = threading.Lock()
        self._inner = inner
        self._late = []

    def close(self):
        self._inner.close()

    def handle_request(self, request):
        change = request.method == "DELETE" or (
            request.method == "POST" and not request.url.path.endswith("/plan")
        )
        if not change:
            return self._send(request)
        fault = self._next(request.headers.get("Idempotency-Key"))
        if fault in LOST_REQUESTS:
            if fault == "late":
                self._late.append(request)
            raise httpx.ReadTimeout("no answer", request=request)
        if fault == "busy":
            error = {"message": "busy", "type": "ServiceUnavailable", "code": "SERVICE_UNAVAILABLE"}
            body = {"error": {**error, "retryable": True, "details": {}}}
            return httpx.Response(503, json=body, headers={"Retry-After": "0"}, request=request)
        answer = self._twice(request) if fault == "sent twice" else self._send(request)
        if fault in LOST_ANSWERS:
            return LOST_ANSWERS[fault](request)
        with self._lock:
            late, self._late = self._late, []
        for each in late:
            self._send(each)  # lost requests arrive in the end
        return answer

    def _next(self, key):
        with self._lock:
            is_new = key is not None and key not in self._known
            self._known.add(key)
            fault = self.faults.pop(0) if self.faults else None
            if self.often and is_new:
                fault = next(self._cycle)
            if fault is not None:
                self.counts[fault] += 1
        return fault

    def _twice(self, request):
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(self._send, [request, request])
        assert first.status_code == second.status_code
        assert first.content == second.content or "Idempotency-Key" not in request.headers
        return second

    def _send(self, request):
        answer = self._inner.handle_request(request)
        answer.read()
        answer.close()
        return answer


class Place:
    """A service behind the faulty network."""

    def __init__(self, folder):
        self.folder = folder
        self.app = create_app(Settings.embedded(f"sqlite:///{folder / 'store.db'}"))
        self.weather = Weather(EmbeddedTransport(self.app))
        self.waits = []
        client = ServiceClient("http://delvec.test", transport=self.weather, sleep=self.waits.append)
        self.lake = Connection(client)

    def versions(self, name):
        log = self.folder / name / "_delta_log"
        return sorted(int(path.stem) for path in log.glob("*.json"))

    def keys(self, name):
        """Return the transaction ids in the log."""
        found = []
        for version in self.versions(name):
            entry = self.folder / name / "_delta_log" / f"{version:020}.json"
            info = json.loads(entry.read_text().partition("\n")[0])["commitInfo"]
            members = json.loads(info.get("tags", {}).get("delvec.members", "[]"))
            found += [member["key"] for member in members] or [info["txnId"]]
        return found


@pytest.fixture
def place(tmp_path):
    here = Place(tmp_path)
    yield here
    here.lake.close()


def table(place, name="t", **properties):
    made = place.lake.create_table(place.folder / name, "id long", properties=properties)
    made.append(rows(range(10)))
    return made


def rows(ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_is_created_and_forgotten_once(place, fault):
    place.weather.faults = [fault]
    made = place.lake.create_table(place.folder / "t", "id long")
    assert place.versions("t") == [0]
    assert [entry.id for entry in place.lake.tables()] == [made.id]

    place.weather.faults = [fault]
    place.lake.drop_table("t")

    assert place.lake.tables() == []
    with pytest.raises(TableNotFound):
        place.lake.drop_table("t")
    assert place.weather.counts == {fault: 2}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("which", [0, 1])
def test_rows_are_appended_once(place, fault, which):
    """Whether the beginning of the transaction meets the fault, or its commit."""
    people = table(place)
    place.weather.faults = [None] * which + [fault]

    metrics = people.append(rows([10, 11]))

    assert metrics.version == 2
    assert metrics["numOutputRows"] == 2
    assert ids(people) == list(range(12))
    assert place.versions("t") == [0, 1, 2]
    assert place.weather.counts == {fault: 1}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("vectors", [True, False])
def test_rows_are_deleted_once_and_counted_once(place, fault, vectors):
    people = table(place, **{"delta.enableDeletionVectors": vectors})
    place.weather.faults = [fault] if vectors else [None, fault]

    metrics = people.delete("id IN (1, 2)")

    assert (metrics["numDeletedRows"], metrics.version, metrics.retries) == (2, 2, 0)
    assert ids(people) == [0, *range(3, 10)]
    assert place.versions("t") == [0, 1, 2]
    assert place.weather.counts == {fault: 1}


@pytest.mark.parametrize("fault", SOME_FAULTS)
def test_a_property_is_set_once(place, fault):
    people = table(place)
    place.weather.faults = [fault]

    people.alter.set_properties({"a.b": "c"})

    assert people.snapshot().configuration["a.b"] == "c"
    assert place.versions("t") == [0, 1, 2]


@pytest.mark.parametrize("fault", SOME_FAULTS)
def test_a_checkpoint_is_written_once(place, fault):
    people = table(place)
    place.weather.faults = [fault]

    assert people.checkpoint()["version"] == 1
    assert len(list((place.folder / "t" / "_delta_log").glob("*.checkpoint*.parquet"))) == 1


@pytest.mark.parametrize("fault", SOME_FAULTS)
def test_places_for_deletion_vectors_are_given_out_once(place, fault):
    people = table(place)
    (file,) = people.plan()[0].files["path"].to_pylist()
    place.weather.faults = [None, fault]

    with people.transaction("DELETE") as change:
        change.delete_rows_by_vectors(people.location, {file: [3]})

    assert ids(people) == [0, 1, 2, *range(4, 10)]
    assert len(list((place.folder / "t").glob("deletion_vector_*.bin"))) == 1
    assert place.weather.counts == {fault: 1}


@pytest.mark.parametrize("fault", ["answer dropped", "gateway timeout", "late", "sent twice", "busy"])
def test_a_conflict_stays_a_conflict_and_the_command_runs_again_once(place, monkeypatch, fault):
    people = table(place, **{"delta.enableDeletionVectors": False})
    copy, weather = people.engine.copy_rows, place.weather

    def overtaken(*arguments):
        monkeypatch.setattr(people.engine, "copy_rows", copy)
        found = copy(*arguments)
        people.delete("id = 9")
        weather.faults = [fault]  # for the commit that has lost by now
        return found

    monkeypatch.setattr(people.engine, "copy_rows", overtaken)

    metrics = people.delete("id = 1")

    assert (metrics["numDeletedRows"], metrics.retries) == (1, 1)
    assert ids(people) == [0, *range(2, 9)]
    assert place.versions("t") == [0, 1, 2, 3]


def test_an_outcome_that_nobody_knows_is_never_run_again(place):
    people = table(place)
    place.weather.faults = ["request dropped"] * 20

    with pytest.raises(CommitOutcomeUnknown) as caught:
        people.delete("id = 1")

    assert caught.value.details["transaction_id"] not in place.keys("t")
    place.weather.faults = []
    assert place.versions("t") == [0, 1]


def test_a_service_that_stays_busy_is_said_to_be_and_nothing_was_done(place):
    people = table(place)
    place.weather.faults = ["busy"] * 20

    with pytest.raises(ServiceUnavailable, match="busy"):
        people.delete("id = 1")

    place.weather.faults = []
    assert ids(people) == list(range(10))
    assert place.waits[-6:] == [0.0] * 6


def test_a_request_that_comes_late_does_not_undo_what_came_after(place):
    """The response to a DELETE is lost, another writer appends the same rows, and then the first request is repeated."""
    people = table(place)
    place.weather.faults = ["late"]

    assert people.delete("id = 1").version == 2  # the late copy has come by now
    people.append(rows([1]))

    assert ids(people) == list(range(10))
    assert place.versions("t") == [0, 1, 2, 3]


def test_many_writers_in_bad_weather_do_each_thing_once(place):
    """The responses match the table, and each key is in the log once."""
    people = table(place)
    place.weather.often = True
    lock = threading.Lock()
    expected = set(range(10))

    def write(writer):
        for step in range(6):
            number = 100 + writer * 10 + step
            people.append(rows([number]))
            with lock:
                expected.add(number)
            if step % 2:
                assert people.delete(f"id = {number - 1}")["numDeletedRows"] == 1
                with lock:
                    expected.remove(number - 1)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))

    assert ids(people) == sorted(expected)
    keys = place.keys("t")
    assert len(keys) == len(set(keys)) == 1 + 1 + 3 * 6 + 3 * 3
    assert set(place.weather.counts) == set(FAULTS)


class GivenUp(httpx.BaseTransport):
    """The first commit is in progress when it is sent again; the client gives up on the repetition, and the first completes."""

    def __init__(self, inner, error):
        self._inner = inner
        self._error = error
        self._sent = []

    def handle_request(self, request):
        if not (request.method == "POST" and request.url.path.endswith("/commits")) or len(self._sent) > 1:
            return self._inner.handle_request(request)
        self._sent.append(request)
        if len(self._sent) == 1:
            raise httpx.ReadTimeout("no answer", request=request)
        self._inner.handle_request(self._sent[0])
        error = {"message": "given up", "retryable": True, "details": {}, **self._error}
        return httpx.Response(409, json={"error": error}, request=request)


@pytest.mark.parametrize(
    "error",
    [
        {"type": "ConcurrentWriteException", "code": "CONCURRENT_WRITE"},
        {"type": "StaleReadVersion", "code": "STALE_READ_VERSION"},
    ],
    ids=lambda error: error["type"],
)
def test_a_command_is_not_run_again_because_the_repetition_of_its_commit_was_given_up(place, error):
    people = table(place)
    transport = GivenUp(place.weather, error)
    client = ServiceClient("http://delvec.test", transport=transport, sleep=place.waits.append)

    done = Connection(client).table("t").append(rows([10, 11]))

    assert (done.retries, done.version) == (0, 2)
    assert ids(people) == list(range(12))
