"""A character of a word replaced by a drawn letter.

Gao et al. 2018 (`search/recipes.py`; DeepWordBug), section III. The letter may be any of the English
alphabet, small or capital.

    w' = w_1 ... w_(i-1) a w_(i+1) ... w_n,    a drawn from a-z and A-Z
    w = w_1 ... w_n, the characters of a word;    i drawn evenly, or each i with `every`
    no change where n = 1
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.words.search import character_positions
from assay.attacks.words.search.draws import LETTERS, Draws
from assay.attacks.words.search.word_change import WordChange

__all__ = ["substituted_letter"]

PAPER = character_positions.PAPER


def substituted_letter(*, every: parameters.Every = False) -> WordChange:
    """One character becomes a drawn letter."""
    return character_positions.at_places("substituted_letter", _substitute, every=every, letters=True)


def _substitute(word: str, place: int, draws: Draws) -> tuple[str]:
    return (word[:place] + draws.one_of(LETTERS) + word[place + 1 :],)
