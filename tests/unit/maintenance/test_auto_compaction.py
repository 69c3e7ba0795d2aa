"""Auto compaction: small files of changed partitions, once there are enough of them."""

import pyarrow as pa
import pytest

from delvec_kernel.file_index.file_rows import DELETION_VECTOR
from delvec_kernel.table_properties import AUTO_COMPACT_MIN_FILES
from delvec_maintenance.auto_compaction import choose, is_asked_for, touched_partitions

MIB = 1 << 20


def files(*facts):
    """Return live files with these partitions and sizes in MiB."""
    return pa.table(
        {
            "path": [f"{place}.parquet" for place in range(len(facts))],
            "partition_values": pa.array(
                [[("p", partition)] for partition, _ in facts], pa.map_(pa.string(), pa.string())
            ),
            "size": pa.array([size * MIB for _, size in facts], pa.int64()),
            "modification_time": pa.array(range(len(facts)), pa.int64()),
            "num_records": pa.array([10] * len(facts), pa.int64()),
            "deletion_vector": pa.nulls(len(facts), DELETION_VECTOR),
        }
    )


def chosen(table, partitions, **properties):
    configuration = {AUTO_COMPACT_MIN_FILES.name: "3", **properties}
    _, bins = choose(table, ["p"], configuration, partitions)
    return [sorted(each.files) for each in bins]


@pytest.mark.parametrize(
    ("text", "is_on"),
    [("true", True), ("AUTO", True), ("legacy", True), ("false", False), ("", False), ("yes", False)],
)
def test_the_property_turns_it_on(text, is_on):
    assert is_asked_for({"delta.autoOptimize.autoCompact": text}) is is_on


def test_small_files_of_a_changed_partition_are_compacted():
    table = files(("a", 1), ("b", 1), ("a", 1), ("b", 1), ("a", 1), ("b", 1), ("a", 70), (None, 1))
    assert chosen(table, [{"p": "a"}]) == [[0, 2, 4]]
    assert sorted(chosen(table, [{"p": "a"}, {"p": "b"}])) == [[0, 2, 4], [1, 3, 5]]
    assert chosen(table, [{"p": None}]) == []


def test_the_null_partition_is_separate():
    table = files((None, 1), (None, 1), ("", 1), (None, 1))
    assert chosen(table, [{"p": None}]) == [[0, 1, 3]]


def test_few_files_are_not_compacted():
    table = files(("a", 1), ("a", 1))
    assert chosen(table, [{"p": "a"}]) == []
    assert chosen(table, [{"p": "a"}], **{AUTO_COMPACT_MIN_FILES.name: "2"}) == [[0, 1]]
    assert chosen(files(*[("a", 1)] * 49), [{"p": "a"}], **{AUTO_COMPACT_MIN_FILES.name: "no number"}) == []
    assert len(chosen(files(*[("a", 1)] * 50), [{"p": "a"}], **{AUTO_COMPACT_MIN_FILES.name: ""})) == 1


def test_new_files_get_no_larger_than_128_mib_or_the_tables_size():
    table = files(*[("a", 30)] * 8)
    assert [len(paths) for paths in chosen(table, [{"p": "a"}])] == [4, 4]
    assert (
        chosen(table, [{"p": "a"}], **{"delta.targetFileSize": "50mb"}) == []
    )  # none is small for that size


def test_partitions_are_distinct_and_limited():
    assert touched_partitions([{"p": "a"}, {"p": None}, {"p": "a"}]) == [{"p": "a"}, {"p": None}]
    assert len(touched_partitions({"p": str(number)} for number in range(1000))) == 128
    assert touched_partitions([{}, {}]) == [{}]
