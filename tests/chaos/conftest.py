"""In-process services, and the PostgreSQL that replicas share."""

from contextlib import contextmanager

import httpx
import pytest
from tests.support.postgres_server import postgres_or_skip

from delvec.http.embedded import EmbeddedTransport
from delvec_service.app import create_app
from delvec_service.config import Settings


@pytest.fixture
def postgres():
    with postgres_or_skip() as server:
        yield server


@pytest.fixture
def running():
    """``with running(**settings) as client``: an HTTP client of a service in this process."""
    return _running


@contextmanager
def _running(**settings):
    app = create_app(Settings(**{"database_url": "sqlite://", **settings}))
    with httpx.Client(transport=EmbeddedTransport(app), base_url="http://delvec.test", timeout=60) as client:
        client.app = app
        client.service = app.state.service
        yield client
