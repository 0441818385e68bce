"""Speed of the paper's sliding-window perplexity: one window at a time with all logits, and in batches.

    python -m benchmarks.perplexity [--words 400] [--threads 1] [--device cpu]

The protocol of the published code runs a batch of one window, computes the logits of all its positions, and
keeps the last one's loss. `workers.evaluation.engine.text.likelihood` runs batches and computes only the last
position's loss. Both score the same words with the same random weights; the max difference of a loss and of
the perplexity is printed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.models.layers.token_model import TokenModel
from assay.models.lm import lm
from assay.workers.evaluation.engine.text.likelihood import Windows, score

# Name: length, vocabulary, sizes.
MODELS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "small (WikiText-103)": (256, 267_736, {}),
    "small (WikiText-2)": (256, 33_279, {}),
    "laptop": (64, 2_430, {"width": 64, "depth": 2, "heads": 4, "hidden": 128}),
}


def one_by_one(model: TokenModel, words: Tensor, length: int) -> Tensor:
    """The losses of all words after the first window, a window at a time, float64 (T - 1 - length,)."""
    losses = []
    with torch.no_grad():
        for start in range(1, len(words) - length):
            logits = model(words[None, start : start + length])  # (1, L, V)
            target = words[start + length]
            losses.append(-logits[0, -1].double().log_softmax(-1)[target])
    return torch.stack(losses).cpu()


def timed(run: Callable[[], Tensor], device: str) -> tuple[Tensor, float]:
    """Result of a run, and its seconds: on a CPU process time, independent of other load."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    begun = clock()
    found = run()
    if device == "cuda":
        torch.cuda.synchronize()
    return found, clock() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--words", type=int, default=200, help="words that are scored")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--model", choices=MODELS, help="one of them alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name, (length, vocabulary, sizes) in MODELS.items():
        if options.model not in (None, name):
            continue
        torch.manual_seed(0)
        backbone = lm(vocabulary, vocabulary, length=length, dropout=0.0, **sizes)
        model = TokenModel(backbone).eval().to(options.device)
        words = torch.randint(2, vocabulary, (length + 1 + options.words,)).to(options.device)

        def batched(length: int = length, model: TokenModel = model, words: Tensor = words) -> Tensor:
            wanted, windows = [(length + 1, len(words))], Windows(length, 1)
            common = {"batch_size": options.batch, "device": options.device}
            found = score(model, words.cpu(), wanted, windows, **common)
            return torch.from_numpy(found.losses[length + 1 :])

        batched(), one_by_one(model, words[: length + 6], length)  # warm
        slow, slow_seconds = timed(
            lambda model=model, words=words, length=length: one_by_one(model, words, length),  # type: ignore[misc]
            options.device,
        )
        fast, fast_seconds = timed(batched, options.device)
        apart = abs(math.exp(slow.mean()) / math.exp(fast.mean()) - 1)
        sys.stdout.write(
            f"{name}: {options.words} words, one by one {slow_seconds:.2f} s, batched {fast_seconds:.2f} s,"
            f" {slow_seconds / fast_seconds:.1f} times as fast; losses differ by at most"
            f" {float((slow - fast).abs().max()):.1e}, the perplexities by {apart:.1e} of their value\n"
        )


if __name__ == "__main__":
    main()
