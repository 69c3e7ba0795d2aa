"""Page tokens of every list: those of one's own making, and of another list, are refused."""

import base64
import json

import pytest

from delvec_service.page_tokens import page_token, place_of

LISTS = {
    "tables": ("/v1/tables", "page-token"),
    "health": ("/v1/health", "page-token"),
    "audit": ("/v1/audit", "page-token"),
    "iceberg namespaces": ("/iceberg/v1/namespaces", "pageToken"),
    "iceberg tables": ("/iceberg/v1/namespaces/default/tables", "pageToken"),
    "unity catalog": ("/api/2.1/unity-catalog/tables", "page_token"),
}


def encoded(*content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


BAD = {
    "a word": "people",
    "not ASCII": "ü",
    "not base64": "a" * 5,
    "not JSON": base64.urlsafe_b64encode(b"\xff{").decode(),
    "deep JSON": base64.urlsafe_b64encode(b"[" * 2500).decode(),
    "no list": encoded(),
    "of another list": page_token("another", "people", "1"),
    "without a place": page_token("tables by name"),
    "with a number": page_token("tables by name", 1.0, "1"),
    "with a lone surrogate": encoded("tables by name", "\ud800", "1"),
    "with NUL": encoded("tables by name", "\0", "1"),
    "with infinity": encoded("health by score", float("inf"), "people", "1"),
    "with a truth value": encoded("health by score", True, "people", "1"),
    "long": "A" * 50_000,
}


@pytest.mark.parametrize("address", LISTS.values(), ids=LISTS)
def test_a_bad_page_token_is_refused(client, create, tmp_path, address):
    path, parameter = address
    create(client, tmp_path / "people")
    names = {"catalog_name": "delvec", "schema_name": "default"} if parameter == "page_token" else {}
    assert client.get(path, params=names).status_code == 200

    for case, token in BAD.items():
        answer = client.get(path, params={**names, parameter: token})
        assert answer.status_code == 400, (case, answer.text)
        assert "token" in answer.text.lower(), case


@pytest.mark.parametrize("name", ["people", "ü\U0001f600" * 64, 'quo"te\x1f'])
def test_a_token_has_the_place(name):
    token = page_token("health by score", 0.1, name)
    assert token.isascii()
    assert place_of(token, "health by score", float, str) == (0.1, name)
