"""Log clean-up deletes old files, but none that may still be needed."""

import json
import os
import re
import time
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from delvec_kernel.actions.actions import Protocol
from delvec_kernel.log.expired_log_files import Expired, expired_files
from delvec_kernel.log.log_policy import LogPolicy
from delvec_service.maintenance.log_cleanup import clean_up
from delvec_service.store.objects import ObjectMeta

DAY = 86_400_000
V2 = {
    "readerFeatures": ["deletionVectors", "v2Checkpoint"],
    "writerFeatures": ["deletionVectors", "v2Checkpoint"],
}


def aged(table, days, keep=()):
    """Set the age of every log file in days, one second apart by version."""
    for path in table.log.rglob("*"):
        if path.is_file() and path.name not in keep:
            version = int(path.name[:20]) if path.name[:20].isdecimal() else 0
            moment = time.time() - days * 86_400 + version
            os.utime(path, (moment, moment))


def names(table):
    return sorted(str(path.relative_to(table.log)) for path in table.log.rglob("*") if path.is_file())


def commit(number):
    return f"{number:020}.json"


def checkpoint(number):
    return f"{number:020}.checkpoint.parquet"


@pytest.fixture
def history(running, create, tmp_path):
    """A table whose log is 40 days old, with checkpoints of versions 2 and 4, and one commit of today."""
    with running(log_maintenance=False) as client:
        table = create(client, tmp_path / "t")
        for number in range(1, 6):
            table.append(table.write_file(f"{number}.parquet", [number]))
            if number in (2, 4):
                assert client.post(f"{table.url}/checkpoint").json()["result"] == "written"
        aged(table, 40, keep=[commit(5)])
        yield table


def cleaned(table, **body):
    answer = table.client.post(f"{table.url}/checkpoint", json={"clean-up": True, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["clean-up"]


def test_what_is_older_than_the_newest_old_checkpoint_goes(history):
    (history.log / f"{3:020}.crc").write_text("{}")
    (history.log / f"{3:020}.{5:020}.compacted.json").write_text("")
    (history.log / "notes.txt").write_text("mine")
    aged(history, 40, keep=[commit(5)])
    dry = cleaned(history, **{"dry-run": True})
    assert commit(0) in names(history)
    done = cleaned(history)
    assert done["deleted"] == dry["deleted"]
    assert done["oldest-version"] == 4
    left = {checkpoint(4), commit(4), commit(5), checkpoint(5), "_last_checkpoint", "notes.txt"}
    assert set(names(history)) == left
    assert history.client.get(f"{history.url}/snapshot").json()["num-files"] == 5
    assert history.client.get(f"{history.url}/snapshot", params={"version": 4}).json()["num-files"] == 4
    assert history.client.get(f"{history.url}/snapshot", params={"version": 3}).status_code == 404


def test_nothing_goes_that_is_young(history):
    aged(history, 29)
    done = cleaned(history)
    assert done["deleted"] == []
    assert "logRetentionDuration" in done["kept-because"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda log: (log / checkpoint(4)).write_bytes(b"PAR1 no"), "cannot be read"),
        (lambda log: (log / commit(4)).unlink(), "are missing|every checkpoint"),
    ],
    ids=["unreadable", "without its commit"],
)
def test_nothing_goes_when_the_checkpoint_is_not_sure(history, damage, reason):
    (history.log / checkpoint(2)).unlink()
    before = names(history)
    damage(history.log)
    aged(history, 40, keep=[commit(5)])
    service, table = history.client.service, history.client.service.tables.open(history.name)
    done = clean_up(table, service.loader)
    assert not done.deleted
    assert set(before) - {commit(4)} <= set(names(history))
    assert re.search(reason, done.kept_because)


def test_properties_decide(history):
    def policy(**properties):
        return LogPolicy.of(properties, _protocol("deletionVectors", "checkpointProtection"))

    files = [
        ObjectMeta(path.name, path.stat().st_size, path.stat().st_mtime_ns // 1_000_000)
        for path in history.log.iterdir()
        if path.is_file() and not path.name.startswith("_")
    ]
    now = time.time_ns() // 1_000_000

    def oldest(**properties):
        found = expired_files(files, policy(**properties), now)
        return found.oldest if isinstance(found, Expired) else found.reason

    assert oldest() == 4
    assert oldest(**{"delta.logRetentionDuration": "interval 50 days"}).startswith("every checkpoint")
    assert "enableExpiredLogCleanup" in oldest(**{"delta.enableExpiredLogCleanup": "false"})
    protected = "delta.requireCheckpointProtectionBeforeVersion"
    assert oldest(**{protected: "4"}) == 4
    assert "checkpointProtection" in oldest(**{protected: "5"})


def _protocol(*features):
    return Protocol(3, 7, tuple(features[:1]), features)


def test_the_cut_is_at_midnight():
    midnight = 20_000 * DAY
    files = [
        ObjectMeta(commit(0), 1, midnight - 31 * DAY),
        ObjectMeta(commit(1), 1, midnight - 30 * DAY + 1),
        ObjectMeta(checkpoint(1), 1, midnight - 30 * DAY + 2),
        ObjectMeta(commit(2), 1, midnight),
    ]
    for hours in (0, 1, 23):
        assert not isinstance(expired_files(files, LogPolicy(), midnight + hours * 3_600_000), Expired)
    assert expired_files(files, LogPolicy(), midnight + DAY) == Expired(1, (commit(0),))


def test_a_version_that_a_slow_attempt_may_still_try_to_create_stays():
    midnight, minute = 20_000 * DAY, 60_000
    files = [
        ObjectMeta(commit(0), 1, midnight - 3 * minute),
        ObjectMeta(commit(1), 1, midnight - 2 * minute),
        ObjectMeta(checkpoint(1), 1, midnight - minute),
    ]
    policy = LogPolicy(log_retention=timedelta())
    assert not isinstance(expired_files(files, policy, midnight + minute), Expired)
    assert expired_files(files, policy, midnight + 60 * minute) == Expired(1, (commit(0),))


def test_digits_of_other_scripts_name_no_version():
    files = [ObjectMeta(commit(number), 1, DAY) for number in (0, 1)] + [ObjectMeta(checkpoint(1), 1, DAY)]
    files.append(ObjectMeta("\u0660" * 20 + ".json", 1, DAY))
    assert expired_files(files, LogPolicy(), 90 * DAY) == Expired(1, (commit(0),))


def test_times_that_go_back_are_made_to_ascend():
    old = [ObjectMeta(commit(0), 1, 50 * DAY), ObjectMeta(commit(1), 1, 5), ObjectMeta(checkpoint(1), 1, 5)]
    assert not isinstance(expired_files(old, LogPolicy(), 79 * DAY), Expired)
    assert isinstance(expired_files(old, LogPolicy(), 82 * DAY), Expired)


def test_sidecars_that_a_checkpoint_names_stay(running, create, tmp_path):
    with running(log_maintenance=False) as client:
        table = create(client, tmp_path / "t")
        first = table.log / commit(0)
        actions = [json.loads(line) for line in first.read_text().splitlines()]
        for action in actions:
            if "protocol" in action:
                action["protocol"].update(V2)
            if "metaData" in action:
                action["metaData"]["configuration"]["delta.checkpointPolicy"] = "v2"
        first.write_text("".join(json.dumps(action) + "\n" for action in actions))
        for number in range(1, 4):
            answer = table.append(table.write_file(f"{number}.parquet", [number]))
            assert answer.status_code == 200, answer.text
            assert client.post(f"{table.url}/checkpoint").json()["form"] == "v2"
        sidecars = table.log / "_sidecars"
        (sidecars / "half written.parquet").write_bytes(b"x")
        (sidecars / "old and unknown.parquet").write_bytes(b"x")
        aged(table, 40, keep=["half written.parquet"])
        done = cleaned(table)
        assert done["oldest-version"] == 3
        (manifest,) = table.log.glob("*.checkpoint.*.parquet")
        named = [
            row["path"] for row in pq.read_table(manifest, columns=["sidecar"])["sidecar"].to_pylist() if row
        ]
        assert len(named) == 1
        assert {path.name for path in sidecars.iterdir()} == {*named, "half written.parquet"}
        assert client.get(f"{table.url}/snapshot").json()["num-files"] == 3


def test_background_checkpoints_clean_up(client, create, tmp_path):
    table = create(client, tmp_path / "t", properties={"delta.checkpointInterval": "2"})
    for number in range(1, 4):
        table.append(table.write_file(f"{number}.parquet", [number]))
        assert client.service.log_maintenance.wait(120)
    assert (table.log / checkpoint(2)).exists()
    aged(table, 40)
    table.append(table.write_file("4.parquet", [4]))
    assert client.service.log_maintenance.wait(120)
    assert (table.log / checkpoint(4)).exists()
    assert not (table.log / commit(1)).exists()
    assert (table.log / commit(2)).exists()
    assert table.client.get(f"{table.url}/snapshot").json()["num-files"] == 4
