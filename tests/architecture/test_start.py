"""What a start may import: unlike its duration, that does not depend on the machine."""

import subprocess
import sys

import pytest
from typer.main import get_command

import delvec
from delvec.cli import app
from delvec.cli.command_table import COMMANDS

ENGINES = {"duckdb", "pandas", "polars", "pyspark"}
WEB = {"fastapi", "starlette", "uvicorn"}
STORES = {"alembic", "obstore", "sqlalchemy"}
ARROW = {"numpy", "pyarrow"}
CLIENT = {"httpx", "pydantic", "sqlglot"}
SECRETS = {"cryptography", "jwt"}

SERVE = """
import delvec.cli
from delvec.cli import serve
from delvec_service import server
from delvec_service.app import create_app
from delvec_service.config import Settings
settings = Settings(roots=("/tmp",), database_url="sqlite:///" + arguments[0])
app = create_app(settings)
app.state.service.database.migrate()
"""


def imported(code, *arguments):
    """Return the packages and modules imported by a fresh process that runs some code."""
    script = (
        f"import sys\narguments = {arguments!r}\n{code}\nprint('modules:', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    modules = done.stderr.rpartition("modules:")[2].split()
    return {name.partition(".")[0] for name in modules}.union(modules)


@pytest.mark.parametrize(
    ("code", "not_needed"),
    [
        (
            "import delvec",
            ENGINES | WEB | STORES | ARROW | CLIENT | SECRETS | {"asyncio", "rich", "typer"},
        ),
        ("import delvec\ndir(delvec)\ndelvec.TableNotFound", ARROW | CLIENT | WEB | STORES | ENGINES),
        ("from delvec import connect, DeltaTable", ENGINES | WEB | SECRETS | {"alembic", "sqlalchemy"}),
    ],
)
def test_importing_the_client_imports_little(code, not_needed):
    assert not imported(code) & not_needed


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["serve", "--help"], ["no-such-command"]])
def test_help_imports_only_the_commands_that_it_describes(arguments):
    code = f"import delvec.cli\ntry:\n  delvec.cli.main({arguments!r})\nexcept SystemExit:\n  pass"

    found = imported(code)

    unneeded = ENGINES | WEB | STORES | ARROW | SECRETS | {"httpx", "sqlglot"}
    assert not found & unneeded
    assert {name for name in found if name.startswith("delvec_service.")} <= {"delvec_service.startup"}
    assert "typer" in found


def test_serve_imports_neither_engines_nor_optional_parts(tmp_path):
    database = str(tmp_path / "service.db")
    assert "alembic" in imported(SERVE, database)  # this creates the schema

    unneeded = ENGINES | SECRETS | {"alembic", "psycopg", "sqlalchemy.dialects.postgresql", "delvec.table"}
    assert not imported(SERVE, database) & unneeded


COMMAND = """
import contextlib
from delvec.cli import main
sys.argv[1:] = arguments
with contextlib.suppress(SystemExit):
    main()
"""


@pytest.mark.parametrize("command", ["detail", "history", "history --limit 3", "health", "tables"])
def test_a_command_that_reads_the_log_imports_neither_web_application_nor_client(tmp_path, command):
    table = str(tmp_path / "people")
    delvec.connect().create_table(table, "id long")

    found = imported(COMMAND, *command.split(), *([] if command == "tables" else [table]))

    assert "delvec_service.in_process" in found
    assert not found & (WEB | SECRETS | {"alembic", "httpx", "pandas", "pyspark"})


@pytest.mark.full("runs many commands, each in a process")
def test_a_process_of_the_shell_does_not_use_pandas(tmp_path):
    lists = "import pyarrow\npyarrow.array([1, 2])\n"  # for which pyarrow imports pandas

    assert "pandas" in imported(lists)
    table = str(tmp_path / "people")
    for arguments in (
        ["create", table, "--schema", "id long"],
        ["vacuum", table, "--dry-run"],
        ["health", table],
    ):
        assert "pandas" not in imported(COMMAND + lists, *arguments)
    in_a_program = COMMAND.replace("main()", "main(list(arguments))")
    assert "pandas" in imported(in_a_program + lists, "health", table)


@pytest.mark.full("starts a process that imports everything")
def test_a_process_of_the_service_does_not_use_pandas(tmp_path):
    serve = SERVE.replace("app = create_app(settings)", "app = server._application(settings)")

    assert "pandas" not in imported(serve + "import pyarrow\npyarrow.array([1, 2])\n", str(tmp_path / "a.db"))


def test_services_of_a_process_share_their_routes():
    from delvec_service.app import create_app
    from delvec_service.config import Settings

    one, other = (create_app(Settings(database_url="sqlite://")) for _ in range(2))

    shared = {id(route) for route in one.routes if route.path.startswith(("/v1/", "/iceberg/"))}
    assert len(shared) > 60
    assert shared <= {id(route) for route in other.routes}


def test_the_command_list_matches_each_commands_own_help():
    commands = get_command(app).commands

    assert list(commands) == list(COMMANDS)
    for name, command in commands.items():
        assert command.name == name
        assert " ".join(command.help.partition("\n\n")[0].split()) == COMMANDS[name].summary
