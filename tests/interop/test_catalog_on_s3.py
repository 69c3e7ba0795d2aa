"""Managed tables on S3: delta-spark creates and changes them with the credentials that the catalog issues, and no others."""

import os
from pathlib import Path

import pytest
from tests.support import spark_script

pytestmark = pytest.mark.long("starts a Spark with the JARs of Hadoop's S3A: minutes")


@pytest.mark.timeout(900)
def test_spark_works_on_managed_tables_on_s3(tmp_path):
    if not os.environ.get("DELVEC_TEST_JARS"):
        pytest.skip("no JARs of delta-spark: `make test` fetches them where Maven is installed")
    script = Path(__file__).with_name("spark_catalog_on_s3.py")
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    spark_script.run(script, tmp_path, folder=tmp_path, timeout=880, PYTHONPATH=path)
