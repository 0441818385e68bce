"""A text and its words."""

from __future__ import annotations

import pytest

from assay.attacks.words.search.text import Text, spans, within

SENTENCE = "'Well,' said O'Brien -- \"it's a well-made 2nd film_\" (no?)"


def test_words_are_what_textattack_has() -> None:
    # From textattack.shared.utils.words_from_text of release 0.3.11.
    assert Text(SENTENCE).words == ["Well", "said", "O'Brien", "it's", "a", "well-made", "2nd", "film", "no"]


def test_spans_are_where_the_words_are() -> None:
    assert [SENTENCE[start:stop] for start, stop in spans(SENTENCE)] == Text(SENTENCE).words


def test_all_else_stays() -> None:
    assert Text(SENTENCE).replace(2, "Smith").text == SENTENCE.replace("O'Brien", "Smith")


@pytest.mark.parametrize(
    ("index", "new", "text", "modified"),
    [
        (1, "x", "one x three", {1}),
        (1, "", "one three", set()),
        (0, "", "two three", set()),
        (2, "", "one two ", set()),  # with nothing behind it, as in TextAttack
        (1, "x y", "one x y three", {1, 2}),
        (1, "two", "one two three", set()),
    ],
)
def test_a_word_may_become_none_or_several(index: int, new: str, text: str, modified: set[int]) -> None:
    found = Text("one two three").replace(index, new)
    assert found.text == text
    assert found.modified == modified


def test_what_was_changed_before_is_remembered_where_it_is_now() -> None:
    text = Text("one two three four").replace(2, "x")
    assert text.replace(0, "a b").modified == {0, 1, 3}
    assert text.replace(0, "").modified == {1}
    assert text.replace(3, "y").modified == {2, 3}


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("", "", 0),
        ("kitten", "sitting", 3),
        ("abc", "", 3),
        ("abcd", "bcda", 2),
        ("ab", "ba", 2),
        ("xay", "xy", 1),
    ],
)
def test_distance_up_to_a_limit(first: str, second: str, distance: int) -> None:
    for limit in range(6):
        assert within(first, second, limit) is (distance <= limit)
        assert within(second, first, limit) is (distance <= limit)


def test_distance_of_long_texts() -> None:
    words = [f"word{number}" for number in range(200)]
    text = " ".join(words)
    for changed in (29, 30, 31):
        other = " ".join(
            word.upper()[0] + word[1:] if number < changed else word for number, word in enumerate(words)
        )
        assert within(text, other, 30) is (changed <= 30)
