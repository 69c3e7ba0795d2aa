"""Limits of request bodies, and how fast invalid ones are refused."""

import json
import time

import pytest
from tests.support.wire_shapes import SHAPES

from delvec_contract.shapes import Envelope

JSON = {"Content-Type": "application/json"}
MIB = 1024 * 1024


def post(client, url, content):
    """Send text or bytes as JSON; return the answer and the seconds of CPU that it took."""
    start = time.process_time()
    answer = client.post(url, content=content, headers=JSON)
    return answer, time.process_time() - start


def many(head, piece, tail, size=MIB - 1000):
    """Return JSON of about that size that repeats a piece."""
    return head + ",".join([piece] * (size // (len(piece) + 1))) + tail


def entries(head, value, tail, count):
    """Return JSON with an object of so many fields."""
    return head + ",".join(f'"x{number}":{value}' for number in range(count)) + tail


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        ("plan", many('{"columns": [', "1", "]}")),
        ("plan", many('{"columns": [', '"x"', "]}")),
        ("plan", many('{"columns": [', "[]", "]}")),
        ("plan", entries("{", "1", "}", 80_000)),
        ("plan", '{"predicate": "' + "x" * 900_000 + '"}'),
        ("changes", many('{"columns": [', "null", "]}")),
        (
            "additions",
            many('{"read-with": {"version": 0, "schema": {}, "partition-columns": [', "1", "]}}", 4 * MIB),
        ),
        ("additions", many('{"read-with": {"version": 0, "schema": {"x": [', "[]", "]}}}", 4 * MIB)),
        ("commits", many('{"read-version": 0, "operation": "WRITE", "adds": [', "{}", "]}", 4 * MIB)),
        ("commits", many('{"read-version": 0, "operation": "WRITE", "removes": [', "7", "]}", 4 * MIB)),
        (
            "commits",
            entries('{"read-version": 0, "operation": "WRITE", "operation-metrics": {', '"y"', "}}", 200_000),
        ),
        ("alter", many('{"changes": [', "{}", "]}")),
        (
            "alter",
            entries('{"changes": [{"change": "set-properties", "properties": {', "1", "}}]}", 80_000),
        ),
        ("deletion-vectors", many('{"sizes": [', "-1", "]}")),
        ("transactions", many('{"operation": "WRITE", "table-changes": [', "{}", "]}")),
    ],
    ids=lambda value: value[:60],
)
def test_much_rubbish_is_refused_as_soon_as_a_little(table, error, resource, body):
    answer, seconds = post(table.client, f"{table.url}/{resource}", body)

    assert answer.status_code == 400, answer.text[:500]
    assert error(answer)["code"] == "BAD_REQUEST"
    assert len(answer.content) < 20_000
    assert seconds < 30  # mostly parsing 4 MiB, on a machine that may be busy; it was minutes


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"version": ' + "9" * 100 + "}", "100 digits"),
        ('{"version": 1e999}', "too large"),
        ('{"version": NaN}', "NaN is not valid JSON"),
        ('{"version": 1, "version": 2}', "'version' appears twice"),
        ('{"predicate": "\\u0000"}', "body field 'predicate': the character NUL"),
        ('{"predicate": "\\ud800"}', "a lone surrogate"),
        ('{"\\u0000": 1}', "NUL"),
        (b'{"predicate": "\xed\xa0\x80"}', "not valid UTF-8"),
        (b"\xff\xfe{\0}\0", "not valid UTF-8"),
        ("", "no body"),
        ("nothing", "JSON decode error"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("resource", ["plan", "commits", "alter"])
def test_what_readers_of_json_disagree_about_is_refused(table, error, resource, body, says):
    answer, _ = post(table.client, f"{table.url}/{resource}", body)

    assert answer.status_code == 400, answer.text[:500]
    assert says in error(answer)["message"]


def test_a_deep_schema_is_refused(client, tmp_path, error):
    kind = "long"
    for _ in range(60):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    fields = [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]

    answer = client.post(
        "/v1/tables", json={"location": str(tmp_path / "t"), "schema": {"type": "struct", "fields": fields}}
    )
    assert answer.status_code == 201  # as deep as that goes

    for _ in range(100):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    fields[0]["type"] = kind
    answer = client.post(
        "/v1/tables", json={"location": str(tmp_path / "u"), "schema": {"type": "struct", "fields": fields}}
    )
    assert answer.status_code == 400
    assert "nested too deeply: more than 64 levels" in error(answer)["message"]


@pytest.mark.parametrize(
    ("resource", "limit"),
    [("plan", MIB), ("alter", MIB), ("changes", MIB), ("transactions", MIB), ("checkpoint", MIB)],
)
def test_only_commits_and_steps_of_streams_are_large(table, error, resource, limit):
    answer, _ = post(table.client, f"{table.url}/{resource}", "x" * (limit + 1))

    assert answer.status_code == 413
    assert error(answer)["details"]["limit"] == limit
    assert "DELVEC_MAX_DOCUMENT_BYTES" in error(answer)["message"]


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "The Content-Type is missing"),
        ({"Content-Type": "text/plain"}, "The Content-Type is 'text/plain'"),
        ({**JSON, "Content-Encoding": "gzip"}, "does not support Content-Encoding"),
    ],
)
def test_what_a_body_has_to_be_is_said(table, error, headers, says):
    answer = table.client.post(f"{table.url}/plan", content=b"{}", headers=headers)

    assert answer.status_code == 400
    assert says in error(answer)["message"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("snapshot?vresion=0", "did you mean 'version'?"),
        ("history?limits=1", "did you mean 'limit'?"),
        ("detail?nothing-like-it=1", "the parameters are timestamp, version"),
        ("plan?version=1", "it has no parameters"),
        ("snapshot?timestamp=%00", "NUL"),
        ("snapshot?%00=1", "NUL"),
    ],
)
def test_a_query_parameter_that_nothing_reads_is_refused(table, error, path, says):
    method = "POST" if path.startswith("plan") else "GET"

    answer = table.client.request(method, f"{table.url}/{path}", json={} if method == "POST" else None)

    assert answer.status_code == 400
    assert says in error(answer)["message"]


def unlimited(where, schema):
    """Yield the fields whose texts, lists, maps and numbers have no limit."""
    for option in schema.get("anyOf", [schema]):
        ends = [name for name in option if name.lower().endswith(("maximum", "minimum"))]
        match option:
            case {"type": "string"} if not {"maxLength", "const", "enum", "pattern", "format"} & set(option):
                yield where
            case {"type": "integer"} if len(ends) < 2:
                yield where
            case {"type": "array", "items": items}:
                yield from unlimited(where + "[]", items)
                yield from () if "maxItems" in option else (where,)
            case {"type": "object", "additionalProperties": dict(values)}:
                yield from unlimited(where + "{}", values)
                yield from () if "maxProperties" in option else (where,)


def test_a_length_that_is_no_number_of_bytes_is_refused(table, error):
    headers = {**JSON, "Content-Length": "9" * 5000}
    answer = table.client.post(f"{table.url}/checkpoint", content=b"{}", headers=headers)
    assert (answer.status_code, error(answer)["code"]) == (413, "REQUEST_TOO_LARGE")


def test_a_version_of_the_log_that_is_nested_too_deeply_is_damaged(table, error):
    deep = "[" * 50_000 + "]" * 50_000
    (table.log / f"{1:020}.json").write_text(f'{{"commitInfo":{{"operation":"X","x":{deep}}}}}\n')

    answer = table.client.get(f"{table.url}/commits/1")

    assert (answer.status_code, error(answer)["code"]) == (422, "CORRUPT_LOG")
    first = table.client.get(f"{table.url}/commits/0").json()
    lines = (table.log / f"{0:020}.json").read_text().splitlines()
    assert first == {"version": 0, "actions": [json.loads(line) for line in lines]}


def test_every_field_of_a_request_has_a_limit():
    requests = [model for model in SHAPES.values() if issubclass(model, Envelope)]
    schemas = [model.model_json_schema() for model in requests]
    objects = [part for schema in schemas for part in (schema, *schema.get("$defs", {}).values())]

    found = {
        each
        for body in objects
        for name, schema in body.get("properties", {}).items()
        for each in unlimited(f"{body['title']}.{name}", schema)
    }

    assert len(requests) > 20
    assert {"AddFile", "RemoveFile", "ChangeFile", "DeletionVectorDescriptor"} <= {
        body["title"] for body in objects
    }
    assert not found
