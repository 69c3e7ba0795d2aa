import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors import deletion_vector
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_service.commits.dv_cache import DeletionVectorCache

SCATTERED = BitMap64(range(0, 2_000, 2))
"""2,000 bytes of memory, too few values for anything denser."""


def vector(number, *, cardinality=2):
    return Descriptor("u", f"file-{number}", 1, 600, cardinality)


def rows(number):
    return BitMap64([number, number + 1])


def test_what_is_kept_is_found_where_it_belongs():
    cache = DeletionVectorCache()
    cache.keep("memory:///t", vector(1), rows(1))

    assert cache.find("memory:///t", vector(1)) == rows(1)
    assert cache.find("memory:///other", vector(1)) is None
    assert cache.find("memory:///t", vector(2)) is None
    assert cache.find("memory:///t", vector(1, cardinality=3)) is None, "the log says something else"


def test_memory_is_bounded_and_what_was_used_last_stays():
    cache = DeletionVectorCache(max_bytes=1500)
    for number in range(3):
        cache.keep("t", vector(number), rows(number))
    cache.find("t", vector(0))

    cache.keep("t", vector(3), rows(3))

    assert cache.nbytes <= 1500
    assert [cache.find("t", vector(number)) for number in (0, 1, 3)] == [rows(0), None, rows(3)]


def test_rows_count_as_memory_has_them_and_not_as_their_file_does():
    cache = DeletionVectorCache()
    rows = BitMap64()
    for row in range(65_536):
        rows.add(row)  # one by one: an 8 KiB container, which is a single run in the file

    cache.keep("t", vector(1, cardinality=len(rows)), rows)

    assert len(deletion_vector.serialize_bitmap(rows)) < 64
    assert cache.nbytes > 8_192


def test_what_is_larger_than_the_whole_is_not_kept():
    cache = DeletionVectorCache(max_bytes=1500)
    cache.keep("t", vector(1), rows(1))

    cache.keep("t", vector(2, cardinality=len(SCATTERED)), SCATTERED)

    assert cache.find("t", vector(2, cardinality=len(SCATTERED))) is None
    assert cache.find("t", vector(1)) == rows(1)


def test_keeping_twice_counts_once():
    cache = DeletionVectorCache()
    for _ in range(3):
        cache.keep("t", vector(1), rows(1))
    once = DeletionVectorCache()
    once.keep("t", vector(1), rows(1))

    assert cache.nbytes == once.nbytes


def test_inline_vectors_are_not_kept():
    cache = DeletionVectorCache()

    cache.keep("t", deletion_vector.inline(rows(1)), rows(1))

    assert cache.nbytes == 0


@pytest.mark.parametrize("max_bytes", [1500, 100_000])
def test_threads_do_not_disturb_each_other(max_bytes):
    cache, start = DeletionVectorCache(max_bytes), threading.Barrier(8)

    def work(thread):
        start.wait()
        for number in range(300):
            key = (thread * 7 + number) % 20
            found = cache.find("t", vector(key))
            assert found is None or found == rows(key)
            cache.keep("t", vector(key), rows(key))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    alone = DeletionVectorCache()
    alone.keep("t", vector(0), rows(0))
    held = sum(alone.nbytes for number in range(20) if cache.find("t", vector(number)) is not None)
    assert cache.nbytes == held <= max_bytes
