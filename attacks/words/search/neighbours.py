"""Nearest neighbours of a word among word vectors, by cosine.

Jin et al. 2020, "Is BERT Really Robust?", section 3: the 50 nearest words of the counter-fitted vectors
(Mrksic et al. 2016). Vectors are scaled to length 1 in single precision; cosines are summed in double
precision, and do not depend on the other queries.

n words, d numbers in a vector, B words in a block, k neighbours of a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from assay.attacks.words.search.candidates import Taken
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.vector_files import norms
from assay.attacks.words.search.word_change import WordChange

BLOCK = 128
# Rounding of float32 numbers near 1.
ROUNDING = float(np.finfo(np.float32).eps)


class Neighbours:
    """Word vectors, float32 (n, d), finite, none of zeros, with a cache of the `count` nearest found so far.

    Memory: 4 n d bytes for the vectors, 4 n k for the neighbours, and 4 B n while a block is searched.
    """

    def __init__(self, words: Sequence[str], vectors: NDArray[np.float32], count: int) -> None:
        self._unit = np.empty_like(vectors)  # n, d
        np.divide(vectors, norms(vectors)[:, None], out=self._unit, casting="same_kind")
        self._words = tuple(words)
        self._number = {word: number for number, word in enumerate(words)}
        self._count = min(count, len(words) - 1)
        self._nearest = np.zeros((len(words), self._count), np.int32)  # n, k
        self._known = np.zeros(len(words), bool)
        # A dot product in single precision is off by at most d / 2 roundings, and two of them are compared.
        self._margin = (self._unit.shape[1] + 16) * ROUNDING

    def prepare(self, words: Iterable[str]) -> None:
        """Find the neighbours of many words together, which is faster than one by one."""
        numbers = {self._number[word] for word in words if word in self._number}
        wanted = sorted(number for number in numbers if not self._known[number])
        for start in range(0, len(wanted), BLOCK):
            self._look(wanted[start : start + BLOCK])

    def of(self, word: str) -> list[str]:
        """Neighbours of a word, nearest first, ties in the file's order; none without a vector."""
        number = self._number.get(word)
        if number is None:
            return []
        if not self._known[number]:
            self._look([number])
        return [self._words[other] for other in self._nearest[number]]

    def cosine(self, first: str, second: str) -> float | None:
        """Cosine of two words' vectors; None if either has no vector."""
        one, other = self._number.get(first), self._number.get(second)
        if one is None or other is None:
            return None
        return float(self._cosines(one, np.array([other]))[0])

    def _look(self, block: list[int]) -> None:
        if self._count:
            rough = torch.from_numpy(self._unit[block]) @ torch.from_numpy(self._unit).T  # B, n
            rough[torch.arange(len(block)), torch.tensor(block)] = -torch.inf
            least = rough.topk(self._count, dim=1).values[:, -1:] - self._margin  # B, 1
            for number, near in zip(block, rough >= least, strict=True):
                self._nearest[number] = self._first(number, near.nonzero()[:, 0].numpy())
        self._known[block] = True

    def _first(self, number: int, others: NDArray[np.int64]) -> NDArray[np.int64]:
        order = np.lexsort((others, -self._cosines(number, others)))
        return others[order[: self._count]]

    def _cosines(self, number: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        # Summed row by row: the rounding of a matrix product depends on the number of rows.
        products = self._unit[others].astype(np.float64) * self._unit[number].astype(np.float64)
        sums: NDArray[np.float64] = products.sum(axis=1)
        return sums


def nearest_words(neighbours: Neighbours) -> WordChange:
    """Change of a word to its nearest words, nearest first, as in TextAttack's `WordSwapEmbedding`.

    Vectors are of lower-case words, and a replacement takes the case of its word.
    """

    def candidates(word: str, _draws: Draws) -> list[str]:
        return [_written_as(word, other) for other in neighbours.of(word.lower())]

    return WordChange("nearest_words", candidates)


def similar(neighbours: Neighbours, least: float) -> Taken:
    """Accepts a changed text if each fresh word is close enough to the original's word at its position.

    TextAttack's `WordEmbeddingDistance`. Words without a vector are accepted. A word replaced by several is
    compared position by position, with the original words there.
    """

    def near(text: Text, original: Text) -> bool:
        start, count = text.fresh
        if start + count > min(len(text.words), len(original.words)):
            return False
        places = slice(start, start + count)
        pairs = zip(original.words[places], text.words[places], strict=True)
        cosines = (neighbours.cosine(before.lower(), after.lower()) for before, after in pairs)
        return all(cosine is None or cosine >= least for cosine in cosines)

    return near


def _written_as(model: str, word: str) -> str:
    """The word in the case of another: lower, upper or capitalised; otherwise unchanged."""
    if model.islower():
        return word.lower()
    if model.isupper() and len(model) > 1:
        return word.upper()
    if model[0].isupper() and model[1:].islower():
        return word.capitalize()
    return word
