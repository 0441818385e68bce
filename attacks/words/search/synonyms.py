"""Synonyms of a word in WordNet.

Ren et al. 2019, "Generating Natural Language Adversarial Examples through Probability Weighted Word
Saliency", section 3.2: all synonyms of a word, in every sense and part of speech. Phrases are left out.
"""

from __future__ import annotations

import functools
from pathlib import Path

from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.text import spans
from assay.attacks.words.search.word_change import WordChange
from assay.attacks.words.search.wordnet import WordNet


def synonyms(folder: Path) -> WordChange:
    """The synonyms of a word.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not one of WordNet.
    """
    wordnet = _read(folder)

    def candidates(word: str, _draws: Draws) -> list[str]:
        return [other for other in wordnet.synonyms(word) if "_" not in other and len(spans(other)) == 1]

    return WordChange("synonyms", candidates)


@functools.lru_cache(maxsize=1)
def _read(folder: Path) -> WordNet:
    return WordNet(folder)
