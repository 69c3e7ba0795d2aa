"""The service's database is lost while clients hold tables: those that were opened by location stay usable."""

import shutil

import httpx
import pyarrow as pa
import pytest
from tests.support.asgi_transport import EmbeddedTransport

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_errors import TableNotFound
from delvec_service.app import create_app
from delvec_service.config import Settings

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
OPENED = {
    "opened": lambda lake, location: lake.table(location),
    "registered": lambda lake, location: lake.register(location, "crm.people"),
    "created": lambda lake, location: lake.create_table(location.with_name("created"), ROWS.schema),
}
USES = {
    "a plan": lambda table: table.to_arrow(),
    "a snapshot": lambda table: table.snapshot(),
    "an append": lambda table: table.append(ROWS),
    "a DELETE": lambda table: table.delete("id = 1"),
}


class Network(httpx.BaseTransport):
    """Leads to a service that starts anew, without its database, when it is lost."""

    def __init__(self):
        self._service = self._start()

    def _start(self):
        return EmbeddedTransport(create_app(Settings.embedded("sqlite://")))

    def lose(self):
        self._service.close()
        self._service = self._start()

    def handle_request(self, request):
        return self._service.handle_request(request)

    def close(self):
        self._service.close()


@pytest.fixture
def place(tmp_path):
    """A connection, a table's location, and a function that loses the service's database."""
    network = Network()
    lake = Connection(ServiceClient("http://delvec.test", transport=network, sleep=lambda _: None))
    lake.create_table(tmp_path / "people", ROWS.schema).append(ROWS)
    yield lake, tmp_path / "people", network.lose
    lake.close()


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("how", OPENED)
def test_a_table_opened_by_location_outlives_the_database(place, how, use):
    lake, location, lose = place
    table = OPENED[how](lake, location)
    for _ in range(2):
        lose()
        USES[use](table)
        assert [each.id for each in lake.tables()] == [table.id]


def test_rows_are_written_once(place):
    lake, location, lose = place
    table = lake.table(location)
    lose()
    table.append(ROWS)
    lose()
    table.delete("id = 2")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 1, 3, 3]


def test_a_table_opened_by_name_is_not_found(place):
    lake, _, lose = place
    other = Connection(ServiceClient("http://delvec.test", transport=lake._service._http._transport))
    table = other.table("people")
    lose()
    with pytest.raises(TableNotFound):
        table.to_arrow()


def test_what_was_dropped_stays_dropped(place):
    lake, location, _ = place
    for drop in (lambda table: lake.drop(table.name), lambda _: lake.drop(location)):
        table = lake.table(location)
        drop(table)
        with pytest.raises(TableNotFound):
            table.to_arrow()
        assert lake.tables() == []


def test_a_location_without_a_table_answers_that_the_table_is_not_found(place):
    lake, location, lose = place
    table = lake.table(location)
    lose()
    shutil.rmtree(location)
    with pytest.raises(TableNotFound, match=table.id):
        table.to_arrow()
