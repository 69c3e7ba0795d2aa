"""Policies, leases and runs, in SQLite and PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from delvec_kernel.errors import MaintenanceUnderWay, PolicyNotFound
from delvec_kernel.wire import MaintenanceRun, Policy, PolicyContent
from delvec_service.store.maintenance import MaintenanceStore
from delvec_service.store.models import MaintenanceLeaseRow
from delvec_service.store.registry import Registry, table_id

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def store(database):
    return MaintenanceStore(database)


def policy(name, **values):
    content = PolicyContent(enable=True, config={"quiet_hours": ["08:00-09:00"]})
    given = {
        "type": "system.vacuum",
        "content": content,
        "table_id": None,
        "pattern": None,
        "updated_at": NOW,
    }
    return Policy(name=name, **(given | values))


def run(identifier, began=NOW, **values):
    given = {
        "type": "system.vacuum",
        "state": "done",
        "reason": "é\U0001f600",
        "ended_at": began,
        "version": 7,
    }
    return MaintenanceRun(id=identifier, started_at=began, **(given | values))


def test_policies_belong_to_a_catalog(store):
    store.set_policy("", policy("b"))
    store.set_policy("", policy("a", pattern="x*"))
    store.set_policy("other", policy("b", table_id="t"))
    store.set_policy("", policy("b", type="system.checkpoint"))

    assert store.policies("") == [policy("a", pattern="x*"), policy("b", type="system.checkpoint")]
    store.drop_policy("", "b")
    with pytest.raises(PolicyNotFound):
        store.policy("", "b")
    assert store.policy("other", "b").table_id == "t"


def test_of_many_at_once_one_has_the_lease(store):
    def take(owner):
        try:
            return store.lease("t", f"owner {owner}", 600).owner
        except MaintenanceUnderWay:
            return None

    with ThreadPoolExecutor(8) as pool:
        taken = [one for one in pool.map(take, range(16)) if one]

    assert len(taken) == 1
    assert store.lease("t", taken[0], 600).owner == taken[0]
    assert store.lease("another", "x", 600).owner == "x"


def test_a_lease_of_a_process_that_died_ends(store, database):
    store.lease("t", "dead", 600)
    store.release("t", "alive")
    with pytest.raises(MaintenanceUnderWay, match="under way elsewhere"):
        store.lease("t", "alive", 600)
    with database.write() as session:
        session.execute(update(MaintenanceLeaseRow).values(expires_at=NOW - timedelta(seconds=1)))

    assert store.lease("t", "alive", 600).owner == "alive"
    with pytest.raises(MaintenanceUnderWay):
        store.lease("t", "dead", 600)


def test_runs_are_those_of_registered_tables_the_newest_first(store, database):
    registry = Registry(database)
    a, b = (registry.add(f"file:///{name}", None, name)[0].id for name in "ab")
    store.record(a, run("1", NOW - timedelta(hours=2)))
    store.record(a, run("2", NOW - timedelta(hours=1), state="failed", error="no"))
    store.record(a, run("2", NOW, reason="said again"))
    store.record(b, run("1"))
    store.record(table_id("file:///dropped"), run("3"))

    assert [(one.table, one.id) for one in store.runs("")] == [("b", "1"), ("a", "2"), ("a", "1")]
    assert [one.id for one in store.runs("", table_id=a, since=NOW - timedelta(minutes=90))] == ["2"]
    assert len(store.runs("", limit=2)) == 2
    assert store.runs("other") == []
    assert store.runs("", table_id=b) == [run("1").model_copy(update={"table": "b"})]


def test_runs_of_more_than_a_year_ago_go(store, database):
    registry = Registry(database)
    a = registry.add("file:///a", None, "a")[0].id
    store.record(a, run("old", NOW - timedelta(days=400)))
    store.record(a, run("new"))

    assert [one.id for one in store.runs("")] == ["new"]
