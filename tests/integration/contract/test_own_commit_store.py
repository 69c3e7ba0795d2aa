"""The service's own commits and what other writers did to them, in SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import String

from delvec_service.store import own_commits
from delvec_service.store.models import Base, StoredText
from delvec_service.store.own_commits import Overwritten, OwnCommit, OwnCommitStore

FOUND = Overwritten(7, "ours", "DELETE", "somebody", "theirs", 9, datetime(2026, 11, 1, tzinfo=UTC))


@pytest.fixture
def store(database):
    return OwnCommitStore(database)


def record(database, *commits, table="t"):
    with database.transaction() as connection:
        for commit in commits:
            own_commits.record(connection, table, commit)


def test_commits_are_returned_in_order(database, store):
    record(database, OwnCommit(2, "b", 20, "m"), OwnCommit(1, "a", 10, "m"))
    record(database, OwnCommit(1, "x", 5, "m"), table="other")

    assert store.newest("t") == [OwnCommit(1, "a", 10, "m"), OwnCommit(2, "b", 20, "m")]


def test_the_last_commit_of_a_version_wins(database, store):
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


def test_a_finding_is_new_only_once(store):
    assert store.note("t", FOUND)
    assert not store.note("t", replace(FOUND, by_key="another"))
    assert store.note("t", replace(FOUND, version=8))

    assert [event.version for event in store.overwritten("t")] == [8, 7]
    assert store.overwritten("t")[1] == FOUND
    assert store.overwritten("other") == []


def test_the_other_writers_commit_info_may_be_anything(store):
    assert store.note("t", replace(FOUND, by_operation="x" * 999, by_engine="a\0b", by_key=None))

    (event,) = store.overwritten("t")
    assert (event.by_operation, event.by_engine, event.by_key) == ("x" * 64, "a\ufffdb", None)


def test_text_from_untrusted_logs_can_be_stored(database, store):
    """PostgreSQL cannot store NUL, nor UTF-8 lone surrogates; text is truncated to its column."""
    odd = "\0\ud800" * 32
    record(database, OwnCommit(1, "a\0b", 10, odd))
    assert store.newest("t") == [OwnCommit(1, "a\ufffdb", 10, "\ufffd" * 64)]

    hostile = replace(FOUND, by_operation="DE\0LETE", by_engine="some\udfffbody", by_key=odd * 2)
    assert store.note("t", hostile)
    [found] = store.overwritten("t")
    assert (found.by_operation, found.by_engine) == ("DE\ufffdLETE", "some\ufffdbody")
    assert found.by_key == "\ufffd" * 128


def test_every_text_column_accepts_any_text():
    columns = [column for table in Base.metadata.tables.values() for column in table.columns]
    texts = [column for column in columns if isinstance(column.type, String | StoredText)]
    assert len(texts) > 20
    assert [str(column) for column in texts if not isinstance(column.type, StoredText)] == []
