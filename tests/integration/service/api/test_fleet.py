"""All tables at once: sums by namespace and over time, tasks, conflicts, and who sees which of them."""

from datetime import UTC, datetime, timedelta

import pytest

from delvec_contract.health import HealthSample
from delvec_service.store.models import CommitIntervalRow, HealthSampleRow, TableRow

NOW = datetime.now(UTC)


def add_table(client, name, *samples, conflicts=0, days=40):
    """Register a table with samples, each of days ago and values, oldest first."""
    with client.service.database.write() as session:
        row = {"id": f"id-{name}", "catalog": "", "name": name, "folder_name": name}
        created = NOW - timedelta(days=days)
        session.add(TableRow(location=f"file:///t/{name}", created_at=created, **row))
        for version, (ago, values) in enumerate(samples):
            sample = dict.fromkeys(HealthSample.model_fields, 1) | {"metadata_id": "m", "version": version}
            sample |= {"sampled_at": NOW - timedelta(days=ago), "actions": "", "score": 100.0}
            session.add(HealthSampleRow(table_id=f"id-{name}", **sample | values))
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        for since, seconds in ((hour, 3600), (hour - timedelta(hours=30), 3600), (hour, 86_400)):
            counts = {"commits": 5, "rebased": 2, "conflicts": conflicts, "rows_saved": 7}
            session.add(CommitIntervalRow(table_id=f"id-{name}", since=since, seconds=seconds, **counts))


@pytest.fixture
def fleet(client):
    add_table(client, "sales.orders", (20, {"deleted_bytes": 10}), (5, {"deleted_bytes": 30}), conflicts=3)
    add_table(
        client,
        "sales.returns",
        (1, {"score": 0.0, "actions": "CHECK,CHECKPOINT", "num_physical_rows": 100, "num_deleted_rows": 50}),
    )
    add_table(client, "people", (2, {"score": 60.0, "scan_debt_seconds": 9.5}))
    add_table(client, "quiet", days=3)
    return client


def test_sums_are_of_all_tables_and_of_each_namespace(fleet):
    answer = fleet.get("/v1/fleet").json()

    totals = answer["totals"]
    bands = {name: totals[f"num-{name}"] for name in ("tables", "good", "fair", "poor", "damaged", "unknown")}
    assert bands == {"tables": 4, "good": 1, "fair": 1, "poor": 1, "damaged": 1, "unknown": 1}
    assert totals["deleted-bytes"] == 32
    assert totals["deleted-ratio"] == 52 / 102
    assert (totals["committed"], totals["conflicts"]) == (20, 3)
    assert totals["scan-debt-seconds"] == 11.5
    assert [one["namespace"] for one in answer["namespaces"]] == ["", "sales"]
    assert answer["namespaces"][1]["num-tables"] == 2
    assert [one["name"] for one in answer["damaged"]] == ["sales.returns"]


def test_commits_are_counted_by_hour(fleet):
    intervals = fleet.get("/v1/fleet").json()["intervals"]

    assert len(intervals) == 24
    [hour] = [one for one in intervals if one["committed"]]
    assert hour in intervals[-2:]  # the last but one if an hour has ended since the tables were made
    assert (hour["committed"], hour["rebased"], hour["rows-saved"], hour["conflicts"]) == (20, 8, 28, 3)


def test_points_over_time_are_of_the_newest_samples_by_then(fleet):
    points = fleet.get("/v1/fleet").json()["points"]

    # Tables that were registered by then, but first sampled later, count with their oldest sample.
    assert (points[0]["num-tables"], points[0]["deleted-bytes"]) == (3, 12)
    assert (points[-1]["num-tables"], points[-1]["deleted-bytes"]) == (4, 32)
    by_age = {
        round((NOW - datetime.fromisoformat(one["at"])).total_seconds() / 86_400): one for one in points
    }
    assert by_age.get(10, by_age.get(11))["deleted-bytes"] == 12


def test_without_tables_everything_is_zero(client):
    answer = client.get("/v1/fleet").json()

    assert answer["totals"]["num-tables"] == 0
    assert answer["points"] == answer["namespaces"] == []


def test_the_list_says_where_its_pages_are(fleet):
    first = fleet.get("/v1/health", params={"page-size": 3}).json()
    second = fleet.get("/v1/health", params={"page-size": 3, "page-token": first["next-page-token"]}).json()
    exact = fleet.get("/v1/health", params={"page-size": 4}).json()

    assert (first["num-tables"], first["num-before"]) == (4, 0)
    assert (second["num-tables"], second["num-before"], len(second["tables"])) == (4, 3, 1)
    assert second["next-page-token"] is exact["next-page-token"] is None


@pytest.mark.parametrize(
    ("namespace", "names"),
    [("sales", ["sales.returns", "sales.orders"]), ("", ["people", "quiet"]), ("sal%", []), ("*", [])],
)
def test_the_list_of_a_namespace(fleet, namespace, names):
    answer = fleet.get("/v1/health", params={"namespace": namespace}).json()

    assert [one["name"] for one in answer["tables"]] == names
    assert answer["num-tables"] == len(names)


def conflict(table, bitmap):
    rows = [{"path": "a.parquet", "rows": bitmap(1)}]
    for file, status in (("first.parquet", 200), ("second.parquet", 409)):
        answer = table.commit(
            operation="UPDATE",
            predicate="id = 2",
            row_deletes=rows,
            adds=[table.write_file(file, [2])],
            read_version=1,
        )
        assert answer.status_code == status, answer.text


def test_conflicts_and_tasks_of_all_tables(filled, bitmap):
    conflict(filled, bitmap)
    report = {
        "id": "t1",
        "operation": "REORG",
        "engine": "duckdb",
        "state": "running",
        "elapsed-seconds": 2,
        "num-files": 4,
        "files-done": 1,
        "size-in-bytes": 4096,
        "bytes-done": 1024,
    }
    filled.client.post(f"{filled.url}/maintenance-tasks", json=report).raise_for_status()

    (lost,) = filled.client.get("/v1/conflicts").json()["conflicts"]
    assert (lost["table"], lost["winning-version"]) == (filled.name, 2)
    assert lost["table-id"] == filled.client.get(filled.url).json()["id"]
    assert filled.client.get("/v1/conflicts", params={"since": "2100-01-01"}).json()["conflicts"] == []
    (task,) = filled.client.get("/v1/maintenance-tasks").json()["tasks"]
    assert (task["table"], task["state"], task["bytes-done"]) == (filled.name, "running", 1024)


def test_nobody_counts_what_they_may_not_read(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", token="root") as client:
        root = {"Authorization": "Bearer root"}
        add_table(client, "people", (1, {}))
        add_table(client, "salaries", (1, {"score": 0.0, "actions": "CHECK"}), conflicts=9)
        made = client.post("/v1/tokens", json={"name": "eve"}, headers=root).json()
        grant = {"grantee": made["principal"], "role": "reader", "pattern": "people"}
        client.post("/v1/grants", json=grant, headers=root).raise_for_status()
        eve = {"Authorization": f"Bearer {made['token']}"}

        answer = client.get("/v1/fleet", headers=eve).json()
        assert answer["totals"]["num-tables"] == 1
        assert answer["damaged"] == []
        assert answer["intervals"][-1]["conflicts"] == 0
        assert answer["points"][-1]["num-tables"] == 1
        assert client.get("/v1/health", headers=eve).json()["num-tables"] == 1
        assert client.get("/v1/fleet", headers=root).json()["totals"]["num-tables"] == 2
        for path in ("/v1/conflicts", "/v1/maintenance-tasks"):
            assert "salaries" not in client.get(path, headers=eve).text
            assert client.get(path).status_code == 401
