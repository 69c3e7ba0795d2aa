"""The cache of decoded parts: memory, and parts whose segment was dropped."""

import threading

from delvec_service.store.file_index_engine import PartCache


def test_what_was_used_longest_ago_goes_first():
    cache = PartCache(10)
    cache.put("a", "files", "A", 4)
    cache.put("b", "files", "B", 4)
    assert cache.get("a", "files") == "A"
    cache.put("c", "files", "C", 4)
    assert [cache.get(name, "files") for name in "abc"] == ["A", None, "C"]
    assert cache.nbytes == 8


def test_a_dropped_segment_is_forgotten_with_all_its_parts():
    cache = PartCache()
    cache.put("a", "files", "A", 4)
    cache.put("a", "keys", "K", 3)
    cache.put("b", "files", "B", 2)
    cache.drop("a")
    assert (cache.get("a", "files"), cache.get("a", "keys"), cache.get("b", "files")) == (None, None, "B")
    assert cache.nbytes == 2


def test_the_garbage_collector_may_drop_a_segment_while_the_cache_is_busy():
    cache = PartCache()
    cache.put("gone", "files", "G", 4)

    class Collected(int):
        def __radd__(self, other):
            cache.drop("gone")  # as a finalizer does, on the thread that holds the lock
            return int(other) + int(self)

    thread = threading.Thread(target=cache.put, args=("a", "files", "A", Collected(5)), daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive()
    assert cache.get("gone", "files") is None
    assert cache.get("a", "files") == "A"
    assert cache.nbytes == 5
