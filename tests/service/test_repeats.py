"""Idempotency-Key: the first answer comes back, and nothing is done twice."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from delvec.protocol.errors import ServiceUnavailable
from delvec_service.operations.tables import Tables
from delvec_service.store.answers import AnswerStore

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def named(key):
    return {"Idempotency-Key": key}


def creation(folder, **more):
    return {"location": str(folder), "schema": SCHEMA, **more}


def replayed(answer):
    return answer.headers.get("Idempotent-Replay") == "true"


def test_a_creation_that_is_sent_again_gets_the_first_answer(client, tmp_path):
    first = client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))
    again = client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert (replayed(first), replayed(again)) == (False, True)


def test_without_a_key_a_creation_that_is_sent_again_is_another_one(client, tmp_path):
    assert client.post("/v1/tables", json=creation(tmp_path / "t")).status_code == 201
    assert client.post("/v1/tables", json=creation(tmp_path / "t")).status_code == 409


def test_the_order_of_fields_does_not_make_another_request(client, tmp_path):
    body = creation(tmp_path / "t")
    first = client.post("/v1/tables", json=body, headers=named("k"))

    again = client.post("/v1/tables", json=dict(reversed(body.items())), headers=named("k"))

    assert again.json() == first.json()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/tables", {"location": "/elsewhere"}),
        ("POST", "/v1/tables/t/transactions", {"operation": "WRITE"}),
        ("POST", "/v1/tables/t/checkpoint", None),
        ("DELETE", "/v1/tables/t", None),
    ],
)
def test_a_key_that_comes_with_another_request_is_refused(client, tmp_path, error, method, path, body):
    client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))

    answer = client.request(method, path, json=body, headers=named("k"))

    assert answer.status_code == 422
    assert error(answer)["type"] == "IdempotencyKeyReused"
    assert client.get("/v1/tables/t").status_code == 200


def test_a_drop_that_is_sent_again_gets_the_first_answer(client, table):
    first = client.delete(table.url, headers=named("k"))
    again = client.delete(table.url, headers=named("k"))

    assert (first.status_code, again.status_code) == (204, 204)
    assert replayed(again)
    assert again.content == b""


def test_transactions_and_descriptors_are_given_out_once(client, table):
    for path, body in [("transactions", {"operation": "WRITE"}), ("deletion-vectors", {"sizes": [40, 50]})]:
        first, again = [client.post(f"{table.url}/{path}", json=body, headers=named(path)) for _ in range(2)]
        assert first.status_code == again.status_code == 201, first.text
        assert again.json() == first.json()
        assert replayed(again)


def test_a_refusal_that_is_final_comes_back_too(client, table, error):
    body = creation(table.folder)
    first = client.post("/v1/tables", json=body, headers=named("k"))
    again = client.post("/v1/tables", json=body, headers=named("k"))

    assert error(first)["type"] == error(again)["type"] == "TableAlreadyExists"
    assert replayed(again)


def test_a_refusal_that_may_pass_leaves_the_key_free(client, table, tmp_path):
    nowhere = client.post("/v1/tables/later/transactions", json={"operation": "WRITE"}, headers=named("k"))
    assert nowhere.status_code == 404
    client.post("/v1/tables", json=creation(tmp_path / "x", name="later"))

    again = client.post("/v1/tables/later/transactions", json={"operation": "WRITE"}, headers=named("k"))

    assert again.status_code == 201
    assert not replayed(again)


def test_a_request_that_is_not_valid_does_not_use_its_key_up(client, tmp_path):
    headers = named("k") | {"Content-Type": "application/json"}
    for content in (b"{", b'{"location": 3}', b'{"location": "/x", "schema": ' + b"[" * 100_000):
        assert client.post("/v1/tables", content=content, headers=headers).status_code == 400

    assert client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k")).status_code == 201


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "é"])
def test_a_key_that_is_not_one_is_refused(client, tmp_path, error, bad):
    headers = httpx.Headers({"Idempotency-Key": bad}, encoding="utf-8")

    answer = client.post("/v1/tables", json=creation(tmp_path / "t"), headers=headers)

    assert answer.status_code == 400
    assert error(answer)["type"] == "BadRequest"


def test_of_two_requests_at_once_one_works_and_both_get_its_answer(tmp_path, running, monkeypatch):
    """On two replicas with one database; the first is held in mid-work until the second has asked."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    working, asked = threading.Event(), threading.Event()
    create, claim = Tables.create, AnswerStore.claim
    effects = []

    def slow(self, *arguments):
        effects.append(1)
        working.set()
        assert asked.wait(30)
        return create(self, *arguments)

    def noting(self, *arguments):
        found = claim(self, *arguments)
        if working.is_set():
            asked.set()
        return found

    monkeypatch.setattr(Tables, "create", slow)
    monkeypatch.setattr(AnswerStore, "claim", noting)
    with running(database_url=url) as one, running(database_url=url) as two, ThreadPoolExecutor(2) as pool:

        def send(client):
            return client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))

        first = pool.submit(send, one)
        assert working.wait(30)
        second = pool.submit(send, two)
        answers = [first.result(60), second.result(60)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert [replayed(answer) for answer in answers] == [False, True]
    assert effects == [1]


def test_a_creation_whose_answer_was_lost_with_the_database_is_found_in_the_log(tmp_path, running):
    with running() as client:
        first = client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))

    with running() as other:  # an empty database
        again = other.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))
        another = other.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("j"))

    assert again.status_code == 201
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["version"] == 0
    assert another.status_code == 409


def test_a_defect_leaves_the_key_free(client, tmp_path, monkeypatch):
    create = Tables.create
    monkeypatch.setattr(Tables, "create", lambda *_: 1 / 0)
    assert client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k")).status_code == 500

    monkeypatch.setattr(Tables, "create", create)
    assert client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k")).status_code == 201


def test_an_answer_that_cannot_be_kept_is_given_all_the_same(client, table, monkeypatch):
    def down(*_arguments):
        raise ServiceUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(AnswerStore, "keep", down)
        answer = client.post(f"{table.url}/checkpoint", headers=named("k"))

    assert answer.status_code == 200


def test_old_answers_are_swept(running, tmp_path):
    with running(idempotency_seconds=0.001) as client:
        for key in ("a", "b"):
            folder = tmp_path / key
            assert client.post("/v1/tables", json=creation(folder), headers=named(key)).status_code == 201
        client.service.answers._next_sweep = 0.0
        key = str(uuid.uuid4())
        client.post("/v1/tables", json=creation(tmp_path / "c"), headers=named(key))

        with client.service.database.read() as session:
            left = session.connection().exec_driver_sql("SELECT count(*) FROM answers").scalar()
    assert left <= 1
