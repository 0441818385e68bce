"""A text classifier as a function of sentences, for attacks on text.

Padding is work for nothing. Texts of one call are sorted by length and cut into passes in which at most a
twentieth of the tokens is padding, unless a pass would get too small to keep the device busy.
"""

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
MAX_PADDING = 0.05  # share of the tokens of a pass
# Tokens from which on a pass ends where padding begins: fewer leave the device waiting for its launches.
BUSY = {"cpu": 256, "cuda": 16384}


class Reader:
    """A text classifier, of tokens (B, N) to logits (B, classes) on `device`, as a function of sentences.

    It reads at most `longest` tokens of `cut`, at most `rows` texts in a pass, and computes in bfloat16 with
    `autocast`.
    """

    def __init__(
        self,
        classifier: nn.Module,
        cut: Cut,
        *,
        longest: int,
        rows: int,
        device: torch.device,
        autocast: bool,
    ) -> None:
        self.limit = Limit()
        self._classifier = classifier
        self._cut = cut
        self._longest = longest
        self._rows = rows
        self._device = device
        self._passes = Passes(classifier, device, self.limit)
        self._precision = torch.autocast(device.type, torch.bfloat16, enabled=autocast)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Logits (B, classes) of sentences; sentences that are too long are truncated."""
        rows = self._ids(sentences)
        order, logits = [], []
        for places in passes([len(row) for row in rows], self._rows, BUSY.get(self._device.type, 0)):
            tokens = padded([rows[place] for place in places]).to(self._device)
            order += places
            logits += self._passes.in_parts(tokens, self._logits)
        return torch.cat(logits)[torch.tensor(order).argsort()]

    def read(self, sentence: str) -> bytes:
        """What the model reads of a sentence: the same bytes for sentences that are the same to it."""
        return self.tokens([sentence]).numpy().tobytes()

    def tokens(self, sentences: Sequence[str]) -> Tensor:
        """Ids of the tokens, int64 (B, N), padding on the right; a text without tokens is one unknown one."""
        return padded(self._ids(sentences))

    def _ids(self, sentences: Sequence[str]) -> list[Tensor]:
        rows = self._cut(sentences, self._longest)
        return [row if len(row) else torch.tensor([UNKNOWN]) for row in rows]

    def _logits(self, tokens: Tensor) -> Tensor:
        with self._precision:
            logits: Tensor = self._classifier(tokens)
        return logits


def passes(lengths: Sequence[int], rows: int, busy: int) -> list[list[int]]:
    """Places of texts of some lengths by pass, shortest texts first, at most `rows` in a pass.

    A pass of at least `busy` tokens ends where one more text would make padding more than MAX_PADDING of it.
    """
    found: list[list[int]] = []
    read = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        last, length = found[-1] if found else [], lengths[place]
        tokens = length * (len(last) + 1)
        too_much = tokens - read - length > MAX_PADDING * tokens and read >= busy
        if not last or len(last) == rows or too_much:
            found.append([])
            read = 0
        found[-1].append(place)
        read += length
    return found


def reading(sentences: Sequence[str], encode: Encode, longest: int) -> dict[str, int]:
    """Coverage of sentences by a model: `words` (tokens), `unknown_words` of them, and `cut_texts`."""
    rows = [encode(sentence) for sentence in sentences]
    return {
        "words": sum(len(row) for row in rows),
        "unknown_words": sum(int((row == UNKNOWN).sum()) for row in rows),
        "cut_texts": sum(len(row) > longest for row in rows),
    }
