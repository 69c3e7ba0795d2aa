import asyncio
import contextlib
import gc
import multiprocessing
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import anyio.to_thread
import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from delvec.http.asgi import AppFailed, EmbeddedTransport
from delvec.http.embedded import state_directory
from delvec_errors import InternalError, StorageError


def application(events):  # noqa: C901 - one small route per behaviour
    @contextlib.asynccontextmanager
    async def lifespan(_app):
        events.append("startup")
        yield {"pool": "shared"}
        events.append("shutdown")

    app = FastAPI(lifespan=lifespan)

    @app.get("/echo")
    def echo(request: Request):
        return {
            "path": request.url.path,
            "query": dict(request.query_params),
            "header": request.headers.get("x-test"),
            "pool": request.state.pool,
        }

    @app.post("/count")
    async def count(request: Request):
        chunks = [len(chunk) async for chunk in request.stream() if chunk]
        return {"chunks": len(chunks), "bytes": sum(chunks)}

    @app.get("/stream")
    def stream(n: int):
        def body():
            for number in range(n):
                events.append(("made", number))
                yield b"x" * 1024

        return StreamingResponse(body())

    @app.get("/fail")
    def fail():
        raise ValueError("boom")

    @app.get("/half")
    def half():
        def body():
            yield b"one"
            raise ValueError("boom in the middle")

        return StreamingResponse(body())

    @app.get("/slow")
    async def slow(seconds: float):
        events.append("slow began")
        await asyncio.sleep(seconds)
        events.append("slow done")
        return {}

    return app


def wait_for(event, events):
    deadline = time.monotonic() + 120
    while event not in events:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def events():
    return []


@pytest.fixture
def client(events):
    with httpx.Client(transport=EmbeddedTransport(application(events)), base_url="http://embedded") as client:
        yield client


def test_lifespan_runs_around_the_requests(events):
    transport = EmbeddedTransport(application(events))
    assert events == ["startup"]
    with httpx.Client(transport=transport, base_url="http://embedded") as client:
        assert client.get("/echo").json()["pool"] == "shared"
        assert events == ["startup"]
    assert events == ["startup", "shutdown"]
    transport.close()
    assert events == ["startup", "shutdown"]


def test_request_line_and_headers_arrive_as_over_a_network(client):
    answer = client.get("/echo", params={"q": "ä b", "z": "1"}, headers={"X-Test": "yes"}).json()
    assert answer == {"path": "/echo", "query": {"q": "ä b", "z": "1"}, "header": "yes", "pool": "shared"}


def test_request_body_is_streamed_from_the_calling_thread(client):
    threads = set()

    def body():
        for _ in range(5):
            threads.add(threading.current_thread())
            yield b"y" * 10

    assert client.post("/count", content=body()).json() == {"chunks": 5, "bytes": 50}
    assert threads == {threading.current_thread()}


def test_failure_of_a_request_body_reaches_the_caller(client):
    def body():
        yield b"y"
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="the disk went away"):
        client.post("/count", content=body())
    assert client.get("/echo").status_code == 200


def test_response_body_is_not_made_far_ahead_of_its_reader(client, events):
    with client.stream("GET", "/stream", params={"n": 1000}) as response:
        chunks = response.iter_raw()
        assert next(chunks) == b"x" * 1024
        time.sleep(0.1)
        made = [event for event in events if event[0] == "made"]
        assert len(made) < 20
        assert 1 + sum(1 for _ in chunks) == 1000


def test_response_closed_early_stops_the_application(client, events):
    with client.stream("GET", "/stream", params={"n": 100_000}) as response:
        next(response.iter_raw())
    time.sleep(0.1)
    assert len(events) < 100
    assert client.get("/echo").status_code == 200


def test_application_failure_is_raised_with_its_cause(events):
    async def broken(scope, _receive, _send):
        if scope["type"] == "http":
            raise ValueError("boom")

    with (
        httpx.Client(transport=EmbeddedTransport(broken), base_url="http://embedded") as client,
        pytest.raises(AppFailed, match="ValueError: boom") as caught,
    ):
        client.get("/")
    assert isinstance(caught.value.__cause__, ValueError)


def test_error_page_of_the_application_wins_over_its_exception(client):
    assert client.get("/fail").status_code == 500


def test_failure_in_the_middle_of_a_body_is_not_a_short_body(client):
    with pytest.raises(AppFailed, match="boom in the middle"):
        client.get("/half")


def test_silent_application_is_a_read_timeout(client):
    with pytest.raises(httpx.ReadTimeout):
        client.get("/slow", params={"seconds": 1}, timeout=0.05)


def test_failed_startup_is_raised_where_the_transport_is_made():
    @contextlib.asynccontextmanager
    async def lifespan(_app):
        raise StorageError("the database is read-only")
        yield

    with pytest.raises(StorageError, match="read-only"):
        EmbeddedTransport(FastAPI(lifespan=lifespan))


def test_failed_startup_for_any_other_reason_is_an_internal_error():
    @contextlib.asynccontextmanager
    async def lifespan(_app):
        raise ValueError("odd")
        yield

    with pytest.raises(InternalError, match="could not start: odd"):
        EmbeddedTransport(FastAPI(lifespan=lifespan))


def test_many_threads_share_one_transport(client):
    def call(number):
        if number % 2:
            return client.post("/count", content=[b"z" * number] * 3).json()["bytes"] == 3 * number
        return len(client.get("/stream", params={"n": number}).content) == 1024 * number

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, range(1, 200)))


def test_close_waits_for_requests_under_way(events):
    transport = EmbeddedTransport(application(events))
    client = httpx.Client(transport=transport, base_url="http://embedded")
    thread = threading.Thread(target=client.get, args=("/slow",), kwargs={"params": {"seconds": 0.3}})
    thread.start()
    wait_for("slow began", events)
    transport.close()
    thread.join()
    assert events == ["startup", "slow began", "slow done", "shutdown"]
    with pytest.raises(httpx.ConnectError, match="closed"):
        client.get("/echo")


def test_close_cancels_what_takes_too_long(events):
    transport = EmbeddedTransport(application(events), grace=0.1)
    client = httpx.Client(transport=transport, base_url="http://embedded")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.get, "/slow", params={"seconds": 60})
        wait_for("slow began", events)
        transport.close()
        with pytest.raises(httpx.ReadError, match="closed"):
            future.result(timeout=50)
    assert events == ["startup", "slow began", "shutdown"]


def test_forgotten_transport_shuts_its_application_down(events):
    transport = EmbeddedTransport(application(events))
    del transport
    gc.collect()
    assert events == ["startup", "shutdown"]


def test_exit_of_the_process_shuts_the_application_down():
    program = """
import contextlib, httpx
from fastapi import FastAPI
from delvec.http.embedded import EmbeddedTransport

@contextlib.asynccontextmanager
async def lifespan(app):
    yield
    print("shutdown", flush=True)

app = FastAPI(lifespan=lifespan)

@app.get("/")
def root():
    return {}

client = httpx.Client(transport=EmbeddedTransport(app), base_url="http://embedded")
print(client.get("/").status_code)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["200", "shutdown"]
    assert done.stderr == ""


def test_worker_threads_are_reused_between_requests():
    names = set()
    app = FastAPI()

    @app.get("/")
    async def root():
        names.add(await anyio.to_thread.run_sync(threading.current_thread))
        return {}

    with httpx.Client(transport=EmbeddedTransport(app), base_url="http://embedded") as client:
        for _ in range(5):
            client.get("/")
    assert len(names) == 1


def _in_child(client, answers):
    try:
        client.get("/echo")
    except httpx.ConnectError as error:
        answers.put(str(error))


def test_child_of_a_fork_is_told_to_connect_again(client):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_in_child, args=(client, answers))
        child.start()
    assert "call delvec.connect() in the child" in answers.get(timeout=120)
    child.join(120)
    assert client.get("/echo").status_code == 200


def test_state_directory_follows_the_xdg_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directory() == tmp_path / "delvec"
    assert (tmp_path / "delvec").is_dir()
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_directory() == tmp_path / "home" / ".local" / "state" / "delvec"
