"""Converted tables read by Iceberg on Spark, by path and through the service's REST catalog."""

import os
from pathlib import Path

import pytest
from tests.support import spark_script
from tests.support.served import served

pytestmark = pytest.mark.long("starts a Spark with the JARs of Iceberg: minutes")

TOKEN = "s3cret"


@pytest.mark.timeout(900)
def test_iceberg_on_spark_reads_the_rows_of_delta(tmp_path):
    if not os.environ.get("DELVEC_TEST_JARS"):
        pytest.skip("no JARs of Iceberg: `make test` fetches them where Maven is installed")
    script = Path(__file__).with_name("spark_reads_iceberg.py")
    root = str(Path(__file__).parents[2])
    with served(tmp_path, TOKEN) as url:
        spark_script.run(script, url, TOKEN, tmp_path, folder=tmp_path, timeout=880, PYTHONPATH=root)
