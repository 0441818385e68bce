"""Texts in batches of like length against batches in the order of the data: padding, passes and CPU time.

    python -m benchmarks.like_lengths

An untrained classifier (a transformer of 4 layers and width 128) answers unattacked texts, one thread, the
fastest of five alternating turns of process time. `sentences` have 3 to 50 words, `reviews` 5 to 500 (evenly
in the logarithm), `equal` 64 each. Padding is the share of all tokens of the passes. Then perplexity: padding
and passes for each kind of windows; a window's words are the context that its protocol asks for.
"""

from __future__ import annotations

import random
import sys
import time

import torch
from torch import Tensor

from assay.models.layers.token_model import TokenModel
from assay.models.lm import lm
from assay.models.text_classifier import text_classifier
from assay.workers.data.formats.text import padded
from assay.workers.data.formats.vocabulary import PAD
from assay.workers.evaluation.engine.protocols import classify
from assay.workers.evaluation.engine.text.likelihood import score
from assay.workers.evaluation.perplexity import Perplexity, perplexity

WORDS, LONGEST, TURNS = 2000, 500, 5
Sizes = list[tuple[int, int]]


def texts(kind: str) -> list[Tensor]:
    """Ids of drawn texts."""
    draw = random.Random(0)
    lengths = {
        "sentences": [draw.randint(3, 50) for _ in range(512)],
        "reviews": [round(5 * 100 ** draw.random()) for _ in range(192)],
        "equal": [64] * 256,
    }[kind]
    return [torch.tensor(draw.choices(range(2, WORDS), k=length)) for length in lengths]


def classified(rows: list[Tensor], batch: int) -> tuple[float, float, Sizes, Sizes, float]:
    """Seconds in order and in like lengths, the passes of both, and the largest difference of a loss."""
    torch.manual_seed(0)
    model = text_classifier(
        2,
        WORDS,
        backbone=lambda classes, channels: lm(
            classes, channels, width=128, depth=4, heads=4, hidden=256, length=LONGEST
        ),
    ).eval()
    passes: Sizes = []
    model.register_forward_pre_hook(
        lambda _, given: passes.append((int((given[0] != PAD).sum()), given[0].numel()))
    )
    seconds: dict[bool, float] = {}
    seen: dict[bool, Sizes] = {}
    losses: dict[bool, Tensor] = {}
    for _ in range(TURNS):
        for alike in (False, True):
            passes.clear()
            begun = time.process_time()
            found = classify(
                model,
                lambda chosen: padded([rows[row] for row in chosen]),
                torch.zeros(len(rows), dtype=torch.int64),
                [str(row) for row in range(len(rows))],
                batch_size=batch,
                sequences=alike,
            )
            took = time.process_time() - begun
            seconds[alike] = min(took, seconds.get(alike, took))
            seen[alike], losses[alike] = list(passes), torch.tensor(found.columns()["loss"])
    apart = float((losses[True] - losses[False]).abs().max())
    return seconds[False], seconds[True], seen[False], seen[True], apart


def padding(passes: Sizes) -> str:
    """Share of padding, and the number of passes."""
    read, computed = map(sum, zip(*passes, strict=True))
    return f"{1 - read / computed:.1%} in {len(passes)}"


class Counting(TokenModel):
    """A language model that notes windows and tokens of each pass."""

    def __init__(self, backbone: torch.nn.Module) -> None:
        super().__init__(backbone)
        self.passes: Sizes = []

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """Losses of the last positions, (B, last)."""
        self.passes.append((len(tokens), tokens.shape[1]))
        return super().negative_log_likelihood(tokens, targets, last)


def windows(evaluation: Perplexity, length: int, batch: int) -> str:
    """Padding, tokens computed and passes of a perplexity of 40 documents, every second asked for."""
    draw, starts = random.Random(0), [0]
    for _ in range(40):
        starts.append(starts[-1] + draw.randint(20, 400))
    wanted = [(max(starts[at], 1), starts[at + 1]) for at in range(0, 40, 2)]
    cut, words = evaluation.windows(length), torch.randint(2, WORDS, (starts[-1],))
    model = Counting(lm(WORDS, WORDS, width=16, depth=1, heads=1, hidden=16, length=length)).eval()
    score(model, words, wanted, cut, batch_size=batch)
    chosen = [cut.window(number, len(words)) for number in cut.numbers(wanted, len(words))]
    computed, held = sum(rows * tokens for rows, tokens in model.passes), sum(one.length for one in chosen)
    judged = sum(stop - start for start, stop in wanted)
    return (
        f"padding {1 - held / computed:.1%}, {computed / judged:.2f} tokens computed for a word judged,"
        f" {len(model.passes)} passes for {len(chosen)} windows"
    )


def main() -> None:
    """Print a line for each kind of texts and batch size, and for each kind of windows."""
    torch.set_num_threads(1)
    for kind in ("sentences", "reviews", "equal"):
        rows = texts(kind)
        for batch in (16, 64):
            before, after, old, new, apart = classified(rows, batch)
            sys.stdout.write(
                f"{kind:9} batch {batch:2}: padding {padding(old)} passes, now {padding(new)};"
                f" {before:.2f} s, now {after:.2f} s, {before / after:.2f}x; losses apart {apart:.0e}\n"
            )
    for evaluation in (perplexity(window="strided", stride=16), perplexity(window="blocks"), perplexity()):
        sys.stdout.write(f"{evaluation.window:9} {windows(evaluation, 64, 32)}\n")


if __name__ == "__main__":
    main()
