"""A text classifier as a function of sentences, for attacks on text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.workers.data.formats.text import padded
from assay.workers.data.formats.vocabulary import UNKNOWN, Vocabulary
from assay.workers.evaluation.engine.forward import Limit, Passes


class Reader:
    """A text classifier as a function of sentences.

    Args:
        classifier: Maps tokens (B, N) to logits (B, classes); on `device`.
        vocabulary: The words' ids.
        longest: Its maximum number of words.
        device: Where it is.
        autocast: Whether it computes in bfloat16.
    """

    def __init__(
        self,
        classifier: nn.Module,
        vocabulary: Vocabulary,
        *,
        longest: int,
        device: torch.device,
        autocast: bool,
    ) -> None:
        self.limit = Limit()
        self._classifier = classifier
        self._vocabulary = vocabulary
        self._longest = longest
        self._device = device
        self._passes = Passes(classifier, device, self.limit)
        self._precision = torch.autocast(device.type, torch.bfloat16, enabled=autocast)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Logits (B, classes) of sentences; sentences that are too long are truncated."""
        tokens = self.tokens(sentences).to(self._device)
        return torch.cat(self._passes.in_parts(tokens, self._logits))

    def tokens(self, sentences: Sequence[str]) -> Tensor:
        """Ids of the words, int64 (B, N), padding on the right; a text without words is one unknown word."""
        rows = [self._vocabulary.ids(sentence.split()[: self._longest]) for sentence in sentences]
        return padded([row if len(row) else torch.tensor([UNKNOWN]) for row in rows])

    def _logits(self, tokens: Tensor) -> Tensor:
        with self._precision:
            logits: Tensor = self._classifier(tokens)
        return logits


def reading(sentences: Sequence[str], vocabulary: Vocabulary, longest: int) -> dict[str, int]:
    """Coverage of sentences by a model: `words`, `unknown_words` of them, and `cut_texts`."""
    lengths = [len(sentence.split()) for sentence in sentences]
    unknown = sum(int((vocabulary.ids(sentence.split()) == UNKNOWN).sum()) for sentence in sentences)
    return {
        "words": sum(lengths),
        "unknown_words": unknown,
        "cut_texts": sum(length > longest for length in lengths),
    }
