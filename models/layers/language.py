"""Interface of language models, for training and evaluation."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

# Id of padding, in every vocabulary.
PAD = 0


@runtime_checkable
class LanguageModel(Protocol):
    """Module that predicts each next word of a sequence from the words before it."""

    vocabulary: int  # V
    sequence_length: int  # max tokens of a sequence

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits or log p (B, N, V) of int64 (B, N) in [0, V): position i predicts token i + 1."""
        ...

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """-log p(target at i | tokens up to i) in nats, (B, N) or (B, last), without the B x N x V logits.

        Tokens and targets, the next tokens, are int64 (B, N); of the `last` positions to score (None = all)
        their targets suffice. Float32 at least. A target PAD is scored like any word.
        """
        ...
