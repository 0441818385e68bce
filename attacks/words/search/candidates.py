"""Candidate texts of the next step of an attack on text, filtered by the recipe's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from assay.attacks.words.search.draws import Stream
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.word_change import WordChange

Taken = Callable[[Text, Text], bool]
"""Whether a changed text, given with the original, is allowed."""


@dataclass(frozen=True)
class Rules:
    """Constraints of a recipe."""

    stop_words: frozenset[str] = frozenset()  # words that stay, compared case-sensitively
    fewest_characters: int = 1  # shorter words stay
    taken: tuple[Taken, ...] = ()  # predicates that a changed text must all pass

    def free(self, text: Text) -> list[int]:
        """Words that may be changed, in order; changed words may not be changed again."""
        return [
            index
            for index, word in enumerate(text.words)
            if index not in text.modified
            and word not in self.stop_words
            and len(word) >= self.fewest_characters
        ]


@dataclass(frozen=True)
class Moves:
    """Candidate texts of an example."""

    changes: Sequence[WordChange]  # the allowed word changes
    rules: Rules
    original: Text
    stream: Stream

    def of(self, text: Text, indices: Iterable[int] | None = None) -> list[Text]:
        """Allowed texts with one more word changed, of all or of `indices`; each once, sorted by letters."""
        free = self.rules.free(text)
        chosen = free if indices is None else [index for index in indices if index in free]
        found: dict[str, Text] = {}
        for change in self.changes:
            for index in chosen:
                for word in change.of(text.words[index], self.stream.of(change.name, index)):
                    changed = text.replace(index, word)
                    found.setdefault(changed.text, changed)
        found.pop(text.text, None)
        allowed = [
            changed
            for changed in found.values()
            if all(rule(changed, self.original) for rule in self.rules.taken)
        ]
        return sorted(allowed, key=lambda changed: changed.text)
