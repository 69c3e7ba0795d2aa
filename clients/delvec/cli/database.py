"""``delvec database``: the SQL store of the service that ``DELVEC_DATABASE_URL`` names, without the service."""

import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from delvec.cli.options import session
from delvec.cli.output import print_json, print_table, say
from delvec_errors import BadRequest, EngineUnavailable, ServiceUnavailable
from delvec_errors.texts import counted

if TYPE_CHECKING:
    from delvec_service.store.database import Database

__all__ = ["app"]

_PAUSE_SECONDS: Final = 1.0

app = typer.Typer(no_args_is_help=True, help="Migrate, back up and restore the SQL store of a service.")

_Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url", help="URL of the SQLite or PostgreSQL database.", show_default="DELVEC_DATABASE_URL"
    ),
]


def _open(url: str | None) -> "Database":
    """Open the SQL store.

    Raises:
        EngineUnavailable: the packages of the service are not installed.
        BadRequest: the URL is for neither SQLite nor PostgreSQL.
    """
    try:
        from delvec_service.config import Settings
        from delvec_service.store.database import Database
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the service's database needs {error.name}: pip install '.[service]' in Delvec's clone"
        ) from error
    return Database(url if url is not None else Settings().database_url.get_secret_value())


@app.command()
def migrate(context: typer.Context, database_url: _Url = None) -> None:
    """Migrate the SQL store to this version's schema; replicas of the previous version keep working.

    `delvec serve` also does this when it starts. To migrate separately, run this before the first replica of a new
    version.

    [bold]delvec database migrate[/bold]
    """
    database = _open(database_url)
    try:
        database.migrate()
        revision = database.revision()
    finally:
        database.close()
    if session(context).as_json:
        print_json({"revision": revision})
    else:
        say(f"the database is at schema revision {revision}")


@app.command()
def wait(
    seconds: Annotated[float, typer.Option(min=0, help="Timeout in seconds.")] = 300.0,
    database_url: _Url = None,
) -> None:
    """Wait until the SQL store is available.

    [bold]delvec database wait --seconds 60[/bold]
    """
    database = _open(database_url)
    end = time.monotonic() + seconds
    try:
        while True:
            try:
                database.revision()
            except ServiceUnavailable:
                if time.monotonic() >= end:
                    raise
                time.sleep(min(_PAUSE_SECONDS, max(0.0, end - time.monotonic())))
            else:
                break
    finally:
        database.close()
    say("the database is available")


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="File to write; '-' is standard output.")],
    database_url: _Url = None,
) -> None:
    """Back up the SQL store to a file: table names, policies, maintenance runs, health samples, grants.

    Leaves out what can be read from the Delta logs again. The service can keep running. Protect the file like the
    database.

    [bold]delvec database backup delvec.jsonl[/bold]
    """
    database = _open(database_url)
    from delvec_service.store.backup import backup as lines

    try:
        if str(file) == "-":
            sys.stdout.writelines(lines(database))
            return
        # Atomic, and never readable by others.
        number, draft = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.absolute().parent)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as output:
                rows = -2  # the first and the last line
                for line in lines(database):
                    output.write(line)
                    rows += 1
                output.flush()
                os.fsync(output.fileno())
            Path(draft).replace(file)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    finally:
        database.close()
    say(f"wrote {counted(rows, 'row')} to {file}")


@app.command()
def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A backup; '-' is standard input.")],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="First delete the names, policies and other rows that the store has."),
    ] = False,
    database_url: _Url = None,
) -> None:
    """Restore a backup into the SQL store, atomically.

    Migrates the store first. Existing rows stay unless --replace is given.

    [bold]delvec database restore delvec.jsonl[/bold]
    """
    database = _open(database_url)
    from delvec_service.store.backup import restore as put

    try:
        if str(file) == "-":
            restore_result = put(database, sys.stdin, replace=replace)
        else:
            with file.open(encoding="utf-8") as lines:
                restore_result = put(database, lines, replace=replace)
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not a Delvec backup: it is not UTF-8 ({error.reason}).") from error
    finally:
        database.close()
    if session(context).as_json:
        print_json(asdict(restore_result))
        return
    print_table(
        ["table", "rows", "added"],
        [
            (name, count, restore_result.added.get(name, 0))
            for name, count in sorted(restore_result.rows.items())
        ],
        right=["rows", "added"],
    )
    if restore_result.unknown:
        say(f"skipped, because this version does not know it: {', '.join(restore_result.unknown)}")
