"""Health of all tables, and health samples, over HTTP."""

import json
import time

import pytest

PAGE = "/v1/health"


def settle(client):
    assert client.service.log_maintenance.wait(60)


@pytest.fixture
def three(client, tmp_path, create):
    """Tables ``none``, ``some`` and ``most``, of which no, 20 % and 80 % of the rows are deleted."""
    tables = {}
    for name, deleted in {"none": 0, "some": 2, "most": 8}.items():
        table = tables[name] = create(client, tmp_path / name)
        add = table.write_file("part-0.parquet", range(10))
        assert table.append(add).status_code == 200
        if deleted:
            assert table.delete({add["path"]: range(deleted)}).status_code == 200
    settle(client)
    return tables


def test_every_commit_leaves_a_sample(client, three):
    found = client.get(PAGE).json()
    assert [one["name"] for one in found["tables"]] == ["most", "some", "none"]
    samples = {one["name"]: one["sample"] for one in found["tables"]}
    assert samples["most"]["deleted-ratio"] == 0.8
    assert samples["most"]["actions"] == ["PURGE"]
    assert samples["most"]["version"] == three["most"].version()
    assert samples["none"]["score"] == 100.0
    assert found["next-page-token"] is None


def test_the_list_can_be_ordered_filtered_and_paged(client, three):
    assert len(three) == 3
    answer = client.get(PAGE, params={"order-by": "deleted-ratio", "min-deleted-ratio": 0.1, "page-size": 1})
    assert [one["name"] for one in answer.json()["tables"]] == ["most"]
    token = answer.json()["next-page-token"]
    rest = {"order-by": "deleted-ratio", "min-deleted-ratio": 0.1, "page-token": token}
    assert [one["name"] for one in client.get(PAGE, params=rest).json()["tables"]] == ["some"]
    for wrong in (
        {"order-by": "age"},
        {"min-deleted-ratio": 2},
        {"page-token": "x"},
        {"page-token": "W10="},
        {"order-by": "score", "page-token": token},
    ):
        assert client.get(PAGE, params=wrong).status_code == 400, wrong


def test_a_table_that_nobody_looked_at_has_no_sample(running, tmp_path, create):
    with running(log_maintenance=False) as client:
        table = create(client, tmp_path / "quiet")
        (only,) = client.get(PAGE).json()["tables"]
        assert (only["name"], only["sample"]) == ("quiet", None)
        assert client.get(f"{table.url}/health").json()["score"] == 100.0
        (only,) = client.get(PAGE).json()["tables"]
        assert only["sample"]["version"] == 0


def test_samples_are_read_since_a_time(client, three):
    table = three["most"]
    found = client.get(f"{table.url}/health/samples").json()["samples"]
    assert [one["version"] for one in found] == sorted((one["version"] for one in found), reverse=True)
    assert found[0]["version"] == table.version()
    newest = found[0]["sampled-at"]
    assert (
        client.get(f"{table.url}/health/samples", params={"since": newest}).json()["samples"][0] == found[0]
    )
    later = {"since": "2999-01-01"}
    assert client.get(f"{table.url}/health/samples", params=later).json()["samples"] == []
    assert client.get(f"{table.url}/health/samples", params={"since": "soon"}).status_code == 400


def test_rebases_and_conflicts_are_counted(client, three):
    table = three["none"]
    read = table.version()
    assert table.delete({"part-0.parquet": [1]}, **{"read-version": read}).json()["result"] == "committed"
    assert table.delete({"part-0.parquet": [2, 3]}, **{"read-version": read}).json()["result"] == "rebased"
    update = {"operation": "UPDATE", "read-version": read}
    assert table.delete({"part-0.parquet": [2]}, **update).status_code == 409

    counts = client.get(f"{table.url}/health").json()["commits"]
    assert (counts["committed"], counts["rebased"], counts["rows-saved"], counts["conflicts"]) == (3, 1, 2, 1)
    assert client.get(f"{table.url}/health", params={"version": 1}).json()["commits"] is None
    settle(client)
    assert client.get(f"{table.url}/health").json()["commits"] == counts


@pytest.mark.full("a thousand tables take seconds to make")
def test_a_thousand_tables_are_listed_quickly(client):
    from datetime import UTC, datetime

    from tests.integration.contract.test_health_sample_store import SAMPLE, replace

    from delvec_kernel.locations import table_id
    from delvec_service.store.registry import Registry

    registry = Registry(client.service.database)
    for number in range(1000):
        location = f"file:///nowhere/t{number}"
        registry.add(location, None, f"t{number}")
        sample = replace(SAMPLE, sampled_at=datetime.now(UTC), score=number / 10)
        client.service.health.store.record(table_id(location), "m", sample)
    best = 60.0
    for _ in range(5):
        began = time.perf_counter()
        found = client.get(PAGE, params={"page-size": 1000}).json()["tables"]
        best = min(best, time.perf_counter() - began)
    assert len(found) == 1000
    assert found[0]["name"] == "t0"
    assert best < 2.0  # about 0.05 s here: only distinguishes one query from one per table


def test_sizes_that_no_database_keeps_are_no_reason_to_answer_nothing(client, table):
    adds = [{**table.write_file(f"{number}.parquet", range(10)), "size": 2**62} for number in range(4)]
    log = [json.dumps({"add": {**add, "dataChange": True}}) for add in adds]
    (table.log / f"{1:020}.json").write_text("\n".join(log) + "\n")

    answer = client.get(f"{table.url}/health")

    assert answer.status_code == 200, answer.text
    assert answer.json()["size-in-bytes"] == 4 * 2**62
    sample, *_ = client.get(f"{table.url}/health/samples").json()["samples"]
    assert sample["size-in-bytes"] == 2**63 - 1


def test_a_sample_that_cannot_be_kept_does_not_decide_about_the_answer(client, filled, monkeypatch):
    def broken(*_):
        raise OverflowError("too large")

    monkeypatch.setattr(client.service.health.store, "record", broken)
    assert client.get(f"{filled.url}/health").status_code == 200
