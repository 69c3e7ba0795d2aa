"""Bad input to the client, before any engine has a part in it, and storage that fails: nothing is committed."""

import pytest
from tests.support import bad_input_cases as cases
from tests.support.asgi_transport import EmbeddedTransport

import delvec_errors as errors
from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_commands import backoff as _backoff
from delvec_service.app import create_app
from delvec_service.commits import commit_log
from delvec_service.config import Settings
from delvec_service.store.objects import ObjectStore


@pytest.fixture
def lake(place):
    with place.connect() as connection:
        yield connection


def delete(table):
    return table.delete("id % 2 = 0")


def test_columns_that_do_not_exist(place, lake):
    with cases.refused(place, lake, errors.UnknownColumn, "nobody", table="people", version=2):
        lake.table("people").to_arrow(columns=["nobody"])


def test_tables_that_do_not_exist(place, lake, tmp_path):
    with cases.refused(place, lake, errors.TableNotFound, "nobody"):
        lake.table("nobody")
    with cases.refused(place, lake, errors.NotADeltaTable, "nowhere"):
        lake.table(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_table_whose_folder_is_gone(place, lake, tmp_path):
    people = lake.table("people")
    place.folder.rename(tmp_path / "elsewhere")
    with cases.refused(place, lake, errors.NotADeltaTable, "people"):
        people.delete("id = 1")
    assert not place.folder.exists()


def test_locations_outside_the_roots(place, tmp_path):
    settings = Settings(roots=(str(tmp_path / "allowed"),), database_url=f"sqlite:///{tmp_path / 'other.db'}")
    outside = cases.Place(place.folder, tmp_path / "other.db")
    inside = cases.Place(tmp_path / "allowed" / "people", tmp_path / "other.db")
    service = ServiceClient("http://delvec.test", transport=EmbeddedTransport(create_app(settings)))
    with Connection(service) as lake:
        for location in (
            place.folder,
            tmp_path / "new",
            tmp_path / "allowed" / ".." / "people",
            "s3://bucket/x",
        ):
            with pytest.raises(errors.LocationNotAllowed) as caught:
                lake.create_table(location, cases.ROWS.schema)
            assert "\n" not in caught.value.message
            with pytest.raises(errors.LocationNotAllowed):
                lake.table(location)
        cases.check_unchanged(outside, outside.files())
        assert not (tmp_path / "new").exists()
        people = lake.create_table(inside.folder, cases.ROWS.schema)
        people.append(cases.ROWS)
        assert people.count() == 10


def _stop(monkeypatch, method, *, write):
    """Let ``method`` of the service's storage fail, after or before it has done its work."""
    original = getattr(ObjectStore, method)
    calls = []

    def fail(self, path, data):
        calls.append(path)
        if write:
            original(self, path, data)
        raise errors.StorageError(f"injected: '{path}' cannot be written")

    monkeypatch.setattr(ObjectStore, method, fail)
    return calls


@pytest.fixture
def no_pauses(monkeypatch):
    """Storage that stays away is asked again as often as ever, and at once."""
    monkeypatch.setattr(_backoff, "_LONGEST_SECONDS", 0.0)
    monkeypatch.setattr(commit_log, "_PUT_PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("write", [False, True], ids=["before the write", "after the write"])
def test_storage_that_fails_while_deletion_vectors_are_written(place, lake, monkeypatch, write):
    people = lake.table("people")
    with cases.refused(place, lake, errors.StorageError, "injected"), monkeypatch.context() as patch:
        assert _stop(patch, "put", write=write) == []
        people.delete("id = 5")
    assert people.version() == 2
    assert people.delete("id = 5")["numDeletedRows"] == 1


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    "command", [delete, lambda table: table.append(cases.ROWS)], ids=["delete", "append"]
)
def test_storage_that_fails_before_the_commit(place, lake, monkeypatch, command):
    people = lake.table("people")
    with cases.refused(place, lake, errors.StorageError, "injected"), monkeypatch.context() as patch:
        _stop(patch, "put_if_absent", write=False)
        command(people)
    assert people.version() == 2
    command(people)
    assert people.version() == 3


@pytest.mark.usefixtures("no_pauses")
def test_storage_that_fails_after_the_commit_does_not_commit_twice(place, lake, monkeypatch):
    people = lake.table("people")
    with monkeypatch.context() as patch:
        _stop(patch, "put_if_absent", write=True)
        # The service cannot tell whether the entry outlives a power cut; the client asks, and it is there.
        assert people.append(cases.ROWS).version == 3
    assert people.version() == 3
    assert people.count() == 19
