"""Words spelled backwards."""

from __future__ import annotations

from assay.attacks.words.search.word_change import WordChange

__all__ = ["backwards"]


def backwards() -> WordChange:
    """Every word is spelled backwards."""
    return WordChange("backwards", lambda word, _draws: (word[::-1],))
