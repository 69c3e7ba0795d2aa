"""Position delete files shared by the data files of a partition: ``delvec.iceberg.deleteGranularity``."""

import random

import pyarrow.parquet as pq
import pytest
from tests.support.iceberg_tables import assert_sound, delta_rows, iceberg_rows, iceberg_table, summary

import delvec

SHARED = {"delvec.iceberg.deleteGranularity": "partition"}


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as connection:
        yield connection


@pytest.fixture(params=["plain", "parted"])
def table(lake, tmp_path, request):
    """A table of three appends: three files, or three in each of two partitions."""
    parted = ["p"] if request.param == "parted" else []
    made = lake.create_table(
        tmp_path / "a b%20c", "id long, p string, x double", partition_by=parted, properties=SHARED
    )
    for start in (0, 40, 80):
        made.append([{"id": n, "p": [None, "a b%1"][n % 2], "x": n / 3} for n in range(start, start + 40)])
    made.partitions = 2 if parted else 1
    return made


def checked(table, **options):
    """Convert, and compare rows and metadata with Delta."""
    done = table.to_iceberg(**options)
    assert iceberg_rows(done) == delta_rows(table)
    assert_sound(table)
    return done


def delete_files(done):
    """The live delete files, as PyIceberg lists them."""
    return iceberg_table(done).inspect.delete_files().to_pylist()


def data_files_of(one):
    """The data files whose rows a delete file holds; they are sorted, then by row."""
    found = pq.read_table(one["file_path"].removeprefix("file://"))
    rows = list(zip(found["file_path"].to_pylist(), found["pos"].to_pylist(), strict=True))
    assert rows == sorted(set(rows))
    assert len(rows) == one["record_count"]
    return {path for path, _ in rows}


def test_a_delete_of_many_files_is_one_delete_file_a_partition(table):
    checked(table)
    table.delete("id % 7 = 0")
    done = checked(table)
    found = delete_files(done)
    assert [len(data_files_of(one)) for one in found] == [3] * table.partitions
    assert all(one["file_path"].endswith(".parquet") for one in found)
    assert summary(done)["total-position-deletes"] == 18


def test_a_vector_that_grows_replaces_the_shared_file_and_keeps_the_other_rows(table):
    table.delete("id % 7 = 0")
    before = {one["file_path"] for one in delete_files(checked(table))}
    table.delete("id in (41, 43)")
    done = checked(table)
    after = {one["file_path"] for one in delete_files(done)}
    assert len(after) == len(before) == table.partitions
    assert len(before - after) == 1
    assert summary(done)["removed-delete-files"] == 1


def test_data_files_that_leave_drop_out_and_restore_brings_their_deletes_back(table):
    table.delete("id % 7 = 0")
    version = table.version()
    checked(table)
    table.delete("id < 40")
    found = delete_files(checked(table))
    assert [len(data_files_of(one)) for one in found] == [2] * table.partitions
    table.restore(version)
    checked(table)
    table.optimize.purge()
    assert delete_files(checked(table)) == []
    table.restore(version)
    checked(table)


def test_the_property_takes_effect_with_the_next_change(table):
    table.alter.set_properties({"delvec.iceberg.deleteGranularity": "file"})
    table.delete("id % 7 = 0")
    assert len(delete_files(checked(table))) == 3 * table.partitions
    table.alter.set_properties(SHARED)
    assert len(delete_files(checked(table))) == 3 * table.partitions
    table.delete("id in (1, 2, 41, 44)")
    assert len(delete_files(checked(table))) == 2 * table.partitions
    table.alter.set_properties({"delvec.iceberg.deleteGranularity": "file"})
    table.delete("id in (3, 4)")
    # The shared files that changed are split.
    assert len(delete_files(checked(table))) == 3 * table.partitions


def test_format_version_3_has_a_deletion_vector_for_each_file(table):
    table.delete("id % 7 = 0")
    done = checked(table, format_version=3)
    assert len(delete_files(done)) == 3 * table.partitions


def test_another_process_finds_the_data_files_in_footers(table, tmp_path):
    table.delete("id % 7 = 0")
    checked(table)
    table.delete("id % 11 = 0")
    with delvec.connect() as other:
        again = other.table(str(tmp_path / "a b%20c"))
        found = delete_files(checked(again))
    assert [len(data_files_of(one)) for one in found] == [3] * table.partitions


def test_a_shared_file_has_a_limit(table, monkeypatch):
    monkeypatch.setattr("delvec_service.iceberg.delete_files._SHARED_FILES", 2)
    table.delete("id % 7 = 0")
    found = delete_files(checked(table))
    assert (
        sorted(len(data_files_of(one)) for one in found) == [1, 2] if table.partitions == 1 else [1, 1, 2, 2]
    )
    monkeypatch.setattr("delvec_service.iceberg.delete_files._SHARED_ROWS", 5)
    table.delete("id % 5 = 0")
    checked(table)
    table.delete("id % 3 = 0")
    checked(table)


def test_vacuum_keeps_shared_files_of_snapshots(table):
    table.delete("id % 7 = 0")
    done = checked(table)
    before = iceberg_rows(done)
    first = iceberg_table(done).current_snapshot().snapshot_id
    table.delete("id % 11 = 0")
    table.optimize.purge()
    done = checked(table)
    table.vacuum(retention_hours=0, enforce_retention_duration=False)
    assert iceberg_rows(done, snapshot_id=first) == before
    table.delete("id = 1")
    checked(table)


def test_vectors_of_versions_between_may_be_gone(table):
    """Versions 6 and 7 wait for conversion, and VACUUM takes what only 6 needs."""
    table.delete("id % 7 = 0")
    checked(table)
    table.delete("id % 11 = 0")
    table.delete("id % 13 = 0")
    table.vacuum(retention_hours=0, enforce_retention_duration=False)
    checked(table)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow("a history of dozens of commits and conversions")
@pytest.mark.full("dozens of commits and conversions")
def test_random_histories(lake, tmp_path, seed):
    """After each conversion the rows are Delta's, at the newest version and at some older ones."""
    randoms = random.Random(seed)
    parted = ["p"] if seed % 2 else []
    table = lake.create_table(
        tmp_path / "t", "id long, p string, x double", partition_by=parted, properties=SHARED
    )
    last = 0

    def rows(count):
        nonlocal last
        last += count
        return [{"id": n, "p": "ab"[n % 2], "x": float(n)} for n in range(last - count, last)]

    def flip():
        current = randoms.choice(["file", "partition", "partition"])
        table.alter.set_properties({"delvec.iceberg.deleteGranularity": current})

    table.append(rows(30))
    statements = {
        "append": lambda: table.append(rows(randoms.randint(1, 30))),
        "delete": lambda: table.delete(f"id % {randoms.randint(2, 30)} = {randoms.randint(0, 3)}"),
        "delete few": lambda: table.delete(f"id = {randoms.randrange(max(last, 1))}"),
        "delete many": lambda: table.delete(f"id % {randoms.randint(5, 60)} = 1"),
        "update": lambda: table.update({"x": "x + 1"}, f"id % {randoms.randint(3, 20)} = 2"),
        "compact": table.optimize.compact,
        "purge": table.optimize.purge,
        "restore": lambda: table.restore(randoms.randint(1, table.version())),
        "overwrite": lambda: table.overwrite(rows(40)),
        "flip": flip,
    }
    weights = [4, 4, 6, 4, 3, 1, 1, 2, 1, 1]
    for _ in range(25):
        for name in randoms.choices([*statements], weights, k=randoms.randint(1, 3)):
            statements[name]()
        checked(table, squash=randoms.random() < 0.3)
    done = table.to_iceberg()
    for one in randoms.sample(iceberg_table(done).metadata.snapshots, 8):
        version = int(one.summary.additional_properties["delta-version"])
        assert iceberg_rows(done, snapshot_id=one.snapshot_id) == delta_rows(table, version=version)
