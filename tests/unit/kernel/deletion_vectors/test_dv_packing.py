import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from delvec_errors import InvalidCommit
from delvec_kernel.deletion_vectors.deletion_vector import Where, encode, unframe
from delvec_kernel.deletion_vectors.dv_packing import allocate, pack, prefix_length, random_prefix


def counted():
    numbers = iter(range(1, 100_000))
    return lambda: uuid.UUID(int=next(numbers))


bitmaps = st.lists(st.sets(st.integers(0, 2**33), min_size=1, max_size=50).map(BitMap64), max_size=12).map(
    lambda items: [(f"part-{i}.parquet", bitmap) for i, bitmap in enumerate(items)]
)


@given(bitmaps, st.integers(1, 1500))
def test_every_deletion_vector_is_found_where_its_descriptor_says(items, target_size):
    files = pack(items, target_size=target_size, new_uuid=counted())
    found = {}
    for file in files:
        assert file.content[0] == 1
        assert len(file.content) <= target_size or len(file.entries) == 1
        for key, descriptor in file.entries.items():
            assert descriptor.storage_type == "u"
            assert descriptor.relative_path() == file.path
            start, end = descriptor.byte_range
            found[key] = unframe(file.content[start:end], descriptor, Where("t", 0, key))
        assert max(dv.byte_range[1] for dv in file.entries.values()) == len(file.content)
    assert list(found) == [key for key, _ in items]
    assert found == dict(items)


@given(bitmaps, st.integers(1, 1500))
def test_the_same_input_gives_the_same_bytes_and_allocation_agrees(items, target_size):
    files = pack(items, target_size=target_size, new_uuid=counted())
    assert files == pack(items, target_size=target_size, new_uuid=counted())
    sizes = [(key, len(encode(bitmap))) for key, bitmap in items]
    allocated = allocate(sizes, target_size=target_size, new_uuid=counted())
    assert [(f.path, f.size) for f in allocated] == [(f.path, len(f.content)) for f in files]
    for planned, packed in zip(allocated, files, strict=True):
        assert {key: (x.offset, x.size_in_bytes) for key, x in planned.extents.items()} == {
            key: (dv.offset, dv.size_in_bytes) for key, dv in packed.entries.items()
        }


def test_small_deletion_vectors_share_a_file_and_large_ones_do_not():
    large = BitMap64(range(0, 60_000, 3))
    items = [("a", BitMap64([1])), ("b", BitMap64([2])), ("c", large), ("d", BitMap64([3]))]
    files = pack(items, target_size=1000)
    assert [list(file.entries) for file in files] == [["a", "b"], ["c"], ["d"]]
    assert len({file.path for file in files}) == 3
    assert all(file.entries[key].offset == 1 for file, key in zip(files, "acd", strict=True))


def test_without_deletion_vectors_there_is_no_file():
    assert pack([]) == []


def test_random_prefixes_put_each_file_into_a_separate_directory():
    files = pack(
        [("a", BitMap64([1])), ("b", BitMap64([2]))],
        target_size=1,
        prefix_length=3,
        new_uuid=counted(),
        random_prefix=lambda length: "abc"[:length],
    )
    assert [file.path for file in files] == [f"abc/deletion_vector_{uuid.UUID(int=n)}.bin" for n in (1, 2)]
    assert all(dv.path_or_inline_dv.startswith("abc") for file in files for dv in file.entries.values())


def test_prefixes_are_letters_and_digits_and_differ():
    prefixes = {random_prefix(8) for _ in range(200)}
    assert len(prefixes) == 200
    assert all(prefix.isascii() and prefix.isalnum() and len(prefix) == 8 for prefix in prefixes)


@pytest.mark.parametrize(
    ("configuration", "length"),
    [
        ({}, 0),
        ({"delta.randomPrefixLength": "4"}, 0),
        ({"delta.randomizeFilePrefixes": "true"}, 2),
        ({"delta.randomizeFilePrefixes": "TRUE", "delta.randomPrefixLength": "4"}, 4),
        ({"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "junk"}, 2),
        ({"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "²"}, 2),
        ({"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "0"}, 2),
        ({"delta.randomizeFilePrefixes": "false", "delta.randomPrefixLength": "4"}, 0),
    ],
)
def test_the_prefix_follows_the_table_s_properties(configuration, length):
    assert prefix_length(configuration) == length


def test_offsets_stay_within_31_bits_whatever_the_target():
    files = allocate([(str(i), 900_000_000) for i in range(5)], target_size=2**40)
    assert [len(file.extents) for file in files] == [2, 2, 1]
    assert all(x.offset + x.size_in_bytes + 8 < 2**31 for file in files for x in file.extents.values())


def test_deletion_vectors_too_large_for_the_format_are_refused():
    for bad in ([("a", 2**31)], [("a", 0)], [("a", 10), ("a", 10)]):
        with pytest.raises(InvalidCommit, match="'a'"):
            allocate(bad)
    with pytest.raises(InvalidCommit, match="empty"):
        pack([("a", BitMap64())])
