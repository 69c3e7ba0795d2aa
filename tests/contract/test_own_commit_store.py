"""Own commits and what became of them, in SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from delvec_service.store import own_commits
from delvec_service.store.own_commits import Overwritten, OwnCommit, OwnCommitStore

FOUND = Overwritten(7, "ours", "DELETE", "somebody", "theirs", 9, datetime(2026, 11, 1, tzinfo=UTC))


@pytest.fixture
def store(database):
    return OwnCommitStore(database)


def record(database, *commits, table="t"):
    with database.changing() as connection:
        for commit in commits:
            own_commits.record(connection, table, commit)


def test_commits_come_back_in_order(database, store):
    record(database, OwnCommit(2, "b", 20, "m"), OwnCommit(1, "a", 10, "m"))
    record(database, OwnCommit(1, "x", 5, "m"), table="other")

    assert store.newest("t") == [OwnCommit(1, "a", 10, "m"), OwnCommit(2, "b", 20, "m")]


def test_the_last_commit_of_a_version_counts(database, store):
    record(database, OwnCommit(1, "a", 10, "m"), OwnCommit(1, "b", 20, "m"))

    assert store.newest("t") == [OwnCommit(1, "b", 20, "m")]


def test_only_the_newest_are_kept(database, store):
    count = 3 * own_commits.KEPT
    record(database, *(OwnCommit(version, "k", 1, "m") for version in range(count)))
    record(database, OwnCommit(1, "a", 1, "m"), table="other")

    kept = [commit.version for commit in store.newest("t")]
    assert kept == list(range(kept[0], count))
    assert own_commits.KEPT <= len(kept) <= own_commits.KEPT + 16
    assert len(store.newest("other")) == 1


def test_what_was_found_is_news_once(store):
    assert store.note("t", FOUND)
    assert not store.note("t", replace(FOUND, by_key="another"))
    assert store.note("t", replace(FOUND, version=8))

    assert [event.version for event in store.overwritten("t")] == [8, 7]
    assert store.overwritten("t")[1] == FOUND
    assert store.overwritten("other") == []


def test_what_the_other_writer_says_may_be_anything(store):
    assert store.note("t", replace(FOUND, by_operation="x" * 999, by_engine="a\0b", by_key=None))

    (event,) = store.overwritten("t")
    assert (event.by_operation, event.by_engine, event.by_key) == ("x" * 64, "ab", None)
