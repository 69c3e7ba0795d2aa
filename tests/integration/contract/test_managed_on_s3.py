"""A managed table on S3 from its staging to the deletion of its folder, by a client that has vended credentials only."""

import io
import json
import time
from types import SimpleNamespace

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from tests.integration.contract.test_credentials import opened, service_settings
from tests.support.catalog_client import ManagedTable
from tests.support.in_process_service import running_service
from tests.support.s3_bucket import BUCKET, settings

TOKEN = "root-token"


class S3Table(ManagedTable):
    """A managed table on S3, whose files are written with the credentials that the catalog last issued."""

    config = None

    def stage(self):
        answer = super().stage()
        [issued] = answer["storage-credentials"]
        self.config = issued["config"]
        return answer

    def renew(self, operation="READ_WRITE"):
        answer = self.http.get(f"{self.url}/credentials", params={"operation": operation})
        assert answer.status_code == 200, answer.text
        [issued] = answer.json()["storage-credentials"]
        assert issued["prefix"] == f"{self.location}/"
        self.config = issued["config"]

    def put(self, path, data):
        bucket, _, key = self.location.removeprefix("s3://").partition("/")
        opened(self.config).put_object(Bucket=bucket, Key=f"{key}/{path}", Body=data)

    def write_log(self, name, actions):
        data = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
        self.put(f"_delta_log/{name}", data)
        return SimpleNamespace(stat=lambda: SimpleNamespace(st_size=len(data)))

    def file(self, ids, **fields):
        data = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), data)
        name = f"part-{time.time_ns()}.parquet"
        self.put(name, data.getvalue())
        add = {
            "path": name,
            "partitionValues": {},
            "size": len(data.getvalue()),
            "modificationTime": time.time_ns() // 1_000_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(ids)}),
        }
        return {"add": {**add, **fields}}


@pytest.fixture
def client(tmp_path, s3_endpoint, monkeypatch, enforcing):
    for name, value in settings(s3_endpoint, "test", "test").items():
        monkeypatch.setenv(name, value)
    warehouse = f"s3://{BUCKET}/{tmp_path.name}"
    changes = {"roots": (warehouse,), "warehouse": warehouse, "log_maintenance": True}
    with running_service(**service_settings(tmp_path, **changes)) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield client


@pytest.fixture
def bucket(client, s3_endpoint):
    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield client
    client.close()


def keys(bucket, table):
    prefix = table.location.removeprefix(f"s3://{BUCKET}/") + "/"
    found = bucket.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    return sorted(each["Key"].removeprefix(prefix) for each in found)


def test_a_table_on_s3_from_its_staging_to_the_end_of_its_folder(client, bucket):
    table = S3Table(client, "people").create()
    assert table.location.startswith(f"s3://{BUCKET}/")
    table.renew()
    with pytest.raises(ClientError, match="AccessDenied"):  # no longer a staging table
        table.write_log(f"{0:020}.json", [])

    body = table.staged([table.file([1, 2, 3])])
    assert [table.update(body).status_code for _ in range(2)] == [200, 200]
    lost = table.staged([table.file([4])], version=1)
    assert table.update(lost).json()["error"]["type"] == "CommitVersionConflictException"
    deleted = client.post("/v1/tables/sales.people/delete", json={"predicate": "id = 2"})
    assert deleted.status_code == 200, deleted.text
    table.commit([table.file([5])])
    assert table.version() == 3
    found = keys(bucket, table)
    assert [key for key in found if key.startswith("_delta_log/0") and key.endswith(".json")] == [
        f"_delta_log/{version:020}.json" for version in range(4)
    ]
    assert len([key for key in found if "_staged_commits/" in key]) == 3  # of the loser, too

    assert client.delete(table.url).status_code == 204
    assert client.get(f"{table.url}/credentials").status_code == 404
    late = table.update(body)
    assert (late.status_code, late.json()["error"]["type"]) == (404, "NoSuchTableException")
    assert set(found) <= set(keys(bucket, table))
    back = client.post("/v1/dropped-tables/sales.people/undrop")
    assert back.status_code == 200, back.text
    assert table.load()["metadata"]["table-uuid"] == table.uuid
    table.renew()
    table.commit([table.file([6])])

    markers = ["_delta_log/", "_delta_log/_staged_commits/"]
    for marker in markers:
        table.put(marker, b"")  # as Hadoop makes folders
    client.delete(table.url)
    early = client.post("/v1/dropped-tables/sales.people/delete")
    assert early.json()["error"]["type"] == "RetentionTooShort"
    done = client.post("/v1/dropped-tables/sales.people/delete", json={"enforce-retention": False})
    assert done.status_code == 200, done.text
    # The client of the store cannot name markers, and the checksum of the last commit may be written late.
    left = {key for key in keys(bucket, table) if not key.endswith(".crc")}
    assert left <= set(markers)


def test_credentials_for_reading_write_nothing_and_those_of_a_neighbour_do_not_read(client):
    table, other = S3Table(client, "people").create(), S3Table(client, "others").create()
    table.renew("READ")
    with pytest.raises(ClientError, match="AccessDenied"):
        table.file([1])
    other.renew()
    table.config = other.config
    with pytest.raises(ClientError, match="AccessDenied"):
        table.file([1])
    assert table.version() == other.version() == 0


def test_a_staging_table_that_nobody_creates_has_no_name_and_keeps_no_other_from_it(client):
    first, second = S3Table(client, "people"), S3Table(client, "people")
    first.write_log(f"{0:020}.json", first.first_actions(first.stage()))
    second.create()
    assert first.register().json()["error"]["type"] == "AlreadyExistsException"
    assert second.load()["metadata"]["table-uuid"] == second.uuid
