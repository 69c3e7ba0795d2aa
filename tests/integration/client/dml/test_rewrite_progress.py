"""Progress of a running OPTIMIZE, as its caller and other clients see it."""

import threading

import pyarrow as pa
import pytest

import delvec
from delvec_commands.dml import rewrite_progress
from delvec_commands.dml.rewrite_progress import Done, RewriteProgress
from delvec_contract import operations


def files(*rows_and_sizes, deleted=0):
    rows, sizes = zip(*rows_and_sizes, strict=True)
    vectors = [{"cardinality": deleted} if deleted else None for _ in rows]
    return pa.table(
        {
            "num_records": pa.array(rows, pa.int64()),
            "size": pa.array(sizes, pa.int64()),
            "deletion_vector": pa.array(vectors, pa.struct([("cardinality", pa.int64())])),
        }
    )


def running(of_files, passes=1, **options):
    progress = RewriteProgress(**options)
    progress.plan(len(of_files), sum(of_files["size"].to_pylist()))
    progress.begin(of_files, passes)
    return progress


def test_rows_that_are_read_are_bytes_of_files_one_after_the_other():
    assert RewriteProgress().done == Done()
    progress = running(files((10, 100), (30, 300)))
    assert progress.done == Done(0, 2, 0, 400)
    progress.advance(5)
    assert progress.done == Done(0, 2, 50, 400)
    progress.advance(20)
    assert progress.done == Done(1, 2, 250, 400)
    progress.advance(100)
    assert progress.done == Done(2, 2, 400, 400)


def test_deleted_rows_are_not_counted():
    progress = running(files((10, 100), (10, 100), deleted=8))
    progress.advance(2)
    assert progress.done == Done(1, 2, 100, 200)


def test_sorted_rows_are_counted_when_they_are_read_and_when_they_are_written():
    progress = running(files((10, 100)), passes=2)
    progress.advance(10)
    assert progress.done == Done(0, 1, 50, 100)


def test_commits_stay_when_the_rest_is_planned_again():
    calls = []
    progress = RewriteProgress(lambda done, size: calls.append((done, size)))
    progress.plan(3, 600)
    progress.begin(files((10, 100)))
    progress.advance(10)
    progress.commit()
    progress.begin(files((10, 200), (10, 300)))
    progress.advance(15)
    progress.plan(2, 550)  # another writer changed a file
    assert progress.done == Done(1, 3, 100, 650)
    progress.begin(files((10, 250), (10, 300)))
    progress.commit()
    assert calls[-1] == (650, 650)
    assert progress.done == Done(3, 3, 650, 650)
    assert (100, 600) in calls


def test_files_that_stay_are_not_waited_for():
    progress = running(files((10, 100), (10, 200)))
    progress.skip(3, 500)
    progress.skip(-3, -500)
    progress.commit()
    assert progress.done == Done(2, 2, 300, 300)


def test_files_without_row_counts_count_when_they_are_committed():
    progress = running(files((None, 100), (None, 200)))
    progress.commit()
    assert progress.done == Done(2, 2, 300, 300)


def test_nothing_to_do_is_done():
    progress = RewriteProgress()
    progress.plan(0, 0)
    assert progress.done == Done()


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(warehouse=tmp_path) as found:
        yield found


@pytest.fixture
def table(lake):
    found = lake.create_table("people", "id long, text string")
    for number in range(3):
        found.append(pa.table({"id": range(1000), "text": [f"{number * row:x}" for row in range(1000)]}))
    return found


def test_a_task_is_seen_by_others_while_it_runs(lake, table, monkeypatch):
    monkeypatch.setattr(rewrite_progress, "_REPORT_SECONDS", 0.01)
    seen, read, real = [], threading.Event(), table.engine.compact

    def compact(scan, bins, target):
        found = real(scan, bins, target)
        read.set()
        for _ in range(1000):
            seen.extend(one for one in lake.maintenance.tasks("people") if one["bytes-done"])
            if seen:
                break
            threading.Event().wait(0.05)
        return found

    monkeypatch.setattr(table.engine, "compact", compact, raising=False)
    table.optimize()
    assert read.is_set()
    [task] = lake.maintenance.tasks("people")
    assert (seen[0]["state"], seen[0]["operation"], seen[0]["num-files"]) == ("running", "OPTIMIZE", 3)
    assert seen[0]["bytes-per-second"] > 0
    assert seen[0]["seconds-left"] == 0
    assert (task["state"], task["files-done"], task["bytes-done"]) == ("done", 3, task["size-in-bytes"])
    assert task["engine"].startswith("delvec-duckdb/")


def test_a_task_that_fails_says_so(lake, table, monkeypatch):
    monkeypatch.setattr(rewrite_progress, "_REPORT_SECONDS", 0.0)

    def failing(*_):
        raise delvec.StorageError("the disk is full")

    monkeypatch.setattr(table.engine, "compact", failing, raising=False)
    with pytest.raises(delvec.StorageError):
        table.optimize()
    [task] = lake.maintenance.tasks("people")
    assert (task["state"], task["bytes-done"]) == ("failed", 0)


def test_a_report_that_fails_does_not_fail_the_task(lake, table, monkeypatch):
    monkeypatch.setattr(rewrite_progress, "_REPORT_SECONDS", 0.0)
    real = table._service.call

    def call(operation, *arguments, **named):
        if operation is operations.REPORT_TASK:
            raise RuntimeError("an older service has no such path")
        return real(operation, *arguments, **named)

    monkeypatch.setattr(table._service, "call", call)
    assert table.optimize()["numRemovedFiles"] == 3
    assert lake.maintenance.tasks("people") == []


def test_quick_tasks_are_not_reported(lake, table, monkeypatch):
    monkeypatch.setattr(rewrite_progress, "_REPORT_SECONDS", 600.0)
    table.optimize()
    assert lake.maintenance.tasks("people") == []
