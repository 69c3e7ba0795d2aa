"""Where tables can be: local disk, this process's memory, and S3 as moto serves it."""

import logging
import uuid

import boto3
import pytest
from moto.server import ThreadedMotoServer

from delvec.protocol import locations

BUCKET = "lake"


@pytest.fixture(scope="session")
def s3_endpoint():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield endpoint
    server.stop()


@pytest.fixture
def local_location(tmp_path):
    directory = tmp_path / "täble 1%20[x]#+="
    directory.mkdir()
    return locations.canonical(str(directory))


@pytest.fixture
def memory_location():
    return f"memory:///tables/{uuid.uuid4()}"


@pytest.fixture
def s3_location(s3_endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return f"s3://{BUCKET}/t%C3%A4ble%201/{uuid.uuid4()}"


@pytest.fixture(params=["local", "memory", "s3"])
def location(request):
    return request.getfixturevalue(f"{request.param}_location")
