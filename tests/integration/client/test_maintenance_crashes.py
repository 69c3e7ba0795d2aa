"""Maintenance killed at each fault point and between files: the table stays correct, and the work can be resumed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pyarrow as pa
import pytest

import delvec
from delvec_service.commits.fault_points import POINTS

CALLS = {
    "optimize": "table.optimize(commit_bytes=1)",
    "purge": "table.optimize.purge(commit_bytes=1)",
    "z-order": "table.optimize.z_order(['x'])",
    "deletion vectors": "table.optimize.deletion_vectors()",
    "restore": "table.restore(4)",
    "vacuum": "table.vacuum(0, enforce_retention_duration=False)",
    "quarantine": "table.vacuum(0, enforce_retention_duration=False, quarantine=True)",
}
ALWAYS = {"before-put", "after-put", "before-close"}
"""Fault points that every task passes; the others are only passed when deletion vectors are written."""

DYING = """
import os, signal, sys
import delvec
with delvec.connect() as lake:
    table = lake.table(sys.argv[1])
    {before}
    {call}
"""
DIE_SECOND = """
calls = []
def dying(*arguments, real={real}, **options):
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **options)
{real} = dying
"""


@pytest.fixture
def table(lake, tmp_path):
    """Twelve files in two partitions, deletion vectors of three commits, and unreferenced files."""
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    table = lake.create_table(
        tmp_path / "table", "id long, x long, p string", partition_by=["p"], properties=properties
    )
    for start in range(3):
        ids = range(start * 40, start * 40 + 40)
        parts = ["a" if number % 2 else "b" for number in ids]
        table.append(pa.table({"id": ids, "x": [number * 7 % 120 for number in ids], "p": parts}))
    for remainder in range(3):
        table.delete(f"id % 10 = {remainder}")
    table.update({"x": "x + 1"}, "id % 10 = 5")
    old = time.time() - 30 * 86_400
    for number in range(4):
        path = tmp_path / "table" / f"left-over-{number}.parquet"
        path.write_bytes(b"PAR1")
        os.utime(path, (old, old))
    return table


def rows(table, **options):
    return table.to_arrow(**options).sort_by("id").to_pylist()


def run(table, call, *, points="", before=""):
    """Run a call in its own process, and return its exit status."""
    script = DYING.format(call=call, before=before.replace("\n", "\n    "))
    environment = os.environ | {"DELVEC_FAULT_POINTS": points}
    return subprocess.run(
        [sys.executable, "-c", script, table.location],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def check(table, name, before, restored):
    """The table has all its rows, and a rerun completes."""
    folder = Path(url2pathname(urlparse(table.location).path))
    table = delvec.connect().table(table.location)
    expected = rows(table)
    assert expected in ((before, restored) if name == "restore" else (before,))
    assert table.check()["num-errors"] == 0
    again = run(table, CALLS[name])
    assert again.returncode == 0, again.stderr
    assert rows(table) == (restored if name == "restore" else before)
    assert table.check()["num-errors"] == 0
    if name in {"optimize", "purge", "z-order"}:
        dry = (
            CALLS[name].replace("commit_bytes=1", "dry_run=True").replace("(['x'])", "(['x'], dry_run=True)")
        )
        assert eval(dry, {"table": table})["numRemovedFiles"] == 0
    if name in {"vacuum", "quarantine"}:
        assert not list(folder.glob("left-over*"))
        assert table.vacuum(0, dry_run=True, enforce_retention_duration=False)["num-files"] == 0


def killed(table, name, **options):
    restored, before = rows(table, version=4), rows(table)
    ended = run(table, CALLS[name], **options)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    check(table, name, before, restored)
    return ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "name", ["vacuum", pytest.param("optimize", marks=pytest.mark.full("a process for each fault point"))]
)
def test_a_process_killed_once_a_version_is_made(table, name):
    assert killed(table, name, points="after-put:kill")


@pytest.mark.full("a process for each fault point")
@pytest.mark.parametrize("point", sorted(POINTS))
@pytest.mark.parametrize("name", CALLS)
def test_a_process_killed_at_each_fault_point(table, name, point):
    assert killed(table, name, points=f"{point}:kill") or point not in ALWAYS


@pytest.mark.full("a process for each fault point")
@pytest.mark.parametrize("name", ["optimize", "purge", "vacuum", "quarantine"])
def test_a_process_killed_at_the_second_commit(table, name):
    """The first batch is committed, or VACUUM's files are deleted without its VACUUM END."""
    assert killed(table, name, points="before-put:kill@2")


FILE_BY_FILE = {
    "vacuum": "import delvec_service.vacuum.vacuum as m\nm._BATCH_FILES = m._AT_ONCE = 1"
    + DIE_SECOND.format(real="m.delete_files"),
    "quarantine": "import delvec_service.vacuum.vacuum as m\nm._BATCH_FILES = m._AT_ONCE = 1"
    + DIE_SECOND.format(real="m.NewQuarantine.move"),
    "purge": "import delvec_engines.duckdb.write as m" + DIE_SECOND.format(real="m.row_runs"),
    "optimize": "import delvec_engines.duckdb.write as m" + DIE_SECOND.format(real="m.row_runs"),
}


@pytest.mark.full("a process for each fault point")
@pytest.mark.parametrize("name", FILE_BY_FILE)
def test_a_process_killed_among_its_files(table, name):
    """After the first of several files is deleted, moved or written."""
    assert killed(table, name, before=FILE_BY_FILE[name])
