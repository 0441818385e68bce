"""Associative recall: which digit belongs to a letter; a generated task that needs attention by content.

After Ba et al., "Using Fast Weights to Attend to the Recent Past", NeurIPS 2016, section 4.1: different
letters with a digit each, then a letter; the label is its digit. A mechanism that cannot compare tokens
sharply is right by chance: one in ten, or the share of the commonest digit that it sees.

Deviation: there, letter and digit are two tokens, and two question marks stand before the last letter. Here a
letter with its digit is a token, as is the question, so that one layer learns the task within a minute on a
processor; two tokens need two layers, which learn late and suddenly.

All sequences are different; equal sequences would be in one part, by their hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from string import digits
from typing import Annotated

from annotated_types import Interval

from assay.workers.data.formats import parameters
from assay.workers.data.formats.sequences import (
    Alphabet,
    DrawSeed,
    Evaluated,
    ExampleCount,
    HashedDraws,
    PartName,
    TokenSequences,
    part_of,
)

__all__ = ["recall"]

TASKS = ("sequence",)
PAPER = "Ba et al. 2016, Using Fast Weights to Attend to the Recent Past"
FACTS = {"classes": 10, "channels": 111, "words": False, "sentences": False, "pairs": False}

LETTERS = "abcdefghij"
QUESTION = "?"
ITEMS = [letter + digit for letter in LETTERS for digit in digits]
ALPHABET = Alphabet([*ITEMS, *(letter + QUESTION for letter in LETTERS)])


def recall(
    root: parameters.Root,
    split: parameters.Split,
    *,
    letters: Annotated[int, Interval(ge=2, le=10)] = 6,
    train: ExampleCount = 4000,
    evaluation: ExampleCount = 1000,
    evaluated: Evaluated = "test",
    seed: DrawSeed = 0,
) -> TokenSequences:
    """Letters with a digit each, then a letter: which digit was its? (ten classes); made on the spot.

    Args:
        letters: letters with a digit; a sequence has one token more.
        train: number of sequences for training.
        evaluation: number of sequences for evaluation.
        seed: another seed, other sequences.
    """
    del root
    part: PartName = "train" if split == "train" else evaluated
    count = train if part == "train" else evaluation
    sequences = _sequences(part, count, letters, seed)
    return TokenSequences(
        name="recall",
        class_names=tuple(digits),
        ids=[f"{part}/{number:06d}" for number in range(count)],
        labels=[label_of(tokens) for tokens in sequences],
        vocabulary=ALPHABET,
        read=lambda index: (ALPHABET.ids(sequences[index]),),
    )


def label_of(tokens: Sequence[str]) -> int:
    """The digit of the letter in question."""
    digit = {token[0]: token[1] for token in tokens[:-1]}
    return int(digit[tokens[-1][0]])


@cache
def _sequences(part: PartName, count: int, letters: int, seed: int) -> list[tuple[str, ...]]:
    draws = HashedDraws(f"recall/{seed}/{part}")
    found: dict[tuple[str, ...], None] = {}
    while len(found) < count:
        left = list(LETTERS)
        chosen = [left.pop(draws.below(len(left))) for _ in range(letters)]
        tokens = [letter + digits[draws.below(10)] for letter in chosen]
        tokens.append(chosen[draws.below(letters)] + QUESTION)
        if part_of(" ".join(tokens)) == part:
            found.setdefault(tuple(tokens))
    return list(found)
