"""Files that the service writes to a log besides commits."""

import errno
import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from delvec_errors import StorageFull
from delvec_kernel.log.version_checksum import VersionChecksum
from delvec_service.maintenance import checkpoints as writing
from delvec_service.snapshots.log_reader import LogReader
from delvec_storage import local_files as _local_files


@pytest.fixture
def log_maintenance(client):
    """Waits until what commits asked for is done."""

    def done():
        assert client.service.log_maintenance.wait(120)

    return done


def checkpoints(table):
    return sorted(path.name for path in table.log.glob("*.checkpoint.*"))


def checksum(table, version):
    return json.loads((table.log / f"{version:020}.crc").read_text())


def test_every_commit_gets_its_checksum(filled, log_maintenance):
    log_maintenance()
    filled.delete({"a.parquet": (0, 1, 2)})
    log_maintenance()
    found = checksum(filled, 2)
    sizes = sum((filled.folder / name).stat().st_size for name in ("a.parquet", "b.parquet"))
    assert found["txnId"] == filled.action(2, "commitInfo")["txnId"]
    assert (found["numFiles"], found["tableSizeBytes"]) == (2, sizes)
    assert (found["numDeletedRecordsOpt"], found["numDeletionVectorsOpt"]) == (3, 1)
    assert (found["numMetadata"], found["numProtocol"]) == (1, 1)
    assert found["metadata"] == filled.action(0, "metaData")
    assert found["protocol"] == filled.action(0, "protocol")
    assert (filled.log / f"{0:020}.crc").exists()


def test_a_checksum_is_never_overwritten(filled, log_maintenance):
    log_maintenance()
    (filled.log / f"{2:020}.crc").write_text("another writer's")
    filled.append(filled.write_file("c.parquet", [1]))
    log_maintenance()
    assert (filled.log / f"{2:020}.crc").read_text() == "another writer's"


def test_a_table_that_is_deleted_meanwhile_stays_deleted(filled, log_maintenance, monkeypatch):
    log_maintenance()
    made = VersionChecksum.of

    def of(*given):
        shutil.rmtree(filled.folder)
        return made(*given)

    monkeypatch.setattr(VersionChecksum, "of", of)
    filled.append(filled.write_file("c.parquet", [1]))
    log_maintenance()
    assert not filled.folder.exists()


def test_a_checkpoint_comes_when_the_interval_is_reached(client, create, tmp_path, log_maintenance):
    table = create(client, tmp_path / "t", properties={"delta.checkpointInterval": "3"})
    for number in range(8):
        answer = table.append(table.write_file(f"{number}.parquet", [number]))
        assert answer.status_code == 200, answer.text
        log_maintenance()
    assert checkpoints(table) == [f"{version:020}.checkpoint.parquet" for version in (3, 6)]
    hint = json.loads((table.log / "_last_checkpoint").read_text())
    assert (hint["version"], hint["numOfAddFiles"]) == (6, 6)
    rows = pq.read_table(table.log / checkpoints(table)[1])
    assert hint["size"] == rows.num_rows
    assert hint["sizeInBytes"] == (table.log / checkpoints(table)[1]).stat().st_size


def test_a_checkpoint_on_request_is_written_once(client, filled):
    first = client.post(f"{filled.url}/checkpoint").json()
    assert (first["result"], first["version"], first["form"], first["num-files"]) == (
        "written",
        1,
        "classic",
        2,
    )
    before = (filled.log / checkpoints(filled)[0]).read_bytes()
    second = client.post(f"{filled.url}/checkpoint", json={}).json()
    assert (second["result"], second["version"]) == ("exists", 1)
    assert (filled.log / checkpoints(filled)[0]).read_bytes() == before


def test_the_hint_that_a_killed_writer_owed_is_written_later_and_never_goes_back(client, filled):
    client.post(f"{filled.url}/checkpoint")
    hint = filled.log / "_last_checkpoint"
    hint.unlink()
    client.post(f"{filled.url}/checkpoint")
    assert json.loads(hint.read_text())["version"] == 1
    hint.write_text('{"version": 7, "size": 1}')
    client.post(f"{filled.url}/checkpoint")
    assert json.loads(hint.read_text())["version"] == 7
    hint.write_text("damaged")
    client.post(f"{filled.url}/checkpoint")
    assert json.loads(hint.read_text())["version"] == 1


def test_without_log_maintenance_only_commits_are_written(running, create, tmp_path):
    with running(log_maintenance=False) as client:
        table = create(client, tmp_path / "t", properties={"delta.checkpointInterval": "1"})
        table.append(table.write_file("a.parquet", [1]))
        assert client.service.log_maintenance.wait(120)
        assert sorted(path.suffix for path in table.log.iterdir()) == [".json", ".json"]
        assert client.post(f"{table.url}/checkpoint").json()["result"] == "written"


def test_commits_go_on_while_a_checkpoint_is_written(client, create, tmp_path, log_maintenance, monkeypatch):
    table = create(client, tmp_path / "t", properties={"delta.checkpointInterval": "1"})
    began, go_on = threading.Event(), threading.Event()
    service = client.service.log_maintenance._checkpoints
    write = service.write

    def slow(target):
        began.set()
        assert go_on.wait(120)
        return write(target)

    monkeypatch.setattr(service, "write", slow)
    for number in range(5):
        assert table.append(table.write_file(f"{number}.parquet", [number])).status_code == 200
    assert began.wait(120)
    assert not checkpoints(table)
    go_on.set()
    log_maintenance()
    assert checkpoints(table)


def test_a_checkpoint_that_fails_is_logged_and_the_next_commit_tries_again(
    client, create, tmp_path, log_maintenance, monkeypatch, caplog
):
    table = create(client, tmp_path / "t", properties={"delta.checkpointInterval": "1"})
    with monkeypatch.context() as patch:
        patch.setattr(type(client.service.log_maintenance._checkpoints), "write", lambda *_: 1 / 0)
        assert table.append(table.write_file("a.parquet", [1])).status_code == 200
        log_maintenance()
    assert "log maintenance failed" in caplog.text
    assert not checkpoints(table)
    table.append(table.write_file("b.parquet", [2]))
    log_maintenance()
    assert checkpoints(table) == [f"{2:020}.checkpoint.parquet"]


@pytest.mark.parametrize("moment", ["creating", "writing", "syncing"])
def test_a_disk_that_is_full_is_a_warning_and_leaves_nothing_half_written(
    client, create, tmp_path, log_maintenance, monkeypatch, caplog, moment
):
    table = create(client, tmp_path / "t", properties={"delta.checkpointInterval": "1"})
    log_maintenance()
    real_open, real_sync, create_hidden = os.open, os.fsync, _local_files.create_hidden

    def full_open(path, flags, *args, **named):
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real_open(path, flags, *args, **named)

    def full_sync(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith("."):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_sync(descriptor)

    def full_device(directory, path):
        name, descriptor = create_hidden(directory, path)
        full = real_open("/dev/full", os.O_RDWR)
        os.dup2(full, descriptor)
        os.close(full)
        return name, descriptor

    assert table.append(table.write_file("a.parquet", [1])).status_code == 200
    log_maintenance()
    (table.log / f"{1:020}.checkpoint.parquet").unlink()
    before = {path.name for path in table.log.iterdir()}
    with monkeypatch.context() as patch:
        if moment == "creating":
            patch.setattr(os, "open", full_open)
        elif moment == "writing":
            patch.setattr(_local_files, "create_hidden", full_device)
        else:
            patch.setattr(os, "fsync", full_sync)
        opened = client.service.tables.open(table.name)
        with pytest.raises(StorageFull, match="free space"):
            client.service.log_maintenance.checkpoint(opened)
        client.service.loader.discard(opened.location)
        client.service.log_maintenance.committed(opened, 1, "x")
        caplog.clear()
        log_maintenance()
    assert "StorageFull" in caplog.text
    assert "Traceback" not in caplog.text
    assert {path.name for path in table.log.iterdir()} == before


def test_two_replicas_write_one_checkpoint(running, create, tmp_path):
    with running() as one, running() as two:
        table = create(one, tmp_path / "t")
        table.append(table.write_file("a.parquet", [1]))
        name = two.post("/v1/tables", json={"location": str(tmp_path / "t")}).json()["name"]
        barrier, found = threading.Barrier(2), []

        def write(client, url):
            barrier.wait()
            found.append(client.post(f"{url}/checkpoint").json()["result"])

        threads = [
            threading.Thread(target=write, args=pair)
            for pair in ((one, table.url), (two, f"/v1/tables/{name}"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "written" in found
        assert checkpoints(table) == [f"{1:020}.checkpoint.parquet"]
        assert len(list(table.log.glob(".*"))) == 0
        assert two.get(f"/v1/tables/{name}/snapshot").json()["num-files"] == 1


def test_no_checkpoint_is_put_into_the_log_of_another_table(client, filled, monkeypatch, error):
    live = writing._live

    def replaced(snapshot):
        (filled.log / f"{1:020}.json").write_text('{"commitInfo": {}}\n')
        return live(snapshot)

    monkeypatch.setattr(writing, "_live", replaced)
    answer = client.post(f"{filled.url}/checkpoint")
    assert error(answer)["type"] == "ConcurrentWriteException"
    assert checkpoints(filled) == []


def test_no_checkpoint_says_what_a_commit_said_that_was_replaced_since_it_was_read(
    client, filled, monkeypatch, error
):
    """Some writers check and then rename, and so replace a concurrent commit."""

    class Reader(LogReader):
        def list_recent(self):
            path = filled.log / f"{filled.version():020}.json"
            path.write_text(path.read_text() + '{"commitInfo": {}}\n')
            return super().list_recent()

    client.get(f"{filled.url}/snapshot")
    monkeypatch.setattr(writing, "LogReader", Reader)
    answer = client.post(f"{filled.url}/checkpoint")
    assert error(answer)["type"] == "ConcurrentWriteException"
    assert checkpoints(filled) == []


def test_a_checkpoint_that_took_several_commits_counts(running, create, tmp_path, monkeypatch):
    """Otherwise the next one would be due at once, and a large table would always be writing one."""
    with running() as client:
        table = create(client, tmp_path / "t", properties={"delta.checkpointInterval": "5"})
        for number in range(4):
            table.append(table.write_file(f"{number}.parquet", [number]))
        live = writing._live

        def slow(snapshot):
            monkeypatch.setattr(writing, "_live", live)
            for number in (10, 11):
                assert table.append(table.write_file(f"{number}.parquet", [number])).status_code == 200
            return live(snapshot)

        monkeypatch.setattr(writing, "_live", slow)
        assert table.append(table.write_file("5.parquet", [5])).status_code == 200
        assert client.service.log_maintenance.wait(120)
        table.append(table.write_file("12.parquet", [12]))
        assert client.service.log_maintenance.wait(120)
        assert client.get(f"{table.url}/snapshot").json()["version"] == 8
        assert checkpoints(table) == [f"{5:020}.checkpoint.parquet"]


def test_a_checkpoint_of_another_replica_counts_that_came_late(running, create, tmp_path, monkeypatch):
    with running(log_maintenance=False) as one, running() as two:
        table = create(one, tmp_path / "t", properties={"delta.checkpointInterval": "5"})
        name = two.post("/v1/tables", json={"location": str(tmp_path / "t")}).json()["name"]
        for number in range(5):
            table.append(table.write_file(f"{number}.parquet", [number]))
        live = writing._live

        def slow(snapshot):
            monkeypatch.setattr(writing, "_live", live)
            table.append(table.write_file("10.parquet", [10]))
            assert two.get(f"/v1/tables/{name}/snapshot").json()["version"] == 6
            return live(snapshot)

        monkeypatch.setattr(writing, "_live", slow)
        assert one.post(f"{table.url}/checkpoint").json()["result"] == "written"
        other = replace(table, client=two, name=name)
        assert other.append(table.write_file("11.parquet", [11])).status_code == 200
        assert two.service.log_maintenance.wait(120)
        assert checkpoints(table) == [f"{5:020}.checkpoint.parquet"]


@pytest.mark.parametrize(("another", "status"), [(True, 200), (False, 422)])
def test_the_checksum_of_a_commit_that_was_replaced_does_not_speak_against_the_log(
    client, filled, log_maintenance, another, status
):
    log_maintenance()
    version = filled.version()
    described = checksum(filled, version)
    lines = filled.actions(version)
    for action in lines:
        if "add" in action:
            action["add"]["size"] += 17
        if "commitInfo" in action and another:
            assert action["commitInfo"]["txnId"] == described["txnId"]
            action["commitInfo"]["txnId"] = "another writer's"
    (filled.log / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))
    client.service.log_maintenance._loader.forget(f"file://{filled.folder}")
    found = client.get(f"{filled.url}/snapshot")
    assert found.status_code == status, found.text
    if another:
        assert found.json()["size-in-bytes"] == described["tableSizeBytes"] + 2 * 17
        assert filled.append(filled.write_file("more.parquet", [7])).status_code == 200
