"""Perplexity of a language model: exp of the mean loss over all words of documents, `<eos>` among them.

The words before a word are in its window:

    perplexity = exp(sum over words of -log p(word | words before it) / number of words)

Losses are sums over all documents; `stride` and `window` choose the windows. A model with a tokenizer of its
own predicts tokens: `perplexity` is then per token, and the row has that per word too,

    perplexity_per_word = exp(sum over tokens of -log p(token | tokens before it) / number of words)

which models with other tokenizers can be compared by. Words are what stands between white space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from annotated_types import Interval

from assay.workers.data.formats.vocabulary import UNKNOWN
from assay.workers.evaluation.engine.outcomes import WithFaults
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.likelihood import Windows, score

__all__ = ["perplexity"]

TASKS = ("language",)
TABLE = "perplexity"
PAPER = (
    "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA (sliding window);"
    " Baevski and Auli 2019, Adaptive Input Representations (strided windows)"
)
RULES = (
    (
        "params.window == 'strided' or params.stride == 128",
        "only strided windows have a stride: leave stride out, or name window 'strided'",
    ),
    (
        "params.length is None or params.length <= model.length",
        "length must not be larger than the model's: it has no positions for more words",
    ),
    (
        "params.window != 'strided' or params.length is None or params.stride <= params.length",
        "stride must not be larger than length: words between two windows would not be scored",
    ),
    (
        "params.window != 'strided' or params.stride <= model.length",
        "stride must not be larger than the model's length: words between two windows would not be scored",
    ),
)


@dataclass(frozen=True)
class DocumentLosses(WithFaults):
    """One row per document, in the order of `ids`."""

    ids: tuple[str, ...]
    nll: tuple[float, ...]  # sum over the words of -log p in nats; not finite where a word's is not
    tokens: tuple[int, ...]  # number of scored words; the very first word of the text is not scored
    unknown: tuple[int, ...]  # how many of them are the unknown word
    # Number of windows run for it; one shared by neighbours counts for the first of them
    windows: tuple[int, ...]
    nonfinite: int = 0  # number of documents with a loss that is not finite
    noted: Mapping[str, Any] = field(default_factory=dict)
    # White-space separated words of the document, for models whose tokens are not words; else None
    words: tuple[int, ...] | None = None

    @property
    def forward(self) -> torch.Tensor:
        """Windows of each document, int64 (n,)."""
        return torch.tensor(self.windows, dtype=torch.int64)

    @property
    def backward(self) -> torch.Tensor:
        """Zeros, without gradients, int64 (n,)."""
        return torch.zeros(len(self.ids), dtype=torch.int64)

    def columns(self) -> dict[str, list[object]]:
        """The rows as JSON columns; a loss that is not finite is None."""
        return {
            "id": list(self.ids),
            "nll": [value if math.isfinite(value) else None for value in self.nll],
            "tokens": list(self.tokens),
            "unknown": list(self.unknown),
            "forward": list(self.windows),
            "backward": [0] * len(self.ids),
            **({} if self.words is None else {"words": list(self.words)}),
        }


@dataclass(frozen=True)
class Perplexity:
    """Scores documents. The windows are the whole text's: a document's loss is always the same."""

    window: Literal["sliding", "strided", "blocks"]  # the kind of windows
    length: int | None  # L, or None for the model's length
    stride: int  # s of strided windows

    def windows(self, longest: int) -> Windows:
        """Windows of the text for a model with this maximum of words.

        A ValueError: the model takes fewer words than a window has, or the stride is larger than a window.
        """
        length = longest if self.length is None else self.length
        if length > longest:
            raise ValueError(f"length is {length}, the model takes at most {longest} words")
        return Windows(length, {"sliding": 1, "strided": self.stride, "blocks": length}[self.window])

    def measure(self, shard: Shard) -> DocumentLosses:
        """Scores the documents of the shard; a batch is of windows; a ValueError as for `windows`."""
        text, order = shard.text, shard.order
        windows, stream = self.windows(shard.image_size), torch.from_numpy(text.stream())
        ranges = [(max(text.starts[index], 1), text.starts[index + 1]) for index in order]
        total = len(windows.numbers(ranges, len(stream)))
        found = score(
            shard.language_model,
            stream,
            ranges,
            windows,
            batch_size=shard.batch_size,
            device=shard.device,
            dtype=shard.dtype,
            progress=lambda done: shard.progress(done * len(order) // total),
        )
        nll = tuple(math.fsum(found.losses[start:stop]) for start, stop in ranges)
        own: Sequence[int] | None = getattr(text, "own_words", None)  # of a model's own tokenizer
        return DocumentLosses(
            ids=shard.ids,
            nll=nll,
            tokens=tuple(stop - start for start, stop in ranges),
            unknown=tuple(int((stream[start:stop] == UNKNOWN).sum()) for start, stop in ranges),
            windows=passes_of(windows, ranges, len(stream)),
            nonfinite=sum(not math.isfinite(value) for value in nll),
            noted=found.noted,
            words=None if own is None else tuple(own[index] for index in order),
        )


def passes_of(windows: Windows, ranges: Sequence[tuple[int, int]], words: int) -> tuple[int, ...]:
    """Number of windows first needed by each range."""
    seen, counts = set[int](), []
    for own in ranges:
        fresh = set(windows.numbers([own], words)) - seen
        seen |= fresh
        counts.append(len(fresh))
    return tuple(counts)


def perplexity(
    *,
    window: Literal["sliding", "strided", "blocks"] = "sliding",
    length: Annotated[int, Interval(ge=1, le=65536)] | None = None,
    stride: Annotated[int, Interval(ge=1, le=65536)] = 128,
) -> Perplexity:
    """Perplexity per word of the documents, each predicted from the text before it.

    Args:
        window: "sliding" predicts every word from the `length` words before it (step 1, the last position of
            each window), as the paper does; "strided" takes the last `stride` positions of each window;
            "blocks" cuts the text into windows that do not overlap. Fewer passes mean less context, and a
            higher perplexity.
        length: words of a window; null is the model's length.
        stride: of strided windows: how far one begins after the other.
    """
    return Perplexity(window, length, stride)
