import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

import delvec
from delvec.cli import app, main
from delvec_engines.duckdb import DuckDBEngine

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})
DELVEC = [sys.executable, "-W", "error", "-c", "from delvec.cli import main; main()"]


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def delvec_command(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(ended.value.code, out, err)

    return run


@pytest.fixture
def people(delvec_command, tmp_path):
    """Makes a table with three rows by the shell alone; returns its location."""
    location = tmp_path / "people"
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    assert delvec_command("create", location, "--schema", "id long, name string").code == 0
    assert delvec_command("append", location, tmp_path / "rows.parquet").code == 0
    return location


def test_a_table_in_the_place_of_another(delvec_command, people):
    again = delvec_command("create", people, "--schema", "id long, day date", "--json")
    assert again.code == 1
    new = ["--schema", "id long, day date", "--cluster-by", "id", "--replace"]
    assert delvec_command("create", people, *new, "--json").json["version"] == 2
    detail = delvec_command("detail", people, "--json").json
    assert (detail["clusteringColumns"], detail["numFiles"]) == (["id"], 0)


def test_session_for_people(delvec_command, people):
    done = delvec_command("read", "people", "--where", "id < 3", "--columns", "name,id")
    assert [line.split() for line in done.out.splitlines()] == [["name", "id"], ["a", "1"], ["b", "2"]]
    foreseen = delvec_command("delete", "people", "--where", "id = 2", "--dry-run")
    assert "numDeletedRows: 1" in foreseen.out + foreseen.err
    done = delvec_command("delete", "people", "--where", "id = 2")
    assert re.search(r"numDeletedRows +1\n", done.out)
    assert "deleted 1 row in version 2" in done.err
    done = delvec_command("history", "people", "--limit", "2")
    assert [line.split()[0] for line in done.out.splitlines()] == ["version", "2", "1"]
    assert "DELETE" in done.out
    assert re.search(r"createdAt +20\d\d-[-0-9: ]+ UTC\n", delvec_command("detail", people).out)
    assert re.search(r"Deleted rows +1\n", delvec_command("health", people).out)
    assert "people" in delvec_command("tables").out


def test_detail_shows_columns(delvec_command, tmp_path):
    schema = "id long NOT NULL COMMENT 'of the shop', tags array<string>"
    delvec_command("create", tmp_path / "t", "--schema", schema)
    lines = [line.split() for line in delvec_command("detail", tmp_path / "t").out.splitlines()]
    assert lines[-3:] == [
        ["column", "type", "nullable", "comment"],
        ["id", "bigint", "false", "of", "the", "shop"],
        ["tags", "array<string>", "true"],
    ]
    fields = delvec_command("detail", tmp_path / "t", "--json").json["schema"]["fields"]
    assert [(each["name"], each["nullable"]) for each in fields] == [("id", False), ("tags", True)]


def test_times_are_easy_to_read(delvec_command, people):
    assert re.search(r"people +\S+ +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\n", delvec_command("tables").out)


def test_no_conflicts_are_no_empty_table(delvec_command, people):
    done = delvec_command("conflicts", people)
    assert done.err == "no conflicts\n"
    assert "read version" not in done.out
    assert re.search(r"committed +1\n", done.out)


def test_a_file_with_another_separator(delvec_command, people, tmp_path):
    (tmp_path / "rows.csv").write_text("id;name\n4;d\n")
    done = delvec_command("append", people, tmp_path / "rows.csv")
    assert done.code == 1
    assert "seems to be separated by ';'" in done.err


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("compaction", "did you mean data-compaction or dv-compaction?"),
        ("backup", "it can be system.data-compaction, "),
    ],
)
def test_an_unknown_policy_type(delvec_command, kind, hint):
    done = delvec_command("policy", "set", "nightly", "--type", kind, "--json")
    assert done.code == 2
    assert f"there is no policy type '{kind}'; {hint}" in json.loads(done.err)["error"]["message"]


def test_a_name_that_tables_cannot_have(delvec_command, tmp_path):
    done = delvec_command("create", tmp_path / "t", "--schema", "id long", "--name", "my table")
    assert done.code == 1
    assert "letters, digits, _ and -" in done.err
    assert "my_table" in done.err


def test_session_for_programs(delvec_command, people, tmp_path):
    assert delvec_command("read", people, "--json").json == ROWS.to_pylist()
    done = delvec_command("--json", "delete", people, "--where", "id = 2").json
    assert done["version"] == 2
    assert done["metrics"]["numDeletedRows"] == 1
    assert delvec_command("delete", people, "--where", "id = 2", "--json").json["version"] is None
    assert [entry["version"] for entry in delvec_command("history", people, "--json").json] == [2, 1, 0]
    assert delvec_command("detail", people, "--json").json["numFiles"] == 1
    assert delvec_command("health", people, "--json").json["num-deleted-rows"] == 1
    (listed,) = delvec_command("health", "--min-deleted-ratio", "0.1", "--json").json
    assert listed["location"] == people.as_uri()
    assert listed["sample"]["num-deleted-rows"] == 1
    assert re.search(r"people +[0-9.]+ +33\.3 %", delvec_command("health").out)
    assert "no commit or health request yet" not in delvec_command("health").out
    samples = delvec_command("health", people, "--since", "2020-01-01", "--json").json
    assert samples[0] == listed["sample"]
    assert delvec_command("health", people, "--since", "2020-01-01").out.count("\n") == 1 + len(samples)
    (table,) = delvec_command("tables", "--json").json
    assert table["name"] == "people"
    made = delvec_command("create", tmp_path / "other", "--like", tmp_path / "rows.parquet", "--json").json
    assert (made["name"], made["version"]) == ("other", 0)


@pytest.mark.parametrize("name", ["o.json", "o.jsonl", "o.csv", "o.arrow", "o.parquet"])
def test_what_read_writes_append_takes(delvec_command, people, tmp_path, name):
    assert delvec_command("read", people, "--out", tmp_path / name).code == 0
    done = delvec_command("append", people, tmp_path / name)
    assert done.code == 0, done.err
    assert delvec_command("read", people, "--json").json == ROWS.to_pylist() * 2


def test_rows_of_a_file_take_the_place_of_others(delvec_command, people, tmp_path):
    (tmp_path / "new.json").write_text('[{"id": 2, "age": 7}]')
    arguments = ("overwrite", people, tmp_path / "new.json", "--where", "id = 2", "--merge-schema", "--json")
    done = delvec_command(*arguments, "--user-metadata", "by hand")
    assert (done.json["metrics"]["numDeletedRows"], done.json["metrics"]["numOutputRows"]) == (1, 1)
    rows = delvec_command("read", people, "--where", "id = 2", "--json").json
    assert [(row["id"], row["age"]) for row in rows] == [(2, 7)]
    assert delvec_command("history", people, "--json").json[0]["userMetadata"] == "by hand"
    done = delvec_command("overwrite", people, tmp_path / "new.json", "--overwrite-schema")
    assert done.code == 0, done.err
    assert delvec_command("read", people, "--json").json == [{"id": 2, "age": 7}]


def test_a_file_with_more_columns_is_added_where_that_is_asked_for(delvec_command, people, tmp_path):
    (tmp_path / "more.csv").write_text("id,age\n9,70\n")
    assert "age" in delvec_command("append", people, tmp_path / "more.csv").err
    done = delvec_command("append", people, tmp_path / "more.csv", "--merge-schema")
    assert done.code == 0, done.err
    assert delvec_command("read", people, "--where", "age = 70", "--columns", "id", "--json").json == [
        {"id": 9}
    ]


@pytest.mark.parametrize("content", ["[", '[{"id": 1}, 2]', "[]", "[" * 100_000])
def test_json_that_holds_no_rows_is_refused(delvec_command, people, tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    done = delvec_command("append", people, tmp_path / "bad.json")
    assert done.code == 1
    assert "bad.json as json" in done.err


def test_json_is_all_that_standard_output_holds(delvec_command, people):
    done = delvec_command("delete", people, "--all", "--json")
    assert done.json["metrics"]["numDeletedRows"] == 3
    assert done.err == ""
    assert delvec_command("read", people, "--json").json == []


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.arrow", "out.json", "out.jsonl"])
def test_rows_go_to_a_file_and_come_back(delvec_command, people, tmp_path, name):
    done = delvec_command("read", people, "--limit", "2", "--out", tmp_path / name)
    assert (done.code, done.out, done.err) == (0, "", f"wrote 2 rows to {tmp_path / name}\n")
    if name != "out.json":
        assert (
            delvec_command("append", people, tmp_path / name, "--json").json["metrics"]["numOutputRows"] == 2
        )
        assert len(delvec_command("read", people, "--json").json) == 5


def test_versions_and_moments(delvec_command, people):
    delvec_command("delete", people, "--all")
    assert len(delvec_command("read", people, "--version", "1", "--json").json) == 3
    assert delvec_command("read", people, "--json").json == []
    done = delvec_command("read", people, "--timestamp", "2001-01-01")
    assert done.code == 1
    assert done.err.startswith("delvec: ")


def test_partitions_and_properties(delvec_command, tmp_path):
    done = delvec_command(
        "create", tmp_path / "t", "--schema", "id long, day date", "--partition-by", "day",
        "--property", "owner=me=you", "--property", "delta.enableDeletionVectors=false", "--name", "days",
    )  # fmt: skip
    assert done.code == 0
    detail = delvec_command("detail", "days", "--json").json
    assert detail["partitionColumns"] == ["day"]
    assert detail["properties"]["owner"] == "me=you"
    assert detail["properties"]["delta.enableDeletionVectors"] == "false"


@pytest.mark.parametrize(
    "arguments",
    [
        ["read", "nobody"],
        ["read", "./nothing-here"],
        ["read", "people", "--where", "id ="],
        ["read", "people", "--where", "nope = 1"],
        ["read", "people", "--columns", "nope"],
        ["read", "people", "--version", "99"],
        ["append", "people", "missing.parquet"],
        ["delete", "people", "--where", "(((("],
        ["create", "./x", "--schema", "id foo"],
        ["tables", "--url", "http://127.0.0.1:9"],
        ["tables", "--url", "nonsense"],
    ],
)
def test_failures_are_one_line_and_exit_code_1(delvec_command, people, arguments):
    done = delvec_command(*arguments)
    assert (done.code, done.out) == (1, "")
    # An SQL error is followed by its position.
    assert re.fullmatch(r"delvec: [^\n]+\n(?:  [^\n]+\n +\^+\n)?", done.err)
    done = delvec_command(*arguments, "--json")
    assert (done.code, done.out) == (1, "")
    assert set(json.loads(done.err)["error"]) == {"message", "type", "code", "retryable", "details"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["delete", "people"],
        ["delete", "people", "--all", "--retries", "-1"],
        ["delete", "people", "--all", "--where", "id = 1"],
        ["read"],
        ["read", "people", "--version", "1", "--timestamp", "2024-01-01"],
        ["read", "people", "--version", "-1"],
        ["read", "people", "--out", "people.xlsx"],
        ["read", "people", "--out", "/no/such/directory/a.csv"],
        ["create", "./x"],
        ["create", "./x", "--schema", "id long", "--property", "novalue"],
        ["fly"],
        ["serve"],
        ["serve", "--roots", "/data", "--host", "0.0.0.0"],
        ["serve", "--roots", "/data", "--port", "70000"],
    ],
)
def test_misuse_is_exit_code_2(delvec_command, arguments):
    done = delvec_command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert "Error: " in done.err
    done = delvec_command("--json", *arguments)
    assert json.loads(done.err)["error"]["type"] == "UsageError"


def test_wrong_setting_in_the_environment_is_misuse(delvec_command, monkeypatch):
    monkeypatch.setenv("DELVEC_MAX_REQUEST_BYTES", "lots")
    done = delvec_command("serve", "--roots", "/data")
    assert done.code == 2
    assert "DELVEC_MAX_REQUEST_BYTES" in done.err


def test_defect_is_one_line_and_its_traceback_on_request(delvec_command, monkeypatch):
    def broken(*_arguments, **_options):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(delvec, "connect", broken)
    done = delvec_command("tables")
    assert done.code == 1
    assert re.fullmatch(r"delvec: ZeroDivisionError: oops; this is a bug in Delvec[^\n]+\n", done.err)
    monkeypatch.setenv("DELVEC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["tables"])


def test_every_command_argument_and_option_is_described():
    def described(command, path):
        yield path, command.help
        for parameter in command.params:
            yield f"{path} {parameter.name}", getattr(parameter, "help", None)
        for name, inner in getattr(command, "commands", {}).items():
            yield from described(inner, f"{path} {name}")

    found = dict(described(get_command(app), "delvec"))
    assert len(found) > 100
    assert not [path for path, text in found.items() if not (text or "").strip().endswith((".", "]"))]


@pytest.mark.parametrize(
    "command",
    ["", "serve", "create", "tables", "append", "overwrite", "read", "delete", "history", "detail", "health"],
)
def test_help_shows_an_example(delvec_command, command):
    done = delvec_command(*command.split(), "--help")
    assert done.code == 0
    assert "Usage: delvec" in done.out
    if command:
        assert re.search(rf"(?m)^ (DELVEC_TOKEN=\.\.\. )?delvec {command}\b", done.out)


def test_version_is_told(delvec_command):
    assert delvec_command("--version").out == f"delvec {delvec.__version__}\n"


@pytest.mark.full("starts a process for each case")
def test_no_colours_where_they_are_not_wanted(people, tmp_path):
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "", "TERM": "dumb"}
    done = subprocess.run(
        [*DELVEC, "read", str(people)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=60,
    )
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.full("starts processes")
def test_reader_that_leaves_early_causes_no_complaint(people, delvec_command, tmp_path):
    pq.write_table(pa.table({"id": range(200_000)}), tmp_path / "many.parquet")
    delvec_command("append", people, tmp_path / "many.parquet")
    command = subprocess.Popen(
        [*DELVEC, "read", str(people), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    command.stdout.readline()
    command.stdout.close()
    assert command.stderr.read() == ""
    command.stderr.close()
    assert command.wait(120) == 1


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.full("starts a service as a process")
def test_service_serves_the_shell_and_the_client(delvec_command, tmp_path, monkeypatch):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    service = subprocess.Popen(
        [*DELVEC, "serve", "--port", str(port), "--roots", str(tmp_path), "--token", "s3cret",
         "--database-url", f"sqlite:///{tmp_path}/service.db"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                if httpx.get(f"{url}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                assert service.poll() is None, service.stderr.read()
                assert time.monotonic() < deadline
            time.sleep(0.1)
        monkeypatch.setenv("DELVEC_TOKEN", "s3cret")
        with delvec.connect(url) as lake:
            table = lake.create_table(tmp_path / "people", ROWS.schema)
            table.append(ROWS)
            assert table.delete("id = 1")["numDeletedRows"] == 1
            with pytest.raises(delvec.LocationNotAllowed):
                lake.table("/etc/passwd")
        done = delvec_command("read", "people", "--url", url, "--json")
        assert [row["id"] for row in done.json] == [2, 3]
        done = delvec_command("read", "people", "--url", url, "--token", "wrong")
        assert done.code == 1
        assert "token" in done.err
    finally:
        service.send_signal(signal.SIGINT)
        out, log = service.communicate(timeout=120)
    assert service.returncode in (0, -signal.SIGINT, 130)
    assert out == ""
    events = [json.loads(line) for line in log.splitlines()]
    assert all(event["timestamp"] and event["level"] == "info" for event in events)
    assert any(f"running on {url}" in event["event"] for event in events)
    assert {"event": "request", "method": "GET", "path": "/readyz", "status": 200}.items() <= next(
        event for event in events if event.get("status") == 200
    ).items()


@pytest.mark.full("starts a service as a process")
def test_serve_tells_a_terminal_where_the_page_is(tmp_path):
    port, (ours, terminal) = free_port(), pty.openpty()
    database = f"sqlite:///{tmp_path}/service.db"
    service = subprocess.Popen(
        [*DELVEC, "serve", "--host", "::1", "--port", str(port), "--roots", str(tmp_path), "--database-url", database],
        stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    said = b""
    while b"/docs" not in said:
        said += os.read(ours, 1000)
    service.terminate()
    with suppress(OSError):  # at its end
        while os.read(ours, 1000):
            pass
    service.wait(120)
    os.close(ours)
    page, docs = said.decode().splitlines()[:2]
    assert page == f"the page: http://[::1]:{port}/"
    assert docs == f"the API's documentation: http://[::1]:{port}/docs"


@pytest.mark.parametrize(("retries", "code"), [("1", 0), ("0", 1)])
def test_a_lost_race_is_run_again_as_often_as_told(delvec_command, people, monkeypatch, retries, code):
    """Another writer adds a matching row during the first run's scan."""
    real, first = DuckDBEngine.find_rows, []

    def another_first(engine, *arguments, **options):
        found = real(engine, *arguments, **options)
        if not first:
            first.append(delvec_command("append", people, people.parent / "rows.parquet"))
        return found

    monkeypatch.setattr(DuckDBEngine, "find_rows", another_first)
    done = delvec_command("delete", people, "--where", "id = 2", "--retries", retries)
    assert first[0].code == 0
    assert done.code == code, done.err
    left = delvec_command("read", people, "--where", "id = 2", "--json").json
    assert len(left) == (0 if code == 0 else 2)


def test_names_are_registered_renamed_and_dropped(delvec_command, people, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lake = ["--warehouse", tmp_path / "lake"]
    assert f"table 'crm.people' at file://{people}\n" in (
        delvec_command("register", "./people", "crm.people", *lake).err
    )
    assert delvec_command("read", "crm.people", *lake, "--json").code == 0
    assert delvec_command("read", "crm.people").code == 1  # another warehouse: the working directory
    assert delvec_command("rename", "crm.people", "eu.people", *lake, "--json").json["name"] == "eu.people"
    assert [each["name"] for each in delvec_command("tables", "eu", *lake, "--json").json] == ["eu.people"]
    assert delvec_command("tables", "crm", *lake, "--json").json == []
    assert "files are untouched" in delvec_command("drop", "eu.people", *lake).err
    gone = delvec_command("drop", "eu.people", *lake)
    assert (gone.code, "eu.people" in gone.err) == (1, True)
    assert delvec_command("read", people, "--json").code == 0


def test_a_table_is_created_unless_it_is_there(delvec_command, people):
    for _ in range(2):
        again = delvec_command("create", people, "--schema", "x string", "--if-not-exists", "--json")
        assert again.json["version"] == 1
    both = delvec_command("create", people, "--schema", "x string", "--if-not-exists", "--replace")
    assert both.code == 2


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json", "jsonl"])
def test_rows_and_statements_come_from_standard_input(delvec_command, people, tmp_path, monkeypatch, kind):
    rows = tmp_path / f"rows.{kind}"
    assert delvec_command("read", people, "--out", rows).code == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows.read_bytes())))
    assert delvec_command("append", people, "-").code == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT count(*) AS n\nFROM './people';\n"))
    monkeypatch.chdir(tmp_path)
    assert delvec_command("sql", "-", "--json").json == [{"n": 6}]


def test_the_shell_completes_commands():
    asked = {
        **os.environ,
        "_DELVEC_COMPLETE": "complete_bash",
        "COMP_WORDS": "delvec re",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(DELVEC, capture_output=True, text=True, check=False, env=asked)
    assert {"read", "register", "rename"} <= set(done.stdout.split())


def test_optimize_says_what_would_be_done_and_does_it(delvec_command, people, tmp_path):
    assert delvec_command("append", people, tmp_path / "rows.parquet").code == 0
    planned = delvec_command("optimize", people, "--dry-run", "--json").json
    assert (len(planned["bins"][0]), planned["version"]) == (2, None)
    assert "2 files: part-" in delvec_command("optimize", people, "--dry-run").out
    planned = delvec_command("optimize", people, "--rewrite", "never", "--dry-run").out
    assert "2 row groups of 0.0 MiB on average are copied" in planned
    assert delvec_command("optimize", people, "--rewrite", "never", "--purge").code == 2
    assert "rewrote 2 files as 1" in delvec_command("optimize", people).err
    assert "no files need to be rewritten" in delvec_command("optimize", people).err
    assert delvec_command("delete", people, "--where", "id = 1").code == 0
    purged = delvec_command("optimize", people, "--purge", "--json").json
    assert (purged["numRemovedFiles"], purged["numDeletionVectorsRemoved"]) == (1, 1)
    ordered = delvec_command("optimize", people, "--zorder-by", "id", "--json").json
    assert ordered["numAddedFiles"] == 1
    assert delvec_command("optimize", people, "--zorder-by", "id", "--purge").code == 2
    assert (
        "no deletion vectors need to be compacted"
        in delvec_command("optimize", people, "--deletion-vectors").err
    )
    assert "no clustering columns" in delvec_command("optimize", people, "--full").err
    refused = delvec_command("optimize", people, "--where", "id = 1")
    assert (refused.code, "partition" in refused.err) == (1, True)


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "arrow", "parquet", None])
def test_what_read_writes_to_a_pipe_append_takes_from_it(tmp_path, capfdbinary, monkeypatch, kind):
    people = tmp_path / "people"
    with delvec.connect() as lake:
        lake.create_table(people, "id long, name string").append(ROWS)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        assert ended.value.code == 0, err
        return out, err

    chosen = [] if kind is None else ["--format", kind]
    out, err = run("read", people, "--output", "-", *chosen)
    assert err == b""
    if kind is None:
        assert [json.loads(line) for line in out.splitlines()] == ROWS.to_pylist()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out)))
    run("append", people, "-")
    assert json.loads(run("read", people, "--json")[0]) == ROWS.to_pylist() * 2


def test_a_format_that_is_not_there_or_of_nothing(delvec_command, people, tmp_path):
    assert delvec_command("read", people, "--out", tmp_path / "rows.dat", "--format", "csv").code == 0
    assert (tmp_path / "rows.dat").read_text().startswith('"id","name"')
    assert delvec_command("read", people, "--out", "-", "--format", "xls").code == 2
    assert delvec_command("read", people, "--format", "csv").code == 2


def test_a_condition_on_standard_input(delvec_command, people, monkeypatch):
    def given(text):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    given("id > 1\n  AND id < 3\n")
    assert [row["id"] for row in delvec_command("read", people, "--where", "-", "--json").json] == [2]
    given("id = 3\n")
    done = delvec_command("delete", people, "--where", "-", "--json").json
    assert done["metrics"]["numDeletedRows"] == 1
    assert delvec_command("overwrite", people, "-", "--where", "-").code == 2
    given("nmae = 'a'")
    refused = delvec_command("read", people, "--where", "-")
    assert refused.err.splitlines()[1:] == ["  nmae = 'a'", "  ^^^^"]


def test_history_fits_a_terminal(delvec_command, people, monkeypatch):
    assert delvec_command("delete", people, "--where", "id = 2").code == 0
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setenv("TERM", "dumb")
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in delvec_command("history", people).out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["version", "time", "(UTC)", "operation", "details"]
    # Rows are as wide as the terminal, and wrapped within their column.
    start = lines[0].index("details")
    assert lines[1].split()[0] == "2"
    assert "numDeletedRows=1," in " ".join(line[start:].strip() for line in lines[1:])
