"""Sets of text: documents for language models, and labelled sentences for classifiers.

A text is a sequence of words; how it is cut into words is the data set's business, and the words' ids are
those of its `Vocabulary`. `workers/data/formats/dataset.py` has the images' counterpart.

Legend: n examples, V words of the vocabulary, B examples asked for, N tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.workers.data.formats.dataset import ExampleSet, checked_indices
from assay.workers.data.formats.vocabulary import PAD, Vocabulary


class TextSet(ExampleSet, Protocol):
    """Text; `channels` is V, the length of the vocabulary."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words' ids."""

    @property
    def mean_tokens(self) -> float:
        """How long an example is on average, in tokens."""


class LanguageSet(TextSet, Protocol):
    """Documents in the order of one long text; `classes` is V, and there are no `class_names`."""

    def words(self, index: int) -> list[str]:
        """The words of a document.

        Raises:
            IndexError: the index is outside [0, n).
        """

    def stream(self) -> NDArray[np.int32]:
        """The ids of all documents' words, one after the other, (sum of lengths,); not to be changed."""

    @property
    def starts(self) -> list[int]:
        """Where each document begins in the stream, and where the last one ends, (n + 1,)."""

    def subset(self, indices: Sequence[int]) -> LanguageSet:
        """The documents at these indices, in this order, with the same vocabulary."""


class SentenceSet(TextSet, Protocol):
    """Texts with one label each; the words of a text have single spaces between them."""

    @property
    def labels(self) -> Tensor:
        """int64 (n,), in [0, classes)."""

    @property
    def sentences(self) -> Sequence[str]:
        """The texts, (n,)."""

    def tokens(self, indices: Sequence[int], length: int) -> Tensor:
        """The words' ids, int64 (B, N), padding on the right; N is the longest text's, at most `length`.

        Of a longer text the first `length` words are taken.

        Raises:
            IndexError: an index is outside [0, n).
            ValueError: the length is not positive.
        """

    def subset(self, indices: Sequence[int]) -> SentenceSet:
        """The examples at these indices, in this order."""


def is_text(data: ExampleSet) -> bool:
    """Whether the examples are words: a `TextSet`."""
    return data.task in ("language", "sequence")


class Documents:
    """Documents whose words are read on demand; the stream of ids is kept (4 bytes for each word)."""

    task = "language"
    class_names: tuple[str, ...] = ()
    size = None

    def __init__(
        self,
        *,
        name: str,
        ids: Sequence[str],
        read: Callable[[int], list[str]],
        vocabulary: Vocabulary,
    ) -> None:
        """Describe the set.

        Args:
            name: catalog name.
            ids: unique ids of the documents in the order of the text, (n,).
            read: valid index -> the words of a document.
            vocabulary: their ids.
        """
        self.name = name
        self.ids = ids
        self.vocabulary = vocabulary
        self.classes = self.channels = len(vocabulary)
        self._read = read

    def __len__(self) -> int:
        return len(self.ids)

    def words(self, index: int) -> list[str]:
        """The words of a document."""
        (place,) = checked_indices([index], len(self))
        return self._read(place)

    def stream(self) -> NDArray[np.int32]:
        """The ids of all words, (sum of lengths,)."""
        return self._encoded[0]

    @property
    def starts(self) -> list[int]:
        """Where each document begins in the stream, and where the last one ends, (n + 1,)."""
        return self._encoded[1]

    @property
    def mean_tokens(self) -> float:
        """Words of a document on average."""
        return self.starts[-1] / max(len(self), 1)

    @cached_property
    def _encoded(self) -> tuple[NDArray[np.int32], list[int]]:
        parts, starts = [np.zeros(0, dtype=np.int32)], [0]
        for index in range(len(self)):
            parts.append(self.vocabulary.ids(self._read(index)).numpy().astype(np.int32))
            starts.append(starts[-1] + len(parts[-1]))
        return np.concatenate(parts), starts

    def content_sha256(self) -> str:
        """Hash of ids, words and vocabulary."""
        digest = hashlib.sha256(f"{self.name} {self.vocabulary.sha256}\n".encode())
        for index, identifier in enumerate(self.ids):
            digest.update(f"{identifier}\n{' '.join(self._read(index))}\n".encode())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int]) -> Documents:
        """The documents at these indices, in this order, as a text of their own."""
        places = checked_indices(indices, len(self))
        return Documents(
            name=self.name,
            ids=[self.ids[place] for place in places],
            read=lambda index: self._read(places[index]),
            vocabulary=self.vocabulary,
        )


class Sentences:
    """Labelled texts in memory."""

    task = "sequence"
    size = None

    def __init__(
        self,
        *,
        name: str,
        class_names: tuple[str, ...],
        ids: Sequence[str],
        sentences: Sequence[str],
        labels: Sequence[int],
        vocabulary: Vocabulary,
    ) -> None:
        """Describe the set.

        Args:
            name: catalog name.
            class_names: name of each label.
            ids: unique example ids in stable order, (n,).
            sentences: texts of words with single spaces between them, (n,).
            labels: class of each, (n,).
            vocabulary: the words' ids.
        """
        assert len(ids) == len(sentences) == len(labels)
        self.name = name
        self.class_names = class_names
        self.classes = len(class_names)
        self.ids = ids
        self.sentences = sentences
        self.labels = torch.tensor(list(labels), dtype=torch.int64)
        self.vocabulary = vocabulary
        self.channels = len(vocabulary)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mean_tokens(self) -> float:
        """Words of a text on average."""
        return sum(text.count(" ") + 1 for text in self.sentences) / max(len(self), 1)

    def tokens(self, indices: Sequence[int], length: int) -> Tensor:
        """The ids of the words, int64 (B, N), padding on the right."""
        if length < 1:
            raise ValueError(f"the length must be >= 1; got {length}")
        chosen = checked_indices(indices, len(self))
        return padded([self.vocabulary.ids(self.sentences[index].split(" ")[:length]) for index in chosen])

    def content_sha256(self) -> str:
        """Hash of ids, texts, labels and vocabulary."""
        digest = hashlib.sha256(f"{self.name} {self.class_names} {self.vocabulary.sha256}\n".encode())
        rows = zip(self.ids, self.labels.tolist(), self.sentences, strict=True)
        for identifier, label, sentence in rows:
            digest.update(f"{identifier}\n{label}\n{sentence}\n".encode())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int]) -> Sentences:
        """The examples at these indices, in this order."""
        chosen = checked_indices(indices, len(self))
        return Sentences(
            name=self.name,
            class_names=self.class_names,
            ids=[self.ids[index] for index in chosen],
            sentences=[self.sentences[index] for index in chosen],
            labels=self.labels[torch.tensor(chosen, dtype=torch.int64)].tolist(),
            vocabulary=self.vocabulary,
        )


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Rows of ids as one tensor, int64 (B, N): N is the longest row's length, padding is on the right."""
    if not rows:
        return torch.zeros((0, 0), dtype=torch.int64)
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=PAD)
