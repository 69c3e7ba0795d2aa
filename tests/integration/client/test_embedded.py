"""The service in the client's process: its start, its end, forks, threads and Ctrl-C."""

import multiprocessing
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import pyarrow as pa
import pytest

import delvec
from delvec.http.embedded import state_directory
from delvec_errors import InternalError, ServiceUnavailable, StorageError
from delvec_service.commits import commit_answers
from delvec_service.commits.commit import Commits
from delvec_service.operations import plans
from delvec_service.store.database import Database

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def table(lake, tmp_path):
    table = lake.create_table(tmp_path / "people", ROWS.schema)
    table.append(ROWS)
    return table


def test_no_web_framework_is_needed(tmp_path):
    program = f"""
import sys
for name in ("fastapi", "starlette", "uvicorn"):
    sys.modules[name] = None
import delvec, pyarrow
with delvec.connect(database_url="sqlite:///{tmp_path}/a.db") as lake:
    table = lake.create_table("{tmp_path}/people", "id long")
    table.append(pyarrow.table({{"id": [1, 2, 3]}}))
    table.delete("id = 2")
    print(table.count())
    print(table.checkpoint()["version"], lake.access.whoami()["is-restricted"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "2\n2 False\n"


@pytest.mark.parametrize(
    ("error", "raised"), [(StorageError("disk gone"), StorageError), (ValueError("no"), InternalError)]
)
def test_a_failed_start_is_raised_where_the_connection_is_made(error, raised, tmp_path, monkeypatch):
    def fails(_self):
        raise error

    monkeypatch.setattr(Database, "migrate", fails)
    with pytest.raises(raised, match=str(error)):
        delvec.connect(database_url=f"sqlite:///{tmp_path}/a.db")


def test_close_waits_for_commands_under_way_and_refuses_later_ones(lake, table, monkeypatch):
    begun, plain, metrics = threading.Event(), Commits.commit, []

    def slow(self, *arguments):
        begun.set()
        time.sleep(0.3)
        return plain(self, *arguments)

    monkeypatch.setattr(Commits, "commit", slow)
    thread = threading.Thread(target=lambda: metrics.append(table.delete("id = 1")))
    thread.start()
    assert begun.wait(60)
    lake.close()
    lake.close()
    thread.join()

    assert metrics[0]["numDeletedRows"] == 1
    with pytest.raises(ServiceUnavailable, match=r"closed; call delvec\.connect\(\) again"):
        table.count()


def test_an_interrupt_does_not_stop_a_commit_half_way(lake, table, monkeypatch):
    plain, ended = commit_answers.commit, threading.Event()

    def interrupted(*arguments):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # wakes it, as Ctrl-C does
        time.sleep(0.3)
        try:
            return plain(*arguments)
        finally:
            ended.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    try:
        with monkeypatch.context() as patch:
            patch.setattr(commit_answers, "commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                table.delete("id = 1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.wait(60)

    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3]


def test_a_defect_is_an_internal_error_with_its_cause(table, monkeypatch):
    def broken(*_, **__):
        raise ValueError("boom")

    monkeypatch.setattr(plans, "plan_scan", broken)
    with pytest.raises(InternalError, match="plan_scan: ValueError: boom") as caught:
        table.to_arrow()
    assert isinstance(caught.value.__cause__, ValueError)


def test_exit_of_the_process_stops_the_service(tmp_path):
    program = f"""
import delvec
from delvec_service.service import Service
close = Service.close
def said(self):
    close(self)
    print("closed", flush=True)
Service.close = said
lake = delvec.connect(database_url="sqlite:///{tmp_path}/a.db")
print(lake.tables(), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert done.stdout.splitlines() == ["[]", "closed"]
    assert done.stderr == ""


def _in_child(table, answers):
    try:
        table.count()
    except ServiceUnavailable as error:
        answers.put(str(error))


def test_child_of_a_fork_is_told_to_connect_again(table):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_in_child, args=(table, answers))
        child.start()
    assert "call delvec.connect() in the child" in answers.get(timeout=120)
    child.join(120)
    assert table.count() == 3


def test_other_processes_cannot_use_the_connection(lake):
    with pytest.raises(TypeError, match="start `delvec serve`"):
        pickle.dumps(lake)


def test_state_directory_follows_the_xdg_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directory() == tmp_path / "delvec"
    assert (tmp_path / "delvec").is_dir()
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_directory() == tmp_path / "home" / ".local" / "state" / "delvec"
