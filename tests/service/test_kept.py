"""What is kept in memory is made once, and bounded."""

from __future__ import annotations

from assay.service.kept import Kept


def test_a_value_is_made_once() -> None:
    kept: Kept[str, list[int]] = Kept(2)
    first = kept.of("a", lambda: [1])
    assert kept.of("a", lambda: [2]) is first


def test_the_least_recently_used_goes_first() -> None:
    kept: Kept[str, str] = Kept(2)
    for key in "abac":
        kept.of(key, lambda key=key: key)  # type: ignore[misc]
    assert kept.of("a", lambda: "new") == "a"
    assert kept.of("b", lambda: "new") == "new"


def test_sizes_count_and_what_is_too_large_is_not_kept() -> None:
    kept: Kept[str, str] = Kept(5, len)
    kept.of("large", lambda: "123456")
    assert kept.of("large", lambda: "other") == "other"
    kept.of("b", lambda: "123")
    assert kept.of("b", lambda: "3") == "123"
    assert kept.of("large", lambda: "new") == "new", "5 and 3 are more than 5"
