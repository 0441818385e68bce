"""Words and their ids, as language models and text classifiers see them.

The order is that of adaptive softmax, which wants frequent words first (Baevski and Auli, "Adaptive Input
Representations for Neural Language Modeling", ICLR 2019): padding, the unknown word, then all others by
falling frequency, and alphabetically (by code point) where they are equally frequent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

PAD, UNKNOWN = 0, 1
PAD_WORD, UNKNOWN_WORD, END_OF_LINE = "<pad>", "<unk>", "<eos>"


class _Index(dict[str, int]):
    """Word to id; what is not in it is unknown."""

    def __missing__(self, word: str) -> int:
        return UNKNOWN


class Vocabulary:
    """The words that a model knows, by id.

    Attributes:
        words: the word of each id, (V,); `words[0]` is padding, `words[1]` the unknown word.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Take the words in the order of their ids.

        Raises:
            ValueError: the first two are not padding and the unknown word, or one occurs twice.
        """
        if tuple(words[:2]) != (PAD_WORD, UNKNOWN_WORD):
            raise ValueError(f"a vocabulary begins with {PAD_WORD!r} and {UNKNOWN_WORD!r}; got {words[:2]!r}")
        self.words = tuple(words)
        self._ids = _Index((word, number) for number, word in enumerate(self.words))
        if len(self._ids) != len(self.words):
            raise ValueError("a word occurs twice in the vocabulary")

    @classmethod
    def counted(cls, counts: Mapping[str, int], *, least: int = 1, most: int | None = None) -> Vocabulary:
        """The vocabulary of a text.

        Args:
            counts: how often each word occurs; the unknown word may be among them.
            least: words that occur less often are left out: they become the unknown word.
            most: the largest V, with the two special words; None for no limit.

        Raises:
            ValueError: padding is a word of the text.
        """
        if PAD_WORD in counts:
            raise ValueError(f"the text has the word {PAD_WORD!r}, which stands for padding")
        known = [word for word, count in counts.items() if count >= least and word != UNKNOWN_WORD]
        known.sort(key=lambda word: (-counts[word], word))
        return cls([PAD_WORD, UNKNOWN_WORD, *known][:most])

    def __len__(self) -> int:
        """V, with padding and the unknown word."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        """Whether a word has an id of its own."""
        return word in self._ids

    def id(self, word: str) -> int:
        """The id of a word, in [1, V) for words of a text; `UNKNOWN` for those that it does not have."""
        return self._ids[word]

    def ids(self, words: Iterable[str]) -> Tensor:
        """The ids of some words, int64 (n,)."""
        # Not a list first: that of a hundred million words would take gigabytes.
        found = np.fromiter(map(self._ids.__getitem__, words), dtype=np.int64)
        return torch.from_numpy(found)

    @cached_property
    def sha256(self) -> str:
        """Hash of all words in the order of their ids: models of equal hash read the same ids."""
        digest = hashlib.sha256()
        for word in self.words:
            digest.update(f"{word}\n".encode())
        return digest.hexdigest()
