"""Search methods of the recipes, as generators that yield texts and receive the model's answers.

Its queries are TextAttack's, in order; ties are resolved in text order, where TextAttack has an unstable
sort.

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

# A word outside every vocabulary, substituted to measure a word's importance.
UNKNOWN = "[UNK]"


class Answer(NamedTuple):
    """The model's answer to a text."""

    score: float  # 1 minus the probability of the true class: what an attack maximises
    broken: bool  # whether the prediction is another class


Asking = Generator[list[Text], Sequence[Answer], tuple[Text, Answer]]
"""Search: yields texts, receives an answer for each, returns the text that counts with its answer."""
Search = Callable[[Moves, Answer], Asking]
"""Maps an example's moves and the answer to its unchanged text to a search."""
Ranking = Generator[list[Text], Sequence[Answer], list[float]]


def greedy_by_importance(rank: Callable[[Moves, list[int]], Ranking]) -> Search:
    """Changes words in order of importance, each to its best candidate, until the prediction changes."""

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
    """Importance of a word: the score with the word replaced by an unknown one."""
    answers = yield [moves.original.replace(index, UNKNOWN) for index in words]
    return [answer.score for answer in answers]


def deleted(moves: Moves, words: list[int]) -> Ranking:
    """Importance of a word: the score with the word deleted."""
    answers = yield [moves.original.replace(index, "") for index in words]
    return [answer.score for answer in answers]


def weighted_saliency(moves: Moves, words: list[int]) -> Ranking:
    """Importance of a word: the softmax of the scores without it, times the best score of its candidates."""
    alone = yield from without_the_word(moves, words)
    # In single precision, as in TextAttack: the order of near ties depends on it.
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
    """Takes the best of all changed texts, then changes it once more, until no candidates are left.

    The best of the last round counts, even if it scores below the unchanged text.
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
