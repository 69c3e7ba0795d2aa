"""Operators, the sensor and the trigger of Airflow, against a running service."""

import asyncio
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import delvec
from delvec.testing import assert_rows, delvec_service, table_of  # noqa: F401

pytest.importorskip("airflow.sdk", reason="apache-airflow is the extra airflow")
from airflow.sdk.exceptions import TaskDeferred

from delvec import airflow

pytestmark = pytest.mark.filterwarnings("ignore")  # Airflow's own
ROWS = [{"id": 1, "country": "NZ"}, {"id": 2, "country": "DE"}]
MERGE = """MERGE INTO people AS p USING (SELECT 3L AS id, 'NZ' AS country) AS s ON p.id = s.id
WHEN NOT MATCHED THEN INSERT *"""


@pytest.fixture
def lake(delvec_service, monkeypatch):  # noqa: F811
    monkeypatch.setenv("AIRFLOW_CONN_DELVEC_DEFAULT", delvec_service)
    with delvec.connect(delvec_service) as lake:
        table_of(lake, "people", ROWS, "id long, country string")
        yield lake


def run(operator, **options):
    return operator(task_id="task", **options).execute({})


def test_operators_run_commands_and_return_what_they_did(lake):
    merged = run(airflow.DelvecSqlOperator, sql=MERGE)
    assert (merged["numTargetRowsInserted"], merged["version"]) == (1, 2)
    deleted = run(airflow.DelvecDeleteOperator, table="people", predicate="id = 2")
    assert (deleted["numDeletedRows"], deleted["version"]) == (1, 3)
    assert run(airflow.DelvecSqlOperator, sql="SELECT id FROM people ORDER BY id") == [{"id": 1}, {"id": 3}]
    altered = run(airflow.DelvecSqlOperator, sql="ALTER TABLE people ADD COLUMN age INT")
    assert altered == {"version": 4, "operation": "ADD COLUMNS"}
    assert run(airflow.DelvecOptimizeOperator, table="people", z_order=["id"])["version"] == 5
    assert run(airflow.DelvecOptimizeOperator, table="people")["version"] is None
    assert run(airflow.DelvecOptimizeOperator, table="people", purge=True)["version"] is None
    assert run(airflow.DelvecVacuumOperator, table="people", dry_run=True)["result"] == "dry-run"
    assert run(airflow.DelvecMaintainOperator) == []
    assert_rows(lake.table("people"), [{"id": 1}, {"id": 3}], columns=["id"])


def test_a_service_in_the_task(tmp_path, monkeypatch):
    with delvec.connect(tmp_path / "lake") as lake:
        table_of(lake, "people", ROWS, "id long, country string")
        extra = {"warehouse": str(tmp_path / "lake")}
        connection = json.dumps({"conn_type": "generic", "extra": extra})
        monkeypatch.setenv("AIRFLOW_CONN_DELVEC_DEFAULT", connection)
        run(airflow.DelvecDeleteOperator, table="people", predicate="id = 1")
        assert_rows(lake.table("people"), ROWS[1:])


def test_the_sensor_finds_a_commit_or_defers(lake):
    event = run(airflow.DelvecEventSensor, table="people", since="2020-01-01", deferrable=False)
    assert (event["type"], event["data"]["version"]) == ("delvec.commit", 0)

    with pytest.raises(TaskDeferred) as deferred:
        run(airflow.DelvecEventSensor, table="people", since="2090-01-01", deferrable=True, poke_interval=7)
    path, arguments = deferred.value.trigger.serialize()
    assert path == "delvec.airflow.DelvecEventTrigger"
    assert (arguments["since"], arguments["poll_interval"]) == ("2090-01-01", 7)


def test_the_sensor_looks_from_the_start_of_the_data_interval():
    start = datetime(2026, 1, 31, tzinfo=UTC)
    due = SimpleNamespace(run_after=datetime(2026, 2, 1, tzinfo=UTC))
    for context, since in (({"data_interval_start": start}, start), ({}, due.run_after)):
        sensor = airflow.DelvecEventSensor(task_id="task", table="people")
        sensor.render_template_fields({**context, "dag_run": due})
        assert datetime.fromisoformat(sensor.since) == since


def test_the_trigger_fires_for_each_new_commit_once(lake):
    _, arguments = airflow.DelvecEventTrigger("people", poll_interval=0.1).serialize()

    async def watch():
        events = airflow.DelvecEventTrigger(**arguments).run()
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(1)
        for number in (1, 2):
            await asyncio.to_thread(lake.table("people").delete, f"id = {number}")
        fired = [await first, await anext(events)]
        await events.aclose()
        return [event.payload["data"]["version"] for event in fired]

    assert asyncio.run(asyncio.wait_for(watch(), 20)) == [2, 3]
