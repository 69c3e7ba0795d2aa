"""The embedded service: ``connect()`` without a URL runs the service in this process.

Only this module of the client imports the service, and only to run it.

Tested in `tests/integration/client/test_connection.py`.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delvec_commands.table_service import TableService
from delvec_errors import EngineUnavailable, InvalidLocation

__all__ = [
    "embedded_service",
    "served",
    "service_of_database",
    "state_directory",
]


def state_directory() -> Path:
    """Return the directory of the embedded service's database: ``$XDG_STATE_HOME/delvec`` or ``~/.local/state/delvec``.

    Raises:
        InvalidLocation: the directory cannot be created.
    """
    configured = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".local" / "state"
    directory = base / "delvec"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidLocation(
            f"the state directory {directory} cannot be created: {error.strerror}; set XDG_STATE_HOME to a writable "
            "directory"
        ) from error
    return directory


def embedded_service(
    database_url: str | None = None,
    warehouse: str | None = None,
    roots: Sequence[str] = (),
    shared: Sequence[str] = (),
    catalog: tuple[str, str | None] | None = None,
) -> TableService:
    """Start the service in this process.

    Args:
        database_url: an SQLAlchemy URL; by default an SQLite file in :func:`state_directory`.
        warehouse: location of tables that are created by name.
        roots: paths or URLs that tables, and the files in their logs, must be under. If empty, tables may be anywhere, and
            their logs may name files in their own folders, the sources of their shallow clones, ``shared`` and
            ``DELVEC_ROOTS``.
        shared: paths or URLs.
        catalog: the URL of another catalog server, and its token.

    Raises:
        PermissionDenied: the catalog refuses the token.
        CatalogUnavailable: it does not answer.
        InvalidLocation: a root is not a valid location.
        EngineUnavailable: the service is not installed.
    """
    try:
        from delvec_service.startup import garbage_collection_paused

        with garbage_collection_paused():
            from delvec_service.config import Settings, roots_in_environment
            from delvec_service.embedded import EmbeddedService
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "delvec":
            raise
        raise EngineUnavailable(
            f"connect() without a URL runs the service in this process, which needs {error.name}: "
            "pip install '.[local]' in Delvec's clone, or give the URL of a running service"
        ) from error
    url = database_url or f"sqlite:///{state_directory() / 'embedded.db'}"
    catalogs = None
    if catalog is not None:
        from delvec_service.catalog_client.catalogs import catalogs_of

        catalogs = catalogs_of(*catalog)
    settings = Settings.embedded(url, warehouse, tuple(roots), catalogs)
    return EmbeddedService(
        settings, roots=roots, names_by_folder=True, shared=(*shared, *roots_in_environment())
    )


def service_of_database(database_url: str | None = None) -> TableService:
    """Start the service of a database in this process without authentication, for its administrators.

    Args:
        database_url: an SQLAlchemy URL; by default ``DELVEC_DATABASE_URL``, or the database of ``delvec serve``.

    Raises:
        EngineUnavailable: the service is not installed.
        BadRequest: the URL or a setting in the environment is invalid.
    """
    try:
        from delvec_service.startup import garbage_collection_paused

        with garbage_collection_paused():
            from delvec_service.config import Settings
            from delvec_service.embedded import EmbeddedService
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the service's database needs {error.name}: pip install '.[service]' in Delvec's clone, or give --url"
        ) from error
    return EmbeddedService(Settings.of_database(database_url))


@contextmanager
def served(**settings: Any) -> Iterator[str]:
    """Serve HTTP from a thread of this process, on a free port of localhost, for tests; yields the URL.

    Args:
        settings: the settings of the service.

    Raises:
        EngineUnavailable: the service does not start.
    """
    import uvicorn

    from delvec_service.api.connections import BoundedProtocol
    from delvec_service.app import create_app
    from delvec_service.config import Settings

    app = create_app(Settings(**settings), listens=True)
    config = uvicorn.Config(app, log_config=None, access_log=False, http=BoundedProtocol, ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise EngineUnavailable("the service did not start; its log says why")
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            app.state.readiness.drain()  # those who wait for events need not wait longer
            server.should_exit = True
            thread.join(30)
