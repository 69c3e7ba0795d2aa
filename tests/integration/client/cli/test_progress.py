"""Progress of long commands on a terminal."""

import io
import threading
from contextlib import redirect_stderr

import duckdb
import pyarrow as pa
import pytest
from rich.console import Console

import delvec
from delvec.cli import output as progress
from delvec.cli.output import working


class Terminal(io.StringIO):
    """A fake terminal that records its output."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    found = Terminal()
    monkeypatch.setattr(
        progress, "Console", lambda **_: Console(file=found, force_terminal=True, color_system=None, width=80)
    )
    monkeypatch.setattr(progress, "_QUICK_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.01)
    return found


def test_a_long_command_says_what_it_does(terminal):
    looked = threading.Semaphore(0)

    def fraction():
        looked.release()
        return 0.5

    with redirect_stderr(terminal), working("deleting rows", fraction, as_json=False):
        for _ in range(3):
            looked.acquire()

    assert "deleting rows" in terminal.getvalue()


def test_nothing_is_shown_to_programs_and_files(terminal, monkeypatch):
    def fraction():
        raise AssertionError("nobody looks")

    with redirect_stderr(terminal), working("deleting rows", fraction, as_json=True):
        pass
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with redirect_stderr(terminal), working("deleting rows", fraction, as_json=False):
        pass

    assert not terminal.getvalue()


def test_what_fails_while_it_is_shown_fails_as_it_is(terminal):
    shown = working("deleting rows", lambda: None, as_json=False)

    with pytest.raises(delvec.BadRequest), redirect_stderr(terminal), shown:
        raise delvec.BadRequest("no")


def test_a_connection_tells_how_far_duckdb_is(tmp_path):
    with delvec.connect() as lake:
        table = lake.create_table(tmp_path / "t", pa.schema([("id", pa.int64())]))
        table.append(pa.table({"id": range(1_000_000)}))
        assert lake.progress() is None  # nothing runs

        ended, seen = threading.Event(), []

        def watch():
            while not ended.wait(0.001):
                told = lake.progress()
                if told is not None:
                    seen.append(told)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            while not seen:
                assert table.to_arrow(predicate="id % 2 = 0").num_rows == 500_000
        finally:
            ended.set()
            watcher.join()
    assert all(0 <= told <= 1 for told in seen)


def test_settings_of_a_connection_that_was_passed_in_stay(tmp_path):
    from delvec_engines.duckdb import DuckDBEngine

    with duckdb.connect() as mine, delvec.connect() as lake:
        setting = "SELECT current_setting('enable_progress_bar')"
        before = mine.execute(setting).fetchone()
        engine = DuckDBEngine(mine)
        engine.progress()
        table = lake.create_table(tmp_path / "t", pa.schema([("id", pa.int64())]), engine=engine)
        table.append(pa.table({"id": [1]}))

        assert table.to_arrow().num_rows == 1
        assert mine.execute(setting).fetchone() == before
