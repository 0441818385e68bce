"""What a language model is to those who train and measure it.

B = batch, N = tokens, V = words of the vocabulary.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

# The words with a meaning of their own; the others come after them, by frequency.
PAD = 0
UNKNOWN = 1


@runtime_checkable
class LanguageModel(Protocol):
    """A module that predicts each next word of a sequence from the words before it.

    Attributes:
        vocabulary: V.
        sequence_length: the most tokens that a sequence may have.
    """

    vocabulary: int
    sequence_length: int

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (B, N, V) of tokens, int64 (B, N) in [0, V): those at i are of token i + 1.

        They may be log-probabilities, which are logits too.
        """
        ...

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """-log p(target at i | tokens up to i), in nats, without the B x N x V logits.

        Args:
            tokens: int64 (B, N).
            targets: int64 (B, N), what follows each token; with `last` those of the last tokens alone do too.
            last: how many positions at the end are scored; None = all.

        Returns:
            (B, N), or (B, last), float32 at least. A target PAD is scored like any word: leaving out what is
            no word is the caller's.
        """
        ...
