"""The searches as generators, against a model whose score of each text is a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from assay.attacks.words.search.candidates import Moves, Rules
from assay.attacks.words.search.draws import Stream
from assay.attacks.words.search.greedy import (
    Answer,
    Asking,
    Ranking,
    deleted,
    greedy,
    greedy_by_importance,
    weighted_saliency,
    without_the_word,
)
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.word_change import WordChange

START = "one two three"
# Each word has its first letter doubled, and turned into x.
CANDIDATES = WordChange("letters", lambda word, draws: [word[0] + word, "x" + word[1:]])


def moves(rules: Rules | None = None, change: WordChange = CANDIDATES) -> Moves:
    return Moves((change,), rules or Rules(), Text(START), Stream(0, "attack", "id"))


def drive(
    asking: Asking | Ranking, score: Callable[[str], float], threshold: float = 1.0
) -> tuple[object, list[list[str]]]:
    """What a generator returns, and the texts that it asked for, by turn."""
    asked: list[list[str]] = []
    try:
        wanted = next(asking)
        while True:
            asked.append([text.text for text in wanted])
            answers = [Answer(score(text.text), score(text.text) >= threshold) for text in wanted]
            wanted = asking.send(answers)
    except StopIteration as end:
        return end.value, asked


def table(scores: Mapping[str, float]) -> Callable[[str], float]:
    return lambda text: scores.get(text, 0.0)


def test_importance_without_the_word_or_with_it_deleted() -> None:
    importance, asked = drive(without_the_word(moves(), [0, 2]), table({"one two [UNK]": 0.7}))
    assert asked == [["[UNK] two three", "one two [UNK]"]]
    assert importance == [0.0, 0.7]
    importance, asked = drive(deleted(moves(), [0, 1, 2]), table({"two three": 0.2, "one two ": 0.4}))
    assert asked == [["two three", "one three", "one two "]]
    assert importance == [0.2, 0.0, 0.4]


def test_weighted_saliency_is_softmax_of_saliency_times_the_best_gain() -> None:
    scores = {"[UNK] two three": 0.9, "one [UNK] three": 0.1, "xne two three": 0.5, "oone two three": 0.2}
    scores |= {"one xwo three": 0.6}
    importance, asked = drive(weighted_saliency(moves(), [0, 1]), table(scores))
    assert asked[0] == ["[UNK] two three", "one [UNK] three"]
    assert asked[1:] == [["oone two three", "xne two three"], ["one ttwo three", "one xwo three"]]
    share = math.exp(0.9) / (math.exp(0.9) + math.exp(0.1))
    assert importance == pytest.approx([share * 0.5, (1 - share) * 0.6], rel=1e-6)


def test_words_without_candidates_have_no_weighted_saliency() -> None:
    nothing = WordChange("none", lambda word, draws: [])
    importance, asked = drive(weighted_saliency(moves(change=nothing), [0, 1]), table({}))
    assert importance == [0.0, 0.0]
    assert len(asked) == 1, "nothing is asked where there is nothing to ask"


def ranked(*importance: float) -> Callable[[Moves, list[int]], Ranking]:
    def rank(moves: Moves, words: list[int]) -> Ranking:
        yield []
        return list(importance)

    return rank


def test_words_change_in_the_order_of_importance_until_the_prediction_does() -> None:
    scores = {"one two xhree": 0.4, "one two tthree": 0.3, "one xwo xhree": 0.8, "xne xwo xhree": 1.0}
    search = greedy_by_importance(ranked(0.1, 0.5, 0.9))(moves(), Answer(0.2, broken=False))
    (text, answer), asked = drive(search, table(scores))  # type: ignore[misc]
    assert [turn[0][:7] for turn in asked[1:]] == ["one two", "one ttw", "oone xw"]
    assert text.text == "xne xwo xhree"
    assert answer == Answer(1.0, broken=True)
    scores["one xwo xhree"] = 1.5
    search = greedy_by_importance(ranked(0.1, 0.5, 0.9))(moves(), Answer(0.2, broken=False))
    (text, _), asked = drive(search, table(scores))  # type: ignore[misc]
    assert text.text == "one xwo xhree"
    assert len(asked) == 1 + 2, "the third word is left alone"


def test_a_word_stays_where_no_candidate_scores_higher() -> None:
    """Not even an equal score counts; words of equal importance come in text order."""
    scores = {"xne two three": 0.2, "one xwo three": 0.25}
    search = greedy_by_importance(ranked(0.5, 0.5, 0.5))(moves(), Answer(0.2, broken=False))
    (text, answer), asked = drive(search, table(scores))  # type: ignore[misc]
    assert text.text == "one xwo three"
    assert answer.score == 0.25
    assert asked[1] == ["oone two three", "xne two three"]
    assert asked[2] == ["one ttwo three", "one xwo three"]
    assert asked[3] == ["one xwo tthree", "one xwo xhree"]


def test_of_equal_candidates_the_first_counts() -> None:
    scores = {"oone two three": 0.6, "xne two three": 0.6}
    search = greedy_by_importance(ranked(1.0, 0.0, 0.0))(moves(), Answer(0.0, broken=False))
    (text, _), _ = drive(search, table(scores), threshold=0.5)  # type: ignore[misc]
    assert text.text == "oone two three"


def test_greedy_takes_the_best_of_all_even_below_the_unchanged_text() -> None:
    scores = {"one xwo three": 0.05, "xne xwo three": 0.1}
    (text, answer), asked = drive(greedy(moves(), Answer(0.5, broken=False)), table(scores))  # type: ignore[misc]
    # Six candidates of three words, then four of two, then two.
    assert [len(turn) for turn in asked] == [6, 4, 2]
    assert text.words[:2] == ["xne", "xwo"]
    assert answer.score == 0.0


def test_greedy_stops_at_a_broken_text() -> None:
    (text, answer), asked = drive(greedy(moves(), Answer(0.0, broken=False)), table({"one xwo three": 1.0}))  # type: ignore[misc]
    assert (text.text, answer.broken, len(asked)) == ("one xwo three", True, 1)
    (text, _), asked = drive(greedy(moves(), Answer(1.0, broken=True)), table({}))  # type: ignore[misc]
    assert (text.text, asked) == (START, [])


def test_searches_without_a_free_word_ask_nothing_more() -> None:
    rules = Rules(fewest_characters=9)
    for search in (greedy, greedy_by_importance(ranked())):
        (text, answer), asked = drive(search(moves(rules), Answer(0.3, broken=False)), table({}))  # type: ignore[misc]
        assert (text.text, answer.score) == (START, 0.3)
        assert all(not turn for turn in asked)
