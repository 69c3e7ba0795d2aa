"""A service in this process, used over HTTP."""

from contextlib import contextmanager

import httpx
from tests.support.asgi_transport import EmbeddedTransport

from delvec_service.app import create_app
from delvec_service.config import Settings


@contextmanager
def running_service(**settings):
    """Yield a client of a service with these settings; ``.app`` is its application."""
    app = create_app(Settings(**{"database_url": "sqlite://", **settings}))
    with httpx.Client(transport=EmbeddedTransport(app), base_url="http://delvec.test", timeout=60) as client:
        client.app = app
        client.service = app.state.service
        yield client
