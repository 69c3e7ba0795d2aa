"""Deletes of 100 million rows: neither who finds them nor who commits them needs much memory for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chaos.replica import Replica
from tests.integration.large import table
from tests.integration.large.command import memory

pytestmark = [pytest.mark.long("100 million rows"), pytest.mark.timeout(900)]

_LIMIT = 500 << 20
_ROOT = Path(__file__).parents[3]
_SPARK = "local-cluster[2,1,1024]"
"""Driver and executors are processes of their own, as on a cluster; the driver's Java has 512 MB at the most."""


@pytest.fixture
def service(tmp_path):
    replica = Replica(0, tmp_path, str(tmp_path), f"sqlite:///{tmp_path / 'store.db'}")
    replica.start()
    assert replica.wait(), replica.tail()
    yield replica
    replica.kill()


@pytest.fixture
def run(service, tmp_path):
    """Run a command in a process of its own; return what it says, and the peak of the service's memory so far."""

    def run(engine, name, command, **arguments):
        job = {
            "engine": engine,
            "url": service.url,
            "table": name,
            "command": command,
            "arguments": arguments,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.large.command", json.dumps(job)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        answer = json.loads(done.stdout.splitlines()[-1])
        answer["service"] = memory(service._process.pid)
        said = {name: value for name, value in answer.items() if name != "metrics"}
        sys.stdout.write(f"{engine} {command} {arguments}: {said}\n")
        return answer

    return run


@pytest.mark.parametrize("engine", ["duckdb", pytest.param(_SPARK, marks=pytest.mark.spark)])
@pytest.mark.parametrize(
    ("rows", "predicate", "share"),
    [
        pytest.param(200_000, "k < 8", 8, id="half of 200 M"),
        pytest.param(1_600_000, "k = 3", 1, id="a sixteenth of 1,600 M"),
    ],
)
def test_100_million_rows_of_1000_files(run, tmp_path, engine, rows, predicate, share):
    """Half of the rows are a bit for each row; a sixteenth are two bytes for each row that goes, 200 MB in all."""
    location = table.make(tmp_path / "table", files=1000, rows=rows)

    done = run(engine, location, "delete", predicate=predicate)

    assert abs(done["metrics"]["numDeletedRows"] / (1000 * rows * share / 16) - 1) < 0.01
    assert done["metrics"]["numDeletionVectorsAdded"] == 1000
    assert done["memory"] < _LIMIT
    assert done.get("heap", 0) < _LIMIT
    assert done["service"] < _LIMIT
