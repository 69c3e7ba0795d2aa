"""Dry runs of OPTIMIZE and of maintenance policies over HTTP."""

import pytest

CONTENT = {"version": "2025-02-03", "enable": True, "config": {}}


@pytest.fixture
def fragmented(table):
    """A table of twelve small files, a fifth of whose rows are deleted in one of them."""
    for number in range(12):
        add = table.write_file(f"part-{number}.parquet", range(number * 10, number * 10 + 10))
        assert table.append(add).status_code == 200
    assert table.delete({"part-3.parquet": range(2)}).status_code == 200
    return table


def files(table):
    return sorted(path.name for path in table.folder.glob("*.parquet"))


@pytest.mark.parametrize(("purge", "num_files"), [(False, 12), (True, 1)])
def test_a_dry_run_says_which_files_and_changes_nothing(fragmented, purge, num_files):
    before, version = files(fragmented), fragmented.version()
    answer = fragmented.client.post(f"{fragmented.url}/optimize", json={"dry-run": True, "purge": purge})

    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert (plan["result"], plan["read-version"]) == ("dry-run", version)
    assert (plan["num-files"], plan["new-files"], plan["num-groups"]) == (num_files, 1, 1)
    assert plan["size-in-bytes"] > plan["gain-bytes"] > 0
    assert "part-3.parquet" in plan["groups"][0]["files"]
    assert plan["exceeds-limit"] is False
    assert (files(fragmented), fragmented.version()) == (before, version)


def test_a_dry_run_says_what_a_run_would_be_refused_for(running, tmp_path, create):
    with running(dml_max_bytes=10) as client:
        table = create(client, tmp_path / "people")
        for number in range(2):
            assert table.append(table.write_file(f"{number}.parquet", range(5))).status_code == 200
        planned = client.post(f"{table.url}/optimize", json={"dry-run": True}).json()
        refused = client.post(f"{table.url}/optimize", json={})

    assert planned["exceeds-limit"] is True
    assert refused.json()["error"]["type"] == "ReadLimitExceeded"


def test_what_policies_would_do_and_why(fragmented):
    client = fragmented.client
    assert client.get(f"{fragmented.url}/maintenance-plan").json()["planned"] == []
    for name, kind, config in (
        ("compact", "system.data-compaction", {"min_files_saved": 4}),
        ("points", "system.checkpoint", {"min_commits": 1000}),
        ("never", "system.vacuum", {"quiet_hours": ["00:00-12:00", "12:00-00:00"]}),
        ("off", "system.dv-purge", {}),
    ):
        content = CONTENT | {"config": config, "enable": name != "off"}
        body = {"name": name, "type": kind, "content": content}
        client.post("/v1/policies", json=body).raise_for_status()
    before, version = files(fragmented), fragmented.version()

    answer = client.get(f"{fragmented.url}/maintenance-plan")

    assert answer.status_code == 200, answer.text
    planned = {one["policy"]: one for one in answer.json()["planned"]}
    assert {name: one["state"] for name, one in planned.items()} == {
        "compact": "due",
        "points": "not-due",
        "never": "not-due",
    }
    assert planned["compact"]["predicted-gain-files"] == 11
    assert "12 files become 1" in planned["compact"]["reason"]
    assert "quiet hours" in planned["never"]["reason"]
    assert (files(fragmented), fragmented.version()) == (before, version)
    assert client.get("/v1/maintenance-runs").json()["runs"] == []
