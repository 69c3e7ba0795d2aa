"""Answers by idempotency key: claimed once, stored once, expired; on SQLite and PostgreSQL."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from delvec_service.store import answers
from delvec_service.store.answers import AnswerStore, Claim, StoredAnswer, Taken

TERM = 60.0
KEPT = 3600.0


class Clock:
    def __init__(self, monkeypatch):
        self.now = datetime.now(UTC)
        monkeypatch.setattr(answers, "_now", lambda: self.now)

    def passes(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def store(database):
    return AnswerStore(database, seconds=KEPT, claim_seconds=TERM)


def test_a_key_is_claimed_by_one_and_answered_to_the_others(store):
    mine = store.claim("k", "hash", "me")

    assert mine == Claim("k", "hash", "me")
    assert store.claim("k", "hash", "you") == Taken("hash")
    assert store.find("k") is None
    store.keep("k", "hash", 201, b'{"name":"people"}')

    assert store.claim("k", "hash", "you") == StoredAnswer("hash", 201, b'{"name":"people"}')
    assert store.find("k") == StoredAnswer("hash", 201, b'{"name":"people"}')
    assert store.find("other") is None


def test_a_different_request_under_the_key_gets_the_first_ones_hash(store):
    store.claim("k", "hash", "me")

    assert store.claim("k", "another", "you") == Taken("hash")
    store.keep("k", "hash", 204, b"")
    assert store.claim("k", "another", "you") == StoredAnswer("hash", 204, b"")


def test_of_many_at_once_one_claims_the_key(store):
    start = threading.Barrier(8)

    def claim(_):
        start.wait(120)
        return store.claim("k", "hash", str(uuid.uuid4()))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(claim, range(8)))

    assert [type(each) for each in found].count(Claim) == 1
    assert [each for each in found if not isinstance(each, Claim)] == [Taken("hash")] * 7


def test_a_released_key_is_free(store):
    store.release(store.claim("k", "hash", "me"))

    assert store.claim("k", "another", "you") == Claim("k", "another", "you")


def test_a_claim_expires_and_only_its_holder_can_release_it(store, clock):
    first = store.claim("k", "hash", "me")
    clock.passes(TERM - 1)
    assert store.claim("k", "hash", "you") == Taken("hash")
    clock.passes(2)

    second = store.claim("k", "hash", "you")
    assert second == Claim("k", "hash", "you")
    store.release(first)  # too late
    assert store.claim("k", "hash", "they") == Taken("hash")


def test_the_first_answer_stays(store):
    store.keep("k", "hash", 409, b"first")
    store.keep("k", "hash", 200, b"second")
    store.keep("k", "another", 200, b"third")
    store.release(Claim("k", "hash", "me"))

    assert store.find("k") == StoredAnswer("hash", 409, b"first")


def test_an_answer_to_another_request_does_not_replace_a_claim(store):
    store.claim("k", "hash", "me")
    store.keep("k", "another", 200, b"of the other")

    assert store.claim("k", "hash", "you") == Taken("hash")


def test_expired_answers_are_ignored_and_swept(store, clock, database):
    store.keep("old", "hash", 200, b"old")
    clock.passes(KEPT + 1)
    store.keep("new", "hash", 200, b"new")

    assert store.find("old") is None
    store.sweep()
    assert store.find("new") is not None
    with database.read() as session:
        assert [row.key for row in session.query(answers.AnswerRow)] == ["new"]


def test_a_key_may_be_reused_once_its_answer_has_expired(store, clock):
    store.keep("k", "hash", 200, b"old")
    store.keep("j", "hash", 200, b"old")
    clock.passes(KEPT + 1)

    assert store.claim("k", "another", "me") == Claim("k", "another", "me")
    store.keep("j", "another", 200, b"new")
    assert store.find("j") == StoredAnswer("another", 200, b"new")


def test_a_huge_answer_is_not_kept(store):
    store.keep("k", "hash", 200, uuid.uuid4().bytes * 100)
    store.keep("huge", "hash", 200, b"".join(uuid.uuid4().bytes for _ in range(300_000)))

    assert store.find("k") is not None
    assert store.find("huge") is None
