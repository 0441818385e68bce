"""Word change, the value of a component of kind `words`: maps a word to its candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.attacks.words.search.draws import Draws

Candidates = Callable[[str, Draws], Sequence[str]]
"""Maps a word and its draws to its candidates, which may include the word itself."""


@dataclass(frozen=True)
class WordChange:
    """Kind of word change."""

    name: str  # Catalog name; random draws are keyed by it
    candidates: Candidates  # Candidates for a word; may be empty
    chance: bool = False  # Whether the candidates are drawn; otherwise they depend on the word alone

    def of(self, word: str, draws: Draws) -> list[str]:
        """Candidates that differ from the word, in order."""
        return [candidate for candidate in self.candidates(word, draws) if candidate != word]
