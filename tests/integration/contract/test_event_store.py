"""The outbox, in SQLite and PostgreSQL."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from delvec_service.store.event_store import Delivery, Event, EventMark, EventStore, Outbox
from delvec_service.store.registry import Registry

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


@pytest.fixture
def store(database):
    return EventStore(database)


@pytest.fixture
def tables(database):
    registry = Registry(database)
    return [registry.add(f"file:///data/{name}", name, name)[0] for name in ("sales.a", "b")]


def event(table, name, type_="delvec.commit"):
    return Event(name, table.id, type_, NOW, {"version": 1, "text": "ä\0\ud800"})


def record(database, store, *events):
    with database.write() as session:
        store.add(session, events)


def test_events_are_read_in_order_and_filtered(database, store, tables):
    a, b = tables
    assert store.outbox() == Outbox()
    record(database, store, event(a, "1"), event(b, "2"), event(a, "3", "delvec.health"))
    record(database, store, event(a, "1"), event(b, "4"))  # the first again

    page = store.page("", 0)
    assert [one.event.id for one in page] == ["1", "2", "3", "4"]
    assert page[0].event == event(a, "1")
    assert [one.table_name for one in page[:2]] == ["sales.a", "b"]
    assert [one.event.id for one in store.page("", page[1].position)] == ["3", "4"]
    assert [one.event.id for one in store.page("", 0, types=["delvec.health"])] == ["3"]
    assert [one.event.id for one in store.page("", 0, table_id=b.id, limit=1)] == ["2"]
    assert [one.event.id for one in store.page("", 0, namespace="sales")] == ["1", "3"]
    assert store.page("another", 0) == []
    assert store.outbox().position >= page[-1].position


def test_a_disabled_outbox_takes_nothing(database, tables):
    record(database, EventStore(database, is_enabled=False), event(tables[0], "1"))
    assert EventStore(database).outbox() == Outbox()


def test_commits_are_recorded_by_whoever_saw_the_mark(store, tables):
    a, _ = tables
    one, two = EventMark(0, 1000, 10), EventMark(1, 2000, 2**40)

    assert store.record(a.id, None, one, [event(a, "1")])
    assert not store.record(a.id, None, two, [event(a, "2")])
    assert store.mark(a.id) == one
    assert store.record(a.id, one, two, [])
    assert (store.mark(a.id), len(store.page("", 0))) == (two, 1)


def test_no_event_appears_before_one_that_was_read(database, store, tables):
    """A reader that continues after the last position that it saw misses nothing, whoever writes at the same time."""
    total, names = 40, []

    def write(writer):
        for number in range(total // 4):
            record(database, store, event(tables[writer % 2], f"{writer}-{number}"))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    position = 0
    while len(names) < total and (any(one.is_alive() for one in writers) or store.page("", position)):
        for one in store.page("", position):
            names.append(one.event.id)
            position = one.position
    for writer in writers:
        writer.join()
    assert len(set(names)) == len(names) == total


def test_expired_events_are_deleted_and_the_rest_keep_their_positions(database, store, tables):
    record(database, store, event(tables[0], "1"), event(tables[0], "2"))
    assert store.expire(datetime.now(UTC) - timedelta(minutes=1)) == 0
    assert store.expire(datetime.now(UTC) + timedelta(minutes=1)) == 2
    record(database, store, event(tables[0], "3"))

    (left,) = store.page("", 0)
    outbox = store.outbox()
    assert (left.position, outbox.position, outbox.expired) == (3, 3, 2)


def test_a_table_that_is_unregistered_leaves_no_events(database, store, tables):
    record(database, store, event(tables[0], "1"))
    store.record(tables[0].id, None, EventMark(0, 1, 1), [])
    registry = Registry(database)
    registry.remove(tables[0].id)
    registry.add("file:///data/sales.a", "sales.a", "a")
    assert (store.page("", 0), store.mark(tables[0].id)) == ([], None)


def test_one_process_delivers_to_a_webhook(database, store, tables):
    assert store.take("hook", "me", 60) is None  # begins with the next event
    record(database, store, event(tables[0], "1"))

    assert store.take("hook", "me", 60) == Delivery(0, 0)
    assert store.take("hook", "another", 60) is None
    assert not store.delivered("hook", "another", Delivery(9, 0))
    assert store.delivered("hook", "me", Delivery(0, 1), pause=0.0)
    assert store.take("hook", "another", 60) == Delivery(0, 1)
    assert store.delivered("hook", "another", Delivery(0, 2), pause=60)
    assert store.take("hook", "me", 60) is None
    assert store.delivered("hook", "another", Delivery(1, 0))
    assert store.take("hook", "me", 60) is None
