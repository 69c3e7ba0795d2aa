"""Ctrl-C ends each command as KeyboardInterrupt, wherever it strikes, and is nothing else elsewhere."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

import delvec
from delvec import cli
from delvec_engines import operation
from delvec_engines.interrupts import interruptible, stoppable

SLOW = "SELECT sum(hash(a.range * b.range)) FROM range(1000000) a, range(100000) b"


def interrupting(rows):
    """Yield some rows, and then what Python raises when Ctrl-C strikes in this generator."""
    yield rows
    raise KeyboardInterrupt


class Stream:
    """Rows that others read over Arrow's C interface, which passes on nothing but the text of an exception."""

    def __init__(self, rows):
        self.rows = rows

    def __arrow_c_stream__(self, requested=None):
        batches = interrupting(self.rows)
        return pa.RecordBatchReader.from_batches(self.rows.schema, batches).__arrow_c_stream__(requested)


@pytest.fixture
def table(tmp_path, lake):
    table = lake.create_table(tmp_path / "t", "id long, n long")
    for start in (0, 10):
        table.append([{"id": number, "n": number % 3} for number in range(start, start + 10)])
    return table


STRUCK = f"""
import duckdb, os, signal, threading
from delvec_engines.interrupts import interruptible

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
slow = duckdb.connect(config={{"threads": 1}}).sql("{SLOW}")  # others would leave this thread waiting, deaf to signals
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    with interruptible():
        slow.fetchall()
except KeyboardInterrupt:
    print("interrupted")
"""
"""A process of its own, since SIGINT would strike whatever a worker of the tests runs in its main thread."""


def test_ctrl_c_in_duckdb():
    done = subprocess.run(
        [sys.executable, "-c", STRUCK], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "interrupted\n", done.stderr


PRESSED = """
import os, signal, sys, threading, time
import delvec
from delvec import cli

signal.signal(signal.SIGINT, signal.default_int_handler)
lake, path = delvec.connect(), sys.argv[1]
table = lake.create_table(path, "id long, v long")
table.append([{"id": 0, "v": 0}])
join = f"SELECT count(*) FROM delta.`{path}` x JOIN delta.`{path}` y ON x.id * y.v < x.v - y.id"


def merge():
    never = "target.id * source.v < source.id - target.v - 1000000000"
    table.merge(table.to_arrow(), never).when_not_matched_insert_all().execute()


commands = [lambda: lake.sql(join), merge, lambda: cli.run(["sql", join])]
for command in commands:  # all is imported then
    command()
table.append([{"id": number, "v": number % 1000} for number in range(100_000)])
for command in commands:
    pressed = time.monotonic() + 1.5
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        outcome = command()
    except KeyboardInterrupt:
        outcome = "interrupted"
    print(outcome, "soon" if time.monotonic() < pressed + 2 else "late")
print(table.version())
"""
"""Joins that take minutes, in which DuckDB does not look for signals."""


@pytest.mark.slow("joins two tables until they are stopped")
def test_ctrl_c_ends_a_nested_loop_join(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PRESSED, tmp_path / "t"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines()[-4:] == ["interrupted soon", "interrupted soon", "130 soon", "3"]
    assert done.stderr == "delvec: interrupted\n"


@pytest.mark.parametrize(
    "command",
    [
        lambda table, rows: table.append(rows),
        lambda table, rows: table.overwrite(rows),
        lambda table, rows: table.merge(rows, "target.id = source.id").when_matched_delete().execute(),
        lambda table, rows: (
            table.merge(rows, "target.id = source.id").when_not_matched_insert_all().execute()
        ),
    ],
    ids=["append", "overwrite", "delete", "insert"],
)
@pytest.mark.parametrize("kind", ["stream", "reader"])
def test_ctrl_c_while_rows_of_the_program_are_read(table, command, kind):
    rows = pa.record_batch({"id": pa.array([1, 100]), "n": pa.array([1, 2])})
    given = (
        Stream(rows)
        if kind == "stream"
        else pa.RecordBatchReader.from_batches(rows.schema, interrupting(rows))
    )

    with pytest.raises(KeyboardInterrupt):
        command(table, given)

    assert table.version() == 2
    assert table.count() == 20


COMMANDS = {
    "OPTIMIZE": lambda table: table.optimize(),
    "Z-order": lambda table: table.optimize.z_order(["n"]),
    "PURGE": lambda table: table.optimize.purge(),
    "UPDATE": lambda table: table.update({"n": "n + 1"}, "n % 2 = 0"),
    "DELETE": lambda table: table.delete("n % 2 = 1"),
    "MERGE": lambda table: (
        table.merge(pa.table({"id": [1, 99], "n": [7, 7]}), "target.id = source.id")
        .when_matched_update({"n": "source.n + target.n"})
        .when_not_matched_insert_all()
        .execute()
    ),
    "read": lambda table: table.to_arrow(predicate="n % 2 = 1"),
    "query": lambda table: delvec.connect().sql(f"SELECT id, sum(n) FROM '{table.location}' GROUP BY id"),
}


@pytest.fixture
def stop_statement(monkeypatch):
    """``stop_statement(number)``: DuckDB's statement of that number is stopped by Ctrl-C."""
    real = duckdb._seam.submit

    def stop(number):
        coming = iter(range(number, -1, -1))

        def submit(*arguments, **named):
            if next(coming, None) == 0:
                raise RuntimeError("Query interrupted")  # as it does, see test_ctrl_c_in_duckdb
            return real(*arguments, **named)

        monkeypatch.setattr(duckdb._seam, "submit", submit)
        return lambda: next(coming, None) is None

    return stop


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_in_any_statement_of_a_command(table, stop_statement, command):
    table.delete("id = 3")
    version = table.version()
    for number in range(100):
        struck = stop_statement(number)
        try:
            COMMANDS[command](table)
        except KeyboardInterrupt:
            assert struck()
            continue
        finally:
            stop_statement(1000)
        break
    assert 0 < number < 100
    assert table.version() - version in (0, 1)


def test_the_shell_says_so_in_one_line(table, stop_statement, capsys):
    stop_statement(0)

    assert cli.run(["optimize", table.location]) == 130
    assert capsys.readouterr() == ("", "delvec: interrupted\n")


def test_work_on_another_thread_belongs_to_the_same_command():
    with operation.command():
        mine = operation.running_command()

        with stoppable(lambda: None) as run:
            assert run(operation.running_command) is mine
            with pytest.raises(ZeroDivisionError):
                run(lambda: 1 / 0)


def test_a_text_of_another_thread_is_data():
    """Python raises KeyboardInterrupt in the main thread only: a service's worker must not end because of a text."""

    def run():
        with interruptible():
            raise RuntimeError("Query interrupted")

    with ThreadPoolExecutor(1) as pool:
        assert type(pool.submit(run).exception()) is RuntimeError


@pytest.mark.parametrize("text", ["KeyboardInterrupt", "column 'Query interrupted' not found"])
def test_errors_that_only_mention_it_stay_errors(text):
    with pytest.raises(ValueError, match=text), interruptible():
        raise ValueError(text)
