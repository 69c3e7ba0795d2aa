"""Answers in JSON: compressed for clients that accept it, and not sent again to those that have them."""

import gzip
import json

import pytest


@pytest.fixture
def tables(client, create, tmp_path):
    return [create(client, tmp_path / f"table-{number:02}") for number in range(12)]


def raw(client, method, path, **options):
    """Return an answer and the bytes of its body as they were sent."""
    with client.stream(method, path, **options) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("*, gzip; q=0.0", False),
        ("", False),
    ],
)
def test_large_answers_are_compressed_if_the_client_accepts_it(client, tables, accepted, is_compressed):
    headers = {"Accept-Encoding": accepted}
    table = tables[0]
    files = [table.write_file(f"{number}.parquet", range(10)) for number in range(4)]
    assert table.append(*files).status_code == 200
    for method, path, options in (
        ("GET", "/v1/tables", {}),
        ("POST", f"{table.url}/plan", {"json": {}}),
        ("GET", "/openapi.json", {}),
    ):
        answer, body = raw(client, method, path, headers=headers, **options)
        assert answer.status_code == 200
        assert answer.headers["content-length"] == str(len(body))
        assert answer.headers["x-request-id"]
        assert answer.headers.get("content-encoding") == ("gzip" if is_compressed else None)
        assert answer.headers["vary"] == "Accept-Encoding"
        assert json.loads(gzip.decompress(body) if is_compressed else body)


def test_small_answers_and_arrow_streams_are_sent_as_they_are(client, tables):
    headers = {"Accept-Encoding": "gzip"}
    small, _ = raw(client, "GET", tables[0].url, headers=headers)
    arrow = {**headers, "Accept": "application/vnd.apache.arrow.stream"}
    stream, _ = raw(client, "POST", f"{tables[0].url}/plan", headers=arrow, json={})
    for answer in (small, stream):
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers


def test_what_a_client_polls_is_sent_again_only_after_a_change(client, tables):
    table = tables[0]
    policy = {
        "name": "often",
        "type": "system.checkpoint",
        "content": {"version": "2025-02-03", "enable": True, "config": {}},
    }
    paths = ["/v1/tables", table.url, f"{table.url}/health", "/v1/health", "/v1/policies"]
    assert client.service.log_maintenance.wait(60)
    tags = {path: client.get(path).headers["etag"] for path in paths}
    for path, tag in tags.items():
        for asked in (tag, tag.removeprefix("W/"), f'"another", {tag}', "*"):
            answer, body = raw(client, "GET", path, headers={"If-None-Match": asked})
            assert (answer.status_code, body) == (304, b""), path
            assert answer.headers["etag"] == tag
            assert answer.headers["cache-control"] == "private, no-cache"
            assert answer.headers["x-request-id"]
            assert "content-length" not in answer.headers
        answer = client.get(path, headers={"If-None-Match": '"another"'})
        assert answer.status_code == 200
        assert answer.json()
        assert answer.headers["etag"] == tag

    assert table.append(table.write_file("a.parquet", range(10))).status_code == 200
    assert client.service.log_maintenance.wait(60)
    assert client.post(f"{table.url}/rename", json={"name": "renamed"}).status_code == 200
    assert client.post("/v1/policies", json=policy).status_code == 200
    for path, tag in tags.items():
        renamed = path.replace(table.url, "/v1/tables/renamed")
        answer = client.get(renamed, headers={"If-None-Match": tag})
        assert answer.status_code == 200, path
        assert answer.headers["etag"] != tag


def test_nobody_learns_by_a_tag_what_they_may_not_read(running, tmp_path, create):
    with running(token="secret", roots=[str(tmp_path)]) as client:
        client.headers["Authorization"] = "Bearer secret"
        table = create(client, tmp_path / "people")
        tag = client.get(table.url).headers["etag"]
        client.headers["Authorization"] = "Bearer another"
        for asked in (tag, "*"):
            assert client.get(table.url, headers={"If-None-Match": asked}).status_code == 401
        assert client.get("/v1/tables/nothing", headers={"If-None-Match": "*"}).status_code == 401
