"""Fuzzing based on the OpenAPI document: each field, parameter and header is corrupted; errors have the envelope."""

import json
import os
import random
import time
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from tests.support.postgres_server import PostgresServer
from tests.support.random_cases import share_of

from delvec_errors import from_wire

CASES = int(os.environ.get("DELVEC_FUZZ_CASES", share_of(500)))
"""For each database."""
SECONDS = 30.0
UNHARMED = ("/livez", "/readyz", "/docs", "/redoc")
HALF = "\ud800"
TEXTS = [
    "",
    "\0",
    "a\0b",
    HALF,
    "x" * 5000,
    "../../etc/passwd",
    "/etc/passwd",
    "%00",
    "\r\n{}",
    "\u202e",
    "\U0010ffff",
    "''",
]
NUMBERS = [
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**39,
    10**4000,
    0.5,
    -0.0,
    1e308,
    True,
]
DEEP = json.loads("[" * 300 + "]" * 300)
OTHERS = [None, [], {}, DEEP, [None] * 3000, {"a": DEEP}, {str(n): n for n in range(2000)}, [[]], {"": ""}]


def resolved(schema, document):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def sample(schema, document, rng, depth=0):  # noqa: C901, PLR0911 - one branch for each kind of schema
    """Return a value that roughly matches a schema."""
    schema = resolved(schema, document)
    for name in ("anyOf", "oneOf"):
        if name in schema:
            return sample(rng.choice(schema[name]), document, rng, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "examples" in schema and rng.random() < 0.5:
        return rng.choice(schema["examples"])
    match schema.get("type"):
        case "object":
            wanted = set(schema.get("required", ()))
            found = {
                name: sample(each, document, rng, depth + 1)
                for name, each in schema.get("properties", {}).items()
                if name in wanted or (depth < 4 and rng.random() < 0.4)
            }
            more = schema.get("additionalProperties")
            return found | ({"a": sample(more, document, rng, depth + 1)} if isinstance(more, dict) else {})
        case "array":
            return [sample(schema["items"], document, rng, depth + 1) for _ in range(rng.randint(0, 2))]
        case "integer" | "number":
            return rng.choice([0, 1, 2])
        case "boolean":
            return rng.random() < 0.5
        case "string":
            return rng.choice(
                ["id", "name", "id > 1", "true", "a.parquet", "WRITE", "delta.appendOnly", "2024-01-01"]
            )
    return None


def places(value, path=()):
    """Yield the paths of all that is in a JSON value."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def spoilt(value, rng):
    """Return a JSON value with one place changed."""
    path = rng.choice(list(places(value)))
    bad = rng.choice(rng.choice([TEXTS, NUMBERS, OTHERS]))
    if not path:
        return bad
    whole = json.loads(json.dumps(value))
    node = whole
    for key in path[:-1]:
        node = node[key]
    if isinstance(node, dict) and rng.random() < 0.2:
        node[rng.choice(TEXTS)] = bad
    else:
        node[path[-1]] = bad
    return whole


@contextmanager
def database(kind, tmp_path):
    """Yield the URL of a new database."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    with PostgresServer() as server:
        yield server.url


def request(path, method, operation, document, table, rng):
    """Return a request of one operation with something wrong in it."""
    spoil_body = "requestBody" in operation and rng.random() < 0.75
    query, headers = {}, {}
    for parameter in (resolved(each, document) for each in operation.get("parameters", ())):
        value = table if parameter["name"] == "table" else sample(parameter["schema"], document, rng)
        if not spoil_body and rng.random() < 0.5:
            value = rng.choice(TEXTS + NUMBERS)
        text = str(value)
        quoted = quote(text[:3000].encode("utf-8", "surrogatepass"), safe="")
        if parameter["in"] == "path":
            path = path.replace("{%s}" % parameter["name"], quoted or "x")  # noqa: UP031
        elif parameter["in"] == "query" and (parameter.get("required") or rng.random() < 0.6):
            query[parameter["name"]] = quoted
        elif parameter["in"] == "header" and parameter["name"].lower() != "accept" and rng.random() < 0.3:
            headers[parameter["name"]] = rng.choice(
                [b"", b"\xff", b"x" * 300, b"a b", b"key-%d" % rng.randrange(9)]
            )
    content = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        value = sample(schema, document, rng)
        text = json.dumps(spoilt(value, rng) if spoil_body else value)
        content = rng.choice([text] * 20 + [text[:-1], "", "nothing", text + text, "\ufeff" + text]).encode(
            "utf-8", "surrogatepass"
        )
        headers["Content-Type"] = rng.choice(["application/json"] * 20 + ["text/plain", ""])
    address = path + ("?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else "")
    return method.upper(), address, content, headers


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.full("as many requests again"))]
)
def test_no_request_is_a_defect(running, create, tmp_path, kind):
    rng = random.Random(int(os.environ.get("DELVEC_FUZZ_SEED", "1")))
    root = tmp_path / "tables"
    root.mkdir()
    # With a configured token: a request that creates one would make the service require tokens.
    settings = {"roots": (str(root),), "token": "fuzz"}
    with database(kind, tmp_path) as url, running(database_url=url, **settings) as client:
        client.headers["Authorization"] = "Bearer fuzz"
        document = client.get("/openapi.json").json()
        operations = [
            (path, method, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if path not in UNHARMED
        ]
        table = None
        for case in range(CASES):
            if case % 100 == 0:
                table = create(client, root / f"t{case}").name
            method, address, content, headers = request(*rng.choice(operations), document, table, rng)
            start = time.process_time()
            answer = client.request(method, address, content=content, headers=headers)
            said = f"case {case}: {method} {address[:300]} {(content or b'')[:1000]!r} {headers}: {answer.text[:500]}"
            assert answer.status_code < 500 or answer.status_code in (503, 504), said
            assert time.process_time() - start < SECONDS, said
            if answer.status_code >= 400:
                assert from_wire(answer.json()).code, said
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 200
