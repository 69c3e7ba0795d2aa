"""Tables on S3, changed and read by Spark through Hadoop's connector, and read by delta-spark beside it."""

import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from tests import versitygw_server
from tests.versitygw_server import NoVersitygwError, VersitygwServer

pytestmark = pytest.mark.long

_BUCKET = "lake"


@pytest.fixture
def s3():
    """The settings of a bucket on a server of its own, as environment variables."""
    try:
        with VersitygwServer() as server:
            settings = {
                "AWS_ENDPOINT_URL": server.endpoint,
                "AWS_ACCESS_KEY_ID": versitygw_server.ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": versitygw_server.SECRET_KEY,
                "AWS_REGION": "us-east-1",
            }
            client = boto3.client(
                "s3",
                endpoint_url=server.endpoint,
                aws_access_key_id=versitygw_server.ACCESS_KEY,
                aws_secret_access_key=versitygw_server.SECRET_KEY,
                region_name="us-east-1",
            )
            client.create_bucket(Bucket=_BUCKET)
            client.close()
            yield settings
    except NoVersitygwError as error:
        pytest.skip(f"versitygw could not be started: {error}")


@pytest.mark.timeout(600)
def test_spark_works_on_s3(s3, tmp_path):
    if not os.environ.get("DELVEC_TEST_JARS"):
        pytest.skip("no JARs of delta-spark: `make test` fetches them where Maven is installed")
    script = Path(__file__).with_name("spark_on_s3.py")
    environment = (
        os.environ | s3 | {"XDG_STATE_HOME": str(tmp_path / "state"), "PYSPARK_PYTHON": sys.executable}
    )
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])

    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=580,
        env=environment,
        check=False,
    )

    assert "all is well" in done.stdout, done.stderr[-3000:]
