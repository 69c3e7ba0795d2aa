"""Converted tables as Iceberg's own reader on Spark has them, by path and through the catalog that the service is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.served import served

pytestmark = pytest.mark.long

TOKEN = "s3cret"


@pytest.mark.timeout(900)
def test_iceberg_on_spark_reads_what_delta_has(tmp_path):
    if not os.environ.get("DELVEC_TEST_JARS"):
        pytest.skip("no JARs of Iceberg: `make test` fetches them where Maven is installed")
    script = Path(__file__).with_name("spark_reads_iceberg.py")
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])

    with served(tmp_path, TOKEN) as url:
        done = subprocess.run(
            [sys.executable, str(script), url, TOKEN],
            capture_output=True,
            text=True,
            timeout=880,
            env=environment,
            check=False,
        )

    assert "all is well" in done.stdout, done.stderr[-3000:]
