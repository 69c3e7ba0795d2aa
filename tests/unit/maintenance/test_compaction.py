"""Which files OPTIMIZE rewrites, and which of them together."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_kernel.file_index.file_rows import DELETION_VECTOR, TEXT_MAP
from delvec_maintenance.compaction import CompactionRules, pack, target_file_size, within

SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", TEXT_MAP),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("num_records", pa.int64()),
        ("deletion_vector", DELETION_VECTOR),
    ]
)
RULES = CompactionRules(target_size=100)


def file(size, *, rows=100, deleted=0, time=0, part=None):
    vector = None
    if deleted:
        vector = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40}
        vector["cardinality"] = deleted
    return {
        "path": f"f{size}-{time}",
        "partition_values": [("p", part)],
        "size": size,
        "modification_time": time,
        "num_records": rows,
        "deletion_vector": vector,
    }


def packed(files, rules=RULES, keys=("p",)):
    bins = pack(pa.Table.from_pylist(files, schema=SCHEMA), keys, rules)
    return [each.files.tolist() for each in bins]


def test_small_files_become_one_and_large_ones_stay():
    assert packed([file(30), file(75), file(40), file(200)]) == [[0, 2]]


def test_a_small_file_without_a_partner_stays():
    assert packed([file(30), file(80)]) == []
    assert packed([file(30, part="a"), file(30, part="b"), file(30)]) == []


def test_partitions_stay_apart_and_null_is_one():
    files = [file(30, part="a"), file(30), file(30, part="a"), file(30, part=""), file(30)]
    assert sorted(packed(files)) == [[0, 2], [1, 4]]


def test_a_file_with_many_deleted_rows_is_rewritten_even_if_large_and_alone():
    assert packed([file(500, deleted=6), file(500, deleted=5), file(500)]) == [[0]]


def test_a_deletion_vector_without_a_row_count_justifies_a_rewrite():
    assert packed([file(500, rows=None, deleted=1), file(500, rows=None)]) == [[0]]


def test_purge_rewrites_exactly_the_files_with_deletion_vectors():
    rules = CompactionRules(target_size=100, purge=True)
    assert packed([file(1), file(500, deleted=1), file(2), file(3, deleted=2)], rules) == [[1], [3]]


def test_bins_group_files_by_age_up_to_the_target_size():
    files = [file(60, time=4), file(30, time=1), file(40, time=2), file(40, time=3)]
    assert packed(files) == [[1, 2], [3, 0]]


def test_deleted_rows_do_not_count_towards_the_target_size():
    assert packed([file(90, deleted=50), file(90, deleted=50)]) == [[0, 1]]


def test_no_files():
    assert packed([]) == []


@given(
    st.lists(
        st.builds(
            file,
            st.integers(1, 300),
            rows=st.sampled_from([None, 50, 100]),
            deleted=st.sampled_from([0, 0, 1, 4, 50]),
            time=st.integers(0, 5),
            part=st.sampled_from([None, "", "a", "b"]),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_bins_are_disjoint_of_one_partition_and_gain_something(files, purge):
    bins = packed(files, CompactionRules(target_size=100, purge=purge))

    chosen = [place for each in bins for place in each]
    assert len(chosen) == len(set(chosen))
    for each in bins:
        members = [files[place] for place in each]
        assert len({str(member["partition_values"]) for member in members}) == 1
        live = sum(
            member["size"]
            * (
                1
                - (member["deletion_vector"] or {"cardinality": 0})["cardinality"]
                / (member["num_records"] or 1e9)
            )
            for member in members
        )
        assert live <= 100 + 1e-3 or len(members) == 1
        assert len(members) > 1 or members[0]["deletion_vector"]
    if purge:
        assert sorted(chosen) == [place for place, each in enumerate(files) if each["deletion_vector"]]


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_partition_keys_may_be_missing(count):
    """After the table's partitioning was changed."""
    files = [{**file(10), "partition_values": []} for _ in range(count)]
    assert sum(map(len, packed(files))) == (count if count > 1 else 0)


def test_purge_with_a_minimum_ratio_skips_other_files():
    rules = CompactionRules(target_size=100, purge=True, min_deleted_ratio=0.2)
    files = [file(500, deleted=20), file(500, deleted=21), file(5), file(5), file(500, rows=None, deleted=1)]
    assert packed(files, rules) == [[1], [4]]


def test_the_budget_prefers_the_highest_gain_per_byte():
    files = [file(500, deleted=90), file(400, deleted=10), file(300, deleted=50), file(40), file(40)]
    bins = pack(pa.Table.from_pylist(files, schema=SCHEMA), ("p",), RULES)

    def chosen(budget):
        return sorted(place for each in within(bins, budget) for place in each.files.tolist())

    assert chosen(None) == [0, 1, 2, 3, 4]
    assert chosen(10_000) == [0, 1, 2, 3, 4]
    assert chosen(800) == [0, 2]
    assert chosen(499) == [2, 3, 4]  # 500 bytes exceed the budget; smaller bins still fit
    assert chosen(79) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1 << 20),
        ("128mb", 128 << 20),
        (" 1 G ", 1 << 30),
        ("2GiB", 2 << 30),
        ("10b", 10),
        ("0", 1),
        ("", None),
        ("x", None),
        ("5ib", None),
        ("1.5g", None),
        ("9" * 16, None),
    ],
)
def test_target_sizes_are_read_as_spark_writes_them(text, size):
    assert target_file_size({"delta.targetFileSize": text}) == size
