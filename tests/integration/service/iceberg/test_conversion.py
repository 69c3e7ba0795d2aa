"""Conversion to Iceberg with crashes, concurrent conversions, expiry and VACUUM."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from tests.support.iceberg_tables import delta_rows, iceberg_rows, iceberg_table

import delvec
from delvec_errors import StorageError
from delvec_kernel.locations import canonical
from delvec_service.iceberg.conversion import IcebergConversion
from delvec_service.iceberg.metadata_directory import IcebergDirectory
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_storage.roots import Roots

BOTH = pytest.mark.parametrize("format_version", [2, 3])
DAY = 24 * 3600 * 1000


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(tmp_path / "people", "id long, p string", partition_by=["p"])
        table.append([{"id": n, "p": "ab"[n % 2]} for n in range(20)])
        yield table


@pytest.fixture
def opened(tmp_path):
    record = SimpleNamespace(name="people", location=canonical(str(tmp_path / "people")))
    return OpenTable(record, Roots(()))


def conversion(**options):
    return IcebergConversion(SnapshotLoader(), **options)


def rows(done, **options):
    return iceberg_rows({"metadata-location": done.metadata_location}, **options)


def snapshots(done):
    return iceberg_table({"metadata-location": done.metadata_location}).metadata.snapshots


@BOTH
def test_a_crash_before_any_write_publishes_nothing_and_the_next_goes_on(
    people, opened, monkeypatch, format_version
):
    first = conversion().convert(opened, format_version=format_version)
    people.delete("id < 5")
    people.append([{"id": 30, "p": "c"}])
    put = ObjectStore.put
    put_if_absent = ObjectStore.put_if_absent
    stage = ObjectStore.stage
    left = 0

    def dies(real):
        def step(self, path, *arguments, **options):
            nonlocal left
            left -= 1
            if left < 0 and "_iceberg" in path:
                raise StorageError("the process died here")
            return real(self, path, *arguments, **options)

        return step

    monkeypatch.setattr(ObjectStore, "put", dies(put))
    monkeypatch.setattr(ObjectStore, "put_if_absent", dies(put_if_absent))
    monkeypatch.setattr(ObjectStore, "stage", dies(stage))
    for writes in range(50):
        left = writes
        try:
            done = conversion().convert(opened, format_version=format_version)
        except StorageError:
            left = 1000
            seen = conversion().published(opened, format_version)
            # All or nothing, except that the version hint may be missing.
            assert seen.delta_version in (first.delta_version, 3)
            assert rows(seen) == delta_rows(people, version=seen.delta_version)
        else:
            break
    assert writes > 3
    assert done.delta_version == 3
    assert rows(done) == delta_rows(people)
    assert IcebergDirectory(opened, format_version, {}).newest().metadata == done.metadata


@BOTH
def test_converters_at_once_agree(people, opened, format_version):
    people.delete("id < 5")
    people.append([{"id": 30, "p": "c"}])
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: conversion().convert(opened, format_version=format_version), range(4)))
    assert {one.metadata_location for one in done} == {done[0].metadata_location}
    assert rows(done[0]) == delta_rows(people)


def test_who_comes_second_goes_on_from_the_first(people, opened, monkeypatch):
    conversion().convert(opened)
    people.delete("id < 5")
    publish = IcebergDirectory.publish
    others = []

    def after_another(self, number, metadata):
        if not others:
            others.append(None)
            conversion().convert(opened)
            people.append([{"id": 40, "p": "d"}])
        return publish(self, number, metadata)

    monkeypatch.setattr(IcebergDirectory, "publish", after_another)
    done = conversion().convert(opened)
    assert done.delta_version == 3
    assert [int(one.summary.additional_properties["delta-version"]) for one in snapshots(done)] == [1, 2, 3]
    assert rows(done) == delta_rows(people)


@BOTH
def test_vacuum_keeps_what_snapshots_need_and_takes_the_rest(people, opened, tmp_path, format_version):
    people.alter.set_properties({"delvec.iceberg.tagVersions": "true"})
    conversion().convert(opened, format_version=format_version)
    people.delete("id < 5")
    conversion().convert(opened, format_version=format_version)
    people.optimize.purge()
    people.overwrite([{"id": 1, "p": "z"}])
    done = conversion().convert(opened, format_version=format_version)
    before = {one.snapshot_id: rows(done, snapshot_id=one.snapshot_id) for one in snapshots(done)}
    people.vacuum(retention_hours=0, enforce_retention_duration=False)
    for snapshot_id, expected in before.items():
        assert rows(done, snapshot_id=snapshot_id) == expected
    # Ten days later, the earlier snapshots have expired.
    people.append([{"id": 2, "p": "y"}])
    now = people.history()[0]["timestamp"] + 10 * DAY
    done = conversion(clock=lambda: now).convert(opened, format_version=format_version)
    people.vacuum(retention_hours=0, enforce_retention_duration=False)
    assert rows(done) == delta_rows(people) == [{"id": 1, "p": "z"}, {"id": 2, "p": "y"}]
    # Tags are removed with their snapshots.
    kept = {one.snapshot_id for one in snapshots(done)}
    refs = iceberg_table({"metadata-location": done.metadata_location}).metadata.refs
    assert {one.snapshot_id for one in refs.values()} <= kept
    assert "delta-2" not in refs
    left = {path.suffix for path in (tmp_path / "people" / "_iceberg").rglob("*") if path.is_file()}
    assert left == {".json", ".avro", ".text"}


def test_a_table_that_asks_for_it_is_converted_after_commits(tmp_path, opened, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(
            tmp_path / "people", "id long", properties={"delvec.iceberg.formatVersions": "2, 3"}
        )
        table.append([{"id": 1}, {"id": 2}])
        table.delete("id = 1")
    # What is left to do is done before the service ends.
    for format_version in (2, 3):
        done = conversion().published(opened, format_version)
        assert (done.delta_version, rows(done)) == (2, [{"id": 2}])
