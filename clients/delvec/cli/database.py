"""``delvec database``: the SQL store of the service that ``DELVEC_DATABASE_URL`` names, without the service."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from delvec.cli.output import print_json, say
from delvec.cli.session import session
from delvec_kernel.errors import EngineUnavailable

if TYPE_CHECKING:
    from delvec_service.store.database import Database

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look after the SQL store of a service.")

_Url: TypeAlias = Annotated[
    str | None,
    typer.Option("--database-url", help="SQLite or PostgreSQL.", show_default="DELVEC_DATABASE_URL"),
]


def _open(url: str | None) -> "Database":
    """Open the SQL store.

    Raises:
        EngineUnavailable: the packages of the service are not installed.
        BadRequest: the URL is neither of SQLite nor of PostgreSQL.
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
    """Bring the SQL store to the schema of this version; replicas of the version before go on.

    `delvec serve` does so at its start, too. Run it before the first replica of a new version, if at all.

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
        say(f"the database has schema revision {revision}")
