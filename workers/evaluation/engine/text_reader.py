"""A text classifier as a function of sentences, for attacks on text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from assay.workers.data.formats.text import padded
from assay.workers.data.formats.vocabulary import UNKNOWN
from assay.workers.evaluation.engine.forward import Limit, Passes

Encode = Callable[[str], Tensor]
"""Maps a text to its tokens' ids, int64 (n,): of words, of bytes, or of a model's own tokenizer."""
Cut = Callable[[Sequence[str], int], list[Tensor]]
"""Maps texts and a length to the ids that a model of this length reads of each."""


class Reader:
    """A text classifier, of tokens (B, N) to logits (B, classes) on `device`, as a function of sentences.

    It reads at most `longest` tokens of `cut`, and computes in bfloat16 with `autocast`.
    """

    def __init__(
        self,
        classifier: nn.Module,
        cut: Cut,
        *,
        longest: int,
        device: torch.device,
        autocast: bool,
    ) -> None:
        self.limit = Limit()
        self._classifier = classifier
        self._cut = cut
        self._longest = longest
        self._device = device
        self._passes = Passes(classifier, device, self.limit)
        self._precision = torch.autocast(device.type, torch.bfloat16, enabled=autocast)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Logits (B, classes) of sentences; sentences that are too long are truncated."""
        tokens = self.tokens(sentences).to(self._device)
        return torch.cat(self._passes.in_parts(tokens, self._logits))

    def read(self, sentence: str) -> bytes:
        """What the model reads of a sentence: the same bytes for sentences that are the same to it."""
        return self.tokens([sentence]).numpy().tobytes()

    def tokens(self, sentences: Sequence[str]) -> Tensor:
        """Ids of the tokens, int64 (B, N), padding on the right; a text without tokens is one unknown one."""
        rows = self._cut(sentences, self._longest)
        return padded([row if len(row) else torch.tensor([UNKNOWN]) for row in rows])

    def _logits(self, tokens: Tensor) -> Tensor:
        with self._precision:
            logits: Tensor = self._classifier(tokens)
        return logits


def reading(sentences: Sequence[str], encode: Encode, longest: int) -> dict[str, int]:
    """Coverage of sentences by a model: `words` (tokens), `unknown_words` of them, and `cut_texts`."""
    rows = [encode(sentence) for sentence in sentences]
    return {
        "words": sum(len(row) for row in rows),
        "unknown_words": sum(int((row == UNKNOWN).sum()) for row in rows),
        "cut_texts": sum(len(row) > longest for row in rows),
    }
