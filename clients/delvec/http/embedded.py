"""The service in this process: what ``connect()`` without a URL runs.

This is the one module of the client that imports the service, and only when it is asked to run it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from delvec.http.asgi import AppFailed, EmbeddedTransport
from delvec_kernel.errors import EngineUnavailable, InvalidLocation

__all__ = [
    "AppFailed",
    "EmbeddedTransport",
    "embedded_service",
    "service_of_database",
    "state_directory",
]


def state_directory() -> Path:
    """Where the embedded service keeps its database: ``$XDG_STATE_HOME/delvec`` or ``~/.local/state/delvec``.

    Raises:
        InvalidLocation: the directory cannot be made.
    """
    configured = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
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
    database_url: str | None = None, warehouse: str | None = None, roots: Sequence[str] = ()
) -> EmbeddedTransport:
    """Start the service in this process.

    Args:
        database_url: an SQLAlchemy URL; by default an SQLite file in :func:`state_directory`.
        warehouse: whose names these are, and where tables that are created by name go.
        roots: paths or URLs that tables, and the files that their logs name, must lie in; without any, everywhere.

    Raises:
        InvalidLocation: a root is no location.
        EngineUnavailable: the service is not installed.
    """
    try:
        from delvec_service.startup import garbage_collection_paused

        with garbage_collection_paused():
            from delvec_service.app import create_app
            from delvec_service.config import Settings
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "delvec":
            raise
        raise EngineUnavailable(
            f"connect() without a URL runs the service in this process, which needs {error.name}: "
            "pip install '.[local]' in Delvec's clone, or give the URL of a running service"
        ) from error
    url = database_url or f"sqlite:///{state_directory() / 'embedded.db'}"
    settings = Settings.embedded(url, warehouse, tuple(roots))
    return EmbeddedTransport(create_app(settings, names_by_folder=True))


def service_of_database(database_url: str | None = None) -> EmbeddedTransport:
    """Start, in this process, the service of a database, for those who administer it: it asks for no token.

    Args:
        database_url: an SQLAlchemy URL; by default ``DELVEC_DATABASE_URL``, or where ``delvec serve`` keeps its own.

    Raises:
        EngineUnavailable: the service is not installed.
        BadRequest: the URL is none, or a setting in the environment is wrong.
    """
    try:
        from delvec_service.startup import garbage_collection_paused

        with garbage_collection_paused():
            from delvec_service.app import create_app
            from delvec_service.config import Settings
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the service's database needs {error.name}: pip install '.[service]' in Delvec's clone, or give --url"
        ) from error
    return EmbeddedTransport(create_app(Settings.of_database(database_url)))
