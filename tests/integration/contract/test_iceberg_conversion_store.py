"""The last versions converted to Iceberg, in SQLite and PostgreSQL."""

from datetime import timedelta

import pytest
from tests.integration.contract.test_health_sample_store import NOW, SAMPLE

from delvec_kernel.locations import table_id
from delvec_service.store.health_samples import HealthSampleStore
from delvec_service.store.iceberg_conversions import IcebergConversionStore, ObservedConversion
from delvec_service.store.registry import Registry


@pytest.fixture
def store(database):
    registry = Registry(database)
    for name in ("people", "sales_eu", "secret"):
        registry.add(f"file:///{name}", None, name)
    return IcebergConversionStore(database)


def test_the_newest_converted_version_is_stored(store):
    people = table_id("file:///people")
    for version in (3, 5):
        store.record(people, 3, version)
    store.record(people, 2, 4)
    store.record(table_id("file:///secret"), 2, 1)
    store.record(table_id("file:///sales_eu"), 2, 1)

    assert store.observed("", ["people", "sales_*"], 10) == [
        ObservedConversion("people", 2, 4, 4, None),
        ObservedConversion("people", 3, 5, 5, None),
        ObservedConversion("sales_eu", 2, 1, 1, None),
    ]
    assert len(store.observed("", ["*"], 2)) == 2
    assert store.observed("another", ["*"], 10) == []


def test_a_conversion_lags_behind_later_samples(store, database):
    people, health = table_id("file:///people"), HealthSampleStore(database)
    store.record(people, 3, 5)
    for version in range(4, 8):
        later = {"version": version, "sampled_at": NOW + timedelta(minutes=version)}
        health.record(people, "m", SAMPLE.model_copy(update=later))

    [found] = store.observed("", ["people"], 10)

    assert (found.delta_version, found.newest_version) == (5, 7)
    assert found.waiting_since == NOW + timedelta(minutes=6)


def test_unregistering_a_table_deletes_it(store, database):
    people = table_id("file:///people")
    store.record(people, 3, 5)
    Registry(database).remove(people)
    Registry(database).add("file:///people", None, "people")

    assert store.observed("", ["*"], 10) == []
