import contextlib
import email.utils
import itertools
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import httpx
import pyarrow as pa
import pytest

from delvec.http.plan_stream import ARROW_STREAM
from delvec.http.service_client import ServiceClient
from delvec_commands.backoff import pause
from delvec_contract import operations
from delvec_contract.commits import CommitResponse
from delvec_contract.plans import PlanRequest, PlanResponse
from delvec_contract.tables import TableRequest
from delvec_errors import (
    AtomicCreateUnsupported,
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentDeleteDelete,
    DelvecError,
    InternalError,
    NotFound,
    ServiceUnavailable,
    StorageError,
    TableNotFound,
    Unauthorized,
)
from delvec_kernel.transaction.transaction_changes import Changes


class Script(httpx.BaseTransport):
    """Answers requests with the given responses or failures, in order, the last one again and again.

    What became of a commit is asked for apart: ``outcome`` answers all of that.
    """

    def __init__(self, *answers, outcome=None):
        self.requests = []
        self.asked = []
        self._outcome = outcome
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))

    def handle_request(self, request):
        if self._outcome is not None and "transaction-id" in request.url.params:
            self.asked.append(request)
            answer = self._outcome
        else:
            self.requests.append(request)
            answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


def service(*answers, outcome=None, **options):
    script = Script(*answers, outcome=outcome)
    waits = []
    client = ServiceClient("http://delvec.test/base", transport=script, sleep=waits.append, **options)
    return client, script, waits


def envelope(error, **headers):
    return lambda _request: httpx.Response(error.status, json=error.to_wire(), headers=headers)


def outcome(result, **more):
    searched = {"searched-from": 2, "searched-to": 7}
    return ok({"transaction-id": "5f1c", "result": result, **searched, **more})


def ok(body):
    return lambda _request: httpx.Response(200, json=body)


NO_TABLES = {"tables": []}
PEOPLE = {
    "id": "1",
    "name": "people",
    "location": "file:///data/people",
    "created-at": "2026-01-01T00:00:00+00:00",
}
REGISTER = TableRequest(location="file:///data/people")
COMMIT = Changes("DELETE", 1, "5f1c", "")


def test_requests_carry_token_request_id_and_base_path():
    client, script, _ = service(ok(NO_TABLES), token="s3cret")
    client.call(operations.LIST_TABLES, parameters={"location": "file:///a b", "page-token": None})
    (request,) = script.requests
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert len(request.headers["X-Request-Id"]) == 36
    assert request.headers["User-Agent"].startswith("delvec-python/")
    assert request.url.path == "/base/v1/tables"
    assert dict(request.url.params) == {"location": "file:///a b"}


def test_a_token_may_end_in_a_newline_and_must_fit_a_header():
    client, script, _ = service(ok(NO_TABLES), token="s3cret\n")
    client.call(operations.LIST_TABLES)
    assert script.requests[0].headers["Authorization"] == "Bearer s3cret"
    for token in ("…", "a\nb"):
        with pytest.raises(BadRequest, match="printable ASCII"):
            service(ok({}), token=token)


def test_table_names_cannot_reach_another_resource():
    assert operations.PLAN_SCAN.filled({"table": "a/../b"}) == "/v1/tables/a%2F..%2Fb/plan"


def test_envelope_becomes_the_error_that_the_service_raised():
    conflict = {"winning-version": 7, "winning-operation": "DELETE"}
    client, _, _ = service(
        envelope(ConcurrentDeleteDelete("lost the race", table="people", conflict=conflict))
    )
    with pytest.raises(ConcurrentDeleteDelete, match="lost the race") as caught:
        client.call(operations.COMMIT, COMMIT, table="people")
    assert caught.value.conflict == conflict
    assert caught.value.details["table"] == "people"
    assert caught.value.details["request_id"]


def test_service_unavailable_keeps_its_own_class():
    client, _, _ = service(envelope(ServiceUnavailable("starting")))
    with pytest.raises(ServiceUnavailable) as caught:
        client.call(operations.LIST_TABLES)
    assert type(caught.value) is ServiceUnavailable


def test_reads_are_repeated():
    busy = envelope(ServiceUnavailable("starting"))
    client, script, waits = service(busy, busy, ok(NO_TABLES))
    assert client.call(operations.LIST_TABLES).tables == []
    assert len(script.requests) == 3
    assert waits[0] <= 0.2
    assert waits[1] <= 0.4
    assert not any("Idempotency-Key" in request.headers for request in script.requests)


@pytest.mark.parametrize("trouble", [envelope(ServiceUnavailable("starting")), httpx.ReadError("reset")])
def test_changes_are_repeated_under_one_key_each(trouble):
    client, script, _ = service(trouble, ok(PEOPLE))
    assert client.register(REGISTER).name == "people"
    client.register(REGISTER)
    client.forget("people")

    keys = [request.headers["Idempotency-Key"] for request in script.requests]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_repeating_ends():
    client, script, waits = service(httpx.ConnectError("refused"))
    with pytest.raises(ServiceUnavailable, match=r"http://delvec\.test/base cannot be reached: refused"):
        client.call(operations.LIST_TABLES)
    assert len(script.requests) == 4
    assert len(waits) == 3


def test_failed_storage_is_tried_again_for_reads():
    client, script, _ = service(envelope(StorageError("S3 answered 500")), ok(NO_TABLES))
    assert client.call(operations.LIST_TABLES).tables == []
    assert len(script.requests) == 2


def test_definite_errors_are_not_tried_again():
    client, script, _ = service(envelope(TableNotFound("no table people")))
    with pytest.raises(TableNotFound):
        client.call(operations.GET_TABLE, table="people")
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("retry_after", "low", "high"),
    [
        ("2", 2, 2),
        ("86400", 30, 30),
        ("-5", 0, 0),
        ("in 10 s", 7, 10),
        ("soon", 0, 0.2),
    ],
)
def test_retry_after_is_honoured_within_reason(retry_after, low, high):
    if retry_after == "in 10 s":
        retry_after = email.utils.formatdate(time.time() + 10, usegmt=True)
    client, _, waits = service(
        envelope(ServiceUnavailable("busy"), **{"Retry-After": retry_after}), ok(NO_TABLES)
    )
    client.call(operations.LIST_TABLES)
    assert low <= waits[0] <= high


LOST = [
    httpx.ReadError("reset"),
    httpx.ReadTimeout("slow"),
    lambda _: httpx.Response(504, text="upstream timed out"),
]


UNKNOWN = outcome("unknown")
DONE = CommitResponse(
    result="committed",
    version=7,
    read_version=1,
    transaction_id="5f1c",
    operation_metrics={"numDeletedRows": 1},
).model_dump(mode="json", by_alias=True)


def commit(client):
    return client.commit("t", COMMIT).model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("failure", LOST)
def test_lost_answer_to_a_commit_is_asked_for_by_its_key(failure):
    client, script, _ = service(failure, outcome=outcome("committed", commit=DONE))
    assert commit(client) == DONE
    assert len(script.requests) == 1
    (asked,) = script.asked
    assert (asked.method, asked.url.path) == ("GET", "/base/v1/tables/t/commits")
    assert dict(asked.url.params) == {"transaction-id": "5f1c", "read-version": "1"}


@pytest.mark.parametrize("failure", LOST)
@pytest.mark.parametrize(
    "nothing", [UNKNOWN, httpx.ConnectError("refused"), envelope(NotFound("no such route"))]
)
def test_a_commit_of_which_nothing_is_known_is_sent_again_under_the_same_key(failure, nothing):
    client, script, _ = service(failure, ok(DONE), outcome=nothing)
    assert commit(client) == DONE
    assert [request.headers["Idempotency-Key"] for request in script.requests] == ["5f1c", "5f1c"]
    assert script.requests[0].content == script.requests[1].content


def test_a_conflict_whose_answer_was_lost_is_a_conflict():
    body = ConcurrentDeleteDelete("lost the race", conflict={"winning-version": 3}).to_wire()["error"]
    client, script, _ = service(httpx.ReadError("reset"), outcome=outcome("conflict", error=body))
    with pytest.raises(ConcurrentDeleteDelete) as caught:
        commit(client)
    assert caught.value.conflict == {"winning-version": 3}
    assert len(script.requests) == 1


@pytest.mark.parametrize("failure", LOST)
def test_answer_that_stays_lost_is_an_unknown_outcome(failure):
    client, script, _ = service(failure, outcome=UNKNOWN)
    with pytest.raises(CommitOutcomeUnknown, match="transaction 5f1c") as caught:
        commit(client)
    assert caught.value.details["transaction_id"] == "5f1c"
    assert len(script.requests) == len(script.asked) == 7


@pytest.mark.parametrize(
    "refusal",
    [
        httpx.ConnectError("refused"),
        envelope(StorageError("S3 is down")),
        envelope(TableNotFound("the database was lost")),
    ],
)
def test_refusal_after_a_lost_answer_does_not_tell_the_outcome(refusal):
    client, _, _ = service(httpx.ReadError("reset"), refusal, outcome=UNKNOWN)
    with pytest.raises(CommitOutcomeUnknown):
        commit(client)


def test_conflict_after_a_lost_answer_is_a_conflict():
    again = envelope(ConcurrentDeleteDelete("lost the race"))
    client, _, _ = service(httpx.ReadError("reset"), again, outcome=UNKNOWN)
    with pytest.raises(ConcurrentDeleteDelete):
        commit(client)


def test_an_outcome_that_the_service_does_not_know_is_asked_for_too():
    lost = envelope(CommitOutcomeUnknown("storage failed in mid-commit"))
    client, script, _ = service(lost, outcome=outcome("committed", commit=DONE))
    assert commit(client) == DONE

    client, script, _ = service(lost, outcome=UNKNOWN)
    with pytest.raises(CommitOutcomeUnknown, match="storage failed in mid-commit"):
        commit(client)
    assert len(script.requests) == 7


def test_a_defect_may_have_come_after_the_commit():
    defect = envelope(InternalError("a defect"))
    client, script, _ = service(defect, outcome=outcome("committed", commit=DONE))
    assert commit(client) == DONE

    client, script, _ = service(defect, outcome=UNKNOWN)
    with pytest.raises(InternalError, match="a defect"):
        commit(client)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "refusal",
    [envelope(ServiceUnavailable("busy"), **{"Retry-After": "2"}), envelope(StorageError("S3 is down"))],
)
def test_refused_commit_is_sent_again_with_patience(refusal):
    client, script, waits = service(refusal, refusal, ok(DONE))
    assert commit(client) == DONE
    assert [request.headers["Idempotency-Key"] for request in script.requests] == ["5f1c"] * 3
    assert len(waits) == 2

    client, script, _ = service(refusal)
    with pytest.raises((ServiceUnavailable, StorageError)):
        commit(client)
    assert len(script.requests) == 7


def test_commit_that_was_never_sent_has_a_known_outcome():
    client, _, _ = service(httpx.ConnectError("refused"))
    with pytest.raises(ServiceUnavailable):
        commit(client)


def test_storage_that_can_never_take_a_commit_is_not_asked_again():
    client, script, _ = service(envelope(AtomicCreateUnsupported("no hard links")))
    with pytest.raises(AtomicCreateUnsupported):
        commit(client)
    assert len(script.requests) == 1


def test_waits_do_not_grow_without_end():
    busy = ServiceUnavailable("busy")
    assert all(pause(busy, number) <= 5 for number in range(100))
    assert max(pause(busy, 50) for _ in range(100)) > 1


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (httpx.Response(401, text="no"), Unauthorized),
        (httpx.Response(404, json={"detail": "Not Found"}), NotFound),
        (httpx.Response(500, text="<html>oops</html>"), InternalError),
        (httpx.Response(200, text="<html>welcome</html>"), InternalError),
        (httpx.Response(302, headers={"Location": "/login"}), InternalError),
    ],
)
def test_answers_of_something_else_say_so(response, error):
    client, _, _ = service(response)
    with pytest.raises(error, match="not as a Delvec service would"):
        client.call(operations.LIST_TABLES)


@pytest.mark.parametrize("url", ["", "localhost:8710", "ftp://host", "http://", "http://[::1"])
def test_service_url_must_be_one(url):
    with pytest.raises(BadRequest, match="URL"):
        ServiceClient(url)


def test_nobody_listens_on_the_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    client = ServiceClient(f"http://127.0.0.1:{port}", sleep=lambda _: None)
    with pytest.raises(ServiceUnavailable, match=f"127.0.0.1:{port} cannot be reached"):
        client.call(operations.LIST_TABLES)
    client.close()


class Slow(BaseHTTPRequestHandler):
    """A service that needs longer than a client usually waits."""

    paths: ClassVar[list[str]] = []

    def do_GET(self):
        self.paths.append(self.path)
        time.sleep(0.6)
        body = json.dumps(NO_TABLES if self.path == "/v1/tables" else {"findings": "none"}).encode()
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def slow_server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server, ThreadPoolExecutor() as threads:
        threads.submit(server.serve_forever)
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_client_waits_for_maintenance_and_not_for_other_requests():
    with slow_server() as url:
        client = ServiceClient(url, timeout=0.2, sleep=lambda _: None)
        with pytest.raises(InternalError, match="not a valid CheckResponse"):  # its answer has arrived
            client.call(operations.CHECK_TABLE, table="people")
        assert Slow.paths == ["/v1/tables/people/check"]
        with pytest.raises(ServiceUnavailable, match="did not answer in time"):
            client.call(operations.LIST_TABLES)
        client.close()


@pytest.mark.skipif(
    not hasattr(socket, "TCP_KEEPIDLE"), reason="the platform has one setting for all connections"
)
def test_a_dead_service_is_noticed_while_the_client_waits(monkeypatch):
    monkeypatch.setattr("delvec.http.service_client.getproxies", dict)
    with slow_server() as url:
        client = ServiceClient(url)
        with client._http.stream("GET", "/v1/tables") as response:
            connection = response.extensions["network_stream"].get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        client.close()


def test_closed_connection_says_so():
    client, _, _ = service(ok({}))
    client.close()
    with pytest.raises(ServiceUnavailable, match="closed"):
        client.call(operations.LIST_TABLES)


FILES = pa.table({"path": ["a.parquet", "b%20c.parquet"], "size": pa.array([10, 20], pa.int64())})
PLAN = PlanResponse(
    table_id="1",
    name="people",
    location="file:///data/people",
    version=4,
    table_schema={"type": "struct", "fields": []},
    partition_columns=[],
    configuration={},
    protocol={"minReaderVersion": 1, "minWriterVersion": 2},
    num_files=2,
    num_files_total=9,
)


def stream(files=FILES, plan=PLAN, batches=None, cut=0):
    metadata = {b"delvec": plan.model_dump_json(by_alias=True, exclude={"files"}).encode()} if plan else None
    sink = pa.BufferOutputStream()
    table = files.replace_schema_metadata(metadata)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=1)[:batches]:
            writer.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    content = content[: len(content) - cut]
    return lambda _request: httpx.Response(
        200,
        headers={"Content-Type": ARROW_STREAM},
        content=(content[i : i + 7] for i in range(0, len(content), 7)),
    )


def test_plan_arrives_as_an_arrow_table():
    client, script, _ = service(stream())
    plan, files = client.plan("people", PlanRequest(predicate="id = 1", version=4))
    assert plan == PLAN
    assert files.to_pylist() == FILES.to_pylist()
    assert script.requests[0].headers["Accept"] == ARROW_STREAM
    assert b'"predicate":"id = 1"' in script.requests[0].content


def test_plan_without_files_is_a_plan():
    client, _, _ = service(stream(FILES.slice(0, 0), PLAN.model_copy(update={"num_files": 0})))
    assert client.plan("p", PlanRequest())[1].num_rows == 0


@pytest.mark.parametrize("broken", [{"batches": 1}, {"batches": 1, "cut": 8}, {"cut": 30}])
def test_plan_that_breaks_off_is_asked_for_again_and_never_taken_for_whole(broken):
    client, script, _ = service(stream(**broken), stream())
    assert client.plan("p", PlanRequest())[1].num_rows == 2
    assert len(script.requests) == 2
    client, script, _ = service(stream(**broken))
    with pytest.raises(ServiceUnavailable, match="broke off"):
        client.plan("p", PlanRequest())
    assert len(script.requests) == 4


def test_plan_without_its_description_is_refused():
    client, _, _ = service(stream(plan=None))
    with pytest.raises(InternalError, match="lacks its description"):
        client.plan("p", PlanRequest())


def test_plan_in_another_format_is_refused():
    client, _, _ = service(ok({}))
    with pytest.raises(DelvecError, match="not as a Delvec service would"):
        client.plan("p", PlanRequest())


def test_error_while_planning_keeps_its_class():
    client, _, _ = service(envelope(TableNotFound("no table people")))
    with pytest.raises(TableNotFound):
        client.plan("p", PlanRequest())
