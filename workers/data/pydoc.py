"""Python's own help pages (`pydoc_data.topics`): English text without a download, for first steps.

The text, hence the content hash, depends on Python's version; the provenance has both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Annotated

from annotated_types import Interval

from assay.workers.data.formats import parameters
from assay.workers.data.formats.sampling import held_out_split
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import END_OF_LINE, Vocabulary

__all__ = ["pydoc"]

TASKS = ("language",)
FACTS = {"words": True, "documents": True}

# A run of letters, digits and underscores, or of a repeated other character.
WORD = re.compile(r"\w+|([^\w\s])\1*")
PARAGRAPH = re.compile(r"\n\s*\n")


def pydoc(
    root: parameters.Root,
    split: parameters.Split,
    *,
    least_count: Annotated[int, Interval(ge=1, le=1000)] = 2,
) -> Documents:
    """Python's own help pages (79 of them in Python 3.11), in lower case; part of every Python.

    A document is a page, and its id is the page's name. One in five is kept for evaluation: those with the
    smallest sha256("pydoc/" + id). A word is a run of letters and digits, or of a punctuation mark; the
    word `<eos>` ends every paragraph, and counts.

    Args:
        least_count: words that are rarer in the training part are unknown.
    """
    del root
    pages = _pages()
    ids = list(pages)
    train, test = held_out_split("pydoc", ids, [0] * len(ids))
    counts = Counter(word for index in train for word in pages[ids[index]])
    chosen = [ids[index] for index in (train if split == "train" else test)]
    return Documents(
        name="pydoc",
        ids=chosen,
        read=lambda index: pages[chosen[index]],
        vocabulary=Vocabulary.counted(counts, least=least_count),
    )


@cache
def _pages() -> Mapping[str, list[str]]:
    from pydoc_data.topics import topics  # half a megabyte that the catalog does not need

    return {name: words_of(topics[name]) for name in sorted(topics)}


def words_of(text: str) -> list[str]:
    """Words of a page, with the ends of its paragraphs."""
    found: list[str] = []
    for paragraph in PARAGRAPH.split(text.strip()):
        found += [match[0] for match in WORD.finditer(paragraph.lower())] + [END_OF_LINE]
    return found
