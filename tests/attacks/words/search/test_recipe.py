"""A recipe's session with a model: what it asks, counts and finds."""

from __future__ import annotations

from collections.abc import Sequence

from assay.attacks.words.search.candidates import Moves, Rules
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.greedy import Answer, Asking, greedy
from assay.attacks.words.search.recipe import Finding, Recipe
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.word_change import WordChange

NO, YES = Answer(0.2, broken=False), Answer(0.8, broken=True)


def drawn(word: str, draws: Draws) -> Sequence[str]:
    return [f"{word}{draws.below(10**9)}"]


def recipe(search: object = greedy, *, rules: Rules | None = None, name: str = "own") -> Recipe:
    return Recipe(name, (WordChange("number", drawn, chance=True),), rules or Rules(), search)  # type: ignore[arg-type]


def run(made: Recipe, sentence: str, *answers: Answer, example: str = "0", seed: int = 0) -> Finding:
    """The finding, where the answers come turn by turn, the same for all texts of a turn."""
    session, left = made.attack(sentence, example, seed), iter(answers)
    wanted = next(session)
    while True:
        assert wanted, "an empty question is not asked"
        answer = next(left)
        try:
            wanted = session.send([answer] * len(wanted))
        except StopIteration as end:
            assert next(left, None) is None
            finding: Finding = end.value
            return finding


def test_a_sentence_that_is_wrong_already_is_skipped() -> None:
    finding = run(recipe(), "good day", YES)
    assert finding.skipped
    assert (finding.text.text, finding.answer, finding.queries, finding.changed) == ("good day", YES, 1, 0)


def test_queries_are_the_unchanged_text_and_all_candidates() -> None:
    finding = run(recipe(), "good day", NO, NO, YES)
    assert not finding.skipped
    # Two candidates, and after the first change one.
    assert finding.queries == 1 + 2 + 1
    assert finding.changed == 2
    assert finding.answer == YES


def test_a_search_that_finds_nothing_to_ask_ends() -> None:
    finding = run(recipe(rules=Rules(fewest_characters=10)), "good day", NO)
    assert (finding.queries, finding.changed, finding.skipped) == (1, 0, False)
    assert finding.answer == NO


def test_an_empty_question_of_the_search_is_answered_at_once() -> None:
    def search(moves: Moves, answer: Answer) -> Asking:
        nothing = yield []
        assert list(nothing) == []
        (answer,) = yield [Text("asked")]
        return Text("asked"), answer

    finding = run(recipe(search), "good day", NO, YES)
    assert finding.queries == 2
    assert finding.text.text == "asked"


def test_draws_are_keyed_by_seed_recipe_and_example() -> None:
    usual = run(recipe(), "word", NO, YES).text.text
    assert run(recipe(), "word", NO, YES).text.text == usual
    assert run(recipe(), "word", NO, YES, seed=1).text.text != usual
    assert run(recipe(), "word", NO, YES, example="1").text.text != usual
    assert run(recipe(name="other"), "word", NO, YES).text.text != usual
