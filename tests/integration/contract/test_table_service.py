"""The port to the service: both adapters answer alike."""

import base64
import uuid

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from tests.support.asgi_transport import EmbeddedTransport

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_commands.service_adapter import ServiceAdapter
from delvec_contract import operations
from delvec_contract.codec import checked
from delvec_contract.commits import AllocateRequest, BeginRequest
from delvec_contract.plans import AdditionsRequest, ChangesRequest, PlanRequest
from delvec_contract.tables import TableRequest
from delvec_errors import (
    BadRequest,
    ConcurrentDeleteDelete,
    IdempotencyKeyReused,
    InvalidPredicate,
    NotADeltaTable,
    ServiceUnavailable,
    TableAlreadyExists,
    TableInUse,
    TableNotFound,
    VersionNotFound,
)
from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.app import create_app
from delvec_service.config import Settings
from delvec_service.embedded import EmbeddedService
from delvec_service.tables.registry import Tables

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


def over_http(settings):
    return ServiceClient("http://delvec.test", transport=EmbeddedTransport(create_app(settings)))


ADAPTERS = {"HTTP": over_http, "in process": EmbeddedService}


@pytest.fixture(params=ADAPTERS)
def service(request, tmp_path):
    service = ADAPTERS[request.param](Settings.embedded(f"sqlite:///{tmp_path / 'service.db'}"))
    service._sleep = lambda _: None
    yield service
    service.close()


@pytest.fixture
def lake(service):
    return Connection(service)


@pytest.fixture
def table(lake, tmp_path):
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(tmp_path / "people", "id long", properties=properties)
    table.append(ROWS.slice(0, 5))
    table.append(ROWS.slice(5))
    return table


def removal(plan, files, *, transaction_id="key", **more):
    """A commit that removes the first file."""
    removes = [RemoveFile(path=files["path"][0].as_py())]
    return checked(
        Changes,
        read_version=plan.version,
        operation="DELETE",
        removes=removes,
        transaction_id=transaction_id,
        **more,
    )


def appending(*adds):
    return checked(Changes, read_version=2, operation="WRITE", transaction_id="key", adds=list(adds))


def test_half_a_character_in_a_new_file_is_refused_in_process(tmp_path):
    """Over HTTP it cannot be sent."""
    service = EmbeddedService(Settings.embedded(f"sqlite:///{tmp_path / 'service.db'}"))
    with Connection(service) as lake:
        table = lake.create_table(tmp_path / "people", "id long")
        for bad in ({"path": "a\ud800.parquet"}, {"path": "a.parquet", "tags": {"\ud800": "x"}}):
            with pytest.raises(BadRequest, match="lone surrogate"):
                service.commit(
                    table.id, appending(AddFile(**bad, partition_values={}, size=1, modification_time=1))
                )


def test_a_commit_that_is_sent_again_another_way_has_the_first_answer(tmp_path):
    """By the other adapter, with the key in the header, maps in another order, and defaults spelled out."""
    settings = Settings.embedded(f"sqlite:///{tmp_path / 'service.db'}")
    http, embedded = (make(settings) for make in ADAPTERS.values())
    with Connection(embedded) as lake, Connection(http):
        table = lake.create_table(tmp_path / "people", "id long")
        table.append(ROWS)
        path = embedded.plan(table.id, PlanRequest())[1]["path"][0].as_py()
        with table.transaction("DELETE", read_version=1, operation_parameters={"a": "1", "b": "2"}) as change:
            change.delete_rows({path: [0, 1, 2]})
        rows = base64.b64encode(serialize_bitmap(BitMap64([2, 1, 0]))).decode()
        body = {
            "operation": "DELETE",
            "operation-parameters": {"b": "2", "a": "1"},
            "read-version": 1,
            "row-deletes": [{"rows": rows, "path": path}],
            "data-change": True,
            "engine-info": change.result and table.history(1)[0]["engineInfo"].partition(" ")[0],
        }

        def again(**other):
            url, key = f"/v1/tables/{table.id}/commits", {"Idempotency-Key": change.transaction_id}
            return http._http.post(url, json=body | other, headers=key)

        assert (again().json()["version"], table.version()) == (2, 2)
        for other in ({"operation-parameters": {"a": "1"}}, {"data-change": False}, {"read-version": 0}):
            assert again(**other).json()["error"]["type"] == "IdempotencyKeyReused"


def test_a_plan_has_its_files_as_arrow(service, table):
    plan, files = service.plan(table.id, PlanRequest(predicate="id = 7"))

    assert (plan.table_id, plan.version, plan.num_files, plan.num_files_total) == (table.id, 2, 1, 2)
    assert files.num_rows == 1
    assert files["size"].to_pylist()[0] > 0
    assert files.schema.field("deletion_vector").type.get_field_index("cardinality") >= 0


def test_small_vectors_come_with_the_plan(service, table):
    table.delete("id IN (1, 3)")

    _, files = service.plan(table.id, PlanRequest())
    assert [each and len(each) > 0 for each in files["deleted_rows"].to_pylist()].count(True) == 1


def test_changes_and_additions_have_their_files(service, table):
    table.delete("id = 7")

    changes, files = service.changes(table.id, ChangesRequest(start_version=1))
    assert (changes.start_version, changes.end_version, changes.num_files) == (1, 3, files.num_rows)
    step, files = service.additions(
        table.id,
        AdditionsRequest(starting_version=1, max_files=10, ignore_deletes=True, skip_change_commits=True),
    )
    assert step.num_files == files.num_rows


def test_a_commit_that_is_sent_again_has_the_first_answer(service, table):
    plan, files = service.plan(table.id, PlanRequest())
    key = str(uuid.uuid4())
    body = removal(plan, files, transaction_id=key)

    first = service.commit(table.id, body)
    assert (first.result, first.version, first.operation_metrics["numRemovedFiles"]) == ("committed", 3, 1)
    assert service.commit(table.id, body) == first
    assert table.version() == 3
    outcome = service.outcome(table.id, key, plan.version)
    assert (outcome.result, outcome.commit.version) == ("committed", 3)
    other = removal(plan, files, transaction_id=key, user_metadata="another")
    with pytest.raises(IdempotencyKeyReused):
        service.commit(table.id, other)


def test_a_commit_without_effect_is_remembered_too(service, table):
    key = str(uuid.uuid4())
    body = checked(Changes, read_version=2, operation="DELETE", transaction_id=key)

    first = service.commit(table.id, body)
    assert (first.result, first.version) == ("nothing-to-do", None)
    assert service.commit(table.id, body) == first
    assert service.outcome(table.id, key).result == "nothing-to-do"


def test_a_conflict_says_who_won_also_when_it_is_sent_again(service, table):
    plan, files = service.plan(table.id, PlanRequest())
    table.update({"id": "id + 100"}, "id < 5")
    key = str(uuid.uuid4())
    body = removal(plan, files, transaction_id=key)

    conflicts = []
    for _ in range(2):
        with pytest.raises(ConcurrentDeleteDelete) as caught:
            service.commit(table.id, body)
        conflicts.append(caught.value.conflict)
    assert conflicts[0]["winning-version"] == 3
    assert conflicts[0] == conflicts[1]
    outcome = service.outcome(table.id, key, plan.version)
    assert (outcome.result, outcome.error.type) == ("conflict", ConcurrentDeleteDelete.type)


def test_a_transaction_begins_and_has_places_for_its_vectors(service, table):
    begun = service.begin(table.id, BeginRequest(operation="DELETE"))
    allocated = service.allocate(
        table.id, AllocateRequest(sizes=[40, 50], transaction_id=begun.transaction_id)
    )

    assert begun.deletion_vectors_enabled
    assert begun.version == 2
    assert [each.size_in_bytes for each in allocated.deletion_vectors] == [40, 50]
    assert allocated.transaction_id == begun.transaction_id


def test_tables_are_registered_found_and_forgotten(service, table, tmp_path):
    assert service.resolve(table.location).id == table.id
    assert service.register(TableRequest(location=table.location)).id == table.id
    assert service.call(operations.GET_TABLE, table=table.name).id == table.id
    service.forget(table.id)
    assert service.resolve(table.location) is None
    with pytest.raises(TableNotFound):
        service.plan(table.id, PlanRequest())
    with pytest.raises(NotADeltaTable):
        service.register(TableRequest(location=str(tmp_path / "nothing")))


def test_a_table_that_the_database_lost_is_registered_again(service, lake, table):
    table = lake.table(table.location)
    for use in (table.to_arrow, table.snapshot, lambda: table.append(ROWS)):
        service.call(operations.FORGET_TABLE, table=table.id)
        use()
        assert service.resolve(table.location).id == table.id
    assert table.count() == 20


ERRORS = {
    "no such table": (
        lambda service, _: service.plan("nobody", PlanRequest()),
        (TableNotFound, "nobody"),
    ),
    "an invalid predicate": (
        lambda service, table: service.plan(table, PlanRequest(predicate="id =")),
        (InvalidPredicate, "id ="),
    ),
    "no such version": (
        lambda service, table: service.plan(table, PlanRequest(version=77)),
        (VersionNotFound, "77"),
    ),
    "a value out of range": (
        lambda service, table: service.call(operations.GET_HISTORY, parameters={"limit": 0}, table=table),
        (BadRequest, "query field 'limit': input should be greater than or equal to 1"),
    ),
    "a parameter of another type": (
        lambda service, table: service.call(
            operations.GET_SNAPSHOT, parameters={"version": "x"}, table=table
        ),
        (BadRequest, "query field 'version'"),
    ),
    "NUL in a body": (
        lambda service, table: service.commit(
            table,
            checked(Changes, read_version=2, operation="DELETE", transaction_id="key", user_metadata="a\0b"),
        ),
        (BadRequest, "body field 'user-metadata': the character NUL"),
    ),
    "NUL in a new file": (
        lambda service, table: service.commit(
            table,
            appending(AddFile("a.parquet", {}, 1, 1, tags={"x": "\0"})),
        ),
        (BadRequest, "body field 'adds.0.tags.x': the character NUL"),
    ),
    "NUL in a path": (
        lambda service, _: service.call(operations.GET_TABLE, table="a\0b"),
        (BadRequest, r"path: the character NUL"),
    ),
    "a path that names no quarantine": (
        lambda service, table: service.call(operations.PURGE_VACUUMED, table=table, quarantine="a_b"),
        (BadRequest, "path field 'quarantine': string should match pattern"),
    ),
    "a parameter that is missing": (
        lambda service, table: service.call(operations.RELEASE_TABLE, table=table),
        (BadRequest, "query field 'owner': it is required"),
    ),
}


@pytest.mark.every_case("each is an error of its own")
@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_the_same(service, table, case):
    ask, (kind, message) = ERRORS[case]

    with pytest.raises(kind, match=message) as caught:
        ask(service, table.id)
    assert type(caught.value) is kind


def test_rare_operations_have_the_contracts_answers(service, lake, table):
    assert service.call(operations.GET_SNAPSHOT, parameters={"range": ["id"]}, table=table.id).column_ranges
    assert [
        entry.operation
        for entry in service.call(operations.GET_HISTORY, parameters={"limit": 1}, table=table.id).history
    ] == ["WRITE"]
    assert service.call(operations.GET_HEALTH, parameters={"files": 3}, table=table.id).score > 0
    assert service.call(operations.LIST_TABLES, parameters={"page-size": 5}).tables[0].id == table.id
    checked = service.call(operations.CHECK_TABLE, parameters={"data-files": False}, table=table.id)
    assert checked.num_errors == 0
    assert lake.access.whoami()["is-restricted"] is False


def test_what_fails_in_passing_is_asked_again(service, table, monkeypatch):
    failures = iter([ServiceUnavailable("the database sleeps")] * 2)
    plain = Tables.opened

    def asleep(self, identifier):
        for failure in failures:
            raise failure
        return plain(self, identifier)

    monkeypatch.setattr(Tables, "opened", asleep)
    assert service.plan(table.id, PlanRequest())[0].version == 2


def test_a_closed_connection_says_so(service, table):
    service.close()
    with pytest.raises(ServiceUnavailable, match="closed"):
        service.plan(table.id, PlanRequest())


def test_both_are_the_same_port(service):
    assert isinstance(service, ServiceAdapter)


def test_a_table_and_its_rows_are_created_in_one_version(lake, tmp_path):
    made = lake.create_table(tmp_path / "made", rows=ROWS, cluster_by="id")
    assert (made.version(), made.to_arrow().num_rows) == (0, ROWS.num_rows)
    assert made.history()[0]["operation"] == "CREATE TABLE AS SELECT"
    copied = lake.sql(
        f"CREATE TABLE delta.`{tmp_path}/copied` AS SELECT id FROM delta.`{tmp_path}/made` WHERE id < 3"
    )
    assert (copied.version, copied["numOutputRows"]) == (0, 3)


def test_a_dropped_table_is_created_again(lake, tmp_path):
    lake.sql(f"CREATE TABLE again LOCATION '{tmp_path}/again' AS SELECT 1 AS id")
    lake.sql("DROP TABLE again")
    with pytest.raises(TableAlreadyExists, match=r"CREATE OR REPLACE TABLE.* PURGE"):
        lake.sql(f"CREATE TABLE again (x INT) LOCATION '{tmp_path}/again'")
    replaced = lake.sql(f"CREATE OR REPLACE TABLE again LOCATION '{tmp_path}/again' AS SELECT 2 AS x")
    assert replaced.version == 1
    (tmp_path / "again" / "notes.txt").write_text("not the table's")
    lake.sql("DROP TABLE again PURGE")
    assert not (tmp_path / "again").exists()
    assert lake.dropped_tables() == []
    lake.sql(f"CREATE TABLE again (x INT) LOCATION '{tmp_path}/again'")
    assert lake.table("again").version() == 0


def test_a_table_whose_clone_needs_its_files_is_not_purged(lake, tmp_path):
    table = lake.create_table(tmp_path / "source", rows=ROWS)
    table.clone(tmp_path / "clone", shallow=True)
    with pytest.raises(TableInUse):
        lake.drop("source", purge=True)
    assert lake.table("source").to_arrow().num_rows == ROWS.num_rows
