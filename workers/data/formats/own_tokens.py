"""Text sets as a model with a tokenizer of its own (its attribute `tokenizer`) reads them.

The views here have the examples, ids and labels of a set, and the tokenizer's tokens in place of the set's
vocabulary. Documents are one long text, tokenised as a whole; a token belongs to the document, and to the
word, that it begins in.

Legend: n examples, V ids of the tokenizer, B requested examples, N tokens, T tokens of all documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from assay.models.layers.huggingface.folder import OtherClasses
from assay.workers.data.formats.dataset import ExampleSet, checked_indices, model_class_names, model_classes
from assay.workers.data.formats.text import LanguageSet, SentenceSet, is_text, padded
from assay.workers.data.formats.vocabulary import END_OF_LINE, Vocabulary

WORD = re.compile(r"\S+")
SAMPLED = 100  # texts: their mean length stands for all
LISTED, RAREST = 10, 3  # classes in a message, and rarest classes with their rows


class Stream(Protocol):
    """A text's tokens; `spans` are the first character of each and one past its last, int64 (N, 2)."""

    @property
    def ids(self) -> Tensor:
        """Int64 (N,)."""

    @property
    def spans(self) -> Tensor:
        """(0, 0) for a token put before the text."""


class Tokenizer(Hashable, Protocol):
    """A model's own tokenizer: id 0 is padding, 1 the unknown word, as in every vocabulary."""

    words: tuple[str, ...]

    def encode(self, text: str) -> Tensor:
        """Ids of a whole text with special tokens, int64 (n,)."""

    def cut(self, texts: Sequence[str], length: int) -> list[Tensor]:
        """Ids of texts of at most `length` tokens, special tokens included."""

    def stream(self, text: str) -> Stream:
        """A long text."""


class _View:
    def __init__(self, data: Any, tokenizer: Tokenizer) -> None:
        self._data = data
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._data, name)

    def __len__(self) -> int:
        return len(self._data)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's tokens."""
        return Vocabulary(self.tokenizer.words)

    @property
    def channels(self) -> int:
        """V."""
        return len(self.tokenizer.words)


class TokenizedSentences(_View):
    """Labelled texts by a model's tokenizer; a `SentenceSet`."""

    @cached_property
    def mean_tokens(self) -> float:
        """Mean tokens of a text, of at most a hundred of them, evenly spread."""
        chosen = range(0, len(self), max(1, len(self) // SAMPLED))
        return sum(len(self.encode(self.sentences[index])) for index in chosen) / max(len(chosen), 1)

    def encode(self, text: str) -> Tensor:
        """Ids of a text's tokens, int64 (n,)."""
        return self.tokenizer.encode(text)

    def cut(self, texts: Sequence[str], length: int) -> list[Tensor]:
        """Ids of texts of at most `length` tokens each; the special tokens at the end stay."""
        return self.tokenizer.cut(texts, length)

    def tokens(self, indices: Sequence[int], length: int) -> Tensor:
        """Ids, int64 (B, N), right-padded."""
        chosen = checked_indices(indices, len(self))
        return padded(self.cut([self.sentences[index] for index in chosen], length))

    def count_cut(self, indices: Sequence[int], length: int) -> int:
        """How many of these texts have more than `length` tokens, which `tokens` cuts."""
        return sum(len(self.encode(self.sentences[index])) > length for index in indices)


class OneText(NamedTuple):
    """Documents as one text."""

    ids: NDArray[np.int32]  # tokens, int32 (T,)
    starts: list[int]  # offsets of the documents, and the end, (n + 1,)
    # number in its document of the word that each token belongs to, int64 (T,): the first word that ends
    # behind the token's last character; after the last word, the number of words
    word: NDArray[np.int64]


class TokenizedDocuments(_View):
    """Documents by a model's tokenizer; a `LanguageSet`."""

    @property
    def classes(self) -> int:
        """V."""
        return self.channels

    @cached_property
    def own_words(self) -> tuple[int, ...]:
        """White-space separated words of each document, (n,)."""
        return tuple(len(text.split()) for text in self.texts)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The documents, (n,)."""
        return tuple(document_text(self._data, index) for index in range(len(self)))

    def words(self, index: int) -> list[str]:
        """The words of a document, between white space."""
        (place,) = checked_indices([index], len(self))
        return self.texts[place].split()

    @cached_property
    def whole(self) -> OneText:
        """All documents."""
        return self.tokenized(self.texts)

    def stream(self) -> NDArray[np.int32]:
        """Ids of all tokens, (T,)."""
        return self.whole.ids

    @property
    def starts(self) -> list[int]:
        """Offsets of the documents in the stream, and its end, (n + 1,)."""
        return self.whole.starts

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a document."""
        return self.starts[-1] / max(len(self), 1)

    def tokenized(self, texts: Sequence[str]) -> OneText:
        """Other texts of the documents, as one, (n,)."""
        found = self.tokenizer.stream("".join(texts))
        begins = np.array([0, *accumulate(map(len, texts))], dtype=np.int64)
        spans = found.spans.numpy()
        starts = np.searchsorted(spans[:, 0], begins, side="left")
        starts[0], starts[-1] = 0, len(spans)
        word = np.zeros(len(spans), dtype=np.int64)
        for number, text in enumerate(texts):
            own = slice(starts[number], starts[number + 1])
            ends = np.array([stop for _, stop in word_spans(text)], dtype=np.int64)
            word[own] = np.searchsorted(ends, spans[own, 1] - 1 - begins[number], side="right")
        return OneText(found.ids.numpy().astype(np.int32), starts.tolist(), word)


def word_spans(text: str) -> list[tuple[int, int]]:
    """First character and one past the last of each word of `text.split()`."""
    return [match.span() for match in WORD.finditer(text)]


def document_text(data: LanguageSet, index: int) -> str:
    """The text of a document: as in its file where the set has it, else its words; `<eos>` ends a line."""
    own = getattr(data, "text", None)
    if own is not None:
        return str(own(index))
    lines: list[list[str]] = [[]]
    for word in data.words(index):
        if word == END_OF_LINE:
            lines.append([])
        else:
            lines[-1].append(word)
    return "\n".join(map(" ".join, lines)) + ("" if lines[-1] == [] else "\n")


def built_for(data: ExampleSet, build: Callable[..., nn.Module], **own: object) -> nn.Module:
    """A model for a data set, told the data's classes and the size of their images."""
    try:
        model = build(model_classes(data), data.channels, **own)
    except OtherClasses as error:
        raise ValueError(f"{error}: {_classes_in(data, error.excess)}") from error
    # A model with names of its own for its logits.
    suit: Callable[[Sequence[str], tuple[int, int] | None], None] | None = getattr(model, "suit", None)
    if suit is not None:
        suit(model_class_names(data), getattr(data, "size", None))
    return model


def _classes_in(data: ExampleSet, excess: int) -> str:
    names = model_class_names(data)
    shown = ", ".join(map(repr, names[:LISTED])) + (", ..." if len(names) > LISTED else "")
    rarest: Callable[[int], list[str]] | None = getattr(data, "rarest_classes", None)
    if rarest is None or excess < 1:
        return shown
    return "; ".join([shown, *rarest(min(excess, RAREST))])


def tokenized(model: nn.Module, data: ExampleSet) -> ExampleSet:
    """The data set as a model reads it: by its own tokenizer where it has one, else as it is."""
    tokenizer: Tokenizer | None = getattr(model, "tokenizer", None)
    if tokenizer is None or not is_text(data) or isinstance(data, _View):
        return data
    if not hasattr(data, "sentences") and not hasattr(data, "stream"):
        raise ValueError(f"the model reads texts by its own tokenizer, the data set {data.name!r} has none")
    return _view(tokenizer, cast(Any, data))


@lru_cache(maxsize=4)
def _view(tokenizer: Tokenizer, data: LanguageSet | SentenceSet) -> ExampleSet:
    """One view for all shards of a job: tokenising documents takes a while."""
    view = TokenizedDocuments if hasattr(data, "stream") else TokenizedSentences
    return cast(ExampleSet, view(data, tokenizer))
