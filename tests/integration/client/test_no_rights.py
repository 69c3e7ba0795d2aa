"""A session without rights to a table: a typed error for every command, and an unchanged table."""

from contextlib import contextmanager

import pyarrow as pa
import pytest
from pydantic import SecretStr
from tests.support import bad_input_cases as cases
from tests.support.asgi_transport import EmbeddedTransport

import delvec_errors as errors
from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_service.app import create_app
from delvec_service.config import Settings

ROW = pa.table({"id": pa.array([50], pa.int64()), "name": ["x"], "part": ["a"]})
COMMANDS = {
    "read": lambda table: table.to_arrow(),
    "delete": lambda table: table.delete("id = 1"),
    "delete by keys": lambda table: table.delete(keys=ROW, on=["id"]),
    "update": lambda table: table.update({"name": "'x'"}, "id = 1"),
    "merge": lambda table: (
        table.merge(ROW, "target.id = source.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
    "append": lambda table: table.append(ROW),
    "overwrite": lambda table: table.overwrite(ROW),
    "changes": lambda table: table.changes(0),
}


@contextmanager
def connected(place, *, token=None, asked=None, **settings):
    database = SecretStr(f"sqlite:///{place.database}")
    app = create_app(Settings(database_url=database, token=asked, **settings))
    client = ServiceClient("http://delvec.test", token=token, transport=EmbeddedTransport(app))
    with Connection(client) as lake:
        yield lake


def test_a_token_that_is_not_the_services(place):
    with connected(place, token="right", asked="right") as lake:
        table = lake.table(place.folder)
    before = place.files()
    with connected(place, token="wrong", asked="right") as lake:
        with pytest.raises(errors.Unauthorized):
            lake.table(place.folder)
        table._service = lake._service
        for command in COMMANDS.values():
            with pytest.raises(errors.Unauthorized):
                command(table)
    cases.check_unchanged(place, before)


def test_a_table_that_is_no_longer_below_a_root(place, tmp_path):
    before = place.files()
    with connected(place, roots=(str(tmp_path / "elsewhere"),)) as lake:
        with pytest.raises(errors.LocationNotAllowed):
            lake.table(place.folder)
        for command in COMMANDS.values():
            with pytest.raises(errors.LocationNotAllowed):
                command(lake.table(place.folder))
    cases.check_unchanged(place, before)
