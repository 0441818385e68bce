"""Shared code of labelled-text sets: their vocabulary, and errors for missing files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, doc

from assay.workers.data.formats.text import LanguageSet
from assay.workers.data.formats.vocabulary import Vocabulary

VocabularySource = Annotated[
    Annotated[Callable[..., LanguageSet], "data:documents"] | None,
    doc(
        "the language data set whose vocabulary the words have, for models that begin with the "
        "weights of a language model; null for that of the training part."
    ),
]
LeastCount = Annotated[
    int,
    Interval(ge=1, le=1000),
    doc("of the set's own vocabulary: words that are rarer in the training part are unknown."),
]


def vocabulary_for(
    source: Callable[..., LanguageSet] | None, root: Path | None, train: Iterable[str], least_count: int
) -> Vocabulary:
    """Vocabulary of a set of labelled texts."""
    if source is not None:
        return source(root, "train").vocabulary
    counts = Counter(word for text in train for word in text.split(" "))
    return Vocabulary.counted(counts, least=least_count)
