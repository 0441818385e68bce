"""Vocabulary: words and their ids for language models and text classifiers.

Adaptive softmax needs frequent words first (Baevski and Auli, "Adaptive Input Representations for Neural
Language Modeling", ICLR 2019): padding, the unknown word, then all others by falling frequency, ties by code
point.
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
    def __missing__(self, word: str) -> int:
        return UNKNOWN


class Vocabulary:
    """A model's words, by id, (V,): padding, the unknown word, then others."""

    def __init__(self, words: Sequence[str]) -> None:
        if tuple(words[:2]) != (PAD_WORD, UNKNOWN_WORD):
            raise ValueError(f"a vocabulary begins with {PAD_WORD!r} and {UNKNOWN_WORD!r}; got {words[:2]!r}")
        self.words = tuple(words)
        self._ids = _Index((word, number) for number, word in enumerate(self.words))
        if len(self._ids) != len(self.words):
            raise ValueError("a word occurs twice in the vocabulary")

    @classmethod
    def counted(cls, counts: Mapping[str, int], *, least: int = 1, most: int | None = None) -> Vocabulary:
        """Vocabulary of a text, from its word counts."""
        if PAD_WORD in counts:
            raise ValueError(f"the text has the word {PAD_WORD!r}, which stands for padding")
        known = [word for word, count in counts.items() if count >= least and word != UNKNOWN_WORD]
        known.sort(key=lambda word: (-counts[word], word))
        return cls([PAD_WORD, UNKNOWN_WORD, *known][:most])

    def __len__(self) -> int:
        """V, with padding and the unknown word."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        """A word's id, in [1, V); `UNKNOWN` outside the vocabulary."""
        return self._ids[word]

    def ids(self, words: Iterable[str]) -> Tensor:
        """Ids of words, int64 (n,)."""
        # A list of a hundred million words would take gigabytes.
        found = np.fromiter(map(self._ids.__getitem__, words), dtype=np.int64)
        return torch.from_numpy(found)

    @cached_property
    def sha256(self) -> str:
        """Hash of all words in id order: equal hashes mean equal ids."""
        digest = hashlib.sha256()
        for word in self.words:
            digest.update(f"{word}\n".encode())
        return digest.hexdigest()
