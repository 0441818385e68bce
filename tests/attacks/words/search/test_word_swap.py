"""Words of running text swapped at a rate."""

from __future__ import annotations

import pytest
import torch

from assay.attacks.words.fixed_word import fixed_word
from assay.attacks.words.homoglyphs import homoglyphs
from assay.attacks.words.search.word_change import WordChange
from assay.attacks.words.search.word_swap import WordSwap, may_be_swapped
from assay.attacks.words.substituted_letter import substituted_letter

WORDS = [f"word{number % 977}" for number in range(20_000)]


@pytest.mark.sampled
@pytest.mark.parametrize("word", ["the", "1984", "it's", "St.", "naïve", "@handle", "AAA", "a"])
def test_words_with_a_letter_or_a_digit_may_be_swapped(word: str) -> None:
    assert may_be_swapped(word)


@pytest.mark.sampled
@pytest.mark.parametrize("word", ["<unk>", "<eos>", "<pad>", ",", "=", "@-@", "--", "...", "", "'"])
def test_markup_and_punctuation_stay(word: str) -> None:
    assert not may_be_swapped(word)
    assert WordSwap(1.0, fixed_word(), 0)([word, "word"], "d").words == [word, "AAA"]


def test_the_share_is_the_rate_but_for_chance() -> None:
    swapped = WordSwap(0.05, fixed_word(), 3)(WORDS, "d").swapped
    assert 0.044 < swapped.double().mean() < 0.056  # four standard deviations of 20 000 draws


def test_only_swapped_words_differ_and_they_are_told() -> None:
    found = WordSwap(0.3, fixed_word(), 0)(WORDS, "d")
    differs = [before != after for before, after in zip(WORDS, found.words, strict=True)]
    assert torch.tensor(differs).equal(found.swapped)
    assert set(found.words) - set(WORDS) == {"AAA"}
    assert found.eligible == len(WORDS)


def test_a_higher_rate_swaps_the_words_of_a_lower_one_and_more() -> None:
    few, many = (WordSwap(rate, fixed_word(), 0)(WORDS, "d").swapped for rate in (0.1, 0.2))
    assert not (few & ~many).any()
    assert many.sum() > few.sum()


def test_a_position_is_swapped_with_anything_after_it() -> None:
    swap = WordSwap(0.2, fixed_word(), 0)
    whole = swap(WORDS, "d").swapped
    for length in (1, 7, 16, 17, 1000):
        assert swap(WORDS[:length], "d").swapped.equal(whole[:length])


def test_documents_and_seeds_have_draws_of_their_own() -> None:
    kinds = [
        WordSwap(0.2, fixed_word(), seed)(WORDS, document).swapped for seed, document in ((0, "d"), (1, "d"))
    ]
    kinds.append(WordSwap(0.2, fixed_word(), 0)(WORDS, "e").swapped)
    assert not any(one.equal(other) for one, other in ((kinds[0], kinds[1]), (kinds[0], kinds[2])))


def test_a_word_that_is_the_replacement_already_is_not_counted() -> None:
    found = WordSwap(1.0, fixed_word(word="B"), 0)(["B", "C"], "d")
    assert found.words == ["B", "B"]
    assert found.swapped.tolist() == [False, True]


@pytest.mark.parametrize("change", [homoglyphs(), substituted_letter()], ids=["sure", "chance"])
def test_any_change_will_do(change: WordChange) -> None:
    swap = WordSwap(0.5, change, 0)
    found = swap(WORDS[:2000], "d")
    assert swap(WORDS[:1000], "d").words == found.words[:1000]
    assert all(len(word) == len(before) for word, before in zip(found.words, WORDS, strict=False))
    # Equal words do not all become the same.
    assert len({word for word, before in zip(found.words, WORDS, strict=False) if before == "word3"}) > 2


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\]"):
        WordSwap(rate, fixed_word(), 0)


def test_the_fixed_word_is_one_word() -> None:
    with pytest.raises(ValueError, match="without white space"):
        fixed_word(word="A B")
