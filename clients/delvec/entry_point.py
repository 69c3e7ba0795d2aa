"""The entry point: ``connect()``.

Tested in `tests/integration/client/test_connection.py`.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

from delvec.connection import Connection
from delvec.http.embedded import embedded_service
from delvec_commands.dml.retry import DEFAULT_RETRIES
from delvec_errors import BadRequest
from delvec_kernel import locations
from delvec_storage.roots import Roots

__all__ = ["connect"]

_REMOTE_TIMEOUT_SECONDS: Final = 300.0


def connect(
    url: str | os.PathLike[str] | None = None,
    *,
    warehouse: str | os.PathLike[str] | None = None,
    token: str | None = None,
    database_url: str | None = None,
    timeout: float | None = None,
    retries: int = DEFAULT_RETRIES,
    roots: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None = None,
    storage_credentials: Literal["environment", "vended"] = "environment",
    catalog: str | None = None,
) -> Connection:
    """Connect to a service, or run one in this process.

    ::

        delvec.connect("http://host:8710", token="...")           # a running service
        delvec.connect("/data/lake")                              # a service in this process, with that warehouse
        delvec.connect(catalog="https://uc.example.com", token="...")  # the same, for the tables of a Unity Catalog

    Args:
        url: a running service, ``http://host:8710``, by default ``DELVEC_URL``; without one the service runs in this
            process until the connection is closed. A directory or its URL is taken as ``warehouse``.
        warehouse: the directory or bucket in which a service in this process finds and creates tables by name; by
            default ``DELVEC_WAREHOUSE``, else the working directory. Names are per warehouse; locations are the same
            everywhere.
        token: the service's bearer token, by default ``DELVEC_TOKEN``; with ``catalog`` that catalog's.
        database_url: the database of a service in this process, as an SQLAlchemy URL; by default an SQLite file under
            ``$XDG_STATE_HOME/delvec`` or ``~/.local/state/delvec``.
        timeout: seconds to wait for a remote service to answer; 300 by default.
        retries: how often to retry a command after a conflict, unless the command sets it.
        roots: paths or URLs that tables, and the files that their logs name, must be under. A service in this process
            checks them, and engines check every file they open, also for plans of a running service. In this process,
            without roots, tables may be anywhere, and a log may name files in its table's folder, in the sources of
            shallow clones that Delvec made, in the warehouse if one is given, and in ``DELVEC_ROOTS``.
        storage_credentials: ``"vended"``: this process opens data files on S3 with short-lived credentials that a
            running service issues for each table; by default with those of the environment.
        catalog: the URL of a Unity Catalog server, whose managed tables a service in this process then opens by their
            names there: ``main.sales.orders``. Their locations must be in ``roots``, unless the catalog issues credentials
            for them. By default ``DELVEC_CATALOGS`` names catalogs.

    Raises:
        EngineUnavailable: no URL is given, and the service is not installed.
        BadRequest: the arguments contradict each other, or the URL is invalid.
        InvalidLocation: the warehouse is not a valid location.
        PermissionDenied: the catalog refuses the token.
        CatalogUnavailable: the catalog does not answer.
    """
    if url is not None and _is_place(url):
        if warehouse is not None:
            raise BadRequest("the warehouse is given twice: leave out the first argument or warehouse=")
        url, warehouse = None, url
    if storage_credentials not in ("environment", "vended"):
        raise BadRequest(
            f'storage_credentials must be "environment" or "vended", not {str(storage_credentials)[:50]!r}'
        )
    vends_credentials = storage_credentials == "vended"
    url = os.fspath(url) if url else None
    if url is None and database_url is None and warehouse is None and catalog is None:
        url = os.environ.get("DELVEC_URL") or None
    root_locations = [
        os.fspath(root) for root in ([roots] if isinstance(roots, str | os.PathLike) else roots or ())
    ]
    if url is None:
        if token and catalog is None:
            raise BadRequest("a token needs the url of a running service, or a catalog")
        if vends_credentials:
            raise BadRequest(
                "vended credentials need the url of a running service: a service in this process has only your own "
                "credentials"
            )
        named = os.environ.get("DELVEC_WAREHOUSE") if warehouse is None else os.fspath(warehouse)
        service = embedded_service(
            database_url,
            _warehouse(warehouse),
            root_locations,
            [named] if named else (),
            None if catalog is None else (catalog, token),
        )
        return Connection(service, retries, has_warehouse=_is_chosen(warehouse))
    for name, value in {"database_url": database_url, "warehouse": warehouse, "catalog": catalog}.items():
        if value:
            raise BadRequest(f"{name} applies only to a service in this process: leave out url")
    from delvec.http.service_client import ServiceClient  # imports httpx

    token = token or os.environ.get("DELVEC_TOKEN")
    client = ServiceClient(
        url,
        token=token,
        timeout=timeout or _REMOTE_TIMEOUT_SECONDS,
        roots=Roots(root_locations),
        vends_credentials=vends_credentials,
    )
    return Connection(client, retries)


def _is_place(url: str | os.PathLike[str]) -> bool:
    """Whether the argument of ``connect()`` is a directory, not a service."""
    if not isinstance(url, str):
        return True
    scheme, separator, _ = url.partition("://")
    if separator:
        return scheme.lower() not in ("http", "https")
    return url.startswith((".", "/", "~")) or "\\" in url


def _is_chosen(warehouse: str | os.PathLike[str] | None) -> bool:
    return warehouse is not None or bool(os.environ.get("DELVEC_WAREHOUSE"))


def _warehouse(warehouse: str | os.PathLike[str] | None) -> str | None:
    if warehouse is not None:
        if not os.fspath(warehouse).strip():
            raise BadRequest("the warehouse must be a directory or URL, not an empty string")
        return locations.absolute(os.fspath(warehouse))
    if os.environ.get("DELVEC_WAREHOUSE"):
        return None
    with suppress(OSError):  # the working directory may be deleted
        return os.getcwd()  # noqa: PTH109 - text in, text out
    return None
