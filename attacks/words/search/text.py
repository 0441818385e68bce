"""A text and its words, as TextAttack divides it.

Morris et al. 2020, "TextAttack: A Framework for Adversarial Attacks, Data Augmentation, and Adversarial
Training in NLP": an attack replaces words and leaves everything between them as it is. A word is a run of
letters, digits, underscores, hyphens, apostrophes, asterisks, at signs and the look-alikes of
`attacks.words.search.homoglyph_table`, less the first and last signs of `'-_*@`. Deviation: Chinese text is
not divided further (TextAttack has another library do that).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from assay.attacks.words.search.homoglyph_table import ALIKE

EDGES = "'-_*@"
RUN = re.compile(rf"[\w{ALIKE}{re.escape(EDGES)}]+")


def spans(text: str) -> list[tuple[int, int]]:
    """(start, stop) of each word, in order."""
    found = []
    for match in RUN.finditer(text):
        run = match.group()
        start = match.start() + len(run) - len(run.lstrip(EDGES))
        word = run.strip(EDGES)
        if word:
            found.append((start, start + len(word)))
    return found


@dataclass(frozen=True)
class Text:
    """A text, and which of its words an attack has changed so far.

    Attributes:
        text: the characters.
        modified: indices of the words that were changed.
        fresh: index of the word that the last change was at, and how many words it became.
    """

    text: str
    modified: frozenset[int] = field(default=frozenset())
    fresh: tuple[int, int] = (0, 0)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """(start, stop) of each word."""
        return spans(self.text)

    @cached_property
    def words(self) -> list[str]:
        """The words, without what is between them."""
        return [self.text[start:stop] for start, stop in self.spans]

    def replace(self, index: int, new: str) -> Text:
        """This text with another word at an index; none or several words in its place move later indices."""
        start, stop = self.spans[index]
        count = len(spans(new))
        before, after = self.text[:start], self.text[stop:]
        if count == 0 and after:  # of the two spaces around a word that is gone, one goes too
            if index == 0:
                after = after.removeprefix(" ")
            else:
                before = before.removesuffix(" ")
        moved = {other + (count - 1 if other > index else 0) for other in self.modified if other != index}
        if new == self.text[start:stop]:
            return self
        return Text(before + new + after, frozenset(moved | set(range(index, index + count))), (index, count))

    def changed(self, original: Text) -> int:
        """How many words are others than in the original, compared by their places."""
        pairs = zip(self.words, original.words, strict=False)
        differing = sum(word != other for word, other in pairs)
        return differing + abs(len(self.words) - len(original.words))
