"""Text sets: documents for language models, and labelled sentences for classifiers.

A text is a sequence of words; the data set tokenises it, and its `Vocabulary` gives the words' ids.

Legend: n examples, V words of the vocabulary, B requested examples, N tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.service.contract.findings.data_findings import FileRead
from assay.workers.data.formats.dataset import ExampleSet, Listed, ListedSet, checked_indices
from assay.workers.data.formats.vocabulary import PAD, UNKNOWN_WORD, Vocabulary


class TextSet(ExampleSet, Protocol):
    """Text set; `channels` is V, the vocabulary size."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words' ids."""

    @property
    def mean_tokens(self) -> float:
        """Mean length of an example, in tokens."""


class LanguageSet(TextSet, Protocol):
    """Documents in the order of a long text; `classes` is V, `class_names` is empty."""

    def words(self, index: int) -> list[str]:
        """The words of a document."""

    def stream(self) -> NDArray[np.int32]:
        """Concatenated ids of all documents' words, (sum of lengths,); read-only."""

    @property
    def starts(self) -> list[int]:
        """Offsets of the documents in the stream, and its end, (n + 1,)."""


class SequenceSet(TextSet, Protocol):
    """Sequences of tokens with one label each: of words, bytes or anything else, or pairs of sequences."""

    @property
    def labels(self) -> Tensor:
        """int64 (n,), in [0, classes)."""

    def tokens(self, indices: Sequence[int], length: int) -> Tensor:
        """The tokens' ids, int64 (B, N), of pairs (B, 2, N), padded on the right and cut to `length`."""


class SentenceSet(SequenceSet, Protocol):
    """Texts with one label, for attacks that change words; a token is a word (in white space) or a byte."""

    @property
    def sentences(self) -> Sequence[str]:
        """The texts, (n,)."""

    def encode(self, text: str) -> Tensor:
        """Ids of any text's tokens, int64 (n,), in [1, V); empty for a text without tokens."""

    def cut(self, texts: Sequence[str], length: int) -> list[Tensor]:
        """Ids of texts as a model of this length reads them, int64 (at most length,) each."""


def is_text(data: ExampleSet) -> bool:
    """Whether it is a `TextSet`: the sets with a vocabulary."""
    return hasattr(data, "vocabulary")


class Documents(ListedSet):
    """Documents read on demand; the stream of ids is cached (4 bytes per word)."""

    task = "language"
    size = None

    def __init__(
        self, *, name: str, ids: Sequence[str], read: Callable[[int], list[str]], vocabulary: Vocabulary
    ) -> None:
        super().__init__(name, (), ids)
        self.vocabulary = vocabulary
        self.classes = self.channels = len(vocabulary)
        self._read = read

    def words(self, index: int) -> list[str]:
        """The words of a document."""
        (place,) = checked_indices([index], len(self))
        return self._read(place)

    def stream(self) -> NDArray[np.int32]:
        """Ids of all words, (sum of lengths,)."""
        return self._encoded[0]

    @property
    def starts(self) -> list[int]:
        """Offsets of the documents in the stream, and its end, (n + 1,)."""
        return self._encoded[1]

    @property
    def mean_tokens(self) -> float:
        """Mean number of words per document."""
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


class Sentences(ListedSet):
    """Labelled texts in memory; `rarest_classes` and `sorted_classes` of a table are as in `LabelledRows`."""

    task = "sequence"
    size = None
    rarest_classes: Callable[[int], list[str]] | None = None
    files_read: list[FileRead] | None = None
    sorted_classes = False

    def __init__(
        self,
        *,
        sentences: Sequence[str],
        labels: Sequence[int],
        vocabulary: Vocabulary,
        **listed: Unpack[Listed],
    ) -> None:
        """Describe the set."""
        super().__init__(**listed)
        assert len(self) == len(sentences) == len(labels)
        self.sentences = sentences
        self.labels = torch.tensor(list(labels), dtype=torch.int64)
        self.vocabulary = vocabulary
        self.channels = len(vocabulary)

    @property
    def mean_tokens(self) -> float:
        """Mean number of words per text."""
        return sum(len(text.split()) for text in self.sentences) / max(len(self), 1)

    def encode(self, text: str) -> Tensor:
        """Ids of a text's words, int64 (n,)."""
        return self.vocabulary.ids(text.split())

    def cut(self, texts: Sequence[str], length: int) -> list[Tensor]:
        """Ids of the first words of texts."""
        return [self.vocabulary.ids(text.split()[:length] or [UNKNOWN_WORD]) for text in texts]

    def tokens(self, indices: Sequence[int], length: int) -> Tensor:
        """Word ids, int64 (B, N), right-padded."""
        if length < 1:
            raise ValueError(f"the length must be >= 1; got {length}")
        return padded(
            self.cut([self.sentences[index] for index in checked_indices(indices, len(self))], length)
        )

    def content_sha256(self) -> str:
        """Hash of ids, texts, labels and vocabulary."""
        digest = hashlib.sha256(f"{self.name} {self.class_names} {self.vocabulary.sha256}\n".encode())
        rows = zip(self.ids, self.labels.tolist(), self.sentences, strict=True)
        for identifier, label, sentence in rows:
            digest.update(f"{identifier}\n{label}\n{sentence}\n".encode())
        return digest.hexdigest()


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Rows of ids as one right-padded tensor, int64 (B, N); N is the longest row's length."""
    if not rows:
        return torch.zeros((0, 0), dtype=torch.int64)
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=PAD)
