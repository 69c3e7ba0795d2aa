"""Common behavior of all requests: ids, tokens, size limits, error envelopes, and OpenAPI."""

import json
import logging
import time

import httpx
import pytest
from tests.support.schema_template import drop_schema

from delvec_errors import error_classes, from_wire

SECRET = "s3cr3t-token"


@pytest.fixture
def guarded(running):
    with running(token=SECRET, max_request_bytes=2000) as client:
        yield client


def test_probes_need_no_token(guarded):
    assert guarded.get("/livez").json() == {"status": "ok"}
    assert guarded.get("/readyz").json() == {"status": "ok"}


def test_readiness_needs_the_database_and_liveness_does_not(running, tmp_path, error):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        drop_schema(client.service.database)

        assert client.get("/livez").status_code == 200
        answer = client.get("/readyz")

        assert answer.status_code == 503
        assert error(answer)["code"] == "SERVICE_UNAVAILABLE"
        assert error(answer)["retryable"] is True
        assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    "header",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {SECRET}"}, {"Authorization": ""}],
)
def test_every_resource_needs_the_token(guarded, error, header):
    for path in ("/v1/tables", "/v1/config", "/v1/tables/x/snapshot"):
        answer = guarded.get(path, headers=header)

        assert answer.status_code == 401
        assert error(answer)["code"] == "UNAUTHORIZED"
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert SECRET not in answer.text


def test_the_token_opens(guarded):
    assert guarded.get("/v1/config", headers={"Authorization": f"Bearer {SECRET}"}).status_code == 200
    assert guarded.get("/v1/config", headers={"Authorization": f"bearer {SECRET}"}).status_code == 200


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "The request has no token; send the header 'Authorization: Bearer <token>'"),
        (f"Basic {SECRET}", "The Authorization header must have the form 'Authorization: Bearer <token>'"),
        ("Bearer", "The Authorization header must have the form"),
        (SECRET, "The Authorization header must have the form"),
        ("Bearer wrong", "The token is unknown"),
    ],
)
def test_what_is_wrong_with_a_token(guarded, given, message):
    answer = guarded.get("/v1/config", headers={} if given is None else {"Authorization": given})
    assert answer.status_code == 401
    assert answer.json()["error"]["message"].startswith(message)


def test_what_is_wrong_with_base64(filled):
    body = {"operation": "DELETE", "read-version": 1, "row-deletes": [{"path": "a.parquet", "rows": "a_b-"}]}
    answer = filled.client.post(f"{filled.url}/commits", json=body)
    assert answer.status_code == 400
    assert "'row-deletes.0.rows': not standard base64 (" in answer.json()["error"]["message"]
    assert "in one line, with '+', '/' and the padding '='" in answer.json()["error"]["message"]


def test_config_says_what_there_is(client):
    config = client.get("/v1/config").json()

    assert "POST /v1/tables/{table}/commits" in config["endpoints"]
    assert config["max-request-bytes"] == client.service.settings.max_request_bytes
    assert config["arrow-media-type"] == "application/vnd.apache.arrow.stream"


def test_the_request_id_comes_back(client):
    assert client.get("/livez", headers={"X-Request-Id": "abc-1.2"}).headers["X-Request-Id"] == "abc-1.2"


@pytest.mark.parametrize("bad", ["", "a b", "x" * 200, 'a"b'])
def test_a_request_id_that_would_spoil_a_log_is_replaced(client, bad):
    given = client.get("/livez", headers={"X-Request-Id": bad}).headers["X-Request-Id"]

    assert given != bad
    assert len(given) == 36


def test_a_large_body_is_refused_by_its_length(guarded, error):
    headers = {"Authorization": f"Bearer {SECRET}"}

    answer = guarded.post("/v1/tables", headers=headers, content=b"x" * 2001)

    assert answer.status_code == 413
    assert error(answer)["details"] == {"limit": 2000}


def test_a_large_body_is_refused_while_it_comes(guarded, error):
    sent = 0

    def chunks():
        nonlocal sent
        for _ in range(1000):
            sent += 100
            yield b"x" * 100

    answer = guarded.post(
        "/v1/tables",
        headers={"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"},
        content=chunks(),
    )

    assert answer.status_code == 413
    assert error(answer)["code"] == "REQUEST_TOO_LARGE"
    assert sent < 5000


def test_a_body_of_a_stranger_is_not_read(guarded):
    def chunks():
        yield pytest.fail("read")

    assert guarded.post("/v1/tables", content=chunks()).status_code == 401


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", ": JSON decode error"),
        (b"\xff\xfe", "body"),
        (b"[]", "body"),
        (b'{"location": 3}', "field 'location'"),
        (b'{"location": "/x", "misspelt": 1}', "field 'misspelt': this field does not exist"),
        (b'{"location": "/x", "schema": "id long"}', "field 'schema': it must be a JSON object"),
        (b'{"name": "a b"}', "field 'name'"),
        (b"{}", "give a location, a name, or both"),
        (b'{"location": "/x", "properties": {"a": "b"}}', "give a schema"),
        (b'{"location": "/x", "schema": ' + b"[" * 100_000, "body"),
    ],
)
def test_a_request_that_is_not_valid_is_a_bad_request(client, error, content, says):
    answer = client.post("/v1/tables", content=content, headers={"Content-Type": "application/json"})

    assert answer.status_code == 400
    assert error(answer)["code"] == "BAD_REQUEST"
    assert says in answer.text
    assert len(answer.text) < 2000


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "NOT_FOUND"),
        ("GET", "/v1/nothing", 404, "NOT_FOUND"),
        ("GET", "/v1/tables/", 404, "NOT_FOUND"),
        ("PUT", "/v1/tables", 405, "BAD_REQUEST"),
        ("GET", "/v1/tables?page-size=0", 400, "BAD_REQUEST"),
        ("GET", "/v1/tables?page-size=many", 400, "BAD_REQUEST"),
        ("GET", "/v1/tables/unknown", 404, "TABLE_NOT_FOUND"),
        ("GET", "/v1/tables/a%00b", 400, "BAD_REQUEST"),
        ("GET", "/v1/tables/" + "x" * 500, 400, "BAD_REQUEST"),
        ("DELETE", "/v1/tables/unknown", 404, "TABLE_NOT_FOUND"),
    ],
)
def test_every_error_is_an_envelope_that_the_client_understands(client, error, method, path, status, code):
    answer = client.request(method, path)

    assert answer.status_code == status
    assert error(answer)["code"] == code
    assert from_wire(answer.json()).code == code


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/tables", "GET, POST"),
        ("/v1/tables/people", "DELETE, GET"),
        ("/v1/tables/people/commits", "GET, POST"),
        ("/v1/grants", "DELETE, GET, POST"),
        ("/v1/config", "GET"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
def test_refused_method_is_answered_with_all_that_the_path_has(client, path, methods):
    answer = client.put(path)

    assert answer.status_code == 405
    assert answer.headers["Allow"] == methods


def test_a_defect_is_an_envelope_too_and_is_logged_once(client, error, monkeypatch, caplog):
    def fail(*_arguments):
        raise ZeroDivisionError("a secret detail")

    monkeypatch.setattr(client.service.tables, "page", fail)

    with caplog.at_level(logging.ERROR, logger="delvec_service"):
        answer = client.get("/v1/tables", headers={"X-Request-Id": "the-request"})

    assert answer.status_code == 500
    found = error(answer)
    assert found["code"] == "INTERNAL_ERROR"
    assert found["details"] == {"request_id": "the-request"}
    assert "secret" not in answer.text
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    (logged,) = (line for line in lines if line.get("request_id") == "the-request")
    assert "ZeroDivisionError: a secret detail" in logged["exception"]
    assert client.get("/livez").status_code == 200


def test_each_request_is_one_line_of_json(client, caplog):
    with caplog.at_level(logging.INFO, logger="delvec_service"):
        client.get("/livez", headers={"X-Request-Id": "one", "Authorization": "Bearer hidden"})
        until = time.monotonic() + 120  # the log line may be written after the response arrives
        while not caplog.records and time.monotonic() < until:
            time.sleep(0.01)

    (line,) = [json.loads(record.getMessage()) for record in caplog.records]
    assert line.pop("milliseconds") >= 0
    assert line.pop("timestamp")
    assert line == {
        "event": "request",
        "level": "info",
        "method": "GET",
        "path": "/livez",
        "request_id": "one",
        "status": 200,
    }


# --- OpenAPI ------------------------------------------------------------------------------------------


def operations(client):
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_route_declares_its_errors_in_the_envelope(client):
    for name, operation in operations(client):
        assert "default" in operation["responses"], name
        for status, answer in operation["responses"].items():
            if status == "default" or int(status) >= 400:
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorEnvelope"}, (name, status)
                assert answer["description"], (name, status)


def test_every_resource_declares_what_any_of_them_may_answer(client):
    for name, operation in operations(client):
        if " /v1/" in name:
            assert {"400", "401", "413", "500", "503"} <= set(operation["responses"]), name
            assert operation["security"] == [{"HTTPBearer": []}], name
        if "{table}" in name:
            assert "`TableNotFound`" in operation["responses"]["404"]["description"], name


def test_every_error_that_the_service_has_is_declared_somewhere(client):
    declared = json.dumps([operation["responses"] for _, operation in operations(client)])
    # These are errors of the client, base classes, or errors of the Iceberg catalog, which has its own OpenAPI document.
    elsewhere = {
        "DelvecError",
        "NotFound",
        "SchemaMismatch",
        "EngineUnavailable",
        "InvalidStatement",
        "UnsupportedOperation",
        "AmbiguousColumn",
        "MultipleMatches",
        "NamespaceNotFound",
    }

    for cls in error_classes():
        leaf = not cls.__subclasses__()
        if leaf and cls.type not in elsewhere:
            assert f"`{cls.type}`" in declared, cls.type


def test_operations_have_names_of_their_own(client):
    names = [operation["operationId"] for _, operation in operations(client)]

    assert len(set(names)) == len(names)
    assert "register_table" in names


def test_fastapis_own_error_shape_is_nowhere(client):
    assert "HTTPValidationError" not in client.get("/openapi.json").text


def test_an_answer_of_a_closed_service_is_no_answer(running):
    with running() as client:
        pass

    with pytest.raises((httpx.ConnectError, RuntimeError)):
        client.get("/livez")
