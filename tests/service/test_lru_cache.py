"""What is in the cache is made once, and bounded."""

from __future__ import annotations

from assay.service.lru_cache import LruCache, table_weight


def test_a_value_is_made_once() -> None:
    cache: LruCache[str, list[int]] = LruCache(2)
    first = cache.get_or_make("a", lambda: [1])
    assert cache.get_or_make("a", lambda: [2]) is first


def test_the_least_recently_used_goes_first() -> None:
    cache: LruCache[str, str] = LruCache(2)
    for key in "abac":
        cache.get_or_make(key, lambda key=key: key)  # type: ignore[misc]
    assert cache.get_or_make("a", lambda: "new") == "a"
    assert cache.get_or_make("b", lambda: "new") == "new"


def test_sizes_count_and_what_is_too_large_is_not_kept() -> None:
    cache: LruCache[str, str] = LruCache(5, len)
    cache.get_or_make("large", lambda: "123456")
    assert cache.get_or_make("large", lambda: "other") == "other"
    cache.get_or_make("b", lambda: "123")
    assert cache.get_or_make("b", lambda: "3") == "123"
    assert cache.get_or_make("large", lambda: "new") == "new", "5 and 3 are more than 5"


def test_a_table_weighs_its_cells_and_characters_not_its_rows() -> None:
    assert table_weight({}) == 1
    assert table_weight({"id": ["a"], "text": ["x" * 1000], "loss": [None]}) == 1 + 2 + 1001 + 1
