"""Records of conflicts over HTTP."""

import json

import pytest

from delvec_errors import ServiceUnavailable

HOSTILE = "<script>alert`1`</script>\0" + "x" * 5000


def conflicts(table, headers=None, **asked):
    answer = table.client.get(f"{table.url}/conflicts", params=asked, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def lose(table, bitmap, **request):
    """Update rows that a concurrent DELETE removed."""
    assert table.delete({"a.parquet": range(3)}, read_version=1).status_code == 200
    answer = table.commit(
        operation="UPDATE",
        predicate="id = 2",
        row_deletes=[{"path": "a.parquet", "rows": bitmap(1, 2, 5)}],
        adds=[table.write_file("new.parquet", [2])],
        read_version=1,
        **request,
    )
    assert answer.status_code == 409, answer.text
    return answer.json()["error"]


def test_a_lost_race_says_who_was_in_the_way(filled, bitmap):
    error = lose(filled, bitmap, transaction_id="mine")

    found = conflicts(filled)
    (one,) = found["conflicts"]
    assert (one["type"], one["operation"], one["read-version"]) == (error["type"], "UPDATE", 1)
    assert (one["winning-version"], one["winning-operation"]) == (2, "DELETE")
    assert one["winning-transaction-id"] == filled.action(2, "commitInfo")["txnId"]
    assert one["winning-engine"] == filled.action(2, "commitInfo")["engineInfo"]
    assert (one["files"], one["num-files"], one["overlapping-rows"]) == (["a.parquet"], 1, 2)
    assert one["transaction-id"] == "mine"
    assert one["reason"].startswith("Version 2 (DELETE) ")
    (hour,) = found["intervals"]
    assert (hour["committed"], hour["conflicts"], hour["seconds"]) == (2, 1, 3600)


def test_rows_that_rebasing_saved_are_counted_over_time(filled):
    assert filled.delete({"a.parquet": range(3)}, read_version=1).status_code == 200
    assert filled.delete({"a.parquet": range(4, 8)}, read_version=1).status_code == 200

    (hour,) = conflicts(filled)["intervals"]
    assert (hour["committed"], hour["rebased"], hour["rows-saved"], hour["conflicts"]) == (3, 1, 4, 0)


def test_only_so_many_and_only_since_a_time(filled, bitmap):
    lose(filled, bitmap)

    assert conflicts(filled, since="2999-01-01") == {"table": "people", "conflicts": [], "intervals": []}
    assert len(conflicts(filled, since="2020-01-01", limit=1)["conflicts"]) == 1
    for wrong in ({"since": "noon"}, {"limit": 0}, {"limit": 1001}):
        assert filled.client.get(f"{filled.url}/conflicts", params=wrong).status_code == 400, wrong


def test_what_a_log_says_of_a_winner_is_cut_to_what_is_kept(filled, bitmap):
    info = {"operation": HOSTILE, "engineInfo": HOSTILE, "txnId": HOSTILE, "timestamp": 1}
    removed = {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": True}
    lines = [json.dumps({"commitInfo": info}), json.dumps({"remove": removed})]
    (filled.log / f"{2:020}.json").write_text("\n".join(lines))
    answer = filled.commit(
        operation="UPDATE",
        predicate="id = 2",
        row_deletes=[{"path": "a.parquet", "rows": bitmap(2)}],
        adds=[filled.write_file("new.parquet", [2])],
        read_version=1,
    )
    assert answer.status_code == 409, answer.text

    (one,) = conflicts(filled)["conflicts"]
    assert len(one["winning-operation"]) == 64
    assert one["winning-operation"].startswith("<script>")
    assert len(one["winning-engine"]) == 256


def test_principals_are_for_who_maintains_the_table(running, tmp_path, create, bitmap):
    root = {"Authorization": "Bearer root"}
    with running(token="root", roots=(str(tmp_path),)) as client:
        client.headers.update(root)
        table = create(client, tmp_path / "people")
        tokens = {}
        for name, role in {"etl": "writer", "nightly": "maintainer", "eve": "reader"}.items():
            made = client.post("/v1/tokens", json={"name": name}).json()
            grant = {"grantee": made["principal"], "role": role, "table": "people"}
            client.post("/v1/grants", json=grant).raise_for_status()
            tokens[name] = {"Authorization": f"Bearer {made['token']}"}
        assert table.append(table.write_file("a.parquet", range(10))).status_code == 200
        winner = table.delete({"a.parquet": range(3)}, read_version=1, headers=tokens["nightly"])
        assert winner.status_code == 200
        loser = table.commit(
            operation="UPDATE",
            predicate="id = 2",
            row_deletes=[{"path": "a.parquet", "rows": bitmap(2)}],
            adds=[table.write_file("new.parquet", [2])],
            read_version=1,
            headers=tokens["etl"],
        )
        assert loser.status_code == 409

        (seen,) = conflicts(table, tokens["nightly"])["conflicts"]
        assert (seen["principal"], seen["winning-principal"]) == ("etl", "nightly")
        (seen,) = conflicts(table, tokens["eve"])["conflicts"]
        assert (seen["principal"], seen["winning-principal"]) == (None, None)


def test_conflicts_wait_for_a_database_that_is_away(filled, bitmap, monkeypatch):
    store = filled.client.service.health.store
    count = store.count

    def away(*_):
        raise ServiceUnavailable("away")

    filled.client.service.log_maintenance.wait(60)
    monkeypatch.setattr(store, "count", away)
    lose(filled, bitmap)
    assert filled.client.get(f"{filled.url}/conflicts").status_code == 503
    monkeypatch.setattr(store, "count", count)

    assert len(conflicts(filled)["conflicts"]) == 1


def test_other_replicas_know_of_a_conflict_soon(filled, bitmap):
    lose(filled, bitmap)

    service = filled.client.service
    identifier = service.tables.find("people").id
    assert service.health._writer.wait(30)
    assert len(service.commit_record.conflicts(identifier, None, 10)) == 1


@pytest.mark.parametrize("name", ["nobody", "<script>"])
def test_of_a_table_that_is_not_there(client, name):
    assert client.get(f"/v1/tables/{name}/conflicts").status_code == 404
