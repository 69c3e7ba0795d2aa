import numpy as np
import pyarrow as pa
import pytest

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.file_index import packed_files as file_clustering
from delvec_kernel.file_index.file_rows import batch_from_adds
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.file_index.packed_files import clustered

FILES = 70_000


def adds(partitions):
    return [
        AddFile(f"{number}.parquet", values, 1, number * 7919 % FILES, data_change=True)
        for number, values in enumerate(partitions)
    ]


def batches(files, step=8000):
    return [batch_from_adds(files[start : start + step]) for start in range(0, len(files), step)]


@pytest.fixture
def one_by_one(monkeypatch):
    """Segments of one file each, to make the order visible."""
    monkeypatch.setattr(file_clustering, "SEGMENT_ROWS", 1)


def test_clustering_keeps_all_files_and_groups_partitions(monkeypatch):
    monkeypatch.setattr(file_clustering, "SEGMENT_ROWS", 100)
    monkeypatch.setattr(file_clustering, "_WINDOW", 4000)
    random = np.random.default_rng(5)
    days = [None, *(f"2026-01-{day:02d}" for day in range(1, 10))]
    files = adds({"day": days[pick]} for pick in random.integers(0, len(days), 7000))

    found = list(clustered(batches(files, 1000)))

    assert sorted(path for batch in found for path in batch["path"].to_pylist()) == sorted(
        file.path for file in files
    )
    window = [
        [dict(values)["day"] for values in batch["partition_values"].to_pylist()] for batch in found[:40]
    ]
    assert all(len(values) == 100 for values in window)
    # Each day ends in the segment where the next begins.
    assert sum(len(set(values)) - 1 for values in window) <= len(days) - 1


def test_files_of_a_partition_are_sorted_by_time(one_by_one):
    files = adds({"a": str(number % 3), "b": str(number % 5)} for number in range(1000))

    found = [row for batch in clustered(batches(files, 300)) for row in batch.to_pylist()]

    keys = [(dict(row["partition_values"]), row["modification_time"]) for row in found]
    order = [(values["a"], values["b"], time) for values, time in keys]
    assert order == sorted(order)


@pytest.mark.parametrize(
    "partitions", [[{}, {}], [{"a": "1"}, {}], [{"a": None}, {"a": None}]], ids=["none", "differ", "null"]
)
def test_files_without_partitions_are_ordered_by_time(partitions, one_by_one):
    files = adds(partitions)[::-1]

    found = [path for batch in clustered(batches(files)) for path in batch["path"].to_pylist()]

    assert found == ["0.parquet", "1.parquet"]


def test_a_change_of_schema_starts_a_window():
    first, second = batches(adds({} for _ in range(20)), 10)
    wider = second.append_column("more", pa.array(range(10)))

    assert [batch.num_rows for batch in clustered([first, wider])] == [10, 10]
    assert list(clustered([])) == []


def test_live_files_of_one_partition_are_in_few_segments():
    random = np.random.default_rng(6)
    files = adds({"p": str(pick)} for pick in random.integers(0, 20, 65_536))

    live = LiveFiles.from_batches(batches(files), "file:///table")

    segments = [{dict(row["partition_values"])["p"] for row in batch.to_pylist()} for batch in live.batches()]
    assert len(segments) == 8
    assert sum("7" in partitions for partitions in segments) <= 2


def test_large_strings_start_a_window_before_a_column_overflows(monkeypatch):
    given = batches(adds({} for _ in range(1000)), step=100)
    monkeypatch.setattr(file_clustering, "_WINDOW_BYTES", 3 * max(batch.nbytes for batch in given))
    found = list(clustered(given))
    assert sorted(batch.num_rows for batch in found) == [100, 300, 300, 300]
    rows = [path for batch in found for path in batch["path"].to_pylist()]
    assert sorted(rows) == sorted(path for batch in given for path in batch["path"].to_pylist())
