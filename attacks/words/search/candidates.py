"""What an attack on text may do next: the changed texts that a recipe allows.

A recipe's rules come in two sorts. Some say which words may be changed at all (no stop words, nothing twice,
no short words), the others which changed texts are taken (few changes, words of like meaning).
"""

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
    """What a recipe allows.

    Attributes:
        stop_words: words that stay, compared as they are written.
        fewest_characters: shorter words stay.
        taken: a changed text must pass all of these.
    """

    stop_words: frozenset[str] = frozenset()
    fewest_characters: int = 1
    taken: tuple[Taken, ...] = ()

    def free(self, text: Text) -> list[int]:
        """The words that may be changed, in order; those that were changed may not be changed again."""
        return [
            index
            for index, word in enumerate(text.words)
            if index not in text.modified
            and word not in self.stop_words
            and len(word) >= self.fewest_characters
        ]


@dataclass(frozen=True)
class Moves:
    """The changed texts of one example.

    Attributes:
        changes: what may be done to a word.
        rules: what is allowed.
        original: the text before the attack.
        stream: the draws of the example.
    """

    changes: Sequence[WordChange]
    rules: Rules
    original: Text
    stream: Stream

    def of(self, text: Text, indices: Iterable[int] | None = None) -> list[Text]:
        """The allowed texts with one more word changed, each once, in the order of their characters.

        Args:
            text: what is changed.
            indices: words that are meant; None for all.
        """
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
