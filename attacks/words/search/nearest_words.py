"""Word change to the nearest words by vectors, and the constraint on their cosine.

Jin et al. 2020, "Is BERT Really Robust?", section 3, as in TextAttack's `WordSwapEmbedding` and
`WordEmbeddingDistance`: vectors are of lower-case words, and a replacement takes the case of its word.
"""

from __future__ import annotations

from assay.attacks.words.search.candidates import Taken
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.neighbours import Neighbours
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.word_change import WordChange


def nearest_words(neighbours: Neighbours) -> WordChange:
    """Change of a word to its nearest words, nearest first."""

    def candidates(word: str, _draws: Draws) -> list[str]:
        return [_written_as(word, other) for other in neighbours.of(word.lower())]

    return WordChange("nearest_words", candidates)


def similar(neighbours: Neighbours, least: float) -> Taken:
    """Accepts a changed text if each fresh word is close enough to the original's word at its position.

    Words without a vector are accepted. A word replaced by several is compared position by position, with the
    original words there.
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
