"""Two neighbouring characters of a word swapped.

Gao et al. 2018 (`search/recipes.py`; DeepWordBug), section III; with the first and last characters kept,
Pruthi et al. 2019 (`search/recipes.py`), section 3.

    w' = w_1 ... w_(i+1) w_i ... w_n
    w = w_1 ... w_n, the characters of a word;    i drawn evenly, or each i with `every`, below n
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.words.search import character_positions
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.word_change import WordChange

__all__ = ["swapped_characters"]

PAPER = character_positions.PAPER


def swapped_characters(
    *, every: bool = False, keep_first: parameters.KeepFirst = False, keep_last: parameters.KeepLast = False
) -> WordChange:
    """Two neighbouring characters change places.

    Args:
        every: A candidate for each pair of neighbours, not for one that is drawn.
    """
    return character_positions.at_places(
        "swapped_characters", _swap, every=every, keep_first=keep_first, keep_last=keep_last, pairs=True
    )


def _swap(word: str, place: int, _draws: Draws) -> tuple[str]:
    return (word[:place] + word[place + 1] + word[place] + word[place + 2 :],)
