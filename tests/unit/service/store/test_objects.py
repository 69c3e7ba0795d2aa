"""Listings of stores that do not list in order."""

from datetime import UTC, datetime

import obstore
import pytest

from delvec_service.store.objects import ObjectStore

NAMES = ["_sidecars/x.parquet", f"{2:020d}.json", f"{0:020d}.json", "_last_checkpoint", f"{1:020d}.json"]


def test_a_directory_bucket_is_listed_to_its_end(monkeypatch):
    asked = {}

    def listed(_store, prefix, *, offset, **_others):
        asked["offset"] = offset
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        yield [{"path": prefix + name, "size": 1, "last_modified": moment} for name in NAMES]

    monkeypatch.setattr(obstore, "list", listed)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    store = ObjectStore("s3://lake--eun1-az1--x-s3/people")
    assert [one.name for one in store.list_from("_delta_log")] == [f"{n:020d}.json" for n in range(3)]
    found = store.list_from("_delta_log", start_after=f"{1:020d}")
    assert [one.name for one in found] == [f"{n:020d}.json" for n in (1, 2)]
    assert asked["offset"] is None


@pytest.mark.parametrize("location", ["s3://lake/people", "memory:///people"])
def test_other_stores_are_listed_from_a_place_on(monkeypatch, location):
    asked = {}

    def listed(_store, _prefix, *, offset, **_others):
        asked["offset"] = offset
        yield []

    monkeypatch.setattr(obstore, "list", listed)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert ObjectStore(location).list_from("_delta_log", start_after="5") == []
    assert asked["offset"].endswith("_delta_log/5")
