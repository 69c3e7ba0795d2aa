"""Managed tables that are dropped: brought back, and their folders deleted when nobody needs them any more."""

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.integration.service.conftest import SCHEMA
from tests.support.catalog_client import BASE, ManagedTable
from tests.support.in_process_service import running_service

from delvec_kernel import locations
from delvec_service.store.models import DroppedTableRow
from delvec_service.vacuum import dropped_folders as deletion

DROPPED = "/v1/dropped-tables"
WEEK = timedelta(days=7)


def listed(client):
    return client.get(DROPPED).json()["tables"]


def age(client, by=WEEK):
    """Let the tables have been dropped earlier."""
    service = client.service
    with service.database.write() as session:
        session.execute(update(DroppedTableRow).values(dropped_at=datetime.now(UTC) - by))


def old_log(table, by=WEEK):
    """Let the log have been written earlier, as long before as the table was dropped."""
    for path in Path(table.folder, "_delta_log").rglob("*"):
        os.utime(path, (time.time() - by.total_seconds(),) * 2)


def dropped(client, table, by=WEEK):
    assert client.delete(table.url).status_code == 204
    age(client, by)
    old_log(table, by)


def with_policy(client, table):
    content = {"version": "2025-02-03", "enable": True, "config": {}}
    policy = {"name": "p", "type": "system.vacuum", "table": table.uuid, "content": content}
    answer = client.post("/v1/policies", json=policy)
    assert answer.status_code == 200, answer.text


def test_a_dropped_table_comes_back_with_its_rows_and_policies(people, client):
    people.commit([people.file([1, 2])])
    with_policy(client, people)

    assert client.delete("/v1/tables/sales.people").status_code == 204
    assert client.get("/v1/tables/sales.people").status_code == 404
    assert client.get(f"/v1/tables/{people.uuid}").status_code == 404
    (table,) = listed(client)
    assert (table["name"], table["id"], table["is-being-deleted"]) == ("sales.people", people.uuid, False)
    kept = datetime.fromisoformat(table["kept-until"]) - datetime.fromisoformat(table["dropped-at"])
    assert kept == WEEK

    back = client.post(f"{DROPPED}/sales.people/undrop")
    assert (back.status_code, back.json()["id"]) == (200, people.uuid)
    assert listed(client) == []
    assert people.load()["latest-table-version"] == 1
    assert [each["name"] for each in client.get("/v1/policies").json()["policies"]] == ["p"]
    again = client.post(f"{DROPPED}/sales.people/undrop")
    assert (again.status_code, again.json()["error"]["type"]) == (404, "TableNotFound")


@pytest.mark.parametrize("path", ["{table}", BASE + "/tables/delvec.sales.people"])
def test_clients_of_the_catalog_drop_softly_too(people, client, path):
    assert client.delete(path.format(table=people.url)).status_code in (200, 204)
    assert client.post(f"{DROPPED}/{people.uuid}/undrop").status_code == 200


def test_a_path_table_is_only_unregistered(client, tmp_path):
    made = client.post("/v1/tables", json={"name": "plain", "schema": SCHEMA}).json()
    assert client.delete("/v1/tables/plain").status_code == 204
    assert listed(client) == []
    assert client.post(f"{DROPPED}/plain/undrop").status_code == 404
    assert client.post("/v1/tables", json={"location": made["location"]}).status_code == 201


def test_a_name_that_is_taken_again_needs_another_one(people, client):
    assert client.delete(people.url).status_code == 204
    successor = ManagedTable(client, "people").create()
    refused = client.post(f"{DROPPED}/sales.people/undrop")
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "TableAlreadyExists")
    back = client.post(f"{DROPPED}/sales.people/undrop", json={"name": "sales.persons"})
    assert back.json()["name"] == "sales.persons"
    assert client.get("/v1/tables/sales.persons").json()["id"] == people.uuid
    assert client.get("/v1/tables/sales.people").json()["id"] == successor.uuid


def test_of_two_dropped_tables_of_a_name_the_last_comes_back_and_the_other_by_its_id(people, client):
    client.delete(people.url)
    later = ManagedTable(client, "people").create()
    client.delete(later.url)
    assert [each["name"] for each in listed(client)] == ["sales.people"] * 2
    assert client.post(f"{DROPPED}/sales.people/undrop").json()["id"] == later.uuid
    earlier = client.post(f"{DROPPED}/{people.uuid}/undrop", json={"name": "sales.earlier"})
    assert earlier.json()["id"] == people.uuid


def test_the_list_has_pages(client):
    for number in range(3):
        client.delete(ManagedTable(client, f"t{number}").create().url)
    first = client.get(DROPPED, params={"page-size": 2}).json()
    rest = client.get(DROPPED, params={"page-size": 2, "page-token": first["next-page-token"]}).json()
    names = [each["name"] for each in first["tables"] + rest["tables"]]
    assert names == ["sales.t0", "sales.t1", "sales.t2"]
    assert rest.get("next-page-token") is None


def test_registering_the_location_brings_a_table_back(people, client):
    client.delete(people.url)
    registered = client.post("/v1/tables", json={"location": people.location, "name": "sales.again"})
    assert registered.json()["id"] == people.uuid
    assert listed(client) == []


# --- deletion of the folder ---------------------------------------------------------------------------------


def test_the_folder_goes_when_the_retention_has_ended(people, client):
    people.commit([people.file([1])])
    client.post("/v1/tables/sales.people/delete", json={"predicate": "id = 1"})
    folder = Path(people.folder)
    (folder / "day=1" / "deep").mkdir(parents=True)
    (folder / "day=1" / "deep" / "part.parquet").write_bytes(b"x")
    dropped(client, people, timedelta(days=6))
    early = client.post(f"{DROPPED}/sales.people/delete")
    assert (early.status_code, early.json()["error"]["type"]) == (400, "RetentionTooShort")
    assert "DELVEC_DROPPED_TABLE_DAYS" in early.json()["error"]["message"]
    assert folder.exists()

    age(client)
    old_log(people)
    done = client.post(f"{DROPPED}/sales.people/delete")
    assert done.status_code == 200, done.text
    assert done.json()["num-files"] > 3
    assert done.json()["kept"] == []
    assert not folder.exists()
    assert folder.parent.exists()
    assert listed(client) == []
    assert client.post(f"{DROPPED}/sales.people/delete").status_code == 404


def test_the_check_of_the_retention_can_be_turned_off(people, client):
    client.delete(people.url)
    done = client.post(f"{DROPPED}/sales.people/delete", json={"enforce-retention": False})
    assert done.status_code == 200, done.text
    assert not Path(people.folder).exists()


def test_policies_go_with_the_files(people, client):
    with_policy(client, people)
    dropped(client, people)
    assert client.post(f"{DROPPED}/sales.people/delete").status_code == 200
    assert client.get("/v1/policies").json()["policies"] == []


def test_links_and_other_tables_in_the_folder_stay(people, client, tmp_path):
    folder = Path(people.folder)
    secret = tmp_path / "secret"
    secret.write_text("keep me")
    (folder / "link").symlink_to(secret)
    (folder / "out").symlink_to(tmp_path, target_is_directory=True)
    inner = folder / "inner"
    (inner / "_delta_log").mkdir(parents=True)
    (inner / "_delta_log" / f"{0:020}.json").write_text("{}")
    (inner / "rows.parquet").write_bytes(b"rows")
    dropped(client, people)
    done = client.post(f"{DROPPED}/sales.people/delete")
    assert done.status_code == 200, done.text
    assert done.json()["kept"] == ["inner", "link", "out"]
    assert secret.read_text() == "keep me"
    assert (inner / "rows.parquet").exists()
    assert (inner / "_delta_log" / f"{0:020}.json").exists()
    assert not (folder / "_delta_log").exists()


def test_a_log_that_is_a_link_leads_nowhere(people, client, tmp_path):
    folder, elsewhere = Path(people.folder), tmp_path / "lake" / "elsewhere"
    dropped(client, people)
    (folder / "_delta_log").rename(elsewhere)
    (folder / "_delta_log").symlink_to(elsewhere, target_is_directory=True)
    client.post(f"{DROPPED}/sales.people/delete")
    assert (elsewhere / f"{0:020}.json").exists()


def test_files_that_a_shallow_clone_needs_stay(people, client):
    people.commit([people.file([1])])
    clone = client.post("/v1/tables/sales.people/clone", json={"name": "copy", "shallow": True})
    assert clone.status_code == 200, clone.text
    dropped(client, people)
    refused = client.post(f"{DROPPED}/sales.people/delete")
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "TableInUse")
    assert "shallow clone" in refused.json()["error"]["message"]
    assert client.post(f"{DROPPED}/sales.people/undrop").status_code == 200


def test_a_table_that_somebody_else_commits_to_stays(people, client, tmp_path):
    dropped(client, people)
    database = f"sqlite:///{tmp_path / 'another.db'}"
    roots = [str(tmp_path / "lake")]
    with running_service(database_url=database, roots=roots, warehouse=roots[0]) as another:
        added = another.post("/v1/tables", json={"location": people.location, "name": "sales.people"})
        assert added.status_code == 201, added.text
        theirs = ManagedTable(another, "people")
        theirs.uuid, theirs.folder, theirs.location = people.uuid, people.folder, people.location
        theirs.commit([theirs.file([1])])
    refused = client.post(f"{DROPPED}/sales.people/delete")
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "TableInUse")
    assert theirs.folder
    assert Path(people.folder, "_delta_log", f"{1:020}.json").exists()


def test_a_folder_that_is_gone_is_forgotten_and_does_not_come_back(people, client):
    dropped(client, people)
    Path(people.folder).rename(f"{people.folder}-moved")
    back = client.post(f"{DROPPED}/sales.people/undrop")
    assert (back.status_code, back.json()["error"]["type"]) == (404, "NotADeltaTable")
    assert client.post(f"{DROPPED}/sales.people/delete").json()["num-files"] == 0
    assert listed(client) == []


def test_a_deletion_that_fails_is_continued_and_cannot_be_undone(people, client, monkeypatch):
    people.commit([people.file([1])])
    dropped(client, people)
    real = deletion.delete_files

    def fails(location, paths, before, **options):
        if paths[0].startswith("_delta_log"):
            raise OSError("the process is killed")
        return real(location, paths, before, **options)

    monkeypatch.setattr(deletion, "delete_files", fails)
    assert client.post(f"{DROPPED}/sales.people/delete").status_code == 500
    monkeypatch.undo()
    (table,) = listed(client)
    assert table["is-being-deleted"]
    refused = client.post(f"{DROPPED}/sales.people/undrop")
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "LocationNotAllowed")
    registered = client.post("/v1/tables", json={"location": people.location, "name": "sales.again"})
    assert registered.status_code == 403
    assert client.post(f"{DROPPED}/sales.people/delete").status_code == 200
    assert not Path(people.folder).exists()


def test_of_undrop_and_deletion_one_wins(people, client):
    people.commit([people.file([1])])
    dropped(client, people)
    barrier = threading.Barrier(2)
    answers = {}

    def send(what):
        barrier.wait()
        answers[what] = client.post(f"{DROPPED}/sales.people/{what}").status_code

    threads = [threading.Thread(target=send, args=(what,)) for what in ("undrop", "delete")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (answers["undrop"] == 200) != (answers["delete"] == 200), answers
    assert Path(people.folder).exists() == (answers["undrop"] == 200)
    assert (client.get("/v1/tables/sales.people").status_code == 200) == (answers["undrop"] == 200)


def test_a_lost_database_leaves_the_folder_and_its_location_can_be_registered(people, client, tmp_path):
    people.commit([people.file([1, 2])])
    client.delete(people.url)
    roots = [str(tmp_path / "lake")]
    database = f"sqlite:///{tmp_path / 'new.db'}"
    with running_service(database_url=database, roots=roots, warehouse=roots[0]) as fresh:
        assert listed(fresh) == []
        assert fresh.post(f"{DROPPED}/sales.people/undrop").status_code == 404
        added = fresh.post("/v1/tables", json={"location": people.location, "name": "sales.people"})
        assert (added.status_code, added.json()["id"]) == (201, people.uuid)
        assert fresh.get("/v1/tables/sales.people/snapshot").json()["num-rows"] == 2


def test_a_table_that_another_warehouse_of_the_database_has_stays(people, client, tmp_path):
    import delvec

    dropped(client, people)
    with delvec.connect(
        warehouse=tmp_path / "elsewhere", database_url=f"sqlite:///{tmp_path / 'store.db'}"
    ) as lake:
        lake.table(locations.local_path(people.location))
        refused = client.post(f"{DROPPED}/sales.people/delete")
        assert (refused.status_code, refused.json()["error"]["type"]) == (409, "TableInUse")
    assert client.post(f"{DROPPED}/sales.people/undrop").status_code == 200


# --- who may -------------------------------------------------------------------------------------------------


def test_admins_of_the_table_bring_it_back_and_delete_it(tmp_path):
    settings = {"token": "configured", "roots": [str(tmp_path)], "warehouse": str(tmp_path)}
    with running_service(**settings, database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        client.headers["Authorization"] = "Bearer configured"
        people = ManagedTable(client, "people").create()
        other = ManagedTable(client, "wages", "hr").create()
        headers = {}
        for role in ("nobody", "reader", "maintainer", "admin"):
            token = client.post("/v1/tokens", json={"name": role}).json()["token"]
            headers[role] = {"Authorization": f"Bearer {token}"}
            if role != "nobody":
                client.post("/v1/grants", json={"grantee": role, "role": role, "table": people.uuid})
        for table in (people, other):
            dropped(client, table)
        for role, seen in (("nobody", []), ("reader", ["sales.people"]), ("admin", ["sales.people"])):
            shown = client.get(DROPPED, headers=headers[role]).json()["tables"]
            assert [each["name"] for each in shown] == seen
        for what in ("undrop", "delete"):
            for role, status in (("nobody", 404), ("reader", 403), ("maintainer", 403)):
                answer = client.post(f"{DROPPED}/sales.people/{what}", headers=headers[role])
                assert answer.status_code == status, (what, role)
            assert client.post(f"{DROPPED}/hr.wages/{what}", headers=headers["admin"]).status_code == 404
        renamed = client.post(
            f"{DROPPED}/sales.people/undrop", json={"name": "hr.people"}, headers=headers["admin"]
        )
        assert renamed.status_code == 403
        assert client.post(f"{DROPPED}/sales.people/undrop", headers=headers["admin"]).status_code == 200
        dropped(client, people)
        assert [each["grantee"] for each in client.get("/v1/grants").json()["grants"]] == [
            "admin",
            "maintainer",
            "reader",
        ]
        assert client.post(f"{DROPPED}/sales.people/delete", headers=headers["admin"]).status_code == 200
        assert client.get("/v1/grants").json()["grants"] == []
        client.service.audit.flush()
        entries = client.get("/v1/audit", params={"table": "sales.people"}).json()["entries"]
        done = {(each["operation"], each["outcome"], each["principal"]) for each in entries}
        assert {
            ("undrop_table", "done", "admin"),
            ("delete_dropped_table", "done", "admin"),
            ("delete_dropped_table", "denied", "reader"),
        } <= done
