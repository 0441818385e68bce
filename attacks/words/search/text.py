"""A text and its words, tokenised as in TextAttack.

Morris et al. 2020, "TextAttack: A Framework for Adversarial Attacks, Data Augmentation, and Adversarial
Training in NLP": an attack replaces words and keeps everything between them. A word is a run of letters,
digits, underscores, hyphens, apostrophes, asterisks, at signs and the look-alikes of
`attacks.words.search.homoglyph_table`, stripped of leading and trailing `'-_*@`. Deviation: Chinese text is
not segmented further.
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
    """A text, with a record of the words that an attack has changed."""

    text: str
    modified: frozenset[int] = field(default=frozenset())  # indices of the words that were changed
    fresh: tuple[int, int] = (0, 0)  # index of the last changed word, and how many words it became

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """(start, stop) of each word."""
        return spans(self.text)

    @cached_property
    def words(self) -> list[str]:
        """The words, without the text between them."""
        return [self.text[start:stop] for start, stop in self.spans]

    def replace(self, index: int, new: str) -> Text:
        """This text with the word at an index replaced; no or several words there shift later indices."""
        start, stop = self.spans[index]
        count = len(spans(new))
        before, after = self.text[:start], self.text[stop:]
        if count == 0 and after:  # a deleted word takes one of the two spaces around it along
            if index == 0:
                after = after.removeprefix(" ")
            else:
                before = before.removesuffix(" ")
        moved = {other + (count - 1 if other > index else 0) for other in self.modified if other != index}
        if new == self.text[start:stop]:
            return self
        return Text(before + new + after, frozenset(moved | set(range(index, index + count))), (index, count))

    def changed(self, original: Text) -> int:
        """Number of words that differ from the original, position by position."""
        pairs = zip(self.words, original.words, strict=False)
        differing = sum(word != other for word, other in pairs)
        return differing + abs(len(self.words) - len(original.words))


def within(first: str, second: str, limit: int) -> bool:
    """Whether the Levenshtein distance is within `limit` insertions, deletions and substitutions.

    Only cells within `limit` of the table's diagonal are filled.
    """
    first, second = _without_common_start(first, second)
    first, second = _without_common_start(first[::-1], second[::-1])
    if abs(len(first) - len(second)) > limit:
        return False
    if max(len(first), len(second)) <= limit:
        return True
    far = limit + 1
    row = [column if column <= limit else far for column in range(len(second) + 1)]
    for line, character in enumerate(first, start=1):
        low, high = max(1, line - limit), min(len(second), line + limit)
        below = [far] * (len(second) + 1)
        below[0] = line if line <= limit else far
        for column in range(low, high + 1):
            moved = row[column - 1] + (character != second[column - 1])
            below[column] = min(moved, row[column] + 1, below[column - 1] + 1)
        row = below
        if min(row) > limit:
            return False
    return row[-1] <= limit


def _without_common_start(first: str, second: str) -> tuple[str, str]:
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return first[length:], second[length:]
