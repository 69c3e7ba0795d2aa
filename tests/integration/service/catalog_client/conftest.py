"""A catalog of somebody else with one table, and a connection to it."""

import pytest
from tests.support.foreign_catalog import TOKEN, ForeignTable, foreign_catalog

import delvec


@pytest.fixture
def server(tmp_path):
    with foreign_catalog() as (catalog, url):
        catalog.url = url
        catalog.place = tmp_path / "lake" / "__unitystorage"
        catalog.tables["main.sales.people"] = ForeignTable(tmp_path / "lake" / "people")
        yield catalog


@pytest.fixture
def theirs(server):
    return server.tables["main.sales.people"]


@pytest.fixture
def connected(server, tmp_path):
    """``connected()`` opens a connection with a database of its own."""
    opened = []

    def connect(**options):
        database = f"sqlite:///{tmp_path / f'store{len(opened)}.db'}"
        options = {"roots": [tmp_path / "lake"], "database_url": database, **options}
        opened.append(delvec.connect(catalog=server.url, token=TOKEN, **options))
        opened[-1]._service._sleep = lambda _seconds: None
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def lake(connected):
    return connected()


@pytest.fixture
def people(lake):
    return lake.table("main.sales.people")
