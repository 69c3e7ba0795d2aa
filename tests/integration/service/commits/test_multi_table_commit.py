"""Transactions over several managed tables: all or nothing, for every reader that goes through the catalog."""

import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.catalog_client import ManagedTable
from tests.support.in_process_service import running_service
from tests.support.transactions import (
    actions,
    appended,
    commit,
    committed,
    deleted,
    log_versions,
    managed,
    records,
    rows,
)

from delvec_errors import StorageError
from delvec_service.commits import fault_points

PATIENCE = 0.5


@pytest.fixture
def warehouse(tmp_path):
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture
def replica(warehouse, tmp_path):
    """``with replica() as client``: a service with the warehouse, each with a database of its own."""

    def running(**settings):
        database = f"sqlite:///{tmp_path / f'{uuid.uuid4()}.db'}"
        facts = {
            "roots": [str(warehouse)],
            "warehouse": str(warehouse),
            "transaction_seconds": PATIENCE,
            "log_maintenance": False,
        }
        return running_service(**{"database_url": database, **facts, **settings})

    return running


@pytest.fixture
def client(replica):
    with replica() as client:
        yield client


@pytest.fixture
def tables(client):
    """Two managed tables with the rows 1 to 5."""
    orders, stock = managed(client, "orders", "stock")
    for table in (orders, stock):
        table.commit([table.file([1, 2, 3, 4, 5])])
    return orders, stock


def other_replica(replica, tables):
    """Return a context with a client of a service whose database knows nothing, and the tables as it sees them."""
    context = replica()
    client = context.__enter__()
    found = []
    for table in tables:
        answer = client.post("/v1/tables", json={"location": table.location, "name": f"sales.{table.name}"})
        assert answer.status_code in (200, 201), answer.text
        other = ManagedTable(client, table.name)
        other.uuid, other.folder, other.location = table.uuid, table.folder, table.location
        found.append(other)
    return context, client, found


def test_all_tables_change(client, tables, warehouse):
    orders, stock = tables
    versions = committed(client, deleted(client, orders, [2]), appended(stock, [6]))
    assert versions == {"orders": 3, "stock": 3}  # version 2 reserves it
    assert (rows(client, orders), rows(client, stock)) == ([1, 3, 4, 5], [1, 2, 3, 4, 5, 6])
    (record,) = records(warehouse)
    assert record["outcome"] == "commit"
    assert {each["version"] for each in record["participants"]} == {3}


def test_the_log_names_the_group_as_the_rfc_does(client, tables):
    orders, stock = tables
    committed(client, appended(orders, [6]), appended(stock, [7]), key="key-1")
    participants = [{"tableId": each, "version": 3} for each in sorted((orders.uuid, stock.uuid))]
    for table in tables:
        group = actions(table, 3)[0]["commitInfo"]["transactionGroup"]
        assert group == {"transactionId": "key-1", "participants": participants}
        (reservation,) = actions(table, 2)
        assert reservation["commitInfo"]["operation"] == "RESERVE VERSION"


def test_a_conflict_in_one_table_commits_to_none(client, tables):
    orders, stock = tables
    mine = [appended(orders, [6]), deleted(client, stock, [2])]
    mine[1]["commit"]["operation"] = "UPDATE"
    mine[1]["commit"]["adds"] = [stock.file([20])["add"]]
    theirs = deleted(client, stock, [2])["commit"]
    assert client.post("/v1/tables/sales.stock/commits", json=theirs).status_code == 200
    answer = commit(client, *mine)
    assert answer.status_code == 409, answer.text
    error = answer.json()["error"]
    assert error["type"] == "ConcurrentDeleteDeleteException"
    assert "sales.stock" in error["message"]
    assert log_versions(orders) == [0, 1]
    assert rows(client, orders) == [1, 2, 3, 4, 5]


def test_a_lost_race_is_rebased_by_rows(client, tables):
    orders, stock = tables
    mine = [deleted(client, orders, [1, 2]), deleted(client, stock, [2])]
    theirs = deleted(client, orders, [2, 3])["commit"]
    assert client.post("/v1/tables/sales.orders/commits", json=theirs).status_code == 200
    answer = commit(client, *mine)
    assert answer.status_code == 200, answer.text
    first, second = (each["commit"] for each in answer.json()["tables"])
    assert (first["result"], first["winners-passed"]) == ("rebased", [2])
    assert (second["result"], second["winners-passed"]) == ("committed", [])
    assert (rows(client, orders), rows(client, stock)) == ([4, 5], [1, 3, 4, 5])


def test_a_conflict_that_shows_after_the_reservation_undoes_the_transaction(client, tables, warehouse):
    orders, stock = tables
    mine = [appended(orders, [6]), deleted(client, stock, [2], predicate="id < 100")]
    mine[1]["commit"] |= {"operation": "UPDATE", "adds": [stock.file([20])["add"]]}
    theirs = deleted(client, stock, [2])["commit"]

    def win():
        fault_points.disarm()
        assert client.post("/v1/tables/sales.stock/commits", json=theirs).status_code == 200

    with fault_points.armed(after_reservation=win):
        answer = commit(client, *mine)
    assert answer.status_code == 409, answer.text
    assert [each["outcome"] for each in records(warehouse)] == ["abort"]
    assert rows(client, orders) == [1, 2, 3, 4, 5]
    # It holds nobody up.
    assert committed(client, appended(orders, [7]), appended(stock, [7])) == {"orders": 4, "stock": 5}


def test_a_repeated_request_gets_the_first_answer(client, tables, replica):
    orders, stock = tables
    parts = [appended(orders, [6]), deleted(client, stock, [1])]
    first, again = (commit(client, *parts, key="key-1") for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["Idempotent-Replay"] == "true"
    assert rows(client, orders) == [1, 2, 3, 4, 5, 6]
    context, other, _ = other_replica(replica, tables)
    assert commit(other, *parts, key="key-1").json() == first.json()
    context.__exit__(None, None, None)
    reused = commit(client, appended(orders, [7]), key="key-1")
    assert (reused.status_code, reused.json()["error"]["type"]) == (422, "IdempotencyKeyReused")


def test_the_same_request_twice_at_once_takes_effect_once(client, tables):
    orders, stock = tables
    parts = [appended(orders, [6]), appended(stock, [6])]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: commit(client, *parts, key="key-1"), range(4)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({json.dumps(answer.json()) for answer in answers}) == 1
    assert (rows(client, orders), rows(client, stock)) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])


def test_the_outcome_can_be_looked_up(client, tables):
    orders, stock = tables
    assert client.get("/v1/transactions/key-1").json()["result"] == "unknown"
    answer = commit(client, appended(orders, [6]), appended(stock, [7]), key="key-1").json()
    outcome = client.get("/v1/transactions/key-1").json()
    assert outcome["result"] == "committed"
    assert outcome["tables"] == answer["tables"]


def test_a_path_table_is_refused(client, tables, warehouse):
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    made = client.post("/v1/tables", json={"name": "plain", "schema": schema})
    assert made.status_code == 201, made.text
    part = {"table": "plain", "commit": {"read-version": 0, "operation": "WRITE"}}
    answer = commit(client, appended(tables[0], [6]), part)
    assert answer.status_code == 400, answer.text
    assert "not managed by the catalog" in answer.json()["error"]["message"]
    assert log_versions(tables[0]) == [0, 1]
    assert not (warehouse / "_delvec").exists()


def test_a_table_twice_is_refused(client, tables):
    answer = commit(client, appended(tables[0], [6]), appended(tables[0], [7]))
    assert answer.status_code == 400
    assert "names table 'sales.orders' twice" in answer.json()["error"]["message"]


def test_a_table_that_is_only_read_is_checked(client, tables):
    orders, stock = tables
    reads = {
        "table": "sales.stock",
        "commit": {"read-version": 1, "operation": "READ", "reads": {"whole-table": True}},
    }
    versions = committed(client, appended(orders, [6]), reads)
    assert versions == {"orders": 3, "stock": None}
    assert (
        client.post("/v1/tables/sales.stock/commits", json=appended(stock, [6])["commit"]).status_code == 200
    )
    answer = commit(client, appended(orders, [7]), reads)
    assert answer.status_code == 409, answer.text
    assert rows(client, orders) == [1, 2, 3, 4, 5, 6]


def test_a_transaction_with_nothing_to_do(client, tables):
    parts = [deleted(client, table, []) | {} for table in tables]
    for part in parts:
        part["commit"]["predicate"] = "id = 77"
    answer = commit(client, *parts)
    assert answer.status_code == 200, answer.text
    assert {each["commit"]["result"] for each in answer.json()["tables"]} == {"nothing-to-do"}


@pytest.mark.parametrize(
    "point", ["before-decision", "after-decision", "before-publication", "after-publication"]
)
def test_readers_see_all_or_nothing_at_every_moment(client, tables, replica, point):
    orders, stock = tables
    parts = [appended(orders, [6]), appended(stock, [6])]
    is_committed = point != "before-decision"
    context, other, (orders_there, stock_there) = other_replica(replica, tables)
    seen = []

    def look():
        fault_points.disarm()
        seen.append((rows(other, orders_there), rows(other, stock_there), orders_there.version()))

    with fault_points.armed(**{point.replace("-", "_"): look}):
        assert commit(client, *parts).status_code == 200
    expected = [1, 2, 3, 4, 5] + [6] * is_committed
    assert seen == [(expected, expected, 3 if is_committed else 2)]
    context.__exit__(None, None, None)


def test_a_commit_waits_for_the_transaction_and_follows_it(client, tables, replica):
    orders, stock = tables
    context, other, (orders_there, _) = other_replica(replica, tables)
    answers = []

    def race():
        fault_points.disarm()
        body = appended(orders_there, [7], version=1)["commit"]
        thread = threading.Thread(
            target=lambda: answers.append(other.post("/v1/tables/sales.orders/commits", json=body))
        )
        thread.start()
        threads.append(thread)
        time.sleep(PATIENCE / 4)

    threads = []
    with fault_points.armed(before_decision=race):
        assert commit(client, appended(orders, [6]), appended(stock, [6])).status_code == 200
    threads[0].join()
    assert answers[0].json()["version"] == 4
    assert rows(client, orders) == [1, 2, 3, 4, 5, 6, 7]
    context.__exit__(None, None, None)


def test_a_transaction_that_takes_too_long_is_undone_and_tried_again(client, tables, replica, warehouse):
    orders, stock = tables
    context, other, (orders_there, _) = other_replica(replica, tables)

    def overtake():
        fault_points.disarm()
        body = appended(orders_there, [7], version=1)["commit"]
        answer = other.post("/v1/tables/sales.orders/commits", json=body)
        assert answer.json()["version"] == 3, answer.text

    with fault_points.armed(before_decision=overtake):
        answer = commit(client, appended(orders, [6]), appended(stock, [6]))
    assert answer.status_code == 200, answer.text
    assert [each["outcome"] for each in records(warehouse)] == ["abort", "commit"]
    assert {each["name"]: each["commit"]["version"] for each in answer.json()["tables"]} == {
        "sales.orders": 5,
        "sales.stock": 4,
    }
    assert (rows(client, orders), rows(client, stock)) == ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6])
    context.__exit__(None, None, None)


def test_a_staged_commit_of_another_engine_waits_too(client, tables, warehouse):
    orders, stock = tables
    with fault_points.armed("before-decision:error*1"):
        answer = commit(client, appended(orders, [6]), appended(stock, [6]), key="key-1")
    assert answer.status_code == 504, answer.text
    # Both tables are reserved, and nobody is there to decide.
    assert orders.version() == 2
    body = orders.staged([orders.file([7])])
    assert orders.update(body).status_code == 200
    assert [each["outcome"] for each in records(warehouse)] == ["abort"]
    assert (rows(client, orders), rows(client, stock)) == ([1, 2, 3, 4, 5, 7], [1, 2, 3, 4, 5])


def test_the_same_request_goes_on_with_what_it_had_reserved(client, tables, replica):
    orders, stock = tables
    parts = [appended(orders, [6]), appended(stock, [6])]
    with fault_points.armed("before-decision:error*1"):
        assert commit(client, *parts, key="key-1").status_code == 504
    context, other, _ = other_replica(replica, tables)
    answer = commit(other, *parts, key="key-1")
    assert answer.status_code == 200, answer.text
    assert {each["commit"]["version"] for each in answer.json()["tables"]} == {3}
    assert log_versions(orders) == [0, 1, 2, 3]
    context.__exit__(None, None, None)


def test_publication_that_fails_does_not_fail_the_transaction(client, tables):
    orders, stock = tables

    def fail():
        raise StorageError("storage failed")

    with fault_points.armed(before_publication=fail):
        answer = commit(client, appended(orders, [6]), appended(stock, [6]))
        assert answer.status_code == 200, answer.text
        assert (log_versions(orders), log_versions(stock)) == ([0, 1, 2], [0, 1, 2])
    assert rows(client, orders, 3) == [1, 2, 3, 4, 5, 6]
    assert (rows(client, orders), rows(client, stock)) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])
    assert log_versions(stock) == [0, 1, 2, 3]


def test_a_damaged_staged_commit_is_named(client, tables):
    orders, stock = tables

    def fail():
        raise StorageError("storage failed")

    with fault_points.armed(before_publication=fail):
        committed(client, appended(orders, [6]), appended(stock, [6]))
    staged = max((Path(orders.folder) / "_delta_log/_staged_commits").glob(f"{3:020}*"))
    whole = staged.read_bytes()
    staged.write_bytes(whole[:-10])
    answer = client.get("/v1/tables/sales.orders/snapshot")
    assert (answer.status_code, answer.json()["error"]["type"]) == (422, "CorruptLog")
    assert staged.name in answer.json()["error"]["message"]
    staged.write_bytes(whole)
    assert rows(client, orders) == [1, 2, 3, 4, 5, 6]


def test_a_table_of_another_warehouse_is_not_guessed_at(client, tables, tmp_path, running):
    orders, stock = tables
    with fault_points.armed("before-decision:error*1"):
        assert commit(client, appended(orders, [6]), appended(stock, [6])).status_code == 504
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    roots = [str(tmp_path)]
    with running(database_url="sqlite://", roots=roots, warehouse=str(elsewhere)) as other:
        answer = other.post("/v1/tables", json={"location": orders.location, "name": "sales.orders"})
        assert answer.status_code == 400, answer.text
        assert "another warehouse" in answer.json()["error"]["message"]


def test_transactions_that_share_tables_do_not_lock_each_other_out(client, tables):
    orders, stock = tables
    (third,) = managed(client, "third")
    third.commit([third.file([1])])
    groups = [(orders, stock), (stock, third), (third, orders), (third, stock, orders)]

    def run(number):
        group = groups[number % len(groups)]
        for step in range(3):
            value = 100 + 10 * number + step
            answer = commit(client, *(appended(table, [value], version=1) for table in group))
            assert answer.status_code == 200, answer.text
        return [100 + 10 * number + step for step in range(3)]

    with ThreadPoolExecutor(4) as pool:
        values = list(pool.map(run, range(4)))
    for table in (orders, stock, third):
        expected = sorted(
            value for number, each in enumerate(values) if table in groups[number] for value in each
        )
        assert [value for value in rows(client, table) if value >= 100] == expected


def test_several_tables_are_read_at_one_moment(client, tables):
    orders, stock = tables
    ends = threading.Event()

    def write():
        value = 100
        while not ends.is_set():
            committed(client, appended(orders, [value], version=1), appended(stock, [value], version=1))
            value += 1

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(write)
        for _ in range(10):
            answer = client.post("/v1/snapshots", json={"tables": ["sales.orders", "sales.stock"]})
            assert answer.status_code == 200, answer.text
            first, second = answer.json()["snapshots"]
            seen = [
                rows(client, table, each["version"]) for table, each in ((orders, first), (stock, second))
            ]
            assert seen[0] == seen[1]
        ends.set()
        writing.result()
