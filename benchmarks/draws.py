"""Random draws against those of version 1, in one run on one machine: `python -m benchmarks.draws`.

The reference draws as until 2026-11: by a generator of torch on the CPU for each example, in float64 (for
corruptions in float32, or words). CPU time; with `--device cuda` wall time, transfers included.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.shuffle import draw_offsets
from assay.attacks.randomness import Randomness, Source
from benchmarks.attack_speed import costs

IMAGE = (3, 224, 224)
PIXELS = 3 * 224 * 224
REPEATS = 15
Draw = Callable[[torch.Generator], Tensor]


class Case(NamedTuple):
    """A draw for some examples, now and before."""

    name: str
    examples: int
    now: Callable[[list[str], torch.device], Tensor]
    before: Draw
    dtype: torch.dtype = torch.float32


def words(generator: torch.Generator) -> Tensor:
    """32-bit words, cut from 64-bit draws."""
    drawn = torch.empty(PIXELS // 2, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return drawn.view(torch.int32).view(IMAGE)


def offsets(generator: torch.Generator) -> Tensor:
    """Offsets in -2..1, down and across."""
    code = torch.randint(16, (3, 220, 220), generator=generator, dtype=torch.int32)
    steps = torch.arange(-2, 2, dtype=torch.int8)
    flat, tables = code.flatten(), (steps.repeat_interleave(4), steps.repeat(4))
    return torch.stack([table.index_select(0, flat).view_as(code) for table in tables], dim=1)


def double(draw: Callable[..., Tensor], *shape: int) -> Draw:
    """Numbers in float64."""
    return lambda generator: draw(shape, generator=generator, dtype=torch.float64)


SOURCE = Randomness(0, "pgd")
CASES = [
    Case(
        "uniform, an image of 224 pixels",
        8,
        lambda ids, device: SOURCE.uniform(ids, IMAGE, device=device),
        double(torch.rand, *IMAGE),
    ),
    Case(
        "the same in float64",
        8,
        lambda ids, device: SOURCE.uniform(ids, IMAGE, dtype=torch.float64, device=device),
        double(torch.rand, *IMAGE),
        torch.float64,
    ),
    Case(
        "normal, an image",
        8,
        lambda ids, device: SOURCE.normal(ids, IMAGE, device=device),
        double(torch.randn, *IMAGE),
    ),
    Case(
        "normal, an image, of a corruption",
        1,
        lambda ids, device: SOURCE.normal(ids, IMAGE, device=device),
        lambda generator: torch.randn(IMAGE, generator=generator),
    ),
    Case(
        "words, an image, of a corruption",
        1,
        lambda ids, device: SOURCE.words(ids, IMAGE, device=device),
        words,
        torch.int32,
    ),
    Case(
        "offsets of glass_blur, severity 3",
        1,
        lambda ids, device: draw_offsets(Source(SOURCE, ids, device=device), 3, 224, 224, 2),
        offsets,
        torch.int8,
    ),
    Case(
        "100 integers below 50,176",
        128,
        lambda ids, device: SOURCE.below(ids, (100,), 50_176, device=device),
        lambda generator: torch.randint(50_176, (100,), generator=generator),
        torch.int64,
    ),
    Case(
        "Square: 64 queries of 5 numbers",
        128,
        lambda ids, device: SOURCE.uniform(ids, (64, 5), device=device),
        double(torch.rand, 64, 5),
    ),
    Case(
        "an order of 100",
        128,
        lambda ids, device: SOURCE.permutation(ids, 100, device=device),
        lambda generator: torch.randperm(100, generator=generator),
        torch.int64,
    ),
    Case("a number", 128, lambda ids, device: SOURCE.uniform(ids, (), device=device), double(torch.rand)),
    Case("one number", 1, lambda ids, device: SOURCE.uniform(ids, (), device=device), double(torch.rand)),
]


def before(case: Case, ids: list[str], device: torch.device) -> Tensor:
    """The draw of version 1."""
    rows = []
    for example in ids:
        parts = (SOURCE.seed, SOURCE.attack, 0, -1, example, 0, "start")
        text = "".join(f"{len(str(part))}:{part}" for part in parts)
        key = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "little")
        rows.append(case.before(torch.Generator().manual_seed(key)))
    return torch.stack(rows).to(case.dtype).to(device)


def main() -> None:
    """Prints a row for each draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    sys.stdout.write("| draw | examples | before, us an example | now | ratio |\n|---|---|---|---|---|\n")
    for case in CASES:
        ids = [f"image-{number:05d}" for number in range(case.examples)]
        times = max(1, 32 // case.examples)

        def old(case: Case = case, ids: list[str] = ids, times: int = times) -> None:
            for _ in range(times):
                before(case, ids, device)

        def new(case: Case = case, ids: list[str] = ids, times: int = times) -> None:
            for _ in range(times):
                case.now(ids, device)

        first, second = (
            1e6 * (cost.cpu if device.type == "cpu" else cost.wall) / (times * case.examples)
            for cost in costs(old, new, repeats=REPEATS, device=device)
        )
        row = f"| {case.name} | {case.examples} | {first:.1f} | {second:.1f} | {first / second:.2f} |"
        sys.stdout.write(row + "\n")


if __name__ == "__main__":
    main()
