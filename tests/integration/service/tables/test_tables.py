"""``/v1/tables``: register, create, list, resolve and unregister tables, and allowed locations."""

import json
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
import pytest

from delvec_contract.tables import TABLE_NAME
from delvec_errors import StorageError
from delvec_kernel.locations import table_id
from delvec_service.store.objects import ObjectStore

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "country", "type": "string", "nullable": True, "metadata": {}},
    ],
}


@pytest.fixture
def foreign(tmp_path):
    """A table that deltalake wrote."""
    folder = tmp_path / "foreign" / "orders"
    deltalake.write_deltalake(str(folder), pa.table({"id": [1, 2, 3]}))
    return folder


def register(client, location, **body):
    return client.post("/v1/tables", json={"location": str(location), **body})


# --- registering --------------------------------------------------------------------------------------


def test_registering_is_idempotent(client, foreign):
    first = register(client, foreign)
    again = register(client, f"file://{foreign}/")

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.json()["name"] == "orders"
    assert first.json()["location"] == f"file://{foreign}"
    assert first.json()["id"] == table_id(f"file://{foreign}")
    assert client.get("/v1/tables/orders").json() == client.get(f"/v1/tables/{first.json()['id']}").json()


def test_of_many_that_register_at_once_one_creates(client, foreign):
    start = threading.Barrier(8)

    def once(_):
        start.wait()
        return register(client, foreign)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(once, range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_reading_never_registers(client, foreign):
    assert client.get("/v1/tables", params={"location": str(foreign)}).json()["tables"] == []
    assert client.get("/v1/tables").json()["tables"] == []

    register(client, foreign)

    (found,) = client.get("/v1/tables", params={"location": str(foreign)}).json()["tables"]
    assert found["name"] == "orders"


def test_a_folder_name_that_two_tables_have_means_neither_and_shows_both(client, foreign, tmp_path, error):
    other = tmp_path / "other" / "orders"
    deltalake.write_deltalake(str(other), pa.table({"id": [1]}))
    register(client, foreign)

    second = register(client, other).json()

    assert second["name"] == "orders"
    answer = client.get("/v1/tables/orders")
    assert answer.status_code == 400
    assert error(answer)["type"] == "AmbiguousTable"
    for folder in (foreign, other):
        assert f"file://{folder}" in error(answer)["message"]
    assert client.get(f"/v1/tables/{second['id']}").json()["location"] == f"file://{other}"


def test_a_table_is_renamed_and_keeps_its_id(client, foreign, tmp_path, error):
    other = tmp_path / "other" / "orders"
    deltalake.write_deltalake(str(other), pa.table({"id": [1]}))
    first, second = register(client, foreign).json(), register(client, other).json()

    answer = client.post(f"/v1/tables/{second['id']}/rename", json={"name": "archive.orders"})

    assert answer.status_code == 200
    assert answer.json() == {**second, "name": "archive.orders"}
    assert client.get("/v1/tables/archive.orders").json()["id"] == second["id"]
    assert client.get("/v1/tables/orders").json()["id"] == first["id"]
    taken = client.post("/v1/tables/archive.orders/rename", json={"name": "orders"})
    assert taken.status_code == 409
    assert str(foreign) in error(taken)["message"]
    assert str(other) in error(taken)["message"]
    assert client.post("/v1/tables/archive.orders/rename", json={"name": "a..b"}).status_code == 400


def test_tables_of_a_namespace_are_listed_page_by_page(client, tmp_path, create):
    for number, name in enumerate(("sales.b", "sales.a", "salesman", "sales.eu.c", "other.a")):
        create(client, tmp_path / str(number), name=name)

    names, token = [], ""
    while token is not None:
        page = client.get(
            "/v1/tables", params={"page-size": 1, "page-token": token, "namespace": "sales"}
        ).json()
        names += [table["name"] for table in page["tables"]]
        token = page["next-page-token"]

    assert names == ["sales.a", "sales.b", "sales.eu.c"]
    assert client.get("/v1/tables/sales.eu.c/snapshot").status_code == 200


def test_a_name_that_is_taken_is_refused(client, foreign, tmp_path, error):
    other = tmp_path / "other"
    deltalake.write_deltalake(str(other), pa.table({"id": [1]}))
    register(client, foreign, name="mine")

    answer = register(client, other, name="mine")

    assert answer.status_code == 409
    assert error(answer)["type"] == "TableAlreadyExists"
    assert client.get("/v1/tables", params={"location": str(other)}).json()["tables"] == []


@pytest.mark.parametrize("folder", ["2024 Käufe & 20%", "a..b", ".hidden", "ends.", "a.-b", "_._"])
def test_odd_directory_names_become_names(client, tmp_path, folder):
    folder = tmp_path / folder
    deltalake.write_deltalake(str(folder), pa.table({"id": [1]}))

    found = register(client, folder).json()

    assert re.fullmatch(TABLE_NAME, found["name"])
    assert client.get(f"/v1/tables/{found['name']}").status_code == 200


@pytest.mark.parametrize("prepare", ["nothing", "empty folder", "parquet only", "empty log"])
def test_what_is_not_a_delta_table_is_not_registered(client, tmp_path, error, prepare):
    folder = tmp_path / "thing"
    if prepare != "nothing":
        folder.mkdir()
    if prepare == "parquet only":
        (folder / "a.parquet").write_bytes(b"PAR1")
    if prepare == "empty log":
        (folder / "_delta_log").mkdir()

    answer = register(client, folder)

    assert answer.status_code == 404
    assert error(answer)["type"] == "NotADeltaTable"
    assert str(folder) in error(answer)["message"]
    assert client.get("/v1/tables").json()["tables"] == []


def test_a_table_with_an_unknown_reader_feature_is_not_registered(client, foreign, error):
    entry = foreign / "_delta_log" / "00000000000000000001.json"
    features = ["deletionVectors", "crystalBall"]
    entry.write_text(
        json.dumps(
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": features,
                    "writerFeatures": features,
                }
            }
        )
    )

    answer = register(client, foreign)

    assert answer.status_code == 422
    assert error(answer)["type"] == "UnsupportedReaderFeature"
    assert "crystalBall" in error(answer)["message"]


@pytest.mark.parametrize(
    "location", ["people", "./people", "../people", "ftp://host/people", "", "/", "http://x/y", "/a/../b"]
)
def test_what_is_no_location_is_refused(client, error, location):
    for answer in (
        register(client, location),
        register(client, location, schema=SCHEMA),
        client.get("/v1/tables", params={"location": location}),
    ):
        if location == "/" and answer.request.method == "GET":
            continue  # a place like any other; there is no table
        assert answer.status_code == 400
        assert error(answer)["type"] in ("InvalidLocation", "BadRequest")


def test_names_that_look_like_ids_are_refused(client, foreign, error):
    answer = register(client, foreign, name="a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")

    assert answer.status_code == 400
    assert "looks like a table's id" in error(answer)["message"]


# --- listing and forgetting ---------------------------------------------------------------------------


def test_tables_are_listed_page_by_page(client, tmp_path, create):
    for name in ("c", "a", "e", "d", "b"):
        create(client, tmp_path / name)

    names, token = [], ""
    while token is not None:
        page = client.get("/v1/tables", params={"page-size": 2, "page-token": token}).json()
        names += [table["name"] for table in page["tables"]]
        token = page["next-page-token"]

    assert names == ["a", "b", "c", "d", "e"]


def test_a_forgotten_table_keeps_its_files_and_its_id(client, foreign):
    first = register(client, foreign).json()

    assert client.delete("/v1/tables/orders").status_code == 204
    assert client.delete("/v1/tables/orders").status_code == 404
    assert client.get("/v1/tables/orders").status_code == 404
    assert deltalake.DeltaTable(str(foreign)).version() == 0
    assert register(client, foreign).json()["id"] == first["id"]


# --- creating -----------------------------------------------------------------------------------------


def test_a_created_table_is_a_delta_table_with_deletion_vectors(client, tmp_path):
    folder = tmp_path / "deep" / "people"

    answer = client.post(
        "/v1/tables",
        json={
            "location": str(folder),
            "schema": SCHEMA,
            "partition-columns": ["country"],
            "properties": {"owner": "Ann"},
            "description": "who lives where",
        },
    )

    assert answer.status_code == 201
    assert answer.json()["version"] == 0
    table = deltalake.DeltaTable(str(folder))
    assert table.metadata().partition_columns == ["country"]
    assert table.metadata().configuration == {"delta.enableDeletionVectors": "true", "owner": "Ann"}
    assert table.metadata().description == "who lives where"
    assert table.protocol().reader_features == ["deletionVectors"]
    snapshot = client.get("/v1/tables/people/snapshot").json()
    assert snapshot["schema"] == SCHEMA
    assert snapshot["version"] == 0
    assert snapshot["partition-columns"] == ["country"]
    (entry,) = (folder / "_delta_log").glob("*.json")
    info = json.loads(entry.read_text().splitlines()[0])["commitInfo"]
    assert info["operation"] == "CREATE TABLE"
    assert info["txnId"]


def test_nothing_is_created_over_a_table(client, foreign, error):
    before = sorted((foreign / "_delta_log").iterdir())

    answer = register(client, foreign, schema=SCHEMA)

    assert answer.status_code == 409
    assert error(answer)["type"] == "TableAlreadyExists"
    assert sorted((foreign / "_delta_log").iterdir()) == before


def test_of_many_that_create_at_once_one_does(client, tmp_path):
    start = threading.Barrier(6)

    def once(_):
        start.wait()
        return register(client, tmp_path / "people", schema=SCHEMA).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(once, range(6)))

    assert sorted(statuses) == [201] + [409] * 5


def test_a_name_that_is_taken_creates_nothing(client, tmp_path, create):
    create(client, tmp_path / "people")

    answer = register(client, tmp_path / "other", schema=SCHEMA, name="people")

    assert answer.status_code == 409
    assert not (tmp_path / "other").exists()


def test_a_table_that_cannot_be_written_is_not_registered(client, tmp_path, error, monkeypatch):
    def fail(*_arguments):
        raise StorageError("the disk is full")

    monkeypatch.setattr(ObjectStore, "put_if_absent", fail)

    answer = register(client, tmp_path / "people", schema=SCHEMA)

    assert answer.status_code == 502
    assert error(answer)["type"] == "StorageError"
    assert client.get("/v1/tables").json()["tables"] == []


@pytest.mark.parametrize("winner", ["another writer", "another request"])
def test_a_creation_that_loses_to_another_writer_takes_no_name(
    client, foreign, tmp_path, error, monkeypatch, winner
):
    put = ObjectStore.put_if_absent

    def late(self, path, data, *arguments):
        if path.startswith("_delta_log"):
            monkeypatch.undo()
            if winner == "another writer":
                shutil.copytree(foreign, tmp_path / "people")
            else:
                assert register(client, tmp_path / "people", schema=SCHEMA).status_code == 201
        return put(self, path, data, *arguments)

    monkeypatch.setattr(ObjectStore, "put_if_absent", late)

    answer = register(client, tmp_path / "people", schema=SCHEMA, name="mine")

    assert (answer.status_code, error(answer)["type"]) == (409, "TableAlreadyExists")
    is_free = winner == "another writer"
    names = [table["name"] for table in client.get("/v1/tables").json()["tables"]]
    assert names == ([] if is_free else ["mine"])
    other = register(client, tmp_path / "other", schema=SCHEMA, name="mine")
    assert other.status_code == (201 if is_free else 409)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"schema": {"type": "struct", "fields": []}}, "InvalidSchema"),
        ({"schema": {"type": "struct"}}, "InvalidSchema"),
        ({"schema": {"type": "struct", "fields": [{"name": "x", "type": "complex"}]}}, "InvalidSchema"),
        ({"schema": {}}, "InvalidSchema"),
        ({"schema": SCHEMA, "partition-columns": ["age"]}, "InvalidSchema"),
        ({"schema": SCHEMA, "properties": {"delta.unheardOf": "1"}}, "InvalidTableChange"),
    ],
)
def test_a_table_that_cannot_be_leaves_nothing_behind(client, tmp_path, error, body, kind):
    answer = register(client, tmp_path / "people", **body)

    assert answer.status_code == 400
    assert error(answer)["type"] == kind
    assert not (tmp_path / "people").exists()
    assert client.get("/v1/tables").json()["tables"] == []


def test_a_table_by_name_alone_goes_to_the_warehouse(running, tmp_path, error):
    with running(warehouse=str(tmp_path / "warehouse")) as client:
        answer = client.post("/v1/tables", json={"name": "people", "schema": SCHEMA})

        assert answer.json()["location"] == f"file://{tmp_path}/warehouse/people"
        answer = client.post("/v1/tables", json={"name": "sales.eu.orders", "schema": SCHEMA})
        assert answer.json()["location"] == f"file://{tmp_path}/warehouse/sales.db/eu.db/orders"
    with running() as client:
        answer = client.post("/v1/tables", json={"name": "people", "schema": SCHEMA})

        assert answer.status_code == 400
        assert "DELVEC_WAREHOUSE" in error(answer)["message"]


@pytest.mark.parametrize("named", [True, False])
def test_a_registered_table_whose_folder_is_gone_is_created_anew(running, tmp_path, error, named):
    """Recreated at its location, by location or by name; another existing table with the name prevents it."""
    body = {"name": "people", "schema": SCHEMA}
    place = {"location": str(tmp_path / "people")}
    with running(log_maintenance=False) as client:
        assert client.post("/v1/tables", json={**body, **place}).status_code == 201
        assert client.post("/v1/tables", json=body).status_code == 400  # there is no warehouse
        shutil.rmtree(tmp_path / "people")

        assert error(client.get("/v1/tables/people/snapshot"))["type"] == "NotADeltaTable"
        answer = client.post("/v1/tables", json=body if named else {**body, **place})

        assert answer.status_code == 201
        assert answer.json()["location"] == f"file://{tmp_path}/people"
        assert client.get("/v1/tables/people/snapshot").json()["version"] == 0
        shutil.rmtree(tmp_path / "people")
        assert client.post("/v1/tables", json={**body, **place, "name": "others"}).status_code == 201
        assert [each["name"] for each in client.get("/v1/tables").json()["tables"]] == ["others"]


def test_a_name_alone_registers_nothing(client, error):
    answer = client.post("/v1/tables", json={"name": "people"})

    assert answer.status_code == 400
    assert "give its location" in error(answer)["message"]


def test_tables_may_be_in_memory(client):
    answer = client.post("/v1/tables", json={"location": "memory:///tables-test/people", "schema": SCHEMA})

    assert answer.status_code == 201
    assert client.get("/v1/tables/people/snapshot").json()["version"] == 0


# --- roots --------------------------------------------------------------------------------------------


@pytest.fixture
def rooted(running, tmp_path):
    (tmp_path / "one").mkdir()
    with running(roots=(str(tmp_path / "one"), "s3://bucket/lake")) as client:
        yield client


def test_tables_lie_in_roots(rooted, tmp_path):
    assert register(rooted, tmp_path / "one" / "people", schema=SCHEMA).status_code == 201


@pytest.mark.parametrize("location", ["two/people", "one-too/people", ".", "one/link/people", "one/link"])
def test_nothing_lies_outside(rooted, tmp_path, error, location):
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "link").symlink_to(tmp_path / "two")
    deltalake.write_deltalake(str(tmp_path / "two" / "people"), pa.table({"id": [1]}))
    where = f"{tmp_path}/{location}"

    for answer in (
        register(rooted, where),
        register(rooted, where, schema=SCHEMA),
        rooted.get("/v1/tables", params={"location": where}),
    ):
        assert answer.status_code == 403
        assert error(answer)["type"] == "LocationNotAllowed"
        assert "DELVEC_ROOTS" in error(answer)["message"]


@pytest.mark.parametrize(
    "location", ["s3://bucket/lakeside", "s3://other/lake", "memory:///x", "gs://bucket/lake"]
)
def test_buckets_are_roots_too(rooted, location):
    assert register(rooted, location).status_code == 403


def test_a_log_that_leads_elsewhere_is_not_followed(rooted, tmp_path, foreign):
    folder = tmp_path / "one" / "people"
    folder.mkdir()
    (folder / "_delta_log").symlink_to(foreign / "_delta_log")

    assert register(rooted, folder).status_code == 403


def test_a_table_that_is_moved_out_by_a_link_is_closed(rooted, tmp_path, foreign):
    folder = tmp_path / "one" / "people"
    register(rooted, folder, schema=SCHEMA)
    # Wait for background writes first, which would recreate the directory.
    deadline = time.monotonic() + 60
    while not (folder / "_delta_log" / f"{0:020}.crc").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    folder.rename(tmp_path / "one" / "old")
    folder.symlink_to(foreign)

    assert rooted.get("/v1/tables/people/snapshot").status_code == 403


def test_one_directory_is_one_location(running, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    with running(roots=(str(tmp_path / "alias"),)) as client:
        first = register(client, tmp_path / "alias" / "people", schema=SCHEMA).json()
        second = register(client, tmp_path / "real" / "people").json()

        assert first["location"] == second["location"] == f"file://{tmp_path}/real/people"


@pytest.mark.parametrize(
    "schema", ["", "{", "[]", '"long"', '{"type":"struct"}', '{"type":"struct","fields":[1]}']
)
def test_a_table_whose_schema_cannot_be_read_is_not_registered(client, tmp_path, error, schema):
    folder = tmp_path / "people"
    deltalake.write_deltalake(str(folder), pa.table({"id": [1]}))
    first = folder / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["schemaString"] = schema
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))

    answer = register(client, folder)

    assert answer.status_code in (400, 422), answer.text
    assert not error(answer)["retryable"]
    assert client.get("/v1/tables").json()["tables"] == []


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_a_location_whose_name_is_too_long_is_the_request_s_fault(client, tmp_path, error, schema):
    answer = register(client, tmp_path / ("x" * 300), **({} if schema is None else {"schema": schema}))
    assert answer.status_code in (400, 404)
    assert not error(answer)["retryable"]
    assert client.get("/v1/tables").json()["tables"] == []
