"""A letter of a word replaced by one that is next to it on a QWERTY keyboard.

Pruthi et al. 2019 (`search/recipes.py`), section 3. Key neighbourhoods are TextAttack 0.3.11's.

    w' = w_1 ... w_(i-1) a w_(i+1) ... w_n,    a next to w_i on the keyboard, in its case
    w = w_1 ... w_n, the characters of a word;    i drawn evenly, or each i with `every`
    a drawn from the neighbours, or each with `every`; no change where n = 1 or w_i has no neighbours
"""

from __future__ import annotations

import json
from pathlib import Path

from assay.attacks import parameters
from assay.attacks.words.search.character_positions import at_places
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.word_change import WordChange

__all__ = ["neighbouring_key"]

PAPER = "Pruthi et al. 2019, Combating Adversarial Misspellings with Robust Word Recognition"
# Key to its neighbours.
KEYBOARD: dict[str, str] = json.loads(Path(__file__).with_name("keyboard.json").read_text(encoding="utf-8"))


def neighbouring_key(
    *, every: bool = False, keep_first: parameters.KeepFirst = False, keep_last: parameters.KeepLast = False
) -> WordChange:
    """One letter becomes a neighbouring one on the keyboard, in the same case.

    Args:
        every: A candidate for each letter and neighbour, not for one that is drawn.
    """

    def press(word: str, place: int, draws: Draws) -> list[str]:
        keys = KEYBOARD.get(word[place].lower(), "")
        if keys and not every:
            keys = draws.one_of(keys)
        if word[place].isupper():
            keys = keys.upper()
        return [word[:place] + key + word[place + 1 :] for key in keys]

    return at_places("neighbouring_key", press, every=every, keep_first=keep_first, keep_last=keep_last)
