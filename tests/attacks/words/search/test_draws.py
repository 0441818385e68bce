"""Draws of words: the same for a key wherever it is asked, and uniform."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from assay.attacks.words.search.draws import Draws, Stream


def numbers(draws: Draws, count: int = 20, n: int = 1000) -> list[int]:
    return [draws.below(n) for _ in range(count)]


def test_numbers_are_hashes_of_the_key_and_their_place() -> None:
    """Computed here step by step: other versions must repeat stored results."""
    key = blake2b(b"1:31:a2:id", digest_size=32).digest()
    expected = [
        int.from_bytes(blake2b(place.to_bytes(8, "little"), key=key, digest_size=8).digest(), "little") % 1000
        for place in range(20)
    ]
    assert numbers(Draws(3, "a", "id")) == expected


def test_equal_keys_draw_equal_numbers_from_their_start() -> None:
    stream = Stream(3, "pruthi", "0007")
    first = numbers(stream.of("homoglyphs", 4))
    assert numbers(stream.of("homoglyphs", 4)) == first
    assert numbers(Draws(3, "pruthi", "0007", "homoglyphs", 4)) == first


@pytest.mark.parametrize(
    "other",
    [
        Stream(4, "pruthi", "0007").of("homoglyphs", 4),
        Stream(3, "pwws", "0007").of("homoglyphs", 4),
        Stream(3, "pruthi", "0008").of("homoglyphs", 4),
        Stream(3, "pruthi", "0007").of("deleted_character", 4),
        Stream(3, "pruthi", "0007").of("homoglyphs", 5),
    ],
    ids=["seed", "attack", "example", "change", "word"],
)
def test_each_part_of_the_key_counts(other: Draws) -> None:
    assert numbers(other) != numbers(Stream(3, "pruthi", "0007").of("homoglyphs", 4))


def test_parts_that_join_alike_are_kept_apart() -> None:
    assert numbers(Draws("a", "bc")) != numbers(Draws("ab", "c"))
    assert numbers(Draws("abc")) != numbers(Draws("a", "bc"))


def test_keys_may_have_any_characters() -> None:
    """An example id may come from a file name that is not UTF-8."""
    assert numbers(Draws("\udce9")) != numbers(Draws("é"))


def test_numbers_are_uniform() -> None:
    draws = Draws("uniform")
    counts = [0] * 10
    for number in numbers(draws, 10_000, 10):
        counts[number] += 1
    # Five standard deviations of a tenth of 10 000 draws.
    assert all(abs(count - 1000) < 5 * (10_000 * 0.1 * 0.9) ** 0.5 for count in counts), counts


def test_a_single_choice_takes_a_number_too() -> None:
    draws = Draws("x")
    assert draws.below(1) == 0
    second = Draws("x")
    second.below(5)
    assert numbers(draws) == numbers(second)


def test_items_are_drawn_by_their_place() -> None:
    draws, same = Draws("items"), Draws("items")
    letters = "abcdefg"
    assert [draws.one_of(letters) for _ in range(30)] == [letters[same.below(7)] for _ in range(30)]
