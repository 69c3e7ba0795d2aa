"""A small cluster: executors are processes of their own, which have the package and nothing else of the driver's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_commands_sources_and_streams_on_a_cluster(spark, tmp_path):
    script = Path(__file__).with_name("cluster_session.py")
    unwanted = ("SPARK_REMOTE", "DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL")
    environment = {key: value for key, value in os.environ.items() if key not in unwanted}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env=environment,
        check=False,
    )

    assert "all is well" in done.stdout, done.stderr[-4000:]
