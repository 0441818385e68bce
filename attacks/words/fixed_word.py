"""The `AAA` swap of robust language modelling.

Teo and Nguyen, NeurIPS 2024 (`models/attention/rpc.py`), appendix A.4: words are replaced at random by the
literal "AAA". The rate is not stated, and no code was released.

    w' = `word`
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Len

from assay.attacks.words.search.word_change import WordChange

__all__ = ["fixed_word"]

PAPER = (
    "Teo and Nguyen, Unveiling the hidden structure of self-attention via kernel principal component "
    "analysis, NeurIPS 2024"
)
RULES = (("' ' not in params.word", "word must be one word, without spaces"),)


def fixed_word(*, word: Annotated[str, Len(1, 64)] = "AAA") -> WordChange:
    """Every word becomes one given word.

    Args:
        word: What it becomes; a word that the model's vocabulary does not have is read as `<unk>`.
    """
    if word.split() != [word]:
        raise ValueError(f"word must be one word, without white space: got {word!r}")
    return WordChange("fixed_word", lambda _word, _draws: (word,))
