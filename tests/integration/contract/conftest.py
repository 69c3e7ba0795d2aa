"""Storage for tables: local disk, memory, S3 served by moto and versitygw, Azurite; and SQLite and PostgreSQL."""

import logging
import uuid

import psycopg
import pytest
from tests.support import azurite_server, versitygw_server
from tests.support.azurite_server import AzuriteServer
from tests.support.moto_server import S3Server
from tests.support.object_store_server import running_or_skip
from tests.support.postgres_server import postgres_or_skip
from tests.support.s3_bucket import BUCKET, create_bucket, settings
from tests.support.s3_session_policies import refusal
from tests.support.versitygw_server import VersitygwServer

from delvec_kernel import locations
from delvec_service.store.database import Database


@pytest.fixture(scope="session")
def s3_server():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    create_bucket(server.endpoint, "test", "test")
    yield server
    server.stop()


@pytest.fixture
def enforcing(s3_server):
    """The S3 server, enforcing the session policy of vended keys."""
    s3_server.fault = refusal
    yield s3_server
    s3_server.fault = None


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
