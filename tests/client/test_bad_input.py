"""Bad input on the DuckDB engine: a typed error, one sentence, nothing committed, and the process stays up."""

import pytest
from tests import bad_input_cases as cases

from delvec._embedded import EmbeddedTransport
from delvec._transport import ServiceClient
from delvec.connection import Connection
from delvec.protocol import errors
from delvec_service.app import create_app
from delvec_service.config import Settings
from delvec_service.store.objects import ObjectStore


@pytest.fixture
def place(tmp_path):
    return cases.make(tmp_path, tmp_path / "records.db")


@pytest.fixture
def lake(place):
    with place.connect() as connection:
        yield connection


def read(table):
    return table.to_arrow()


def delete(table):
    return table.delete("id % 2 = 0")


BOTH = pytest.mark.parametrize("command", [read, delete])


@pytest.mark.parametrize("case", cases.PREDICATES)
def test_predicates(place, lake, case):
    text, kind, word = cases.PREDICATES[case]
    people = lake.table("people")
    with cases.refused(place, lake, kind, word, table="people", version=2):
        people.delete(text)
    with cases.refused(place, lake, kind, word, table="people", version=2):
        people.to_arrow(predicate=text)


@pytest.mark.parametrize("case", cases.FAILING_PREDICATES)
def test_predicates_that_fail_on_rows(place, lake, case):
    text = cases.FAILING_PREDICATES[case]
    people = lake.table("people")
    with cases.refused(place, lake, errors.InvalidPredicate, text, table="people", version=2):
        people.delete(text)
    assert people.version() == 2


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


@BOTH
@pytest.mark.parametrize("case", cases.LOGS)
def test_logs(place, lake, case, command):
    damage, kind, words = cases.LOGS[case]
    people = lake.table("people")
    damage(place)
    with cases.refused(place, lake, kind, *words, table="people"):
        command(people)


@pytest.mark.parametrize("case", cases.REFUSED_WRITES)
def test_writes_that_the_table_does_not_allow(place, lake, case):
    damage, kind, words = cases.REFUSED_WRITES[case]
    people = lake.table("people")
    damage(place)
    with cases.refused(place, lake, kind, *words, table="people"):
        delete(people)
    assert people.count() == 9


@BOTH
@pytest.mark.parametrize("case", cases.VECTORS)
def test_deletion_vectors(place, lake, case, command):
    damage, kind = cases.VECTORS[case]
    people = lake.table("people")
    damage(place)
    path, _ = place.data_file()
    with cases.refused(place, lake, kind, table="people", version=2, file=path):
        command(people)


@BOTH
@pytest.mark.parametrize("case", cases.DATA_FILES)
def test_data_files(place, lake, case, command):
    damage, kind = cases.DATA_FILES[case]
    people = lake.table("people")
    damage(place)
    path, _ = place.data_file()
    with cases.refused(place, lake, kind, table="people", version=2, file=path):
        command(people)


@pytest.mark.parametrize("case", cases.BAD_ROWS)
def test_rows_that_do_not_fit(place, lake, tmp_path, case):
    rows, word = cases.BAD_ROWS[case]
    strict = cases.Place(tmp_path / "strict", place.database)
    table = lake.create_table(strict.folder, cases.REQUIRED)
    with cases.refused(strict, lake, errors.SchemaMismatch, word):
        table.append(rows)
    assert table.version() == 0


def test_odd_file_names(tmp_path):
    place = cases.make_with_odd_names(tmp_path, tmp_path / "records.db")
    with place.connect() as lake:
        table = lake.table("odd")
        live = set(range(3 * len(cases.ODD_NAMES)))
        assert set(table.to_arrow()["id"].to_pylist()) == live
        for remainder in (0, 1, 2):  # the second finds deletion vectors, and the third empties every file
            assert table.delete(f"id % 3 = {remainder}")["numDeletedRows"] == len(cases.ODD_NAMES)
            live -= {number for number in live if number % 3 == remainder}
            assert set(table.to_arrow()["id"].to_pylist()) == live
        assert table.files() == []


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


@pytest.mark.parametrize("write", [False, True], ids=["before the write", "after the write"])
def test_storage_that_fails_while_deletion_vectors_are_written(place, lake, monkeypatch, write):
    people = lake.table("people")
    with cases.refused(place, lake, errors.StorageError, "injected"), monkeypatch.context() as patch:
        assert _stop(patch, "put", write=write) == []
        people.delete("id = 5")
    assert people.version() == 2
    assert people.delete("id = 5")["numDeletedRows"] == 1


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


def test_storage_that_fails_after_the_commit_does_not_commit_twice(place, lake, monkeypatch):
    people = lake.table("people")
    with monkeypatch.context() as patch:
        _stop(patch, "put_if_absent", write=True)
        with pytest.raises(errors.CommitOutcomeUnknown) as caught:
            people.append(cases.ROWS)
    assert caught.value.details["table"] == "people"
    assert caught.value.details["version"] == 3
    assert caught.value.details["transaction_id"] in place.commit_file(3).read_text()
    assert people.version() == 3
    assert people.count() == 19
