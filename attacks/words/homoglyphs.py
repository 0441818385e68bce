"""A character of a word replaced by one that looks like it.

Boucher et al. 2022, "Bad Characters: Imperceptible NLP Attacks", section IV. Capitals have no look-alikes
here.

    w' = w_1 ... w_(i-1) a w_(i+1) ... w_n,    a = what looks like w_i
    w = w_1 ... w_n, the characters of a word;    i drawn evenly, or each i with `every`
    no change where w_i has no look-alike
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.homoglyph_table import LOOK_ALIKE
from assay.attacks.words.search.word_change import WordChange

__all__ = ["homoglyphs"]

PAPER = "Boucher et al. 2022, Bad Characters: Imperceptible NLP Attacks"


def homoglyphs(*, every: parameters.Every = True) -> WordChange:
    """One character becomes one that looks like it."""

    def candidates(word: str, draws: Draws) -> list[str]:
        places = range(len(word)) if every or not word else (draws.below(len(word)),)
        return [
            word[:place] + LOOK_ALIKE[word[place]] + word[place + 1 :]
            for place in places
            if word[place] in LOOK_ALIKE
        ]

    return WordChange("homoglyphs", candidates, chance=not every)
