"""Tasks that run twice, because their first attempt was lost after it had written its files: each row is there once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_tasks_that_run_twice_double_no_row(spark, tmp_path):
    """Speculative attempts do the same: Spark takes the answer of one attempt, and only its files are committed."""
    assert spark is not None  # Java is here
    script = Path(__file__).with_name("repeated_tasks.py")
    unwanted = ("SPARK_REMOTE", "DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL")
    environment = {key: value for key, value in os.environ.items() if key not in unwanted}
    environment |= {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(script.parent), *filter(None, [environment.get("PYTHONPATH")])]),
        "DELVEC_TEST_LOST_TASKS": str(tmp_path / "lost"),
    }
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=800,
        env=environment,
        check=False,
    )
    assert "all is well" in done.stdout, done.stderr[-4000:]
