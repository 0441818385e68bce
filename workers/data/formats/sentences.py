"""What sets of labelled texts share: whose vocabulary their words have, and files that are not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from assay.workers.data.formats.text import LanguageSet
from assay.workers.data.formats.vocabulary import Vocabulary

VocabularySource = Annotated[Callable[..., LanguageSet], "data:documents"] | None
LeastCount = Annotated[int, Interval(ge=1, le=1000)]


def vocabulary_for(
    source: Callable[..., LanguageSet] | None, root: Path | None, train: Iterable[str], least_count: int
) -> Vocabulary:
    """The vocabulary of a set of labelled texts.

    Args:
        source: makes a language set from (root, split), whose vocabulary is taken; None for the set's own.
        root: ASSAY_DATA_ROOT.
        train: the texts of the training part, words with single spaces between them.
        least_count: of the set's own, words that are rarer in the training part are unknown.

    Raises:
        MissingData: the language set is not there.
    """
    if source is not None:
        return source(root, "train").vocabulary
    counts = Counter(word for text in train for word in text.split(" "))
    return Vocabulary.counted(counts, least=least_count)
