"""The places of a word at which a change of one character can be made, and the change made there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.word_change import WordChange

AtPlace = Callable[[str, int, Draws], Sequence[str]]
"""From a word, an index of it and draws to what the word may become by a change at that index."""


def at_places(
    name: str,
    change: AtPlace,
    *,
    every: bool,
    keep_first: bool,
    keep_last: bool,
    pairs: bool = False,
    letters: bool = False,
) -> WordChange:
    """A change of one character, or of two neighbours, at one drawn place of a word or at each of them.

    Words of one character have no places.

    Args:
        name: Catalog name.
        change: What is done at a place.
        every: One candidate for each place, in order, not one at a place that is drawn.
        keep_first: The first character stays.
        keep_last: The last character stays.
        pairs: A place is a character and the next one.
        letters: Draws decide the candidates at a place too.
    """

    def candidates(word: str, draws: Draws) -> list[str]:
        places = range(int(keep_first), len(word) - int(keep_last) - int(pairs))
        if len(word) <= 1 or not places:
            return []
        chosen = places if every else (places[draws.below(len(places))],)
        return [candidate for place in chosen for candidate in change(word, place, draws)]

    return WordChange(name, candidates, chance=letters or not every)
