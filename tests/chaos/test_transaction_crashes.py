"""A service killed in the middle of a transaction over several tables: another one finishes it, or undoes it.

The other service has the warehouse, and a database that knows nothing.
"""

import multiprocessing
from dataclasses import dataclass

import pytest
from tests.support.catalog_client import ManagedTable
from tests.support.in_process_service import running_service
from tests.support.suites import some_in_gate
from tests.support.transactions import appended, commit, deleted, log_versions, managed, records, rows

from delvec_service.commits import fault_points

BEFORE = [1, 2, 3, 4, 5]
PATIENCE = 0.3
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["delvec_service.app", "tests.support.transactions"])


@dataclass(frozen=True)
class Crash:
    """A moment at which the service is killed.

    Attributes:
        table: at the point of which table, counted from 1.
        is_committed: whether the transaction is by then.
        published: how many tables have its version in their logs.
    """

    point: str
    table: int
    is_committed: bool = False
    published: int = 0


CRASHES = [
    Crash("before-reservation", 1),
    Crash("after-reservation", 1),
    Crash("before-reservation", 2),
    Crash("after-reservation", 2),
    Crash("before-staging", 1),
    Crash("before-staging", 2),
    Crash("before-decision", 1),
    Crash("after-decision", 1, True, 0),
    Crash("before-publication", 1, True, 0),
    Crash("after-publication", 1, True, 1),
    Crash("before-publication", 2, True, 1),
    Crash("after-publication", 2, True, 2),
]
IN_GATE = [Crash("after-reservation", 2), Crash("after-publication", 1, True, 1)]


def test_every_fault_point_is_in_the_table():
    assert {crash.point for crash in CRASHES} == fault_points.TRANSACTION_POINTS


@pytest.mark.parametrize("repeated", [True, False], ids=["sent again", "left alone"])
@pytest.mark.parametrize(
    "crash",
    some_in_gate(CRASHES, IN_GATE, "the other moments of the same transaction"),
    ids=lambda crash: f"{crash.point} {crash.table}",
)
def test_a_killed_transaction_is_finished_or_undone(tmp_path, running, crash, repeated):
    warehouse = tmp_path / "lake"
    warehouse.mkdir()
    settings = {"roots": [str(warehouse)], "warehouse": str(warehouse), "log_maintenance": False}
    database = f"sqlite:///{tmp_path / 'store.db'}"
    with running(database_url=database, **settings) as client:
        orders, stock = managed(client, "orders", "stock")
        for table in (orders, stock):
            table.commit([table.file(BEFORE)])
        parts = [deleted(client, orders, [2]), appended(stock, [6])]

    dies = FORKS.Process(target=send, args=({"database_url": database, **settings}, crash, parts))
    dies.start()
    dies.join(120)
    assert dies.exitcode == -9

    # The log alone, table by table.
    assert sum(3 in log_versions(table) for table in (orders, stock)) == crash.published
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    after = ([1, 3, 4, 5], [1, 2, 3, 4, 5, 6])
    with running(database_url=empty, transaction_seconds=PATIENCE, **settings) as client:
        tables = [registered(client, table) for table in (orders, stock)]
        seen = tuple(rows(client, table) for table in tables)
        assert seen == (after if crash.is_committed else (BEFORE, BEFORE))
        if repeated:
            answers = [commit(client, *parts, key="key-1") for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
            assert answers[0].json() == answers[1].json()
            assert tuple(rows(client, table) for table in tables) == after
        # Others go on, and what was reserved does not hold them up for long.
        for table in tables:
            body = appended(table, [9])["commit"]
            answer = client.post(f"/v1/tables/sales.{table.name}/commits", json=body)
            assert answer.status_code == 200, answer.text
        expected = after if crash.is_committed or repeated else (BEFORE, BEFORE)
        assert tuple(rows(client, table) for table in tables) == tuple([*each, 9] for each in expected)
        if not (crash.is_committed or repeated):
            assert [each["outcome"] for each in records(warehouse)] in ([], ["abort"])
        for table in tables:
            checked = client.get(f"/v1/tables/sales.{table.name}/check").json()
            assert checked["num-errors"] == 0, checked["findings"]


def send(settings, crash, parts):
    """Send the transaction to a service that is killed meanwhile, in a process of its own."""
    with running_service(**settings) as client, fault_points.armed(f"{crash.point}:kill@{crash.table}"):
        commit(client, *parts, key="key-1")


def registered(client, table):
    """Register a managed table with a service that does not know it."""
    answer = client.post("/v1/tables", json={"location": table.location, "name": f"sales.{table.name}"})
    assert answer.status_code == 201, answer.text
    other = ManagedTable(client, table.name)
    other.uuid, other.folder, other.location = table.uuid, table.folder, table.location
    return other
