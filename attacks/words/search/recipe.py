"""Attack recipe for text classifiers: transformations, constraints and a search method.

Morris et al. 2020, "TextAttack".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from assay.attacks.words.search.candidates import Moves, Rules
from assay.attacks.words.search.draws import Stream
from assay.attacks.words.search.greedy import Answer, Search
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.word_change import WordChange

Ahead = Callable[[Sequence[str]], None]
"""Receives the texts before the attack, for work done faster on all of them together."""
Session = Generator[list[Text], Sequence[Answer], "Finding"]
"""Attack on one example: yields texts, receives an answer for each, returns its finding."""


@dataclass(frozen=True)
class Finding:
    """Result of the attack on one example."""

    original: Text
    text: Text  # the text that counts: the first with another prediction, else the best that the search has
    answer: Answer
    skipped: bool  # the prediction was wrong before the attack
    # texts put to the model, the unchanged one included, counted as in TextAttack: repeated texts count again
    queries: int

    @property
    def changed(self) -> int:
        """Number of changed words."""
        return self.text.changed(self.original)


@dataclass(frozen=True)
class Recipe:
    """Attack recipe."""

    name: str  # Catalog name; random draws are keyed by it
    changes: tuple[WordChange, ...]  # the word transformations
    rules: Rules
    search: Search
    ahead: Ahead | None = None  # work done for many texts at once, to save time; it changes no outcome

    def attack(self, sentence: str, example: str, seed: int) -> Session:
        """Begin the attack on one example."""
        text = Text(sentence)
        (answer,) = yield [text]
        queries = 1
        if answer.broken:
            return Finding(text, text, answer, skipped=True, queries=queries)
        search = self.search(Moves(self.changes, self.rules, text, Stream(seed, self.name, example)), answer)
        try:
            wanted = next(search)
            while True:
                queries += len(wanted)
                wanted = search.send((yield wanted) if wanted else [])
        except StopIteration as end:
            found, answer = end.value
        return Finding(text, found, answer, skipped=False, queries=queries)
