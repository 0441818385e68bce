"""A word becomes one of those with the nearest vectors, and how near they have to be.

Jin et al. 2020, "Is BERT Really Robust?", section 3, as in TextAttack's `WordSwapEmbedding` and
`WordEmbeddingDistance`: vectors are of words in small letters, and what replaces a word is written as it was.
"""

from __future__ import annotations

from assay.attacks.words.search.candidates import Taken
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.neighbours import Neighbours
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.word_change import WordChange


def nearest_words(neighbours: Neighbours) -> WordChange:
    """The nearest words, nearest first."""

    def candidates(word: str, _draws: Draws) -> list[str]:
        return [_written_as(word, other) for other in neighbours.of(word.lower())]

    return WordChange("nearest_words", candidates)


def similar(neighbours: Neighbours, least: float) -> Taken:
    """Allows a changed text if each fresh word and the original's word at its place are near enough.

    Words without a vector are near enough. What was replaced by several words is compared place by place,
    with the words that stood there.

    Args:
        neighbours: the vectors.
        least: the cosine, at least.
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
    """A word in small letters, capitals, or with a capital first, as another one is; else as it is."""
    if model.islower():
        return word.lower()
    if model.isupper() and len(model) > 1:
        return word.upper()
    if model[0].isupper() and model[1:].islower():
        return word.capitalize()
    return word
