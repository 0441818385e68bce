"""Positions in a word where one character can be changed, and the change applied there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.word_change import WordChange

PAPER = (
    "Gao et al. 2018, Black-box Generation of Adversarial Text Sequences to Evade Deep Learning Classifiers"
)
AtPlace = Callable[[str, int, Draws], Sequence[str]]
"""Maps a word, an index into it and draws to the candidates of a change at that index."""


def at_places(
    name: str,
    change: AtPlace,
    *,
    every: bool,
    keep_first: bool = False,
    keep_last: bool = False,
    pairs: bool = False,
    letters: bool = False,
) -> WordChange:
    """Word change of a character, or with `pairs` of two neighbours, at one drawn position or at every one.

    Words of a single character have no positions. With `every` there is a candidate per position, in order;
    `letters`: the candidates at a position are drawn, too.
    """

    def candidates(word: str, draws: Draws) -> list[str]:
        places = range(int(keep_first), len(word) - int(keep_last) - int(pairs))
        if len(word) <= 1 or not places:
            return []
        chosen = places if every else (places[draws.below(len(places))],)
        return [candidate for place in chosen for candidate in change(word, place, draws)]

    return WordChange(name, candidates, chance=letters or not every)
