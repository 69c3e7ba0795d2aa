"""In-process services, and the PostgreSQL that replicas share."""

import pytest
from tests.support.in_process_service import running_service
from tests.support.postgres_server import postgres_or_skip


@pytest.fixture
def postgres():
    with postgres_or_skip() as server:
        yield server


@pytest.fixture
def running():
    """``with running(**settings) as client``: an HTTP client of a service in this process."""
    return running_service
