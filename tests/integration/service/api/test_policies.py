"""``/v1/policies``, leases and runs over HTTP."""

import pytest

POLICY = {
    "name": "nightly",
    "type": "system.data-compaction",
    "content": {"version": "2025-02-03", "enable": True, "config": {"quiet_hours": ["08:00-20:00"]}},
}
RUN = {
    "id": "r1",
    "type": "system.vacuum",
    "state": "done",
    "reason": "because",
    "started-at": "2026-11-20T10:00:00Z",
    "ended-at": "2026-11-20T10:01:00Z",
    "predicted-gain-bytes": 10,
    "measured-gain-bytes": 11,
}
TASK = {
    "id": "t1",
    "operation": "OPTIMIZE",
    "engine": "delvec-duckdb/1",
    "state": "running",
    "elapsed-seconds": 2.0,
    "num-files": 4,
    "files-done": 1,
    "size-in-bytes": 400,
    "bytes-done": 100,
}


def test_without_policies_the_list_is_empty_where_tokens_are_asked_for_too(running):
    with running(token="root") as client:
        answer = client.get("/v1/policies", headers={"Authorization": "Bearer root"})

    assert (answer.status_code, answer.json()) == (200, {"policies": []})


def test_a_policy_is_set_read_replaced_and_dropped(client, table):
    made = client.post("/v1/policies", json=POLICY).json()
    assert made["content"] == POLICY["content"]
    assert client.get("/v1/policies/nightly").json() == made
    again = {**POLICY, "pattern": "peop*", "content": {"enable": False}}
    replaced = client.post("/v1/policies", json=again).json()
    assert client.get("/v1/policies").json()["policies"] == [replaced]
    assert replaced["content"] == {"version": "2025-02-03", "enable": False, "config": {}}
    assert client.get(f"{table.url}/policies").json()["policies"] == [replaced]
    assert client.delete("/v1/policies/nightly").status_code == 204
    for answer in (client.get("/v1/policies/nightly"), client.delete("/v1/policies/nightly")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "POLICY_NOT_FOUND")


def test_a_tables_own_policy_goes_before_the_others(client, table):
    client.post("/v1/policies", json=POLICY)
    own = {**POLICY, "name": "own", "table": table.name}
    assert client.post("/v1/policies", json=own).json()["table-id"]
    vacuum = {"name": "vacuum", "type": "system.vacuum", "content": {"enable": True}}
    client.post("/v1/policies", json=vacuum)
    assert [one["name"] for one in client.get(f"{table.url}/policies").json()["policies"]] == [
        "own",
        "vacuum",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"type": "system.magic"},
        {"content": {"config": {}}},
        {"content": {"enable": True, "version": "1"}},
        {"content": {"enable": True, "config": {"fast": True}}},
        {"content": {"enable": True, "config": {"min_gain_bytes": True}}},
        {"content": {"enable": True, "config": {"max_deleted_ratio": True}}},
        {"content": {"enable": True, "config": {"min_interval_hours": "5"}}},
        {"type": "system.vacuum", "content": {"enable": True, "config": {"retention_hours": True}}},
        {"table": "people", "pattern": "*"},
        {"pattern": "[a-z]"},
        {"name": "a/b"},
    ],
)
def test_what_is_no_policy_is_refused(client, table, change):
    answer = client.post("/v1/policies", json={**POLICY, **change})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "BAD_REQUEST")
    assert client.get("/v1/policies").json()["policies"] == []
    assert client.post("/v1/policies", json={**POLICY, "table": "nobody"}).status_code == 404
    assert table.version() == 0


def test_one_at_a_time_looks_after_a_table(client, table):
    url = f"{table.url}/maintenance-lease"
    first = client.post(url, json={"owner": "a", "seconds": 600})
    assert first.json()["owner"] == "a"
    refused = client.post(url, json={"owner": "b", "seconds": 600})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "MAINTENANCE_UNDER_WAY")
    assert refused.json()["error"]["details"]["owner"] == "a"
    assert f"'{table.name}'" in refused.json()["error"]["message"]
    longer = client.post(url, json={"owner": "a", "seconds": 900}).json()
    assert longer["expires-at"] > first.json()["expires-at"]
    assert client.delete(url, params={"owner": "b"}).status_code == 204
    assert client.post(url, json={"owner": "b", "seconds": 600}).status_code == 409
    assert client.delete(url, params={"owner": "a"}).status_code == 204
    assert client.post(url, json={"owner": "b", "seconds": 600}).json()["owner"] == "b"


def test_runs_are_kept_once_and_listed(client, table):
    for _ in range(2):
        assert client.post(f"{table.url}/maintenance-runs", json=RUN).json()["table"] == table.name
    later = {**RUN, "id": "r2", "state": "failed", "started-at": "2026-11-20T12:00:00Z", "error": "no"}
    client.post(f"{table.url}/maintenance-runs", json=later)
    found = client.get("/v1/maintenance-runs").json()["runs"]
    assert [one["id"] for one in found] == ["r2", "r1"]
    assert (found[1]["predicted-gain-bytes"], found[1]["measured-gain-bytes"]) == (10, 11)
    since = {"table": table.name, "since": "2026-11-20T11:00:00Z"}
    assert [one["id"] for one in client.get("/v1/maintenance-runs", params=since).json()["runs"]] == ["r2"]
    for chosen, ids in (
        ({"state": "done"}, ["r1"]),
        ({"type": "system.vacuum", "limit": 1}, ["r2"]),
        ({"type": "system.checkpoint"}, []),
    ):
        runs = client.get("/v1/maintenance-runs", params=chosen).json()["runs"]
        assert [one["id"] for one in runs] == ids, chosen
    assert client.get("/v1/maintenance-runs", params={"table": "nobody"}).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"cost-bytes": 2**63},
        {"measured-gain-files": -(2**63) - 1},
        {"started-at": "2026-11-20T10:00:00"},
        {"ended-at": "0001-01-01T00:00:00+14:00"},
    ],
)
def test_what_no_database_keeps_is_no_run(client, table, error, change):
    answer = client.post(f"{table.url}/maintenance-runs", json={**RUN, **change})
    assert (answer.status_code, error(answer)["code"]) == (400, "BAD_REQUEST")
    assert client.get("/v1/maintenance-runs").json()["runs"] == []


@pytest.mark.parametrize("since", ["9" * 18, "-" + "9" * 18, "0001-01-01T00:00:00+14:00", "yesterday"])
def test_a_time_that_does_not_fit_is_refused_by_the_parameters_name(client, table, error, since):
    for url in ("/v1/maintenance-runs", f"{table.url}/health/samples"):
        answer = client.get(url, params={"since": since})
        assert answer.status_code == 400, answer.text
        assert error(answer)["message"].startswith("since: ")


def test_runs_are_told_in_utc(client, table):
    told = {**RUN, "started-at": "2026-11-20T23:30:00-11:00"}
    client.post(f"{table.url}/maintenance-runs", json=told).raise_for_status()
    for since, count in (("2026-11-21T10:00:00Z", 1), ("2026-11-21T11:00:00Z", 0)):
        found = client.get("/v1/maintenance-runs", params={"since": since}).json()["runs"]
        assert len(found) == count, since


def test_a_table_in_the_place_of_a_dropped_one_has_no_policy_of_it(client, table):
    client.post("/v1/policies", json={**POLICY, "table": table.name}).raise_for_status()
    assert client.delete(table.url).status_code == 204
    client.post("/v1/tables", json={"location": str(table.folder), "name": table.name}).raise_for_status()
    assert client.get(f"{table.url}/policies").json()["policies"] == []
    assert client.get("/v1/policies").json()["policies"] == []


def test_how_far_a_task_is_can_be_watched(client, table):
    url = f"{table.url}/maintenance-tasks"
    assert client.get(url).json() == {"tasks": []}
    client.post(url, json=TASK).raise_for_status()
    [task] = client.get(url).json()["tasks"]
    assert task["bytes-per-second"] == pytest.approx(50, rel=0.5)
    assert task["seconds-left"] == pytest.approx(6, rel=0.5)
    client.post(url, json={**TASK, "state": "done", "bytes-done": 400}).raise_for_status()
    assert [one["state"] for one in client.get(url).json()["tasks"]] == ["done"]


@pytest.mark.parametrize(
    "change",
    [
        {"bytes-done": -1},
        {"num-files": 2**63},
        {"state": "lost"},
        {"operation": "<b>"},
        {"engine": "é"},
        {"id": "a b"},
    ],
)
def test_what_is_no_report_is_refused(client, table, error, change):
    answer = client.post(f"{table.url}/maintenance-tasks", json={**TASK, **change})
    assert (answer.status_code, error(answer)["code"]) == (400, "BAD_REQUEST")
