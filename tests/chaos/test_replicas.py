"""Services that share a SQL store, and a store that vanishes and returns in the middle of a commit."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from sqlalchemy import text
from tests.chaos.campaign import read_with_deltalake
from tests.chaos.oracle import Log
from tests.support.suites import some_in_gate

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_errors import ServiceUnavailable
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap
from delvec_service.commits import fault_points
from delvec_service.store.database import Database

FILES, ROWS, STEPS = 2, 100, 5
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return (
        request.getfixturevalue("postgres").url
        if request.param == "postgresql"
        else f"sqlite:///{tmp_path / 'store.db'}"
    )


def lake_of(client):
    # Not closed: that would close the service, which belongs to the client.
    service = ServiceClient("http://embedded", transport=client._transport, sleep=lambda _: None)
    return Connection(service)


def rows(ids):
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def bitmap(*indexes):
    return base64.b64encode(serialize_bitmap(BitMap64(indexes))).decode()


def filled(lake, location):
    table = lake.create_table(str(location), SCHEMA)
    for number in range(FILES):
        table.append(rows(range(number * ROWS, (number + 1) * ROWS)))
    return table


# --- two concurrent services -----------------------------------------------------------------------------


def test_two_services_at_once_lose_no_update(tmp_path, running, url):
    location = tmp_path / "table"
    with running(database_url=url) as one, running(database_url=url) as two:
        lakes = [lake_of(one), lake_of(two)]
        filled(lakes[0], location)
        start = threading.Barrier(8)

        def write(number):
            table = lakes[number % 2].table(str(location))
            start.wait(120)
            for step in range(STEPS):
                table.append(rows([1000 + 100 * number + step]))
                assert table.delete(f"id = {ROWS // 2 + number * STEPS + step}")["numDeletedRows"] == 1

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(write, number) for number in range(8)]:
                done.result()

        expected = {*range(FILES * ROWS)} - {*range(ROWS // 2, ROWS // 2 + 8 * STEPS)}
        expected |= {1000 + 100 * number + step for number in range(8) for step in range(STEPS)}
        assert sorted(read_with_deltalake(location)) == sorted(expected)
        for lake in lakes:
            assert sorted(lake.table(str(location)).to_arrow()["id"].to_pylist()) == sorted(expected)
    log = Log()
    log.read(location)
    assert set(log.keys.values()) == {1}


def test_one_request_to_two_services_at_once_takes_effect_once(tmp_path, running, url):
    location = tmp_path / "table"
    with running(database_url=url) as one, running(database_url=url) as two:
        table = filled(lake_of(one), location)
        two.post("/v1/tables", json={"location": str(location)})
        start = threading.Barrier(8)
        path = table.plan()[0].files["path"][0].as_py()
        body = {"read-version": FILES, "operation": "DELETE", "removes": [{"path": path}]}

        def send(number):
            start.wait(120)
            return (one, two)[number % 2].post(
                f"/v1/tables/{table.name}/commits", json=body, headers={"Idempotency-Key": "once"}
            )

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(send, range(8)))

    assert {answer.status_code for answer in answers} == {200}, answers[0].text
    assert {answer.json()["version"] for answer in answers} == {FILES + 1}
    assert deltalake.DeltaTable(str(location)).version() == FILES + 1


# --- transactions of the store ------------------------------------------------------------------------


def test_transactions_are_read_committed_regardless_of_the_servers_default(postgres):
    postgres.execute("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    database = Database(postgres.url)
    database.migrate()

    show = text("SHOW transaction_isolation")
    found = []
    try:
        for opened in (database.read, database.write):
            with opened() as session:
                found.append(session.execute(show).scalar())
        for opened in (database.connection, database.transaction):
            with opened() as connection:
                found.append(connection.execute(show).scalar())
    finally:
        database.close()

    assert found == ["read committed"] * 4


def test_no_sql_transaction_is_open_while_a_commit_waits_for_storage(tmp_path, running, postgres):
    idle = []

    def look():
        query = "SELECT query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        idle.extend(postgres.query(query))

    # Snapshots and events are saved beside the commit.
    settings = {"log_maintenance": False, "snapshot_store_bytes": 0, "event_days": 0}
    with running(database_url=postgres.url, **settings) as client:
        table = filled(lake_of(client), tmp_path / "table")
        with fault_points.armed(after_ledger=look, before_put=look, after_put=look):
            assert table.delete("id = 1")["numDeletedRows"] == 1
            assert fault_points.passed("before-put") == 1

    assert idle == []


# --- a store that vanishes ----------------------------------------------------------------------------


def test_a_store_that_is_down_before_a_commit_means_503_and_no_effect(tmp_path, running, postgres):
    location = tmp_path / "table"
    with running(database_url=postgres.url) as client:
        table = filled(lake_of(client), location)
        transaction = client.post(
            f"/v1/tables/{table.name}/transactions", json={"operation": "DELETE"}
        ).json()
        before = sorted(location.rglob("*.bin"))
        postgres.stop()

        with pytest.raises(ServiceUnavailable):
            table.delete("id = 1")

        assert sorted(location.rglob("*.bin")) == before
        assert deltalake.DeltaTable(str(location)).version() == FILES
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 503
        postgres.start()
        assert client.get("/readyz").status_code == 200
        assert table.delete("id = 1")["numDeletedRows"] == 1
        assert transaction["version"] == FILES


@pytest.mark.parametrize(
    "point",
    some_in_gate(
        ["after-ledger", "after-deletion-vectors", "before-put", "after-put", "before-close"],
        ["before-put"],
        "the other moments of the same commit",
    ),
)
def test_a_store_that_goes_away_in_mid_commit_does_not_fail_it(tmp_path, running, postgres, point):
    location = tmp_path / "table"
    with running(database_url=postgres.url, log_maintenance=False) as client:
        table = filled(lake_of(client), location)
        path = table.plan()[0].files["path"][0].as_py()
        body = {
            "read-version": FILES,
            "operation": "DELETE",
            "row-deletes": [{"path": path, "rows": bitmap(1)}],
        }

        def commit():
            return client.post(
                f"/v1/tables/{table.name}/commits", json=body, headers={"Idempotency-Key": "the-key"}
            )

        with fault_points.armed(**{point.replace("-", "_"): postgres.stop}):
            answer = commit()

        assert answer.status_code == 200, answer.text
        assert answer.json()["version"] == FILES + 1
        assert len(read_with_deltalake(location)) == FILES * ROWS - 1
        postgres.start()
        again = commit()
        assert (again.status_code, again.json()) == (200, answer.json())
        assert deltalake.DeltaTable(str(location)).version() == FILES + 1


def test_a_store_that_is_wiped_between_two_requests_loses_nothing(tmp_path, running, postgres):
    location = tmp_path / "table"
    with running(database_url=postgres.url) as client:
        lake = lake_of(client)
        table = filled(lake, location)
        path = table.plan()[0].files["path"][0].as_py()
        body = {
            "read-version": FILES,
            "operation": "DELETE",
            "row-deletes": [{"path": path, "rows": bitmap(1)}],
        }
        headers = {"Idempotency-Key": "the-key"}
        first = client.post(f"/v1/tables/{table.name}/commits", json=body, headers=headers)
        assert first.json()["version"] == FILES + 1
        postgres.wipe()

        table = lake.table(str(location))
        again = client.post(f"/v1/tables/{table.name}/commits", json=body, headers=headers)

        assert again.json() == first.json()
        assert deltalake.DeltaTable(str(location)).version() == FILES + 1
        assert table.count() == FILES * ROWS - 1
