"""A drawn letter put before a character of a word.

Gao et al. 2018 (`search/recipes.py`; DeepWordBug), section III; with the first and last characters kept,
Pruthi et al. 2019 (`search/recipes.py`), section 3. As in TextAttack there is no place behind the last
character.

    w' = w_1 ... w_(i-1) a w_i ... w_n,    a drawn from a-z and A-Z
    w = w_1 ... w_n, the characters of a word;    i drawn evenly, or each i with `every`
    no change where n = 1
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.words.search import character_positions
from assay.attacks.words.search.draws import LETTERS, Draws
from assay.attacks.words.search.word_change import WordChange

__all__ = ["inserted_letter"]

PAPER = character_positions.PAPER


def inserted_letter(
    *, every: parameters.Every = False, keep_first: bool = False, keep_last: bool = False
) -> WordChange:
    """A drawn letter is put before one character.

    Args:
        keep_first: Nothing is put before the first character.
        keep_last: Nothing is put before the last character.
    """
    return character_positions.at_places(
        "inserted_letter", _insert, every=every, keep_first=keep_first, keep_last=keep_last, letters=True
    )


def _insert(word: str, place: int, draws: Draws) -> tuple[str]:
    return (word[:place] + draws.one_of(LETTERS) + word[place:],)
