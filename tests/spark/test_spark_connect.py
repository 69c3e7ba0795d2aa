"""The same engine with Spark Connect, where nothing of the driver is in reach."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "what",
    [
        "commands",
        "row changes",
        *(pytest.param(w, marks=pytest.mark.long) for w in ("statements", "streams")),
    ],
)
def test_with_spark_connect(spark, tmp_path, what):
    pytest.importorskip(
        "grpc", reason="Spark Connect's client is not installed: pip install 'pyspark[connect]'"
    )
    script = Path(__file__).with_name("connect_session.py")
    unwanted = ("SPARK_REMOTE", "DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL")
    environment = {key: value for key, value in os.environ.items() if key not in unwanted}
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])

    done = subprocess.run(
        [sys.executable, str(script), what, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment | {"PYSPARK_PYTHON": sys.executable},
        check=False,
    )

    assert "all is well" in done.stdout, done.stderr[-3000:]
