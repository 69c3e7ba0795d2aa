"""Conflicts and commit counts over time, in SQLite and PostgreSQL: recent ones in full, old ones thinned out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from delvec_kernel.locations import table_id
from delvec_service.store.commit_record import CommitConflict, CommitRecordStore
from delvec_service.store.health_samples import CommitCounts, HealthSampleStore
from delvec_service.store.registry import Registry

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
ONE = CommitConflict(
    found_at=NOW,
    type="ConcurrentDeleteDeleteException",
    operation="UPDATE",
    read_version=3,
    transaction_id="t1",
    principal="etl",
    winning_version=4,
    winning_operation="DELETE",
    winning_engine="delta-spark/4.4.0",
    winning_transaction_id="t0",
    winning_principal="nightly",
    num_files=2,
    files=("a.parquet", "b\0\ud800.parquet"),
    overlapping_rows=7,
    reason="Version 4 (DELETE) removed rows.",
)


@pytest.fixture
def counts(database):
    return HealthSampleStore(database)


@pytest.fixture
def record(database):
    return CommitRecordStore(database)


def conflicts(*times, **changed):
    return [replace(ONE, found_at=at, id="", **changed) for at in times]


def test_conflicts_round_trip(counts, record):
    plain = replace(
        ONE,
        id="",
        found_at=NOW + timedelta(seconds=1),
        principal=None,
        winning_engine=None,
        winning_transaction_id=None,
        winning_principal=None,
        overlapping_rows=None,
        files=(),
    )
    counts.count("t", CommitCounts(conflicts=2, since=NOW), [ONE, plain])
    counts.count("t", CommitCounts(conflicts=0, since=NOW), [ONE])  # reported twice, stored once
    counts.count("other", CommitCounts(conflicts=1, since=NOW), conflicts(NOW))

    assert record.conflicts("t", None, 10) == [plain, ONE]
    assert record.conflicts("t", None, 1) == [plain]
    assert record.conflicts("t", NOW + timedelta(milliseconds=1), 10) == [plain]
    assert record.conflicts("nobody", None, 10) == []


def test_old_conflicts_are_thinned_to_one_of_a_kind_per_hour_then_per_day(counts, record):
    hours, months = NOW - timedelta(days=2), NOW - timedelta(days=40)
    old = [
        *conflicts(*(hours + timedelta(minutes=each) for each in (0, 10, 20))),
        *conflicts(hours + timedelta(minutes=5), operation="MERGE"),
        *conflicts(*(months + timedelta(hours=each) for each in (0, 3, 6))),
        *conflicts(NOW - timedelta(days=367)),
    ]
    counts.count("t", CommitCounts(conflicts=8, since=NOW), old)
    counts.count("t", CommitCounts(conflicts=3, since=NOW), conflicts(NOW, NOW, NOW))

    found = [(one.found_at, one.operation) for one in record.conflicts("t", None, 100)]
    assert found == [
        *[(NOW, "UPDATE")] * 3,
        (hours + timedelta(minutes=20), "UPDATE"),
        (hours + timedelta(minutes=5), "MERGE"),
        (months + timedelta(hours=6), "UPDATE"),
    ]


def test_at_most_a_thousand_conflicts_are_kept_per_table(counts, record):
    for batch in range(6):
        start = NOW + timedelta(seconds=batch * 200)
        counts.count(
            "t",
            CommitCounts(conflicts=200, since=NOW),
            conflicts(*(start + timedelta(seconds=each) for each in range(200))),
        )

    found = record.conflicts("t", None, 2000)
    assert len(found) == 1000
    assert found[0].found_at == NOW + timedelta(seconds=1199)


def test_commits_are_counted_by_the_hour(counts, record):
    counts.count("t", CommitCounts(3, 1, 0, 40, since=NOW))
    counts.count("t", CommitCounts(1, 0, 2, 2**63 - 1, since=NOW + timedelta(minutes=29)))
    counts.count("t", CommitCounts(1, since=NOW + timedelta(minutes=30)))

    later, first = record.intervals("t", None)
    hour = NOW.replace(minute=0)
    assert (first.since, first.seconds) == (hour, 3600)
    assert (first.committed, first.rebased, first.conflicts, first.rows_saved) == (4, 1, 2, 2**63 - 1)
    assert (later.since, later.committed) == (hour + timedelta(hours=1), 1)
    assert record.intervals("t", hour + timedelta(hours=1)) == [later]


def test_old_hours_become_days_and_expire_after_a_year(counts, record):
    day = datetime(2026, 9, 1, tzinfo=UTC)
    for hour in (1, 2, 23):
        counts.count("t", CommitCounts(10, 1, 1, 5, since=day + timedelta(hours=hour)))
    counts.count("t", CommitCounts(7, since=NOW - timedelta(days=30)))
    counts.count("t", CommitCounts(1, since=NOW))

    newest, hour, whole = record.intervals("t", None)
    assert (newest.committed, hour.committed, hour.seconds) == (1, 7, 3600)
    assert (whole.since, whole.seconds, whole.committed, whole.rows_saved) == (day, 86_400, 30, 15)
    counts.count("t", CommitCounts(1, since=NOW + timedelta(days=366)))
    assert [one.committed for one in record.intervals("t", None)][-1] == 1


def test_unregistering_a_table_deletes_its_record(database, counts, record):
    registry = Registry(database)
    registry.add("file:///a", None, "a")
    identifier = table_id("file:///a")
    counts.count(identifier, CommitCounts(conflicts=1, since=NOW), [ONE])

    registry.remove(identifier)

    assert record.conflicts(identifier, None, 10) == []
    assert record.intervals(identifier, None) == []
