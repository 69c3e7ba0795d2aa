"""``lake.maintenance`` and ``delvec maintain``: policies are run once, and measured."""

import re
import threading
import time
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

import delvec
from delvec.cli import main
from delvec_commands.maintenance_tasks import TASKS
from delvec_contract import operations
from delvec_contract.policies import MaintenanceRun


@pytest.fixture
def dirty(lake, tmp_path):
    """A table of one file of random numbers, of which 40 % are deleted, and twelve small ones."""
    # Only explicit checkpoints: otherwise the service would write one at version 10 in the background.
    properties = {"delta.checkpointInterval": "1000"}
    table = lake.create_table(tmp_path / "dirty", "id long, value double", properties=properties)
    random = np.random.default_rng(1)
    for first, count in [(0, 500_000), *((600_000 + n, 1) for n in range(12))]:
        ids = first + random.permutation(count)  # rows that compress equally well before and after
        table.append(pa.table({"id": ids, "value": random.random(count)}))
    table.delete("id < 500000 AND id % 5 < 2")
    return table


def states(results):
    return {(one.type or "").removeprefix("system."): one.state for one in results}


def test_a_dry_run_says_what_would_be_done_and_why(lake, dirty):
    lake.maintenance.set_policy("purge", "system.dv-purge")
    lake.maintenance.set_policy("compact", "system.data-compaction")
    lake.maintenance.set_policy("checkpoint", "system.checkpoint", {"min_commits": 1000})
    lake.maintenance.set_policy("vacuum", "system.vacuum")
    before = dirty.version()

    found = lake.maintenance.run(dry_run=True)

    assert states(found) == {
        "data-compaction": "due",
        "dv-purge": "due",
        "checkpoint": "not-due",
        "vacuum": "not-due",
    }
    reasons = {one.policy: one.reason for one in found}
    assert re.fullmatch(r"13 files become 1, which frees [0-9.]+ [KM]iB", reasons["compact"])
    assert re.search(r" deleted rows: would free [0-9.]+ [KM]iB$", reasons["purge"])
    assert "commits without a checkpoint, 1,000 required" in reasons["checkpoint"]
    assert dirty.version() == before
    assert lake.maintenance.runs() == []


def test_what_is_gained_is_what_was_predicted(lake, dirty):
    lake.maintenance.set_policy("purge", "system.dv-purge", {"min_deleted_ratio": 0.3})
    rows = dirty.to_arrow().sort_by("id")

    (done,) = lake.maintenance.run()

    assert (done.state, done.version) == ("done", dirty.version())
    assert done.measured_gain_bytes == pytest.approx(done.predicted_gain_bytes, rel=0.05)
    assert done.predicted_gain_bytes > 500_000
    assert dirty.to_arrow().sort_by("id").equals(rows)
    (run,) = lake.maintenance.runs("dirty")
    assert (run["state"], run["policy"], run["version"]) == ("done", "purge", done.version)
    assert run["measured-gain-bytes"] == done.measured_gain_bytes
    assert states(lake.maintenance.run()) == {"dv-purge": "not-due"}
    assert len(lake.maintenance.runs()) == 1


def test_a_budget_and_thresholds_are_kept(lake, dirty):
    size = dirty.detail()["sizeInBytes"]
    lake.maintenance.set_policy("compact", "system.data-compaction", {"max_bytes_per_run": size // 2})
    (waits,) = lake.maintenance.run()
    assert waits.state == "not-due"
    assert re.fullmatch(r"max_bytes_per_run \([0-9.]+ [KM]iB\) is too small for any of the .*", waits.reason)
    lake.maintenance.set_policy("compact", "system.data-compaction", {"min_files_saved": 100})
    (waits,) = lake.maintenance.run()
    assert waits.state == "not-due"
    assert waits.reason.endswith("; 100 fewer files or 1.0 GiB required")
    lake.maintenance.set_policy("compact", "system.data-compaction")
    (done,) = lake.maintenance.run()
    assert (done.state, done.measured_gain_files) == ("done", 12)


def test_quiet_hours_intervals_and_policies_that_are_off(lake, tmp_path):
    few = lake.create_table(
        tmp_path / "few", "id long"
    )  # so few commits that the service makes no checkpoint
    few.append(pa.table({"id": [0]}))
    lake.maintenance.set_policy(
        "all", "system.checkpoint", {"min_commits": 1, "quiet_hours": ["00:00-00:00"]}
    )
    (quiet,) = lake.maintenance.run()
    assert (quiet.state, quiet.reason) == ("not-due", "in quiet hours 00:00-00:00 (UTC)")
    lake.maintenance.set_policy("off", "system.checkpoint", enable=False, table="few")
    assert lake.maintenance.run() == []
    lake.maintenance.set_policy(
        "off", "system.checkpoint", {"min_commits": 1, "min_interval_hours": 5}, table="few"
    )
    (done,) = lake.maintenance.run()
    assert done.state == "done"
    assert done.measured_gain_files > 0
    few.append(pa.table({"id": [1]}))
    (waits,) = lake.maintenance.run()
    assert waits.state == "not-due"
    assert waits.reason.endswith("again after 5 hours")
    (held,) = lake.maintenance.policies("few")
    assert held["name"] == "off"
    lake.maintenance.drop_policy("off")
    with pytest.raises(delvec.PolicyNotFound):
        lake.maintenance.drop_policy("off")


def test_deletion_vectors_of_many_files_are_compacted(lake, tmp_path):
    table = lake.create_table(tmp_path / "vectors", "id long")
    for first in range(0, 40, 10):
        table.append(pa.table({"id": list(range(first, first + 10))}))
        table.delete(f"id = {first}")
    lake.maintenance.set_policy("vectors", "system.dv-compaction")
    assert states(lake.maintenance.run()) == {"dv-compaction": "not-due"}
    lake.maintenance.set_policy("vectors", "system.dv-compaction", {"min_files_saved": 3})

    (done,) = lake.maintenance.run()

    assert (done.state, done.version) == ("done", table.version())
    assert (done.predicted_gain_files, done.measured_gain_files) == (3, 3)
    assert table.count() == 36
    off = {"delta.enableDeletionVectors": "false"}
    lake.create_table(tmp_path / "without", "id long", properties=off).append(pa.table({"id": [1]}))
    assert [one.state for one in lake.maintenance.run(["without"], dry_run=True)] == ["not-due"]
    assert states(lake.maintenance.run()) == {"dv-compaction": "not-due"}


def test_two_replicas_do_not_work_on_one_table(lake, dirty, monkeypatch):
    lake.maintenance.set_policy("purge", "system.dv-purge")
    begun, go_on = threading.Event(), threading.Event()
    task = TASKS["system.dv-purge"]
    perform = type(task).perform

    def slow(self, table, config):
        begun.set()
        assert go_on.wait(60)
        return perform(self, table, config)

    monkeypatch.setattr(type(task), "perform", slow)
    found = []
    first = threading.Thread(target=lambda: found.extend(lake.maintenance.run()))
    first.start()
    assert begun.wait(60)
    (other,) = lake.maintenance.run()
    go_on.set()
    first.join()

    assert other.state == "elsewhere"
    assert [one.state for one in found] == ["done"]
    assert states(lake.maintenance.run()) == {"dv-purge": "not-due"}
    assert dirty.count() == 300_012


def test_one_table_that_fails_holds_up_no_other(lake, dirty, tmp_path):
    lake.maintenance.set_policy("purge", "system.dv-purge")
    broken = lake.create_table(tmp_path / "broken", "id long")
    broken.append(pa.table({"id": [1]}))
    broken.health()  # a sample of its good days
    (tmp_path / "broken" / "_delta_log" / f"{1:020}.json").write_text("no commit\n")
    found = {one.table: one for one in lake.maintenance.run()}
    assert found["broken"].state == "failed"
    assert found["dirty"].state == "done"
    assert dirty.count() == 300_012
    (sample,) = [one["sample"] for one in lake.health() if one["name"] == "broken"]
    assert (sample["score"], sample["actions"]) == (0.0, ["CHECK"])


def test_what_fails_midway_is_recorded(lake, dirty, monkeypatch):
    lake.maintenance.set_policy("purge", "system.dv-purge")
    error = delvec.ServiceUnavailable("the disk is on fire")
    monkeypatch.setattr(type(TASKS["system.dv-purge"]), "perform", lambda *_: (_ for _ in ()).throw(error))
    (failed,) = lake.maintenance.run()
    assert (failed.state, failed.reason) == ("failed", "the disk is on fire")
    (run,) = lake.maintenance.runs(since=datetime(2020, 1, 1, tzinfo=UTC))
    assert (run["state"], run["error"]) == ("failed", "the disk is on fire")
    assert run["predicted-gain-bytes"] > 0
    assert dirty.count() == 300_012


@pytest.fixture
def two(lake, tmp_path):
    """Tables ``a`` and ``b`` of a few commits, both with the policy ``checkpoints`` and ``a`` with ``purge`` before it."""
    tables = [lake.create_table(tmp_path / name, "id long") for name in "ab"]
    for table in tables:
        table.append(pa.table({"id": [1, 2]}))
        table.delete("id = 1")
    lake.maintenance.set_policy("checkpoints", "system.checkpoint", {"min_commits": 1})
    lake.maintenance.set_policy("purge", "system.dv-purge", table="a")
    return tables


def outcomes(results):
    return {(one.table, one.policy): one.state for one in results}


ALL_DONE = {("a", "purge"): "done", ("a", "checkpoints"): "done", ("b", "checkpoints"): "done"}


@pytest.mark.parametrize("step", ["decide", "perform"])
def test_an_error_that_nobody_foresaw_ends_no_round(lake, two, monkeypatch, caplog, step):
    def broken(*_):
        raise ValueError("no such thing")

    monkeypatch.setattr(type(TASKS["system.dv-purge"]), step, broken)
    found = lake.maintenance.run()
    assert outcomes(found) == ALL_DONE | {("a", "purge"): "failed"}
    assert found[0].reason == "ValueError: no such thing"
    assert "table 'a' failed (policy: purge)" in caplog.text
    failed = [run["error"] for run in lake.maintenance.runs(state="failed")]
    assert failed == (["ValueError: no such thing"] if step == "perform" else [])


def test_work_that_cannot_be_recorded_is_done_all_the_same(lake, two, monkeypatch):
    call = lake._service.call

    def deaf(operation, *arguments, **named):
        if operation is operations.RECORD_RUN:
            raise delvec.ServiceUnavailable("the database sleeps")
        return call(operation, *arguments, **named)

    monkeypatch.setattr(lake._service, "call", deaf)
    found = lake.maintenance.run()
    assert outcomes(found) == ALL_DONE
    assert all(one.reason.endswith("; the run could not be recorded: the database sleeps") for one in found)
    assert lake.maintenance.runs() == []


def test_a_table_that_cannot_be_opened_is_told_by_its_name(lake, two, monkeypatch):
    def broken(*_):
        raise delvec.ServiceUnavailable("out to lunch")

    monkeypatch.setattr(lake, "table", broken)
    assert [(one.table, one.state) for one in lake.maintenance.run()] == [("a", "failed"), ("b", "failed")]


def test_a_policy_that_is_dropped_during_a_round_holds_no_more(lake, two, monkeypatch):
    task = type(TASKS["system.checkpoint"])
    perform = task.perform

    def last(self, table, config):
        lake.maintenance.drop_policy("checkpoints")
        return perform(self, table, config)

    monkeypatch.setattr(task, "perform", last)
    assert outcomes(lake.maintenance.run()) == {
        ("a", "purge"): "done",
        ("a", "checkpoints"): "done",
    }


def test_an_interval_holds_whatever_else_was_done_since(lake, two):
    lake.maintenance.set_policy(
        "checkpoints", "system.checkpoint", {"min_commits": 1, "min_interval_hours": 5}
    )
    assert outcomes(lake.maintenance.run()) == ALL_DONE
    b = two[1]
    b.append(pa.table({"id": [3]}))
    now = datetime.now(UTC)
    for kind, state in (("system.vacuum", "done"), ("system.checkpoint", "failed")):
        run = MaintenanceRun(id=kind, type=kind, state=state, reason="", started_at=now, ended_at=now)
        lake._service.call(operations.RECORD_RUN, run, table=b.id)

    (waits,) = lake.maintenance.run(["b"])

    assert waits.reason.endswith("again after 5 hours")
    assert [run["type"] for run in lake.maintenance.runs("b", type="system.vacuum")] == ["system.vacuum"]
    assert [run["state"] for run in lake.maintenance.runs("b", state="failed")] == ["failed"]


def test_deletion_vectors_that_are_turned_off_are_nothing_to_compact(lake, tmp_path):
    table = lake.create_table(tmp_path / "off", "id long")
    for first in range(0, 40, 10):
        table.append(pa.table({"id": list(range(first, first + 10))}))
        table.delete(f"id = {first}")
    table.alter.set_properties({"delta.enableDeletionVectors": "false"})
    lake.maintenance.set_policy("vectors", "system.dv-compaction", {"min_files_saved": 1})
    (waits,) = lake.maintenance.run()
    assert (waits.state, "purge()" in waits.reason) == ("not-due", True)
    assert lake.maintenance.runs() == []


def test_the_files_of_a_clustered_table_are_predicted(lake, tmp_path):
    table = lake.create_table(tmp_path / "clustered", "id long, value double", cluster_by=["id"])
    random = np.random.default_rng(1)
    for _ in range(12):
        ids = random.permutation(10_000)
        table.append(pa.table({"id": ids, "value": random.random(10_000)}))
    size = table.detail()["sizeInBytes"]
    config = {"target_file_size_bytes": size // 4, "min_files_saved": 1}
    lake.maintenance.set_policy("compact", "system.data-compaction", config)

    (done,) = lake.maintenance.run()

    assert done.reason.startswith("12 files become 4,")
    assert (done.predicted_gain_files, done.measured_gain_files) == (8, 8)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert ended.value.code == code
        return capsys.readouterr()

    return command


def test_in_the_shell(run, tmp_path):
    import json

    run("create", tmp_path / "orders", "--schema", "id long")
    run(
        "policy",
        "set",
        "nightly",
        "--type",
        "checkpoint",
        "--config",
        '{"min_commits": 1}',
        "--pattern",
        "ord*",
    )
    assert "ord*" in run("policy", "list").out
    run("policy", "set", "own", "--type", "vacuum", "--table", "orders")
    assert " orders " in run("policy", "list").out
    run("policy", "drop", "own")
    assert "would" not in run("maintain", "--dry-run").out
    assert json.loads(run("maintain", "--dry-run", "--json").out)[0]["state"] == "due"
    assert " done " in run("maintain").out
    assert "nightly" in run("maintain", "--history", "orders").out
    assert json.loads(run("maintain", "--history", "--json").out)[0]["state"] == "done"
    run("policy", "set", "bad", "--type", "checkpoint", "--config", "{", code=2)
    assert (
        "not a field" in run("policy", "set", "bad", "--type", "vacuum", "--config", '{"x": 1}', code=1).err
    )
    run("maintain", "--loop", "--dry-run", code=2)
    run("policy", "drop", "nightly")
    assert "no policy" in run("maintain").err


@pytest.mark.slow("waits for processes to end")
@pytest.mark.full("starts processes, and waits for each")
def test_the_loop_ends_when_it_is_told_to(tmp_path):
    import os
    import signal
    import subprocess
    import sys

    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    delvec_command = [sys.executable, "-W", "error", "-c", "from delvec.cli import main; main()"]
    setup = [
        ["create", "orders", "--schema", "id long"],
        ["policy", "set", "p", "--type", "checkpoint", "--config", '{"min_commits": 1}'],
    ]
    for arguments in setup:
        subprocess.run([*delvec_command, *arguments], cwd=tmp_path, env=environment, check=True)
    loop = subprocess.Popen(
        [*delvec_command, "maintain", "--loop", "--every", "3600", "--json"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "orders" / "_delta_log").glob("*.checkpoint.parquet")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(120) == 0
    finally:
        loop.kill()
        loop.stdout.close()
        loop.wait()
