"""Commits to a table by its id have the same results as by its name, including errors."""

import json

import pytest

ID = "00000000-0000-0000-0000-000000000000"
JSON = {"Content-Type": "application/json"}
WHOLE = {"operation": "DELETE", "read-version": 1}

ODD = {
    "no JSON": (b"{", JSON),
    "no body": (b"", JSON),
    "a list": (b"[]", JSON),
    "no version": (json.dumps({"operation": "DELETE"}).encode(), JSON),
    "an unknown field": (json.dumps({**WHOLE, "no-such-field": 1}).encode(), JSON),
    "deep": (b"[" * 100_000, JSON),
    "not said to be JSON": (json.dumps(WHOLE).encode(), {"Content-Type": "text/plain"}),
    "no type": (json.dumps(WHOLE).encode(), {}),
    "a key with a space": (json.dumps(WHOLE).encode(), JSON | {"Idempotency-Key": "a b"}),
    "an empty key": (json.dumps(WHOLE).encode(), JSON | {"Idempotency-Key": ""}),
    "a long key": (json.dumps(WHOLE).encode(), JSON | {"Idempotency-Key": "k" * 129}),
    "two keys": (
        json.dumps({**WHOLE, "transaction-id": "a"}).encode(),
        JSON | {"Idempotency-Key": "b"},
    ),
    "no operation": (json.dumps({**WHOLE, "operation": " "}).encode(), JSON | {"Idempotency-Key": "odd"}),
    "a version from the future": (json.dumps({**WHOLE, "read-version": 99}).encode(), JSON),
    "nothing to do": (json.dumps(WHOLE).encode(), JSON | {"Idempotency-Key": "nothing"}),
}


def _facts(answer):
    text = answer.text.replace(answer.headers["x-request-id"], "<request>")
    body = json.loads(text.replace(answer.request.url.path, "<path>"))
    if "transaction-id" in body and "idempotency-key" not in answer.request.headers:
        body["transaction-id"] = "<new>"
    return answer.status_code, answer.headers["content-type"], body


@pytest.mark.parametrize("name", ODD)
def test_a_request_gets_the_same_answer_by_id_and_by_name(filled, name):
    content, headers = ODD[name]
    table_id = filled.client.get(filled.url).json()["id"]

    by_name = filled.client.post(f"{filled.url}/commits", content=content, headers=headers)
    by_id = filled.client.post(f"/v1/tables/{table_id}/commits", content=content, headers=headers)

    assert _facts(by_id) == _facts(by_name)


def test_an_unknown_table_is_not_found(client):
    answer = client.post(f"/v1/tables/{ID}/commits", json=WHOLE)

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "TableNotFound"


def test_a_commit_by_id_takes_effect_once(filled, bitmap):
    table_id = filled.client.get(filled.url).json()["id"]
    body = {**WHOLE, "row-deletes": [{"path": "a.parquet", "rows": bitmap(0)}]}

    answers = [
        filled.client.post(f"/v1/tables/{table_id}/commits", json=body, headers={"Idempotency-Key": "one"})
        for _ in range(2)
    ]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert [answer.headers.get("idempotent-replay") for answer in answers] == [None, "true"]
    assert filled.version() == 2


def test_a_token_is_asked_for_and_a_large_body_refused(tmp_path, running, create):
    with running(database_url=f"sqlite:///{tmp_path / 's.db'}", max_request_bytes=2000) as client:
        table = create(client, tmp_path / "t")
        table_id = client.get(table.url).json()["id"]
        large = client.post(f"/v1/tables/{table_id}/commits", json={**WHOLE, "predicate": "x" * 3000})
    with running(database_url=f"sqlite:///{tmp_path / 's.db'}", token="secret") as client:
        stranger = client.post(f"/v1/tables/{table_id}/commits", json=WHOLE)

    assert (large.status_code, large.json()["error"]["type"]) == (413, "RequestTooLarge")
    assert (stranger.status_code, stranger.json()["error"]["type"]) == (401, "Unauthorized")
