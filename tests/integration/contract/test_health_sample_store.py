"""Health samples and counts of commits, in SQLite and PostgreSQL."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from delvec_contract.health import HealthSample
from delvec_contract.health_metrics import SampledMetrics
from delvec_kernel.locations import table_id
from delvec_service.store.commit_record import CommitConflict
from delvec_service.store.event_store import EventStore
from delvec_service.store.health_samples import CommitCounts, HealthSampleStore, superfluous
from delvec_service.store.registry import Registry

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
SAMPLE = HealthSample(
    **dict.fromkeys(SampledMetrics.model_fields, 1)
    | {"num_files": 12, "size_in_bytes": 1 << 50, "num_physical_rows": 100, "deleted_ratio": 0.3},
    version=3,
    sampled_at=NOW,
    score=70.5,
    gain_bytes=300,
    cost_bytes=900,
    actions=["OPTIMIZE", "PURGE"],
)


def replace(sample, **fields):
    return sample.model_copy(update=fields)


@pytest.fixture
def store(database):
    return HealthSampleStore(database)


@pytest.fixture
def tables(database, store):
    """``a`` to ``e`` with scores 50, 40, 40, unknown and 100; ``d`` has no sample."""
    registry = Registry(database)
    for name, score in {"a": 50.0, "b": 40.0, "c": 40.0, "d": None, "e": 100.0}.items():
        registry.add(f"file:///{name}", None, name)
        if score is not None:
            known = score < 100
            sample = replace(SAMPLE, score=score, deleted_ratio=1 - score / 100 if known else None)
            store.record(table_id(f"file:///{name}"), "m", replace(sample, version=1, score=99.0))
            store.record(table_id(f"file:///{name}"), "m", sample)
    return registry


def test_samples_are_returned_newest_first(store):
    newer = replace(SAMPLE, version=4, sampled_at=NOW + timedelta(hours=1), num_physical_rows=None)
    store.record("t", "m", SAMPLE)
    store.record("t", "m", newer)
    store.record("other", "m", SAMPLE)

    assert store.series("t", None, 10) == [newer, SAMPLE]
    assert store.series("t", NOW + timedelta(minutes=1), 10) == [newer]
    assert store.series("t", None, 1) == [newer]


def test_numbers_too_large_for_a_column_are_capped(store):
    store.record("t", "m", replace(SAMPLE, size_in_bytes=2**70, num_physical_rows=-(2**70)))

    (only,) = store.series("t", None, 10)
    assert (only.size_in_bytes, only.num_physical_rows) == (2**63 - 1, -(2**63))


def test_a_version_has_one_sample_however_often_it_is_taken(store):
    store.record("t", "m", SAMPLE)
    store.record("t", "m", replace(SAMPLE, score=1.0))

    assert [one.score for one in store.series("t", None, 10)] == [1.0]


def test_a_recreated_table_starts_without_samples(store):
    store.record("t", "m", replace(SAMPLE, version=900))
    store.record("t", "n" * 100, replace(SAMPLE, version=0))
    store.record("t", "n" * 100, replace(SAMPLE, version=1))

    assert [one.version for one in store.series("t", None, 10)] == [1, 0]


def test_counts_too_large_for_a_column_are_capped(store):
    for _ in range(2):
        store.count("t", CommitCounts(1, 1, 0, 2**63 - 1))

    assert store.counts("t").rows_saved == 2**63 - 1
    assert store.counts("t").commits == 2


def test_counts_add_up(store):
    assert store.counts("t") == CommitCounts()
    store.count("t", CommitCounts(5, 2, 1, 40, since=NOW))
    store.count("t", CommitCounts(1, 0, 0, 0, since=NOW + timedelta(days=1)))
    store.count("other", CommitCounts(conflicts=7, since=NOW))

    assert store.counts("t") == CommitCounts(6, 2, 1, 40, since=NOW)


def test_the_list_has_the_least_healthy_tables_first(store, tables):
    by_score = store.page("", "score")
    assert by_score[-1].sample is None
    assert [one.name for one in by_score] == ["b", "c", "a", "e", "d"]  # b and c have the same score
    assert by_score[2].sample == replace(SAMPLE, score=50.0, deleted_ratio=0.5)
    by_ratio = [one.name for one in store.page("", "deleted-ratio", min_deleted_ratio=0.55)]
    assert by_ratio == ["b", "c"]
    assert store.page("another catalog", "score") == []
    assert tables.catalog == ""


@pytest.mark.parametrize(
    "order", ["score", "deleted-ratio", "deleted-bytes", "small-files", "size-in-bytes", "num-files"]
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_make_up_the_list(store, tables, order, size):
    whole = [one.id for one in store.page("", order)]
    found, after = [], None
    while page := store.page("", order, after=after, limit=size):
        found += [one.id for one in page]
        after = (page[-1].sort_key, page[-1].name, page[-1].id)

    assert found == whole
    assert len(whole) == 5
    assert tables.catalog == ""


def test_old_samples_are_thinned():
    times = {
        hour * 2 + half: NOW - timedelta(hours=20_000 - hour, minutes=-30 * half)
        for hour in range(20_001)
        for half in (0, 1)
    }
    kept = sorted(set(times) - set(superfluous(times, NOW)))
    ages = [NOW - times[version] for version in kept]

    assert max(ages) < timedelta(days=366)
    assert sum(age < timedelta(days=1) for age in ages) == 49  # all of them, two an hour
    assert sum(timedelta(days=1) <= age < timedelta(days=31) for age in ages) == pytest.approx(30 * 24, abs=1)
    assert sum(timedelta(days=31) <= age for age in ages) == pytest.approx(335, abs=1)
    assert kept[-1] == max(times)


def test_samples_are_thinned_when_new_ones_are_stored(store):
    for version in range(65):
        store.record("t", "m", replace(SAMPLE, version=version, sampled_at=NOW + timedelta(minutes=version)))
    assert len(store.series("t", None, 1000)) == 65
    store.record("t", "m", replace(SAMPLE, version=96, sampled_at=NOW + timedelta(days=10)))

    assert [one.version for one in store.series("t", None, 1000)] == [96, 64, 29]


def test_views_for_dashboards(database, store, tables):
    store.count(table_id("file:///b"), CommitCounts(5, 2, 1, 40, since=NOW))
    with database.read() as session:
        rows = session.execute(
            text("SELECT name, version, score, rebased, rows_saved FROM delvec_health ORDER BY name")
        ).all()
        history = session.execute(
            text("SELECT count(*) FROM delvec_health_history WHERE name = 'b'")
        ).scalar()

    assert [tuple(row) for row in rows] == [
        ("a", 3, 50.0, None, None),
        ("b", 3, 40.0, 2, 40),
        ("c", 3, 40.0, None, None),
        ("d", None, None, None, None),
        ("e", 3, 100.0, None, None),
    ]
    assert history == 2
    assert tables.catalog == ""


def test_a_change_of_health_is_an_event_and_so_is_a_conflict(database):
    record = Registry(database).add("file:///a", None, "a")[0]
    events = EventStore(database)
    store = HealthSampleStore(database, events)
    steps = [
        {},  # the first says nothing of a change
        {"score": 71.0},
        {"score": 81.0},
        {"score": 81.0, "actions": []},
        {"score": 81.0, "actions": []},
    ]
    for version, fields in enumerate(steps):
        store.record(record.id, "m", replace(SAMPLE, version=version, **fields))
    store.record(record.id, "m", replace(SAMPLE, version=1, score=1.0))  # late, of an old version

    conflict = CommitConflict(
        found_at=NOW,
        type="ConcurrentAppendException",
        operation="DELETE",
        read_version=3,
        transaction_id="t",
        winning_version=4,
        winning_operation="MERGE",
        num_files=1,
        reason="Version 4 (MERGE) added a file.",
        principal="secret",
        winning_principal="secret",
    )
    store.count(record.id, CommitCounts(conflicts=1), [conflict])

    page = events.page("", 0)
    assert [(one.event.type, one.event.data.get("version")) for one in page] == [
        ("delvec.health", 2),
        ("delvec.health", 3),
        ("delvec.conflict", None),
    ]
    assert page[1].event.data["previous-actions"] == ["OPTIMIZE", "PURGE"]
    assert page[2].event.data["winning-version"] == 4
    assert "secret" not in str(page[2])
