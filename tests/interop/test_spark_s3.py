"""Tables on S3, changed and read by Spark through Hadoop's connector, and read by delta-spark, too."""

import os
from pathlib import Path

import pytest
from tests.support import spark_script
from tests.support.object_store_server import running_or_skip
from tests.support.s3_bucket import create_bucket, settings
from tests.support.versitygw_server import ACCESS_KEY, SECRET_KEY, VersitygwServer

pytestmark = pytest.mark.long("starts a Spark with the JARs of Hadoop's S3A: minutes")


@pytest.fixture
def s3():
    """Environment variables for a bucket on a dedicated server."""
    with running_or_skip(VersitygwServer) as server:
        create_bucket(server.endpoint, ACCESS_KEY, SECRET_KEY)
        yield settings(server.endpoint, ACCESS_KEY, SECRET_KEY)


@pytest.mark.timeout(600)
def test_spark_works_on_s3(s3, tmp_path):
    if not os.environ.get("DELVEC_TEST_JARS"):
        pytest.skip("no JARs of delta-spark: `make test` fetches them where Maven is installed")
    script = Path(__file__).with_name("spark_on_s3.py")
    root = str(Path(__file__).parents[2])
    spark_script.run(script, tmp_path, folder=tmp_path, timeout=580, PYTHONPATH=root, **s3)
