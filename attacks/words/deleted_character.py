"""A character of a word left out.

Gao et al. 2018 (`search/recipes.py`; DeepWordBug), section III; with the first and last characters kept,
Pruthi et al. 2019 (`search/recipes.py`), section 3.

    w' = w_1 ... w_(i-1) w_(i+1) ... w_n
    w = w_1 ... w_n, the characters of a word;    i drawn evenly, or each i with `every`
    no change where n = 1
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.words.search import character_positions
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.word_change import WordChange

__all__ = ["deleted_character"]

PAPER = character_positions.PAPER


def deleted_character(
    *,
    every: parameters.Every = False,
    keep_first: parameters.KeepFirst = False,
    keep_last: parameters.KeepLast = False,
) -> WordChange:
    """One character is left out."""
    return character_positions.at_places(
        "deleted_character", _delete, every=every, keep_first=keep_first, keep_last=keep_last
    )


def _delete(word: str, place: int, _draws: Draws) -> tuple[str]:
    return (word[:place] + word[place + 1 :],)
