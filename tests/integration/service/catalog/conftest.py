"""A service with a warehouse, whose catalog other engines use."""

import pytest
from tests.support.catalog_client import ManagedTable
from tests.support.in_process_service import running_service


@pytest.fixture
def client(tmp_path):
    warehouse = tmp_path / "lake"
    warehouse.mkdir()
    database = f"sqlite:///{tmp_path / 'store.db'}"
    with running_service(database_url=database, roots=[str(warehouse)], warehouse=str(warehouse)) as client:
        yield client


@pytest.fixture
def people(client):
    return ManagedTable(client, "people").create()
