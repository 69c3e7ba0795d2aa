"""The LRU cache with weighted entries."""

from delvec_service.store.lru_cache import LruCache


def test_what_was_used_longest_ago_goes_until_the_rest_is_light_enough():
    cache = LruCache(10)
    for name in "abc":
        cache.put(name, name.upper(), 3)
    assert cache.get("a") == "A"
    cache.put("d", "D", 6)
    assert [cache.get(name) for name in "abcd"] == ["A", None, None, "D"]
    assert cache.weight == 9


def test_a_value_takes_the_place_of_an_older_one():
    cache = LruCache(10)
    cache.put("a", "old", 8)
    cache.put("a", "new", 2)
    assert (cache.get("a"), cache.weight) == ("new", 2)


def test_what_is_heavier_than_all_may_be_is_not_kept_and_drives_nothing_out():
    cache = LruCache(10)
    cache.put("a", "A", 4)
    cache.put("b", "B", 11)
    assert (cache.get("a"), cache.get("b"), cache.weight) == ("A", None, 4)


def test_values_are_discarded_by_their_keys():
    cache = LruCache(10)
    for name in "abc":
        cache.put(name, name.upper(), 2)
    assert cache.discard(["a", "c", "x"])
    assert [cache.get(name) for name in "abc"] == [None, "B", None]
    assert cache.weight == 2
