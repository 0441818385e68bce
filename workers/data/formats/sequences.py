"""Labelled sequences of tokens that are not words: bytes, pixels, symbols; also pairs of them.

Token 0 is padding. Legend: n examples, V tokens with padding, B requested examples, N tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, Unpack

import numpy as np
import torch
from annotated_types import Interval, doc
from numpy.typing import NDArray
from torch import Tensor

from assay.workers.data.formats.dataset import Listed, ListedSet, checked_indices
from assay.workers.data.formats.text import padded
from assay.workers.data.formats.vocabulary import PAD_WORD, Vocabulary

Symbols = NDArray[np.int64]
ExampleCount = Annotated[int, Interval(ge=1, le=1_000_000)]
DrawSeed = Annotated[int, Interval(ge=0, le=2**31 - 1)]
Evaluated = Annotated[Literal["test", "validation"], doc("which part is read for evaluation.")]
PartName = Literal["train", "validation", "test"]

TRAIN_BELOW, VALIDATION_BELOW = 128, 192  # The first byte of an example's hash tells its part


class Alphabet(Vocabulary):
    """Symbols of a set of sequences, by id; no symbol is unknown."""

    def __init__(self, symbols: Sequence[str]) -> None:
        """Takes the symbols of the ids 1, 2, ...; 0 is padding."""
        self.words = (PAD_WORD, *symbols)
        self._numbers = {symbol: number for number, symbol in enumerate(self.words)}
        if len(self._numbers) != len(self.words):
            raise ValueError("a symbol occurs twice in the alphabet")

    def __contains__(self, word: str) -> bool:
        return word in self._numbers

    def id(self, word: str) -> int:
        """Id of a symbol, in [1, V)."""
        if word not in self._numbers:
            raise ValueError(f"{word!r} is no symbol of the data; allowed: {', '.join(self.words[1:40])}")
        return self._numbers[word]

    def ids(self, words: Iterable[str]) -> Tensor:
        """Ids of symbols, int64 (n,)."""
        return torch.tensor([self.id(word) for word in words], dtype=torch.int64)


# As in the released files, a byte's id is one more. Id 1 is the byte 0, which no text has.
BYTES = Vocabulary(["<pad>", "<unk>", *(f"byte {value}" for value in range(1, 256))])


def bytes_of(text: str) -> Tensor:
    """Ids of a text's bytes in UTF-8, int64 (n,)."""
    raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    return torch.from_numpy(raw.astype(np.int64) + 1)


class TokenSequences(ListedSet):
    """Labelled sequences of tokens, or pairs of sequences, read on demand."""

    task = "sequence"
    size = None

    def __init__(
        self,
        *,
        labels: Sequence[int] | Tensor,
        vocabulary: Vocabulary,
        read: Callable[[int], tuple[Tensor, ...]],
        **listed: Unpack[Listed],
    ) -> None:
        """`read`: an index to its sequences, int64 (N,) each: one, or a pair's two."""
        super().__init__(**listed)
        assert len(self) == len(labels)
        self.labels = torch.as_tensor(labels, dtype=torch.int64)
        self.vocabulary = vocabulary
        self.channels = len(vocabulary)
        self._read = read

    @property
    def mean_tokens(self) -> float:
        """Mean number of tokens, of at most a hundred examples, evenly spread."""
        step = max(1, len(self) // 100)
        lengths = [sum(len(part) for part in self._read(index)) for index in range(0, len(self), step)]
        return sum(lengths) / max(len(lengths), 1)

    def tokens(self, indices: Sequence[int], length: int) -> Tensor:
        """Ids, int64 (B, N), of pairs (B, 2, N), right-padded, cut to `length`."""
        if length < 1:
            raise ValueError(f"the length must be >= 1; got {length}")
        chosen = checked_indices(indices, len(self))
        rows = [tuple(part[:length] for part in self._read(index)) for index in chosen]
        together = padded([part for row in rows for part in row])
        sides = len(rows[0]) if rows else 1
        return together if sides == 1 else together.unflatten(0, (len(rows), sides))

    def count_cut(self, indices: Sequence[int], length: int) -> int:
        """Number of examples with a sequence of over `length` tokens, which `tokens` cuts."""
        return sum(any(len(part) > length for part in self._read(index)) for index in indices)

    def content_sha256(self) -> str:
        """Hash of ids, labels, tokens and vocabulary."""
        digest = hashlib.sha256(f"{self.name} {self.class_names} {self.vocabulary.sha256}\n".encode())
        for index, (identifier, label) in enumerate(zip(self.ids, self.labels.tolist(), strict=True)):
            digest.update(f"{identifier}\n{label}\n".encode())
            for part in self._read(index):
                digest.update(part.numpy().astype("<i4").tobytes() + b"\n")
        return digest.hexdigest()


class ByteTexts(TokenSequences):
    """Labelled texts with bytes as tokens; attacks by words read their `sentences`."""

    def __init__(
        self,
        *,
        name: str,
        class_names: tuple[str, ...],
        ids: Sequence[str],
        sentences: Sequence[str],
        labels: Sequence[int],
    ) -> None:
        """As `TokenSequences`; `sentences` are the texts, (n,)."""
        assert len(sentences) == len(ids)
        super().__init__(
            name=name,
            class_names=class_names,
            ids=ids,
            labels=labels,
            vocabulary=BYTES,
            read=lambda index: (bytes_of(sentences[index]),),
        )
        self.sentences = sentences

    def encode(self, text: str) -> Tensor:
        """Ids of a text's bytes, int64 (n,)."""
        return bytes_of(text)

    def cut(self, texts: Sequence[str], length: int) -> list[Tensor]:
        """Ids of the first bytes of texts."""
        return [bytes_of(text)[:length] for text in texts]


def part_of(key: str) -> PartName:
    """Part of a generated example, by its hash: half for training, a quarter each for the others."""
    first = hashlib.sha256(key.encode()).digest()[0]
    if first < TRAIN_BELOW:
        return "train"
    return "validation" if first < VALIDATION_BELOW else "test"


def grey_ids(levels: Symbols, *, black: Literal["token", "padding"]) -> Tensor:
    """Ids of grey levels by row, int64 (N,): 1 to 256, or with black as "padding" the levels, as released."""
    return torch.from_numpy(levels.reshape(-1).astype(np.int64) + (1 if black == "token" else 0))


def grey_levels(black: Literal["token", "padding"]) -> Alphabet:
    """The alphabet of `grey_ids`."""
    return Alphabet([f"level {level}" for level in range(0 if black == "token" else 1, 256)])


class HashedDraws:
    """Endless whole numbers from shake_256 of a key: the same on every machine."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._chunk: list[int] = []
        self._count = 0

    def below(self, n: int) -> int:
        """Next integer in [0, n), n up to 2**16; uniform to one part in 2**16."""
        if not self._chunk:
            raw = hashlib.shake_256(f"{self._key}/{self._count}".encode()).digest(4096)
            self._chunk = np.frombuffer(raw, dtype="<u4").tolist()[::-1]
            self._count += 1
        return self._chunk.pop() % n
