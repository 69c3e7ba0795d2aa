"""VACUUM of a plan, and into a quarantine: moves, undo, and interruptions."""

import json

import pytest
from tests.integration.service.vacuum.test_vacuum import NOW, age_all, data, file, vacuum

from delvec_errors import StorageDenied
from delvec_service.vacuum import quarantine as running

QUARANTINED = "_delvec/quarantined"


def quarantined(table):
    return {name.split("/", 3)[3] for name in data(table) if name.startswith(QUARANTINED)}


def post(table, identifier, action, status=200):
    answer = table.client.post(f"{table.url}/quarantines/{identifier}/{action}")
    assert answer.status_code == status, answer.text
    return answer.json()


def all_of(table):
    return table.client.get(f"{table.url}/quarantines").json()["quarantines"]


@pytest.fixture
def littered(filled):
    file(filled, "old.parquet")
    file(filled, "c=a b/old.parquet", content=b"another")
    return filled


def test_files_move_away_and_come_back(littered):
    done = vacuum(littered, quarantine=True)
    assert (done["result"], done["num-files"], done["size-in-bytes"]) == ("quarantined", 2, 16)
    assert quarantined(littered) == {"old.parquet", "c=a b/old.parquet"}
    assert littered.action(done["end-version"], "commitInfo")["operation"] == "VACUUM END"
    [record] = all_of(littered)
    assert record["id"] == done["quarantine"]
    assert (record["state"], record["num-files"], record["version"]) == (
        "quarantined",
        2,
        done["start-version"],
    )
    assert vacuum(littered)["result"] == "nothing-to-delete", "what is in a quarantine is nobody's litter"

    undone = post(littered, done["quarantine"], "undo")
    assert (undone["num-files"], undone["size-in-bytes"], undone["kept"]) == (2, 16, [])
    assert (littered.folder / "c=a b/old.parquet").read_bytes() == b"another"
    assert quarantined(littered) == set()
    assert all_of(littered)[0]["state"] == "undone"
    assert not any((littered.folder / QUARANTINED).iterdir())
    assert vacuum(littered, dry_run=True)["num-files"] == 2


def test_a_deletion_that_readers_still_need_is_undone(filled):
    assert filled.delete({}, removes=["b.parquet"]).status_code == 200
    age_all(filled)
    done = vacuum(filled, quarantine=True, **NOW)
    assert quarantined(filled) == {"b.parquet"}
    post(filled, done["quarantine"], "undo")
    answer = filled.client.post(f"{filled.url}/restore", json={"version": 1})
    assert answer.status_code == 200, answer.text
    assert vacuum(filled, **NOW)["num-files"] == 0


def test_an_undo_replaces_nothing(littered):
    done = vacuum(littered, quarantine=True)
    file(littered, "old.parquet", content=b"newer")
    undone = post(littered, done["quarantine"], "undo")
    assert (undone["num-files"], undone["kept"]) == (1, ["old.parquet"])
    assert (littered.folder / "old.parquet").read_bytes() == b"newer"
    assert quarantined(littered) == {"old.parquet"}
    assert all_of(littered)[0]["state"] == "quarantined"


def test_an_undo_puts_nothing_into_the_log(littered):
    done = vacuum(littered, quarantine=True)
    file(littered, f"{QUARANTINED}/{done['quarantine']}/_delta_log/00000000000000000009.json")
    file(littered, f"{QUARANTINED}/{done['quarantine']}/_delvec/clones/x.json")
    undone = post(littered, done["quarantine"], "undo")
    assert (undone["num-files"], undone["kept"]) == (2, ["_delvec/clones/x.json"])
    assert not (littered.log / "00000000000000000009.json").exists()


def test_an_undo_follows_no_link(littered, tmp_path):
    done = vacuum(littered, quarantine=True)
    (tmp_path / "elsewhere").mkdir()
    (littered.folder / "c=a b").rmdir() if (littered.folder / "c=a b").exists() else None
    (littered.folder / "c=a b").symlink_to(tmp_path / "elsewhere")
    undone = post(littered, done["quarantine"], "undo")
    assert undone["kept"] == ["c=a%20b/old.parquet"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_purge_deletes_for_good(littered):
    done = vacuum(littered, quarantine=True)
    purged = post(littered, done["quarantine"], "purge")
    assert (purged["num-files"], purged["size-in-bytes"]) == (2, 16)
    assert quarantined(littered) == set()
    assert all_of(littered) == []
    assert post(littered, done["quarantine"], "undo", 404)["error"]["type"] == "QuarantineNotFound"
    assert data(littered) == {"a.parquet", "b.parquet"}


def test_an_undo_that_stopped_is_gone_on_with(littered, monkeypatch):
    done = vacuum(littered, quarantine=True)
    move, calls = running.move_files, []

    def failing(*arguments, **options):
        found = move(*arguments, **options)
        calls.append(found.deleted)
        found.error = StorageDenied("no")
        return found

    monkeypatch.setattr(running, "move_files", failing)
    post(littered, done["quarantine"], "undo", 502)
    assert all_of(littered)[0]["state"] == "quarantined"
    monkeypatch.setattr(running, "move_files", move)
    assert post(littered, done["quarantine"], "undo")["kept"] == []
    assert data(littered) >= {"old.parquet", "c=a b/old.parquet"}


def test_a_move_that_stopped_between_the_two_names_is_gone_on_with(littered):
    done = vacuum(littered, quarantine=True)
    moved = littered.folder / QUARANTINED / done["quarantine"] / "old.parquet"
    (littered.folder / "old.parquet").hardlink_to(moved)
    undone = post(littered, done["quarantine"], "undo")
    assert (undone["num-files"], undone["kept"]) == (2, [])
    assert not moved.exists()


def test_a_record_that_cannot_be_read_says_where_the_files_are(littered, error):
    done = vacuum(littered, quarantine=True)
    record = littered.folder / "_delvec/quarantines" / f"{done['quarantine']}.json"
    record.write_text("{")
    answer = littered.client.post(f"{littered.url}/quarantines/{done['quarantine']}/undo")
    assert (answer.status_code, error(answer)["type"]) == (422, "CorruptTable")
    assert f"{QUARANTINED}/{done['quarantine']}" in error(answer)["message"]


def test_another_id_in_a_record_leads_nowhere(littered):
    done = vacuum(littered, quarantine=True)
    record = littered.folder / "_delvec/quarantines" / f"{done['quarantine']}.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "id": "../.."}))
    assert post(littered, done["quarantine"], "undo")["num-files"] == 2


def test_only_files_that_are_named_go(littered):
    found = vacuum(littered, files=["old.parquet", "a.parquet", "gone.parquet", "_delta_log/x.json"])
    assert (found["result"], found["files"]) == ("deleted", ["old.parquet"])
    assert data(littered) == {"a.parquet", "b.parquet", "c=a b/old.parquet"}


def test_named_files_obey_every_rule(littered, create, tmp_path):
    file(littered, "young.parquet", days=1)
    file(littered, "inner/_delta_log/00000000000000000000.json")
    file(littered, "inner/deep/x.parquet")
    (littered.folder / "link.parquet").symlink_to(littered.folder / "old.parquet")
    (littered.folder / "linked").symlink_to(littered.folder / "c=a b")
    named = ["young.parquet", "inner/deep/x.parquet", "link.parquet", "linked/old.parquet", "b.parquet"]
    assert vacuum(littered, files=named)["result"] == "nothing-to-delete"
    assert (littered.folder / "c=a b/old.parquet").exists()


@pytest.mark.parametrize("path", ["../x.parquet", "/etc/hosts", "s3://other/x", ""])
def test_a_named_file_elsewhere_is_refused(littered, path):
    answer = littered.client.post(f"{littered.url}/vacuum", json={"files": ["old.parquet", path]})
    assert answer.status_code in (400, 403, 422), answer.text
    assert (littered.folder / "old.parquet").exists()


def test_named_files_and_the_mode_lite_contradict_each_other(littered):
    answer = littered.client.post(f"{littered.url}/vacuum", json={"files": [], "mode": "lite"})
    assert answer.status_code == 400
