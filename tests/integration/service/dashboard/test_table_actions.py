"""Actions on a table's page: dry runs, confirmations, results, and what runs."""

import os
import re

import pytest
from tests.support.html_pages import Page, confirmed, csrf, run

from delvec_service.dashboard.table_actions import ACTIONS, MENU

REPORT = {
    "id": "t1",
    "operation": "REORG",
    "engine": "<script>alert(1)</script>",
    "state": "running",
    "elapsed-seconds": 2,
    "num-files": 4,
    "files-done": 1,
    "size-in-bytes": 4096,
    "bytes-done": 1024,
}


def test_tasks_are_run_and_their_results_shown(table):
    url = f"/dashboard/tables/{table.name}"
    token = csrf(table.client)
    ran = table.client.post(f"{url}/run", data={"csrf-token": token, "action": "checkpoint"})
    fragment = table.client.post(
        f"{url}/run",
        data={"csrf-token": token, "action": "vacuum-dry-run"},
        headers={"HX-Request": "true"},
    )

    assert "A checkpoint of version 0 was written" in Page(ran).text
    assert list(table.log.glob("*.checkpoint*"))
    assert "VACUUM, dry run" in Page(fragment).text
    assert "<html" not in fragment.text
    assert table.client.post(f"{url}/run", data={"csrf-token": token, "action": "drop"}).status_code == 400


@pytest.mark.parametrize("action", MENU)
def test_every_task_has_a_resource(table, action):
    left = table.folder / "left-over.parquet"
    left.write_bytes(b"orphaned")
    os.utime(left, (1, 1))

    page = run(table, action)
    if ACTIONS[action].is_confirmed:
        page = run(table, **confirmed(page))

    page.assert_harmless()
    assert page.all("section", **{"class": "result"}), page.text
    assert not page.all("p", **{"class": "failed"}), page.text
    assert not re.search(r"\w+-in-bytes|num-\w+|\bnum[A-Z]", page.text)  # nothing as the service calls it


def test_a_dry_run_of_optimize_says_what_would_be_written_again(filled):
    filled.delete({"a.parquet": range(5)})
    version = filled.version()

    page = run(filled, "optimize-dry-run")

    assert "2 files with" in page.text
    assert "would become about 1 file with" in page.text
    assert "a.parquet" in page.text
    assert filled.version() == version
    assert "No deletion vector is worth moving" in run(filled, "compact-dry-run").text


def test_the_buttons_of_an_advised_purge_rewrite_the_files_that_the_advice_counts(filled):
    filled.append(filled.write_file("large.parquet", range(100, 1000))).raise_for_status()
    properties = {"change": "set-properties", "properties": {"delta.targetFileSize": "1"}}
    filled.client.post(f"{filled.url}/alter", json={"changes": [properties]}).raise_for_status()
    filled.delete({"a.parquet": range(5), "large.parquet": [0]})
    shown = Page(filled.client.get(f"/dashboard/tables/{filled.name}"))
    advised = [one["value"] for one in shown.all("input", name="action") if "purge" in one["value"]]
    assert advised == ["purge-worst-dry-run", "purge-worst"]

    assert "1 file with" in run(filled, "purge-worst-dry-run").text
    assert "2 files with" in run(filled, "purge-dry-run").text
    assert "1 file with" in run(filled, "purge-worst").text
    assert "large.parquet" in run(filled, "purge-dry-run").text


def test_what_would_run_now_and_why(filled):
    url = f"/dashboard/tables/{filled.name}"
    content = {"version": "2025-02-03", "enable": True, "config": {"min_files_saved": 1}}
    policy = {"name": "<b>compact", "type": "system.data-compaction", "content": content}
    filled.client.post("/v1/policies", json=policy | {"name": "compact"}).raise_for_status()

    page = Page(filled.client.get(f"{url}/plan"))
    fragment = filled.client.get(f"{url}/plan", headers={"HX-Request": "true"})

    page.assert_harmless()
    assert "would run" in page.text
    assert "2 files become 1" in page.text
    assert "<html" not in fragment.text
    missing = filled.client.get("/dashboard/tables/nobody/plan")
    assert missing.status_code == 404
    assert "Not found" in Page(missing).text


def test_a_commit_is_undone_once_that_is_confirmed(filled):
    filled.delete({"a.parquet": range(5)})
    shown = Page(filled.client.get(f"/dashboard/tables/{filled.name}/history"))
    versions = {one["value"] for one in shown.all("input", name="version")}
    assert versions == {"0", "1"}  # before each commit but the first

    asked = run(filled, "restore", version="1")
    assert filled.version() == 2
    assert "RESTORE to version 1?" in asked.text
    assert "the table would be as in version 1" in asked.text
    done = run(filled, **confirmed(asked))

    assert "the table is as in version 1. Version 3 was committed." in " ".join(done.text.split())
    assert filled.action(3, "commitInfo")["operation"] == "RESTORE"


def test_what_others_commit_meanwhile_is_not_undone_unseen(filled):
    filled.delete({"a.parquet": range(5)})
    answers = confirmed(run(filled, "restore", version="1"))
    filled.delete({"a.parquet": range(5, 7)})

    again = run(filled, **answers)

    assert "There has been a commit" in again.text
    assert filled.version() == 3
    run(filled, **confirmed(again))
    assert filled.action(4, "commitInfo")["operation"] == "RESTORE"


@pytest.mark.parametrize("version", ["", "-1", "1.5", "x" * 30, "9" * 18, "\u0661"])
def test_a_version_that_is_none_changes_nothing(filled, version):
    url = f"/dashboard/tables/{filled.name}"
    form = {"csrf-token": csrf(filled.client), "action": "restore", "version": version}
    answer = filled.client.post(f"{url}/run", data=form)

    assert answer.status_code in (400, 404), answer.status_code
    Page(answer).assert_harmless()
    assert filled.version() == 1


def test_files_in_quarantine_come_back_or_go(filled):
    for _ in range(2):
        orphan = filled.folder / "orphan.parquet"
        orphan.write_bytes(b"x" * 10)
        os.utime(orphan, (1, 1))
        assert "moved into quarantine" in run(filled, "vacuum-quarantine").text
        assert not orphan.exists()
        listed = Page(filled.client.get(f"/dashboard/tables/{filled.name}/maintenance"))
        identifier = listed.all("input", name="quarantine")[0]["value"]
        run(filled, "undo-quarantine", quarantine=identifier)
        assert orphan.read_bytes() == b"x" * 10
    run(filled, "vacuum-quarantine")
    listed = Page(filled.client.get(f"/dashboard/tables/{filled.name}/maintenance"))
    identifier = listed.all("input", name="quarantine")[0]["value"]
    asked = run(filled, "purge-quarantine", quarantine=identifier)
    assert list(filled.folder.glob("_delvec/quarantined/*/orphan.parquet"))
    run(filled, **confirmed(asked))
    assert not list(filled.folder.glob("_delvec/quarantined/*/orphan.parquet"))
    url = f"/dashboard/tables/{filled.name}"
    for wrong in ("", "..", "a/b", "<script>", "x" * 65):
        form = {"csrf-token": csrf(filled.client), "action": "undo-quarantine", "quarantine": wrong}
        assert filled.client.post(f"{url}/run", data=form).status_code == 400, wrong


def test_vacuum_asks_before_it_deletes(filled):
    orphan = filled.folder / "orphan.parquet"
    orphan.write_bytes(b"x" * 3000)
    os.utime(orphan, (1, 1))
    other = filled.folder / "other.parquet"
    other.write_bytes(b"x" * 400)
    os.utime(other, (1, 1))

    asked = run(filled, "vacuum")

    assert "orphan.parquet" in asked.text
    assert "2 files with 3.3 KiB will be deleted permanently" in asked.text
    assert "would be deleted" not in asked.text  # said once
    assert orphan.exists()
    run(filled, **confirmed(asked))
    assert not orphan.exists()


def test_vacuum_asks_nothing_if_there_is_nothing_to_delete(filled):
    page = run(filled, "vacuum")

    assert "There is nothing to delete." in page.text
    assert not page.all("section", **{"class": "result confirm"})


def test_tasks_are_seen_by_who_sees_the_table(filled):
    run(filled, "checkpoint")

    shown = filled.client.get(f"/dashboard/tables/{filled.name}/tasks")
    assert "CHECKPOINT done at" in " ".join(Page(shown).text.split())
    assert "every 15s" in shown.text  # nothing runs: it is asked for again, but not often
    assert filled.client.get("/dashboard/tables/nobody/tasks").status_code == 404
    assert "CHECKPOINT" in Page(filled.client.get(f"/dashboard/tables/{filled.name}/maintenance")).text


def test_what_runs_elsewhere_is_watched_with_bytes_rate_and_time_left(table):
    table.client.post(f"{table.url}/maintenance-tasks", json=REPORT).raise_for_status()
    shown = table.client.get(f"/dashboard/tables/{table.name}/tasks")
    page = Page(shown)
    assert not page.all("script")
    text = " ".join(page.text.split())
    assert "REORG on <script>alert(1)</script>" in text
    assert "1.0 KiB of 4.0 KiB, 1 of 4 files, 5" in text  # bytes a second
    assert "left" in text
    assert "every 1s" in shown.text
    [bar] = page.all("progress")
    assert (bar["max"], bar["value"]) == ("4096", "1024")
    ended = {**REPORT, "state": "done", "bytes-done": 4096, "files-done": 4}
    table.client.post(f"{table.url}/maintenance-tasks", json=ended).raise_for_status()
    page = Page(table.client.get(f"/dashboard/tables/{table.name}/maintenance"))
    assert not page.all("progress", max="4096")
    assert "4.0 KiB of 4.0 KiB, 4 of 4 files" in page.text


def test_a_task_of_the_page_is_listed_once_with_what_its_engine_reports(filled, monkeypatch):
    monkeypatch.setattr("delvec_commands.dml.rewrite_progress._REPORT_SECONDS", 0.0)
    run(filled, "purge")
    shown = Page(filled.client.get(f"/dashboard/tables/{filled.name}/tasks"))
    [task] = shown.all("li")
    assert "task done" in task["class"]
    text = " ".join(shown.text.split())
    assert "PURGE done at" in text
    assert "REORG on" not in text


def test_after_an_action_the_page_shows_the_new_state(filled):
    filled.client.get(
        f"{filled.url}/health"
    ).raise_for_status()  # a sample, which a checkpoint does not renew
    before = " ".join(Page(filled.client.get(f"/dashboard/tables/{filled.name}/maintenance")).text.split())
    assert "Checkpoint0" not in before.replace(" ", "")

    after = " ".join(run(filled, "checkpoint", tab="maintenance").text.split())

    assert "A checkpoint of version 1 was written" in after
    assert "Checkpoint0commitssince" in after.replace(" ", "")
