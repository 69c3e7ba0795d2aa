"""Transactions behave the same on local disk, in memory and on S3."""

import json
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from tests.support.asgi_transport import EmbeddedTransport
from tests.support.tables import ids

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_commands.transaction import Transaction
from delvec_errors import CommitOverwritten, ConcurrentModification
from delvec_kernel import locations
from delvec_service.app import create_app
from delvec_service.commits import fault_points
from delvec_service.config import Settings

BUCKET = "lake"
WRITERS, ROWS = 8, 40
SECONDS = 60


def rows(ids):
    return pa.table({"id": pa.array(list(ids), pa.int64())})


@pytest.fixture
def location(location, tmp_path):
    """A plain location: deltalake 1.6 looks for deletion vectors in the wrong place if a location needs encoding."""
    if location.startswith("file:"):
        return locations.canonical(str(tmp_path / "table"))
    scheme = location.partition(":")[0]
    return f"{scheme}://{BUCKET}/{uuid.uuid4()}" if scheme in ("s3", "az", "gs") else location


@pytest.fixture
def service():
    return create_app(Settings.embedded("sqlite://"))


@pytest.fixture
def lake(service, location):  # requested first: its teardown removes the S3 settings
    with Connection(ServiceClient("http://embedded", transport=EmbeddedTransport(service))) as lake:
        yield lake


@pytest.fixture
def table(lake, location, monkeypatch):
    """Forty rows in one file at version 1; teardown checks invariants and compares with deltalake."""
    monkeypatch.setattr("delvec_service.commits.commit_log._PUT_PAUSE_SECONDS", 0.001)
    table = lake.create_table(location, rows([]).schema)
    table.append(rows(range(ROWS)))
    yield table
    checked = table.check()
    assert [one for one in checked["findings"] if one["invariant"] != "own-commit"] == []
    if not location.startswith("memory:"):
        assert ids_with_deltalake(location) == ids(table)


READ = """
import json, sys
import deltalake, pyarrow
table = deltalake.DeltaTable(sys.argv[1], storage_options={"ALLOW_HTTP": "true"})
query = deltalake.QueryBuilder().register("t", table)
print(json.dumps(sorted(pyarrow.table(query.execute("select id from t").read_all())["id"].to_pylist())))
"""


def ids_with_deltalake(location):
    # In a separate process: deltalake holds the GIL while it waits for S3, which is served by this process.
    command = [sys.executable, "-c", READ, location]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=100).stdout)


def prepared(table, *, predicate, indexes):
    """Return a DELETE of rows in the first file, planned at the newest version."""
    scan, _ = table.plan()
    transaction = Transaction(table._service, table.id, "DELETE", scan.version, predicate=predicate)
    transaction.delete_rows({scan.files["path"][0].as_py(): indexes})
    return transaction


def at_once(function):
    start = threading.Barrier(WRITERS)

    def run(number):
        start.wait(SECONDS)
        return function(number)

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(run, range(WRITERS)))


def test_deletes_of_different_rows_of_one_file_all_succeed(table):
    transactions = [prepared(table, predicate=None, indexes=[number]) for number in range(WRITERS)]

    done = at_once(lambda number: transactions[number].commit())

    assert {one.operation_metrics["numDeletedRows"] for one in done} == {1}
    assert ids(table) == list(range(WRITERS, ROWS))


def test_deletes_of_the_same_row_all_succeed_and_one_takes_effect(table):
    transactions = [prepared(table, predicate=None, indexes=[7]) for _ in range(WRITERS)]

    done = at_once(lambda number: transactions[number].commit())

    assert sum(one.operation_metrics["numDeletedRows"] for one in done) == 1
    assert ids(table) == sorted({*range(ROWS)} - {7})


def test_appends_and_deletes_at_once(table):
    def write(number):
        table.append(rows([100 + number]))
        assert table.delete(f"id = {number}")["numDeletedRows"] == 1

    at_once(write)

    assert ids(table) == [*range(WRITERS, ROWS), *range(100, 100 + WRITERS)]


def test_an_append_of_rows_that_match_is_a_conflict(table):
    transaction = prepared(table, predicate="id = 7", indexes=[7])
    table.append(rows([7]))

    with pytest.raises(ConcurrentModification):
        transaction.commit()

    assert table.delete("id = 7")["numDeletedRows"] == 2


def test_a_repeated_transaction_takes_effect_once(table):
    transaction = prepared(table, predicate=None, indexes=[7])

    first = transaction.commit()
    table.append(rows([100]))

    assert transaction.commit() == first
    assert table.version() == first.version + 1


@pytest.mark.parametrize("fault", ["before-put:error*2", "after-put:lost*1"])
def test_transient_storage_errors_are_retried(table, fault):
    transaction = prepared(table, predicate=None, indexes=[7])

    with fault_points.armed(fault):
        done = transaction.commit()

    assert done.version == table.version() == 2
    assert transaction.commit() == done


def test_a_lost_answer_is_looked_up_by_its_key(table):
    transaction = prepared(table, predicate=None, indexes=[7])

    with fault_points.armed("before-answer:lost"):
        done = transaction.commit()
        assert fault_points.passed("before-answer") > 0

    assert (done.version, table.version()) == (2, 2)
    assert ids(table) == sorted({*range(ROWS)} - {7})


def test_a_commit_overwritten_by_another_writer_is_detected(table, service, location):
    transaction = prepared(table, predicate=None, indexes=[7])
    assert transaction.commit().version == 2
    objects = service.state.service.tables.open(table.id).objects
    info = {"operation": "WRITE", "engineInfo": "another writer", "txnId": str(uuid.uuid4()), "timestamp": 1}
    objects.put(f"_delta_log/{2:020}.json", json.dumps({"commitInfo": info}).encode())

    assert service.state.service.overwrite_watch.wait(SECONDS)

    assert ids(table) == list(range(ROWS))
    with pytest.raises(CommitOverwritten):
        transaction.commit()
    (found,) = table.health()["overwritten-commits"]
    assert (found["version"], found["by-engine"]) == (2, "another writer")
