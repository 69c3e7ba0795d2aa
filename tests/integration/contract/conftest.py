"""Storage for tables: local disk, memory, S3 served by moto and versitygw, Azurite; and SQLite and PostgreSQL."""

import logging
import re
import threading
import uuid
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

import psycopg
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from tests.support import azurite_server, versitygw_server
from tests.support.azurite_server import AzuriteServer
from tests.support.object_store_server import running_or_skip
from tests.support.postgres_server import postgres_or_skip
from tests.support.s3_bucket import BUCKET, create_bucket, settings
from tests.support.versitygw_server import VersitygwServer
from werkzeug.serving import make_server

from delvec_kernel import locations
from delvec_service.store.database import Database


@dataclass(frozen=True)
class S3Request:
    """A request received by the S3 server.

    Attributes:
        kind: GET, HEAD, PUT, LIST and so on.
        key: the object's key, or the listed prefix; URL-decoded.
        range: the Range header, or an empty string.
        access_key: the key that signed it, or an empty string.
    """

    kind: str
    key: str
    range: str
    access_key: str = ""


class S3Server:
    """moto's S3 over HTTP, which records every request.

    Attributes:
        fault: maps a request to the status, headers and body to answer with, or None.
    """

    def __init__(self):
        self.requests = []
        self.fault = None
        self._creating = threading.Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ, start_response):
        query = parse_qs(environ.get("QUERY_STRING", ""))
        listing = "list-type" in query
        kind = "LIST" if listing else environ["REQUEST_METHOD"]
        path = unquote(environ["PATH_INFO"].encode("latin-1").decode()).removeprefix(f"/{BUCKET}").lstrip("/")
        key = query.get("prefix", [""])[0] if listing else path
        signed = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        access_key = "" if signed is None else signed[1]
        request = S3Request(kind, key, environ.get("HTTP_RANGE", ""), access_key)
        self.requests.append(request)
        if self.fault is not None and (answer := self.fault(request)) is not None:
            status, headers, body = answer
            start_response(status, headers)
            return [body]
        if environ["REQUEST_METHOD"] != "PUT":
            return self._app(environ, start_response)
        with self._creating:  # moto checks and then writes, which is not atomic
            return self._app(environ, start_response)

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="session")
def s3_server():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    create_bucket(server.endpoint, "test", "test")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def versitygw():
    with running_or_skip(VersitygwServer) as server:
        create_bucket(server.endpoint, versitygw_server.ACCESS_KEY, versitygw_server.SECRET_KEY)
        yield server


@pytest.fixture(scope="session")
def s3_endpoint(s3_server):
    return s3_server.endpoint


@pytest.fixture
def local_location(tmp_path):
    directory = tmp_path / "täble 1%20[x]#+="
    directory.mkdir()
    return locations.canonical(str(directory))


@pytest.fixture
def memory_location():
    return f"memory:///tables/{uuid.uuid4()}"


@pytest.fixture
def s3_location(s3_endpoint, monkeypatch):
    return in_bucket(monkeypatch, s3_endpoint, "test", "test")


@pytest.fixture
def versitygw_location(versitygw, monkeypatch):
    keys = versitygw_server.ACCESS_KEY, versitygw_server.SECRET_KEY
    return in_bucket(monkeypatch, versitygw.endpoint, *keys)


@pytest.fixture(scope="session")
def azurite():
    with running_or_skip(AzuriteServer) as server:
        yield server


@pytest.fixture
def azure_location(azurite, monkeypatch):
    for name, value in azurite.settings.items():
        monkeypatch.setenv(name, value)
    return f"az://{azurite_server.CONTAINER}/t%C3%A4ble%201/{uuid.uuid4()}"


def in_bucket(monkeypatch, endpoint, access_key, secret_key):
    for name, value in settings(endpoint, access_key, secret_key).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/t%C3%A4ble%201/{uuid.uuid4()}"


@pytest.fixture(
    params=[
        "local",
        "memory",
        "s3",
        pytest.param(
            "versitygw", marks=pytest.mark.long("needs a server that takes minutes to build or install")
        ),
        pytest.param(
            "azure", marks=pytest.mark.long("needs a server that takes minutes to build or install")
        ),
    ]
)
def location(request):
    return request.getfixturevalue(f"{request.param}_location")


@pytest.fixture(scope="session")
def postgres_url():
    with postgres_or_skip() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "sqlite in memory", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        found = request.getfixturevalue("postgres_url")
        with psycopg.connect(found, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return found
    return (
        "sqlite://" if request.param == "sqlite in memory" else f"sqlite:///{tmp_path / 'deep' / 'store.db'}"
    )


@pytest.fixture
def database(url):
    opened = Database(url)
    opened.migrate()
    yield opened
    opened.close()
