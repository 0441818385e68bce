"""A text classifier as a function of sentences, for attacks on text; and sequences in batches of like length.

Padding is work for nothing. Texts of a call, and some batches of sequences at a time, are sorted by length
and cut into passes in which at most a twentieth of the tokens is padding, unless a pass would get too small
to keep the device busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from assay.attacks.sending import sent
from assay.workers.data.formats.text import padded
from assay.workers.data.formats.vocabulary import PAD, UNKNOWN
from assay.workers.evaluation.engine.forward import Limit, Passes
from assay.workers.evaluation.engine.loader import Images

Encode = Callable[[str], Tensor]
"""Maps a text to its tokens' ids, int64 (n,): of words, of bytes, or of a model's own tokenizer."""
Cut = Callable[[Sequence[str], int], list[Tensor]]
"""Maps texts and a length to the ids that a model of this length reads of each."""
MAX_PADDING = 0.05  # share of the tokens of a pass
# Tokens from which on a pass ends where padding begins: fewer leave the device waiting for its launches.
BUSY = {"cpu": 256, "cuda": 16384}
# Batches of sequences that are read, and sorted by length, at a time.
SORTED_BATCHES = 32


@dataclass(eq=False)
class Reader:
    """A text classifier, of tokens (B, N) to logits (B, classes) on `device`, as a function of sentences."""

    classifier: nn.Module
    cut: Cut
    longest: int  # tokens of `cut` that it reads at most
    rows: int  # texts in a pass, at most
    device: torch.device
    autocast: bool  # whether it computes in bfloat16

    def __post_init__(self) -> None:
        self.limit = Limit()
        self._passes = Passes(self.classifier, self.device, self.limit)
        self._precision = torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Logits (B, classes) of sentences; sentences that are too long are truncated."""
        rows = self._ids(sentences)
        order, logits = [], []
        for places in passes([len(row) for row in rows], self.rows, BUSY.get(self.device.type, 0)):
            tokens = sent(padded([rows[place] for place in places]), self.device)
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
        rows = self.cut(sentences, self.longest)
        return [row if len(row) else torch.tensor([UNKNOWN]) for row in rows]

    def _logits(self, tokens: Tensor) -> Tensor:
        with self._precision:
            logits: Tensor = self.classifier(tokens)
        return logits


class LikeLengths:
    """Batches of sequences of like length; `tokens` loads a batch that `batches` has named last.

    `tokens_of` loads sequences by row, int64 (B, N) or pairs (B, 2, N). Each is loaded alone, so that its
    length is the data's; `SORTED_BATCHES` batches are held at a time.
    """

    def __init__(self, tokens_of: Images, batch_size: int, device: torch.device) -> None:
        self._tokens_of = tokens_of
        self._rows = batch_size
        self._busy = BUSY.get(device.type, 0)
        self._held: dict[int, Tensor] = {}

    def batches(self, count: int) -> Iterator[Tensor]:
        """Rows of each batch, int64 (at most `batch_size`,); each of `count` rows is in one batch."""
        for part in torch.arange(count).split(self._rows * SORTED_BATCHES):
            self._held = {row: self._tokens_of([row])[0] for row in part.tolist()}
            lengths = [tokens.shape[-1] for tokens in self._held.values()]
            for places in passes(lengths, self._rows, self._busy):
                yield part[places]

    def tokens(self, rows: Sequence[int]) -> Tensor:
        """The sequences of a batch, int64 (B, N) or (B, 2, N), padding on the right."""
        found = [self._held[row] for row in rows]
        longest = max(1, *(tokens.shape[-1] for tokens in found))  # an empty sequence is padding
        return torch.stack([pad(tokens, (0, longest - tokens.shape[-1]), value=PAD) for tokens in found])


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
