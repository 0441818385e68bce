"""The searches of the recipes, as generators: they yield texts, and are sent what the model makes of them.

A search asks for what it needs next and knows nothing of other examples, so that the questions of many
examples can share one batch. For each example the questions are those of TextAttack, in its order; what is
equal goes in the order of the text, where TextAttack leaves it to an unstable sort.

Morris et al. 2020, "TextAttack"; greedy search in the order of importance: Jin et al. 2020, "Is BERT Really
Robust?", algorithm 1; the weighted saliency: Ren et al. 2019, "Generating Natural Language Adversarial
Examples through Probability Weighted Word Saliency", equations 5 to 9.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import torch

from assay.attacks.words.search.candidates import Moves
from assay.attacks.words.search.text import Text

# A word that no vocabulary has: how important a word is shows when it is gone.
UNKNOWN = "[UNK]"


class Answer(NamedTuple):
    """What the model makes of a text.

    Attributes:
        score: 1 minus the probability of the true class: what an attack raises.
        broken: whether the prediction is another class.
    """

    score: float
    broken: bool


Asking = Generator[list[Text], Sequence[Answer], tuple[Text, Answer]]
"""A search: it yields texts, is sent an answer for each, and returns the text that counts with its answer."""
Search = Callable[[Moves, Answer], Asking]
"""From an example's moves and the answer to its unchanged text to a search."""
Ranking = Generator[list[Text], Sequence[Answer], list[float]]


def greedy_by_importance(rank: Callable[[Moves, list[int]], Ranking]) -> Search:
    """Changes the words in the order of their importance, each in the best way, until the prediction changes.

    Args:
        rank: from the moves and the words to the importance of each.
    """

    def search(moves: Moves, answer: Answer) -> Asking:
        text = moves.original
        words = moves.rules.free(text)
        importance = yield from rank(moves, words)
        order = sorted(range(len(words)), key=lambda place: -importance[place])
        for place in order:
            candidates = moves.of(text, [words[place]])
            if not candidates:
                continue
            answers = yield candidates
            best = max(range(len(candidates)), key=lambda number: answers[number].score)
            if answers[best].score > answer.score:
                text, answer = candidates[best], answers[best]
                if answer.broken:
                    break
        return text, answer

    return search


def without_the_word(moves: Moves, words: list[int]) -> Ranking:
    """Importance of a word: the score when it is unknown."""
    answers = yield [moves.original.replace(index, UNKNOWN) for index in words]
    return [answer.score for answer in answers]


def deleted(moves: Moves, words: list[int]) -> Ranking:
    """Importance of a word: the score when it is left out."""
    answers = yield [moves.original.replace(index, "") for index in words]
    return [answer.score for answer in answers]


def weighted_saliency(moves: Moves, words: list[int]) -> Ranking:
    """Importance of a word: the softmax of the scores without it, times the best score of its candidates."""
    alone = yield from without_the_word(moves, words)
    # In single precision, as TextAttack has it: the order of words that are nearly equal depends on it.
    saliency = torch.tensor(alone, dtype=torch.float32).softmax(0).double().tolist()
    gains = []
    for index in words:
        candidates = moves.of(moves.original, [index])
        answers: Sequence[Answer] = []
        if candidates:
            answers = yield candidates
        gains.append(max((answer.score for answer in answers), default=0.0))
    return [share * gain for share, gain in zip(saliency, gains, strict=True)]


def greedy(moves: Moves, answer: Answer) -> Asking:
    """Takes the best of all changed texts, then the best of those changed once more, until none are left.

    What counts is the best of the last round, which may score less than the unchanged text.
    """
    text = moves.original
    while not answer.broken:
        candidates = moves.of(text)
        if not candidates:
            break
        answers = yield candidates
        best = max(range(len(candidates)), key=lambda number: answers[number].score)
        text, answer = candidates[best], answers[best]
    return text, answer
