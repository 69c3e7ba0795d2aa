"""The audit log's table, in SQLite and PostgreSQL."""

from datetime import UTC, datetime, timedelta

import pytest

from delvec_service.store.audit_store import AuditRecord, AuditStore

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


@pytest.fixture
def store(database):
    return AuditStore(database)


def record(minutes, **fields):
    return AuditRecord(
        **{
            "answered_at": NOW + timedelta(minutes=minutes),
            "request_id": "r",
            "operation": "commit",
            "outcome": "done",
            "status": 200,
            **fields,
        }
    )


def test_entries_round_trip_newest_first(store):
    first = record(0, principal="etl", table_id="t", table_name="people", version=2**63 - 1, change="WRITE")
    second = record(1, error_code="PERMISSION_DENIED", outcome="denied", status=403, transaction_id="x")
    store.add([first, second])

    assert store.page() == [second, first]
    assert store.page(limit=1) == [second]
    assert store.page(before=second.id) == [first]
    assert store.page(since=NOW + timedelta(seconds=30)) == [second]
    assert store.page(since=datetime(1900, 1, 1, tzinfo=UTC)) == [second, first]
    assert (
        store.page(principal="etl") == store.page(table_id="t") == store.page(table_name="people") == [first]
    )
    assert store.page(outcome="denied") == [second]
    assert store.page(table_id="t", principal="somebody") == []


def test_a_batch_that_is_written_again_adds_nothing(store):
    batch = [record(minutes) for minutes in range(3)]
    store.add(batch)
    store.add([*batch, record(3)])

    assert len(store.page()) == 4


def test_characters_that_a_database_cannot_store_are_replaced(store):
    store.add([record(0, table_name="a\0b", change="\ud800", principal="x\0")])

    (found,) = store.page(principal="x\0")

    assert (found.table_name, found.change) == ("a\ufffdb", "\ufffd")


def test_old_entries_are_deleted(store, monkeypatch):
    monkeypatch.setattr("delvec_service.store.audit_store._DELETED_AT_ONCE", 2)
    store.add([record(minutes) for minutes in range(6)])

    assert store.expire(NOW + timedelta(minutes=5)) == 5
    assert [one.answered_at for one in store.page()] == [NOW + timedelta(minutes=5)]
    assert store.expire(NOW) == 0
