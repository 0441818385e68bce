"""Cost of every attention against the number of tokens: `python -m benchmarks.attention_lengths [NAME ...]`.

Each mechanism of the catalog, with its default parameters, at N = 512 to 8192 tokens beside softmax
attention by torch's fused kernel, in one process: forward without gradients, and forward and backward in
training mode. For each N the two alternate, and the best pass counts. Seconds are CPU time of one thread,
with the memory settings of the evaluators (`workers.supervision.evaluator_process.ALLOCATOR`), or on a GPU
wall time from idle to idle; operations are those of matrix products, and memory is the allocator's peak above
what was held before (`workers.evaluation.efficiency`). The figure with an x is the ratio to softmax at the
same N. Growth is log2 of the ratio between the two longest sequences: 1 is linear, 2 quadratic. Mechanisms
whose cost is not quadratic come first.

Without those settings glibc returns the buffers of a long sequence to the kernel after some passes, and the
next pass pays for clearing its pages: at 8192 tokens Performer's forward pass then takes twice as long.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.lookup import attentions, find_attention
from assay.models.layers.heads import make_attention
from assay.service.catalog.catalog import load
from assay.workers.evaluation.efficiency import count_flops, peak_bytes
from assay.workers.supervision.evaluator_process import ALLOCATOR
from benchmarks.attention import DEVICE, MIB
from benchmarks.clock import clock

LENGTHS = (512, 1024, 2048, 4096, 8192)
WIDTH, HEADS = 64, 2  # as in the encoders for the Long Range Arena
REPEATS, ENOUGH = 5, 2.0  # at most so many passes of a kind, or so many seconds
PLANES = {
    512: (7, 73),
    1024: (31, 33),
    2048: (23, 89),
    4096: (63, 65),
    8192: (8191, 1),
}  # less the class token

Pass = Callable[[], None]


def passes(attention: nn.Module, x: Tensor) -> dict[str, Pass]:
    """A forward pass, and a forward and backward pass."""
    grid = PLANES[x.shape[1]]
    moving = x.clone().requires_grad_()

    def forward() -> None:
        with torch.no_grad():
            attention.eval()(x, grid=grid)

    def both() -> None:
        attention.train()(moving, grid=grid).sum().backward()
        attention.zero_grad(set_to_none=True)
        moving.grad = None

    return {"forward": forward, "both": both}


def seconds(one: Pass, other: Pass) -> tuple[float, float]:
    """Min seconds of two passes in alternation, after a warm-up of each."""
    spent: tuple[list[float], list[float]] = ([], [])
    one()
    other()
    while len(spent[0]) < REPEATS and (not spent[0] or sum(spent[0]) + sum(spent[1]) < ENOUGH):
        for run, kept in zip((one, other), spent, strict=True):
            begun = clock(torch.device(DEVICE))
            run()
            kept.append(clock(torch.device(DEVICE)) - begun)
    return min(spent[0]), min(spent[1])


def measure(name: str, kind: str) -> list[tuple[float, ...]]:
    """Seconds, bytes and operations of a mechanism and of softmax at each length."""
    rows: list[tuple[float, ...]] = []
    for length in LENGTHS:
        torch.manual_seed(0)
        attention = make_attention(find_attention(name), WIDTH, HEADS, prefix_tokens=1, tokens=length).to(
            DEVICE
        )
        softmax = SoftmaxAttention(WIDTH, HEADS).to(DEVICE)
        x = torch.randn(1, length, WIDTH, device=DEVICE)
        own, base = passes(attention, x)[kind], passes(softmax, x)[kind]
        spent, spent_by_softmax = seconds(own, base)
        device = torch.device(DEVICE)
        held, held_by_softmax = (float(peak_bytes(run, device)) for run in (own, base))
        done = (float(count_flops(own)), operations_of_softmax(length, kind))
        rows.append((spent, spent_by_softmax, held, held_by_softmax, *done))
    return rows


def operations_of_softmax(length: int, kind: str) -> float:
    """Those of softmax attention, without computing its matrix."""
    softmax, x = SoftmaxAttention(WIDTH, HEADS).to("meta"), torch.zeros(1, length, WIDTH, device="meta")
    return float(count_flops(passes(softmax, x)[kind]))


def cost_of(name: str) -> str:
    """As the mechanism states it."""
    return str((load().find("attention", name).facts or {}).get("cost", "quadratic"))


def main() -> None:
    """Prints three lines for each mechanism and kind of pass."""
    if DEVICE == "cpu" and any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        command = [sys.executable, "-m", "benchmarks.attention_lengths", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | ALLOCATOR)  # noqa: S606 (itself)
    torch.set_num_threads(1)
    names = sys.argv[1:] or sorted(attentions(), key=lambda name: (cost_of(name) == "quadratic", name))
    write = sys.stdout.write
    write(f"device {DEVICE}, torch {torch.__version__}, one example, width {WIDTH}, {HEADS} heads\n")
    write(f"{'':38}" + "".join(f"{length:>17}" for length in LENGTHS) + "   growth\n")
    for name in names:
        for kind in ("forward", "both"):
            rows = measure(name, kind)
            for what, place, unit, digits in (("ms", 0, 1e-3, 2), ("MiB", 2, MIB, 1), ("Mop", 4, 1e6, 1)):
                cells = [
                    f"{row[place] / unit:9.{digits}f} {row[place] / row[place + 1]:6.2f}x" for row in rows
                ]
                growth = math.log2(rows[-1][place] / rows[-2][place])
                write(f"{name:20} {kind:8} {what:4} {cost_of(name) if place == 0 else '':10}")
                write("".join(f"{cell:>18}" for cell in cells)[5:] + f"   {growth:6.2f}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
