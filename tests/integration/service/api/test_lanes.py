"""Requests that wait for storage block neither probes nor requests of other kinds, and time out."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from delvec_service.store.objects import ObjectStore


@pytest.fixture
def stuck(running, create, tmp_path, monkeypatch):
    """A table whose storage blocks until ``.answers`` is set; requests time out after a second."""
    answers = threading.Event()
    answers.set()
    get = ObjectStore.get

    def slow(self, *arguments, **options):
        assert answers.wait(60)
        return get(self, *arguments, **options)

    monkeypatch.setattr(ObjectStore, "get", slow)
    with running(
        database_url=f"sqlite:///{tmp_path / 'store.db'}", request_seconds=1.0, max_queued_requests=10
    ) as client:
        table = create(client, tmp_path / "people")
        answers.clear()
        table.answers = answers
        yield table
        answers.set()


def test_storage_that_does_not_answer_holds_up_nothing_else(stuck, error):
    with ThreadPoolExecutor(60) as pool:
        sent = [pool.submit(stuck.client.get, f"{stuck.url}/commits/0") for _ in range(60)]
        time.sleep(0.3)
        start = time.monotonic()
        assert stuck.client.get("/livez").status_code == 200
        assert stuck.client.get("/readyz").status_code == 200
        assert stuck.client.get("/v1/config").status_code == 200
        assert stuck.client.delete("/v1/tables/unknown").status_code == 404  # of another kind
        assert time.monotonic() - start < 10
        found = [each.result() for each in sent]

    assert {answer.status_code for answer in found} <= {503, 504}
    assert {error(answer)["code"] for answer in found} == {"DEADLINE_EXCEEDED", "SERVICE_UNAVAILABLE"}
    assert all(answer.headers["Retry-After"] == "1" and error(answer)["retryable"] for answer in found)

    stuck.answers.set()
    deadline = time.monotonic() + 30
    while stuck.client.get(f"{stuck.url}/commits/0").status_code != 200:
        assert time.monotonic() < deadline


def test_changes_that_hang_do_not_keep_anybody_from_asking_for_a_role(stuck):
    # Log maintenance writes beside it.
    shutil.copytree(stuck.folder, stuck.folder.parent / "copy", ignore=shutil.ignore_patterns(".*.tmp"))

    def register(_):
        return stuck.client.post(
            "/v1/tables", json={"location": str(stuck.folder.parent / "copy")}
        ).status_code

    asked = {"table": "people"}
    assert stuck.client.get("/v1/access", params=asked).status_code == 200
    with ThreadPoolExecutor(40) as pool:
        sent = [pool.submit(register, number) for number in range(40)]
        time.sleep(0.3)
        start = time.monotonic()
        answer = stuck.client.get("/v1/access", params=asked)
        assert (answer.status_code, answer.json()["role"]) == (200, "admin")
        assert time.monotonic() - start < 10
        assert {each.result() for each in sent} <= {503, 504}


def test_a_commit_that_takes_too_long_is_of_unknown_outcome_and_its_key_tells(stuck, error, monkeypatch):
    add = stuck.write_file("a.parquet", [1])
    put = ObjectStore.put_if_absent
    monkeypatch.setattr(
        ObjectStore, "put_if_absent", lambda *arguments: stuck.answers.wait(60) and put(*arguments)
    )

    answer = stuck.append(add, read_version=0, transaction_id="t-1")

    assert answer.status_code == 504
    assert error(answer)["type"] == "CommitOutcomeUnknown"
    assert "t-1" not in error(answer)["message"]
    stuck.answers.set()
    again = stuck.append(add, read_version=0, transaction_id="t-1")
    assert again.status_code == 200, again.text
    assert again.json()["version"] == 1
    assert stuck.version() == 1
