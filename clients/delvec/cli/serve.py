"""The command that runs the service.

Tested in `tests/integration/client/cli/test_cli.py`.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from delvec.cli.options import session
from delvec.cli.output import say
from delvec_errors import BadRequest, EngineUnavailable

__all__ = ["serve"]


def serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="DELVEC_HOST or 127.0.0.1")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on.", show_default="DELVEC_PORT or 8710"),
    ] = None,
    roots: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOCATION",
            help="Locations that tables must be under; repeatable, or separated by commas.",
            show_default="DELVEC_ROOTS",
        ),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            help="Database for table names and the transaction ledger.", show_default="DELVEC_DATABASE_URL"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Number of worker processes.",
            show_default="DELVEC_WORKERS or 1",
        ),
    ] = None,
) -> None:
    """Run the service until interrupted.

    [bold]delvec serve --roots /data --roots s3://bucket/lake[/bold]

    [bold]DELVEC_TOKEN=... delvec serve --host 0.0.0.0 --roots /data[/bold]

    All other settings are environment variables that start with DELVEC_. Without a token the service must listen on
    this machine only.
    """
    try:
        from delvec_service.startup import garbage_collection_paused

        with garbage_collection_paused():
            from delvec_service import server
            from delvec_service.config import Settings, check_servable, invalid_settings
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the service needs {error.name}: pip install '.[service]' in Delvec's clone"
        ) from error
    cli_options: dict[str, Any] = {
        "host": host,
        "port": port,
        "roots": tuple(part.strip() for root in roots or () for part in root.split(",") if part.strip()),
        "database_url": database_url,
        "token": session(context).token,
        "workers": workers,
    }
    try:
        settings = Settings(**{name: value for name, value in cli_options.items() if value not in (None, ())})
        check_servable(settings)
        _check_roots(settings.roots)
    except ValidationError as error:
        raise typer.BadParameter(invalid_settings(error)[0]) from error
    except BadRequest as error:
        raise typer.BadParameter(error.message) from error
    url = f"http://{_reached_by(settings.host)}:{settings.port}"
    if sys.stderr.isatty():  # elsewhere it is the log, of lines of JSON
        if settings.dashboard:
            say(f"the page: {url}/")
        say(f"the API's documentation: {url}/docs")
    with suppress(KeyboardInterrupt):  # which ends the service as it should
        server.run(settings)


def _reached_by(host: str) -> str:
    """Return the host of a URL that reaches the service from this machine."""
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{own}]" if ":" in own else own


def _check_roots(roots: Sequence[str]) -> None:
    """Refuse roots on disk that do not exist: a misspelled one would only be noticed with the first table.

    Raises:
        BadRequest: names the root.
    """
    from delvec_kernel import locations  # with pyarrow, which --help does not need

    for root in roots:
        path = locations.local_path(locations.canonical(locations.absolute(root)))
        if path is not None and not path.is_dir():
            raise BadRequest(
                f"the root {root} is not a directory; create it, or correct --roots or DELVEC_ROOTS"
            )
