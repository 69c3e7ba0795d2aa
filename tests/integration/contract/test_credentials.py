"""Credential vending: short-lived object store credentials for one table, against a server with STS."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime

import boto3
import botocore.exceptions
import httpx
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from tests.support.asgi_transport import EmbeddedTransport
from tests.support.catalog_client import BASE, DELTA, ManagedTable
from tests.support.s3_bucket import BUCKET, settings
from tests.support.s3_session_policies import allows, assumed_roles, session_of

import delvec
from delvec_errors import BadRequest, CredentialVendingUnsupported, PermissionDenied, StorageDenied
from delvec_service.app import create_app
from delvec_service.config import Settings
from delvec_service.credentials.aws_sts import AwsSts, session_policy
from delvec_service.doctor import examine
from delvec_storage.table_credentials import credentials_of, forget_credentials, use_credentials

ROLE = "arn:aws:iam::123456789012:role/delvec-tables"
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
ADMIN = "root-token"


def service_settings(tmp_path, **changes):
    return {
        "database_url": f"sqlite:///{tmp_path / 'store.db'}",
        "roots": (f"s3://{BUCKET}/lake",),
        "token": ADMIN,
        "credential_role_arn": ROLE,
        "log_maintenance": False,
        **changes,
    }


@pytest.fixture
def service(tmp_path, s3_endpoint, monkeypatch):
    for name, value in settings(s3_endpoint, "test", "test").items():
        monkeypatch.setenv(name, value)
    app = create_app(Settings(**service_settings(tmp_path)))
    with httpx.Client(transport=EmbeddedTransport(app), base_url="http://delvec.test", timeout=60) as client:
        client.headers["Authorization"] = f"Bearer {ADMIN}"
        client.location = f"s3://{BUCKET}/lake/{tmp_path.name}/orders"
        made = client.post(
            "/v1/tables", json={"name": "sales.orders", "location": client.location, "schema": SCHEMA}
        )
        assert made.status_code == 201, made.text
        client.token = lambda name, role: token_of(client, name, role)
        yield client


def token_of(client, name, role):
    made = client.post("/v1/tokens", json={"name": name})
    body = {"grantee": name, "role": role, "namespace": "sales"}
    assert client.post("/v1/grants", json=body).status_code == 200
    return made.json()["token"]


def vend(client, token=ADMIN, **query):
    headers = {"Authorization": f"Bearer {token}"}
    return client.get("/v1/tables/sales.orders/credentials", params=query, headers=headers)


def opened(config):
    return boto3.client(
        "s3",
        endpoint_url=config["s3.endpoint"],
        region_name=config["client.region"],
        aws_access_key_id=config["s3.access-key-id"],
        aws_secret_access_key=config["s3.secret-access-key"],
        aws_session_token=config["s3.session-token"],
    )


# --- the request ----------------------------------------------------------------------------------------


def test_credentials_give_access_to_the_tables_files_only(service, enforcing):
    answer = vend(service, operation="READ_WRITE")
    [found] = answer.json()["storage-credentials"]
    key = found["prefix"].removeprefix(f"s3://{BUCKET}/").rstrip("/")
    client = opened(found["config"])

    assert answer.headers["Cache-Control"] == "no-store"
    assert (found["prefix"], found["operation"]) == (f"{service.location}/", "READ_WRITE")
    left = found["expiration-time-ms"] / 1000 - time.time()
    assert 3500 < left <= 3600
    client.put_object(Bucket=BUCKET, Key=f"{key}/part-1.parquet", Body=b"x")
    assert client.get_object(Bucket=BUCKET, Key=f"{key}/part-1.parquet")["Body"].read() == b"x"
    assert client.list_objects_v2(Bucket=BUCKET, Prefix=f"{key}/")["KeyCount"] >= 2
    refused = [
        lambda: client.put_object(Bucket=BUCKET, Key=f"{key}/_delta_log/{1:020}.json", Body=b"{}"),
        lambda: client.put_object(Bucket=BUCKET, Key=f"{key}-2/part-1.parquet", Body=b"x"),
        lambda: client.get_object(Bucket=BUCKET, Key=f"{key}-2/part-1.parquet"),
        lambda: client.list_objects_v2(Bucket=BUCKET, Prefix=key),
        lambda: client.delete_object(Bucket=BUCKET, Key=f"{key}/part-1.parquet"),
        lambda: client.delete_object(Bucket=BUCKET, Key=f"{key}/_delta_log/{0:020}.json"),
    ]
    for attempt in refused:
        with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
            attempt()
    client.close()


@pytest.mark.parametrize(
    ("role", "operation", "status"),
    [
        ("reader", None, 200),
        ("reader", "READ", 200),
        ("reader", "READ_WRITE", 403),
        ("writer", "READ", 200),
        ("writer", "READ_WRITE", 200),
        ("maintainer", "READ_WRITE", 200),
        ("admin", "READ_WRITE", 200),
    ],
)
def test_readers_get_read_credentials_and_writers_write_credentials(service, role, operation, status):
    token = service.token("ann", role)

    answer = vend(service, token, **({} if operation is None else {"operation": operation}))

    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["storage-credentials"][0]["operation"] == (operation or "READ")
    else:
        assert answer.json()["error"]["code"] == "PERMISSION_DENIED"


def test_unauthorized_users_learn_nothing_and_unknown_operations_are_refused(service):
    token = service.post("/v1/tokens", json={"name": "stranger"}).json()["token"]

    assert vend(service, token).json()["error"]["code"] == "TABLE_NOT_FOUND"
    assert vend(service, operation="DELETE").status_code in (400, 422)


def test_the_audit_log_names_the_recipient_and_no_log_has_a_secret(service, caplog):
    caplog.set_level(logging.DEBUG)
    [found] = vend(service, operation="READ_WRITE").json()["storage-credentials"]
    reader = service.token("ann", "reader")
    assert vend(service, reader, operation="READ_WRITE").status_code == 403

    entries = service.get("/v1/audit", params={"table": "sales.orders"}).json()["entries"]
    of_credentials = [
        (one["principal"], one["outcome"], one["change"])
        for one in entries
        if one["operation"] == "vend_credentials"
    ]
    assert of_credentials == [("ann", "denied", "READ_WRITE"), ("DELVEC_TOKEN", "done", "READ_WRITE")]
    for name in ("s3.secret-access-key", "s3.session-token"):
        secret = found["config"][name]
        assert secret not in caplog.text
        assert secret not in json.dumps(entries)
    assert assumed_roles()[-1].session_name == "delvec-DELVEC_TOKEN"


def test_answers_with_a_secret_are_not_stored_for_idempotency(service):
    headers = {"Idempotency-Key": "k-1"}
    first = service.get("/v1/tables/sales.orders/credentials", headers=headers)
    again = service.get("/v1/tables/sales.orders/credentials", headers=headers)

    assert "Idempotent-Replay" not in again.headers
    assert first.json() != again.json()


# --- stores without STS ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "error", "reason"),
    [
        (
            "403 Forbidden",
            "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not yours</Message></Error></ErrorResponse>",
            ("STORAGE_DENIED", 502, False),
            "AccessDenied: not yours.*assume the role",
        ),
        (
            "400 Bad Request",
            "<ErrorResponse><Error><Code>InvalidAction</Code></Error></ErrorResponse>",
            ("CREDENTIAL_VENDING_UNSUPPORTED", 422, False),
            "does not support STS",
        ),
        (
            "405 Method Not Allowed",
            "",
            ("CREDENTIAL_VENDING_UNSUPPORTED", 422, False),
            "does not support STS",
        ),
        ("200 OK", "<html>welcome", ("CREDENTIAL_VENDING_UNSUPPORTED", 422, False), "does not support STS"),
        (
            "503 Service Unavailable",
            "<ErrorResponse><Error><Code>ServiceUnavailable</Code></Error></ErrorResponse>",
            ("STORAGE_ERROR", 502, True),
            "try again",
        ),
    ],
)
def test_a_store_without_sts_or_one_that_refuses_differs_from_one_that_is_down(
    service, s3_server, status, body, error, reason
):
    def answer(request):
        return (status, [("Content-Type", "text/xml")], body.encode()) if request.kind == "POST" else None

    s3_server.fault = answer
    try:
        found = vend(service).json()["error"]
    finally:
        s3_server.fault = None

    assert (found["code"], vend(service).status_code) == (error[0], 200)
    assert found["retryable"] == error[2]
    assert re.search(reason, found["message"], re.DOTALL), found


def test_an_unreachable_sts_is_a_storage_error(service, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")

    found = vend(service).json()["error"]

    assert (found["code"], found["retryable"]) == ("STORAGE_ERROR", True)


def test_without_a_role_the_error_names_the_missing_setting(tmp_path, s3_location):
    app = create_app(Settings(**service_settings(tmp_path, token=None, credential_role_arn=None, roots=())))
    with httpx.Client(transport=EmbeddedTransport(app), base_url="http://delvec.test") as client:
        for location, reason in (
            (s3_location, "DELVEC_CREDENTIAL_ROLE_ARN"),
            (str(tmp_path / "local"), "cannot issue credentials for file"),
        ):
            made = client.post("/v1/tables", json={"location": location, "schema": SCHEMA}).json()
            answer = client.get(f"/v1/tables/{made['id']}/credentials")
            assert answer.status_code == 422
            assert answer.json()["error"]["type"] == "CredentialVendingUnsupported"
            assert reason in answer.json()["error"]["message"]


def test_without_botocore_the_service_fails_at_startup(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(BadRequest, match=r"pip install '\.\[aws\]'"):
        AwsSts(ROLE, 3600)


@pytest.mark.parametrize(
    ("roots", "role", "state", "found"),
    [
        ((f"s3://{BUCKET}/lake",), ROLE, "ok", "for 3600 s"),
        (("memory:///lake",), ROLE, "warning", "no root is on S3"),
        ((f"s3://{BUCKET}/lake*",), ROLE, "failed", "as patterns"),
    ],
)
def test_the_doctor_asks_sts_for_a_session(tmp_path, s3_endpoint, monkeypatch, roots, role, state, found):
    for name, value in settings(s3_endpoint, "test", "test").items():
        monkeypatch.setenv(name, value)
    [told] = [
        one
        for one in examine(Settings(**service_settings(tmp_path, roots=roots, credential_role_arn=role)))
        if one.check == "credentials"
    ]
    assert told.state == state
    assert found in told.found


# --- clients of the catalog -----------------------------------------------------------------------------


def put(config, location, path, body=b"x"):
    bucket, _, key = location.removeprefix("s3://").partition("/")
    opened(config).put_object(Bucket=bucket, Key=f"{key}/{path}", Body=body)


def test_clients_of_the_catalog_stage_commits_with_vended_credentials(
    tmp_path, s3_endpoint, monkeypatch, enforcing
):
    for name, value in settings(s3_endpoint, "test", "test").items():
        monkeypatch.setenv(name, value)
    roots = (f"s3://{BUCKET}/{tmp_path.name}",)
    app = create_app(Settings(**service_settings(tmp_path, roots=roots, warehouse=roots[0])))
    with httpx.Client(transport=EmbeddedTransport(app), base_url="http://delvec.test", timeout=60) as client:
        client.headers["Authorization"] = f"Bearer {ADMIN}"
        table = ManagedTable(client, "people")
        staging = table.stage()
        [issued] = staging["storage-credentials"]
        assert (issued["prefix"], issued["operation"]) == (f"{table.location}/", "READ_WRITE")
        renewed = client.get(f"{DELTA}/staging-tables/{table.uuid}/credentials")
        assert renewed.status_code == 200, renewed.text
        [again] = renewed.json()["storage-credentials"]
        assert again["config"]["s3.access-key-id"] != issued["config"]["s3.access-key-id"]
        classic = {"table_id": table.uuid, "operation": "READ_WRITE"}
        asked = client.post(f"{BASE}/temporary-table-credentials", json=classic)
        assert asked.json()["aws_temp_credentials"]["access_key_id"]
        stranger = {"Authorization": f"Bearer {token_of(client, 'stranger', 'maintainer')}"}
        refused = client.get(f"{DELTA}/staging-tables/{table.uuid}/credentials", headers=stranger)
        assert refused.status_code == 404
        assert client.get(f"{DELTA}/staging-tables/{'0' * 32}/credentials").status_code == 404

        actions = "".join(f"{json.dumps(action)}\n" for action in table.first_actions(staging))
        with pytest.raises(ClientError, match="AccessDenied"):
            put(again["config"], table.location, f"_delta_log/{1:020}.json")
        put(again["config"], table.location, f"_delta_log/{0:020}.json", actions.encode())
        assert table.register().status_code == 200
        late = client.get(f"{DELTA}/staging-tables/{table.uuid}/credentials")
        assert late.status_code == 409

        answer = client.get(f"{table.url}/credentials", params={"operation": "READ_WRITE"})
        [writing] = answer.json()["storage-credentials"]
        put(writing["config"], table.location, "part-1.parquet")
        put(writing["config"], table.location, STAGED)
        for path in (*LOG, FIRST):
            with pytest.raises(ClientError, match="AccessDenied"):
                put(writing["config"], table.location, path)
        client.post("/v1/tables", json={"name": "sales.plain", "schema": SCHEMA})
        plain = client.get(table.url.replace("people", "plain") + "/credentials?operation=READ_WRITE")
        assert plain.status_code == 400, plain.text


# --- policies -------------------------------------------------------------------------------------------

INSIDE = [
    "a.parquet",
    "p=1/a.parquet",
    "_change_data/c.parquet",
    "deletion_vector_x.bin",
    "_delvec/scans/u/a",
]
OF_SERVICE = [
    "_delta_log/0.json",
    "_delvec/clones/x",
    "_delvec/quarantines/x",
    "_delvec/quarantined/x/a.parquet",
]


def test_a_read_policy_allows_reads_only_below_the_table():
    policy = session_policy(f"s3://{BUCKET}/lake/t%C3%A4ble%201", "READ")
    for path in INSIDE + OF_SERVICE:
        assert allows(policy, "s3:GetObject", f"lake/täble 1/{path}")
        for action in ("s3:PutObject", "s3:DeleteObject", "s3:PutObjectAcl", "s3:GetObjectAcl"):
            assert not allows(policy, action, f"lake/täble 1/{path}")
    assert allows(policy, "s3:GetObject", "lake/täble 1")  # Hadoop asks for it before it lists a folder
    for key in ("lake/täble 11/a", "lake/täble 11", "lake/a", "a"):
        assert not allows(policy, "s3:GetObject", key)
    assert not allows(policy, "s3:GetObject", "lake/täble 1/a", bucket="other")
    [listing] = [one for one in policy["Statement"] if one["Action"] == "s3:ListBucket"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "lake/täble 1/*"}}
    assert len(json.dumps(policy)) < 2048


def test_a_write_policy_allows_data_files_but_not_the_services_files():
    policy = session_policy(f"s3://{BUCKET}/lake/t", "READ_WRITE")
    for path in INSIDE:
        assert allows(policy, "s3:PutObject", f"lake/t/{path}")
    for path in OF_SERVICE:
        assert not allows(policy, "s3:PutObject", f"lake/t/{path}")
        assert not allows(policy, "s3:DeleteObject", f"lake/t/{path}")
    assert allows(policy, "s3:DeleteObject", "lake/t/_delvec/scans/u/a")
    assert not allows(policy, "s3:DeleteObject", "lake/t/a.parquet")
    assert not allows(policy, "s3:PutObject", "lake/t2/a.parquet")
    assert len(json.dumps(policy)) < 2048


STAGED = "_delta_log/_staged_commits/00000000000000000001.2f0e.json"
FIRST = f"_delta_log/{0:020}.json"
LOG = [
    f"_delta_log/{1:020}.json",
    f"_delta_log/{2:020}.checkpoint.parquet",
    "_delta_log/_last_checkpoint",
    "_delta_log/_sidecars/a.parquet",
    "_delta_log/_staged_commits/a.parquet",
    f"_delta_log/{1:020}.crc",
]


@pytest.mark.parametrize("operation", ["COMMIT", "CREATE"])
def test_a_commit_policy_allows_data_files_and_staged_commits_only(operation):
    policy = session_policy(f"s3://{BUCKET}/lake/t", operation)
    for path in ("a.parquet", "p=1/a.parquet", "_change_data/c.parquet", "deletion_vector_x.bin", STAGED):
        assert allows(policy, "s3:PutObject", f"lake/t/{path}"), path
        assert allows(policy, "s3:GetObject", f"lake/t/{path}"), path
        assert not allows(policy, "s3:DeleteObject", f"lake/t/{path}"), path
        assert not allows(policy, "s3:PutObject", f"lake/t2/{path}"), path
        assert not allows(policy, "s3:PutObject", path), path
    for path in (*LOG, *OF_SERVICE, "_delvec/scans/u/a.parquet", "anything"):
        assert not allows(policy, "s3:PutObject", f"lake/t/{path}"), path
    for folder in ("_delta_log/", "_delta_log/_staged_commits/"):  # as Hadoop makes them
        assert allows(policy, "s3:PutObject", f"lake/t/{folder}")
    assert allows(policy, "s3:PutObject", f"lake/t/{FIRST}") == (operation == "CREATE")
    assert len(json.dumps(policy, separators=(",", ":"))) < 1500


@pytest.mark.parametrize(
    "location",
    ["s3://lake/%2A", "s3://lake/a%3F/t", "s3://lake/$%7Baws:username%7D/t", "s3://lake--use1-az4--x-s3/t"],
)
def test_a_location_that_a_policy_would_match_beyond_the_table_gets_none(location):
    with pytest.raises(CredentialVendingUnsupported):
        session_policy(location, "READ")


def test_policies_use_the_roles_partition_and_allow_encrypted_files(monkeypatch):
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms")
    policy = session_policy("s3://lake/t", "READ", "arn:aws-cn:iam::123456789012:role/r")

    named = [one["Resource"] for one in policy["Statement"] if one["Resource"] != "*"]
    assert {arn.split(":")[1] for one in named for arn in ([one] if isinstance(one, str) else one)} == {
        "aws-cn"
    }
    [keys] = [one for one in policy["Statement"] if one["Resource"] == "*"]
    assert keys["Action"] == ["kms:Decrypt"]
    assert "kms:ViaService" in keys["Condition"]["StringLike"]


# --- the client -----------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path, enforcing, monkeypatch):
    """``delvec serve`` in a separate process, which has keys; this process has none."""
    environment = {**os.environ, **settings(enforcing.endpoint, "test", "test")}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = service_settings(tmp_path)
    environment |= {
        "DELVEC_DATABASE_URL": given["database_url"],
        "DELVEC_ROOTS": given["roots"][0],
        "DELVEC_TOKEN": ADMIN,
        "DELVEC_CREDENTIAL_ROLE_ARN": ROLE,
        "DELVEC_LOG_LEVEL": "debug",
        "XDG_STATE_HOME": str(tmp_path),
    }
    log = tmp_path / "log"
    with log.open("wb") as output:
        main = "from delvec.cli import main; main()"
        command = [sys.executable, "-c", main, "serve", "--port", str(port)]
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 60
            while time.monotonic() < end:
                try:
                    httpx.get(f"{url}/readyz").raise_for_status()
                    break
                except httpx.HTTPError:
                    assert server.poll() is None, log.read_text()
                    time.sleep(0.1)
            yield url, log
        finally:
            server.terminate()
            server.wait(60)


def test_a_client_without_keys_works_on_the_tables_its_token_allows(served, enforcing, tmp_path):
    url, log = served
    location = f"s3://{BUCKET}/lake/{tmp_path.name}/sales.db/orders"
    with delvec.connect(url, token=ADMIN, storage_credentials="vended") as lake:
        made = lake.access.create_token("ann")["token"]
        orders = lake.create_table(location, pa.schema([("id", pa.int64())]), name="sales.orders")
        lake.access.grant("reader", "ann", namespace="sales")
        enforcing.requests.clear()
        orders.append(pa.table({"id": [1, 2, 3]}))
        orders.delete("id = 2")
        assert sorted(orders.to_arrow()["id"].to_pylist()) == [1, 3]
        keys = {each.access_key for each in enforcing.requests if each.key.endswith(".parquet")}
        assert {session_of(key) is not None for key in keys if key != "test"} == {True}
        assert any(session_of(each.access_key) for each in enforcing.requests if each.kind == "PUT")
        shown = orders.storage_credentials("READ_WRITE")
        assert shown.config["s3.secret-access-key"] not in repr(shown)
        assert shown.expires_at > datetime.now(UTC)
        hadoop = shown.hadoop()
        assert hadoop[f"fs.s3a.bucket.{BUCKET}.session.token"] == shown.config["s3.session-token"]
        assert hadoop[f"fs.s3a.bucket.{BUCKET}.endpoint"] == enforcing.endpoint
    assert credentials_of(location) is None

    with delvec.connect(url, token=made, storage_credentials="vended") as reading:
        table = reading.table("sales.orders")
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3]
        with pytest.raises(PermissionDenied):
            table.storage_credentials("READ_WRITE")
        with pytest.raises((PermissionDenied, StorageDenied)):
            table.append(pa.table({"id": [4]}))
    text = log.read_text()
    assert "vend_credentials" in text
    for role in assumed_roles():
        assert role.secret_access_key not in text
        assert role.session_token not in text


def test_the_innermost_provider_wins_and_each_connection_removes_its_own():
    class Provider:
        def __call__(self):
            raise NotImplementedError

        def settings(self):
            return {}

    one, two, inner = Provider(), Provider(), Provider()
    use_credentials("s3://b/t", one)
    use_credentials("s3://b/t", two)
    use_credentials("s3://b/t/inner", inner)
    assert credentials_of("s3://b/t/x") is two
    assert credentials_of("s3://b/t/inner/x") is inner
    assert credentials_of("s3://b/t2") is None
    forget_credentials("s3://b/t", two)
    assert credentials_of("s3://b/t") is one
    forget_credentials("s3://b/t", one)
    forget_credentials("s3://b/t/inner", inner)
    assert credentials_of("s3://b/t/inner") is None


def test_the_option_requires_a_running_service(tmp_path):
    with pytest.raises(BadRequest, match="only your own credentials"):
        delvec.connect(str(tmp_path), storage_credentials="vended")
    with pytest.raises(BadRequest, match='"environment" or "vended"'):
        delvec.connect("http://localhost:1", storage_credentials="anything")
