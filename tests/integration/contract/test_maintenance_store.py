"""Policies, leases and runs, in SQLite and PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import select, update

from delvec_contract.health import HealthSample
from delvec_contract.policies import MaintenanceRun, Policy, PolicyContent, TaskReport
from delvec_errors import MaintenanceUnderWay, PolicyNotFound
from delvec_kernel.locations import table_id
from delvec_service.store.health_samples import CommitCounts, HealthSampleStore
from delvec_service.store.maintenance_store import MaintenanceStore
from delvec_service.store.models import MaintenanceLeaseRow, MaintenanceTaskRow
from delvec_service.store.registry import Registry

NOW = datetime.now(UTC).replace(microsecond=0)
SAMPLE = HealthSample(
    **dict.fromkeys(HealthSample.model_fields, 0) | {"sampled_at": NOW, "score": 100.0, "actions": []}
)


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
            return store.lease("t", "people", f"owner {owner}", 600).owner
        except MaintenanceUnderWay:
            return None

    with ThreadPoolExecutor(8) as pool:
        taken = [one for one in pool.map(take, range(16)) if one]

    assert len(taken) == 1
    assert store.lease("t", "people", taken[0], 600).owner == taken[0]
    assert store.lease("another", "others", "x", 600).owner == "x"


def test_the_lease_of_a_dead_process_expires(store, database):
    store.lease("t", "people", "dead", 600)
    store.release("t", "alive")
    with pytest.raises(MaintenanceUnderWay, match="'people' is already running elsewhere"):
        store.lease("t", "people", "alive", 600)
    with database.write() as session:
        session.execute(update(MaintenanceLeaseRow).values(expires_at=NOW - timedelta(seconds=1)))

    assert store.lease("t", "people", "alive", 600).owner == "alive"
    with pytest.raises(MaintenanceUnderWay):
        store.lease("t", "people", "dead", 600)


def test_runs_of_registered_tables_are_listed_newest_first(store, database):
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
    assert [one.id for one in store.runs("", state="failed")] == ["2"]
    assert [one.id for one in store.runs("", run_type="system.vacuum", table_id=a, limit=1)] == ["2"]
    assert store.runs("", run_type="system.checkpoint") == []
    assert store.runs("other") == []
    assert store.runs("", table_id=b) == [run("1").model_copy(update={"table": "b"})]


def test_times_are_compared_in_utc(store, database):
    a = Registry(database).add("file:///a", None, "a")[0].id
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-11))
    told = {"started_at": NOW.astimezone(east), "ended_at": NOW.astimezone(west)}
    store.record(a, run("1").model_copy(update=told))

    assert [one.id for one in store.runs("", since=(NOW - timedelta(minutes=1)).astimezone(west))] == ["1"]
    assert store.runs("", since=(NOW + timedelta(minutes=1)).astimezone(west)) == []
    assert store.runs("")[0].started_at == NOW


def test_a_recreated_table_inherits_only_runs(store, database):
    mine, other, samples = Registry(database), Registry(database, "file:///lake"), HealthSampleStore(database)
    a = mine.add("file:///a", None, "a")[0].id
    other.add("file:///a", None, "a")
    for catalog in (mine.catalog, other.catalog):
        store.set_policy(catalog, policy("own", table_id=a))
        store.set_policy(catalog, policy("all"))
    store.lease(a, "a", "somebody", 600)
    store.record(a, run("1"))
    store.report(a, report(), "ann")
    samples.count(a, CommitCounts(5))
    samples.record(a, "m", SAMPLE)

    mine.remove(a)

    assert [one.name for one in store.policies(mine.catalog)] == ["all"]
    assert [one.name for one in store.policies(other.catalog)] == ["all", "own"]
    assert (len(samples.series(a, None, 10)), samples.counts(a).commits) == (1, 5)
    assert len(store.tasks(a)) == 1
    with pytest.raises(MaintenanceUnderWay):
        store.lease(a, "a", "somebody else", 600)

    other.remove(a)
    mine.add("file:///a", None, "a")

    assert [one.name for one in store.policies(other.catalog)] == ["all"]
    assert (samples.series(a, None, 10), samples.counts(a)) == ([], CommitCounts())
    assert store.tasks(a) == []
    assert store.lease(a, "a", "somebody else", 600).owner == "somebody else"
    assert [one.id for one in store.runs(mine.catalog)] == ["1"]


def test_runs_are_deleted_after_a_year(store, database):
    registry = Registry(database)
    a = registry.add("file:///a", None, "a")[0].id
    store.record(a, run("old", NOW - timedelta(days=400)))
    store.record(a, run("new"))

    assert [one.id for one in store.runs("")] == ["new"]


def report(identifier="t1", **values):
    given = {
        "operation": "OPTIMIZE",
        "engine": "delvec-duckdb/1",
        "state": "running",
        "elapsed_seconds": 10.0,
        "num_files": 4,
        "files_done": 1,
        "size_in_bytes": 400,
        "bytes_done": 100,
    }
    return TaskReport(id=identifier, **(given | values))


def test_the_newest_report_of_a_task_wins(store):
    store.report("t", report(files_done=0, bytes_done=0), "ann")
    [task] = store.tasks("t")
    assert (task.bytes_per_second, task.seconds_left, task.principal) == (None, None, "ann")
    store.report("t", report(elapsed_seconds=11.0), "ann")
    [task] = store.tasks("t")
    assert (task.files_done, task.bytes_done, task.state) == (1, 100, "running")
    assert task.bytes_per_second == pytest.approx(10, rel=0.5)
    assert task.seconds_left == pytest.approx(30, rel=1)
    store.report("t", report(state="done", files_done=4, bytes_done=400), "ann")
    store.report("t", report(), "ann")  # sent earlier, arrives late
    [task] = store.tasks("t")
    assert (task.state, task.bytes_done, task.seconds_left) == ("done", 400, None)
    assert store.tasks("other") == []


def test_the_task_of_a_dead_process_is_lost_and_deleted_after_a_day(store, database):
    store.report("t", report(), None)
    row = MaintenanceTaskRow
    for age, states in ((timedelta(seconds=30), ["running"]), (timedelta(minutes=2), ["lost"])):
        with database.write() as session:
            session.execute(update(row).values(updated_at=datetime.now(UTC) - age))
        assert [task.state for task in store.tasks("t")] == states
    assert store.tasks("t")[0].seconds_left is None
    with database.write() as session:
        session.execute(update(row).values(updated_at=datetime.now(UTC) - timedelta(hours=25)))
    assert store.tasks("t") == []
    store.report("t", report("t2"), None)
    with database.read() as session:
        assert session.query(row).count() == 1


def test_a_task_that_runs_is_listed_however_many_began_and_ended_after_it(store):
    store.report("t", report("long", elapsed_seconds=3600.0), None)
    for number in range(25):
        store.report("t", report(f"t{number:02}", state="done", elapsed_seconds=0.0), None)
    found = store.tasks("t")
    assert (len(found), found[-1].id, found[-1].state) == (20, "long", "running")
    assert [task.started_at for task in found] == sorted((task.started_at for task in found), reverse=True)


def test_reports_of_ever_new_tasks_do_not_fill_the_database(store, database, monkeypatch):
    monkeypatch.setattr("delvec_service.store.maintenance_store._MAX_TASKS_KEPT", 5)
    store.report("other", report("kept"), None)
    for number in range(9):
        store.report("t", report(f"t{number}", state="done"), None)
    with database.read() as session:
        left = session.execute(select(MaintenanceTaskRow.table_id, MaintenanceTaskRow.id)).all()
    assert sorted(map(tuple, left)) == [("other", "kept"), *(("t", f"t{number}") for number in range(4, 9))]
