"""Idempotency-Key: repeats return the first response, and nothing is done twice."""

import dataclasses
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from delvec_errors import ServiceUnavailable
from delvec_service.store.answers import AnswerStore
from delvec_service.tables.registry import Tables

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
    """On two replicas with one database; the first is blocked until the second has received the request."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    working, asked = threading.Event(), threading.Event()
    create, claim = Tables.create, AnswerStore.claim
    effects = []

    def slow(self, *arguments):
        effects.append(1)
        working.set()
        assert asked.wait(120)
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
        assert working.wait(120)
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


def test_a_key_that_cannot_be_claimed_is_refused_before_anything_is_done(
    client, tmp_path, monkeypatch, error
):
    def down(*_arguments):
        raise ServiceUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(AnswerStore, "claim", down)
        answer = client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))

    assert answer.status_code == 503
    assert error(answer)["retryable"] is True
    assert not (tmp_path / "t").exists()
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


# --- commits --------------------------------------------------------------------------------------------


def one_row(table, **more):
    """A DELETE of one row of ``a.parquet`` that has read all rows."""
    return table.delete({"a.parquet": [1]}, **{"predicate": "true", "read_version": 1, **more})


def lose_a_race(table, key):
    """Send a DELETE whose files another one has removed."""
    assert table.commit(operation="DELETE", removes=[{"path": "a.parquet"}]).status_code == 200
    added = table.write_file("rewritten.parquet", range(1, 10))
    return table.commit(
        operation="UPDATE", removes=[{"path": "a.parquet"}], adds=[added], read_version=1, headers=named(key)
    )


def test_a_conflict_comes_back_as_it_was(filled, error):
    first = lose_a_race(filled, "k")
    assert first.status_code == 409
    filled.append(filled.write_file("c.parquet", [1]))
    filled.commit(operation="DELETE", removes=[{"path": "c.parquet"}])

    body = json.loads(first.request.content)
    again = filled.client.post(f"{filled.url}/commits", json=body, headers=named("k"))

    assert again.json() == first.json()
    assert again.status_code == 409
    assert replayed(again)
    assert error(again)["details"]["conflict"]["winning-version"] == 2


def test_a_commit_that_had_nothing_to_do_comes_back_too(filled):
    one_row(filled)
    first = one_row(filled, predicate=None, headers=named("k"))
    assert first.json()["result"] == "nothing-to-do"
    filled.append(filled.write_file("c.parquet", [1]))

    again = one_row(filled, predicate=None, headers=named("k"))

    assert again.json() == first.json()
    assert replayed(again)


def test_a_key_of_a_conflict_is_refused_for_another_commit(filled, error):
    lose_a_race(filled, "k")

    answer = one_row(filled, headers=named("k"))

    assert answer.status_code == 422
    assert error(answer)["type"] == "IdempotencyKeyReused"
    assert filled.version() == 2


def test_a_key_that_is_in_the_log_is_refused_for_another_commit(filled, error, running):
    first = one_row(filled, headers=named("k"))
    assert first.json()["version"] == 2

    with running() as other:  # an empty database
        other.post("/v1/tables", json={"location": str(filled.folder)})
        filled.client = other
        again = one_row(filled, headers=named("k"))
        another = filled.delete({"a.parquet": [2]}, read_version=1, predicate="true", headers=named("k"))

    assert again.json() == first.json()
    assert (replayed(first), replayed(again)) == (False, True)
    assert another.status_code == 422
    assert error(another)["type"] == "IdempotencyKeyReused"
    assert filled.version() == 2


def test_a_commit_does_not_need_the_answers(filled, monkeypatch):
    def down(*_arguments):
        raise ServiceUnavailable("the database is away")

    monkeypatch.setattr(AnswerStore, "find", down)
    monkeypatch.setattr(AnswerStore, "keep", down)

    first = one_row(filled, headers=named("k"))
    again = one_row(filled, headers=named("k"))

    assert first.json()["version"] == again.json()["version"] == 2
    assert lose_a_race(filled, "j").status_code == 409
    assert filled.version() == 3


def test_a_commit_that_comes_to_two_replicas_at_once_happens_once(filled, running, tmp_path):
    """With separate databases, so that they only share the log."""
    key = str(uuid.uuid4())
    body = {"read-version": 1, "operation": "DELETE", "removes": [{"path": "a.parquet"}]}
    start = threading.Barrier(2)
    with running() as other, ThreadPoolExecutor(2) as pool:
        other.post("/v1/tables", json={"location": str(filled.folder)})

        def send(client):
            start.wait(120)
            return client.post(f"{filled.url}/commits", json=body, headers=named(key))

        answers = list(pool.map(send, [filled.client, other]))

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert not all(map(replayed, answers))
    assert filled.version() == 2


def test_a_file_that_was_late_does_not_use_the_key_up(filled, error):
    add = filled.write_file("late.parquet", [1])
    (filled.folder / "late.parquet").rename(filled.folder / "elsewhere")
    assert error(filled.append(add, read_version=1, headers=named("k")))["type"] == "FileNotInStorage"

    (filled.folder / "elsewhere").rename(filled.folder / "late.parquet")

    assert filled.append(add, read_version=1, headers=named("k")).json()["version"] == 2


# --- what became of it ----------------------------------------------------------------------------------


def ask(table, key, **parameters):
    answer = table.client.get(f"{table.url}/commits", params={"transaction-id": key, **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("parameters", [{}, {"read-version": 1}])
def test_a_commit_is_found_by_its_key(filled, parameters):
    done = one_row(filled, headers=named("k")).json()
    for number in range(3):
        filled.append(filled.write_file(f"{number}.parquet", [number]))

    found = ask(filled, "k", **parameters)

    assert found == {
        "transaction-id": "k",
        "result": "committed",
        "commit": done,
        "error": None,
        "searched-from": 2,
        "searched-to": 5,
    }


def test_the_log_alone_tells_what_became_of_a_commit(filled, running):
    done = one_row(filled, headers=named("k")).json()
    filled.append(filled.write_file("c.parquet", [1]))

    with running() as other:  # an empty database
        other.post("/v1/tables", json={"location": str(filled.folder)})
        filled.client = other
        assert ask(filled, "k")["commit"] == done


def test_a_conflict_is_an_outcome(filled, error):
    conflict = error(lose_a_race(filled, "k"))

    found = ask(filled, "k")

    assert (found["result"], found["commit"], found["error"]) == ("conflict", None, conflict)


def test_that_there_was_nothing_to_do_is_an_outcome(filled):
    one_row(filled)
    done = one_row(filled, predicate=None, headers=named("k")).json()

    found = ask(filled, "k")

    assert (found["result"], found["commit"]) == ("nothing-to-do", done)


def test_an_outcome_of_another_table_is_unknown(filled):
    """A caller who knows a key must not learn the outcome of a commit to a table that it may not read."""
    one_row(filled)
    one_row(filled, predicate=None, headers=named("k"))
    other = dataclasses.replace(filled, name="other", folder=filled.folder.with_name("other"))
    created = other.client.post("/v1/tables", json=creation(other.folder, name="other"))
    assert created.status_code == 201, created.text

    assert ask(other, "k")["result"] == "unknown"
    assert ask(filled, "k")["result"] == "nothing-to-do"


def test_a_refusal_is_an_outcome(filled, error):
    refused = error(filled.delete({"nowhere.parquet": [1]}, headers=named("k")))

    found = ask(filled, "k")

    assert (found["result"], found["error"]) == ("refused", refused)


def test_a_commit_that_nobody_asked_for_is_unknown(filled):
    found = ask(filled, "k")

    assert (found["result"], found["commit"], found["error"]) == ("unknown", None, None)
    assert (found["searched-from"], found["searched-to"]) == (0, 1)
    assert ask(filled, "k", **{"read-version": 1})["searched-from"] == 2
    assert ask(filled, "k", **{"read-version": 9})["searched-from"] == 2


def test_a_commit_that_is_cleaned_up_is_unknown(filled, running):
    one_row(filled, headers=named("k"))
    for number in range(3):
        filled.append(filled.write_file(f"{number}.parquet", [number]))
    assert filled.client.post(f"{filled.url}/checkpoint").json()["version"] == 5
    for version in range(3):
        (filled.log / f"{version:020}.json").unlink()

    with running() as other:
        other.post("/v1/tables", json={"location": str(filled.folder)})
        filled.client = other
        found = ask(filled, "k", **{"read-version": 1})

    assert (found["result"], found["searched-from"]) == ("unknown", 3)


def test_an_answer_to_another_kind_of_request_is_not_a_commits(client, filled, tmp_path):
    client.post("/v1/tables", json=creation(tmp_path / "t"), headers=named("k"))

    assert ask(filled, "k")["result"] == "unknown"


def twice_under_one_key(table, again):
    """Append with a key, then append another file with the same key and the resulting version as read version."""
    first = table.append(table.write_file("c.parquet", [1]), read_version=1, headers=named("k"))
    assert first.json()["version"] == 2
    table.append(table.write_file("e.parquet", [1]))
    add = table.write_file("d.parquet", [1])
    return [again(table.append, add, read_version=read, headers=named("k")) for read in (2, 3)]


def test_a_key_in_a_version_that_was_read_is_refused_for_another_commit(filled, error):
    answers = twice_under_one_key(filled, lambda append, *adds, **request: append(*adds, **request))

    assert [error(answer)["type"] for answer in answers] == ["IdempotencyKeyReused"] * 2
    assert filled.version() == 3


def test_a_key_in_a_version_that_was_read_is_known_to_the_database_too(running, create, tmp_path, error):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with running(database_url=url) as one, running(database_url=url) as two:
        table = create(one, tmp_path / "t")
        table.append(table.write_file("a.parquet", [1]))

        def elsewhere(_, add, **request):
            return dataclasses.replace(table, client=two).append(add, **request)

        answers = twice_under_one_key(table, elsewhere)

    assert [error(answer)["type"] for answer in answers] == ["IdempotencyKeyReused"] * 2
    assert table.version() == 3
