"""PGD through compiled passes against the model's own, in one run: `python -m benchmarks.compiled [models]`.

Untrained networks, and an epsilon so small that hardly an image breaks: all images take all steps. CPU time
of this process and of its compilers; the first run compiles, in an empty folder. Printed are the seconds of
compiling, the ratio of own to compiled time of later runs in turns (above 1: compiled code is faster), and
how many images have another flag.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.compiled import CACHES
from assay.workers.evaluation.engine.protocols import attack_pixel

N, BATCH, SIDE, STEPS, TURNS = 64, 32, 32, 20, 3
MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "ViT": lambda: VisionTransformer(
        img_size=SIDE, patch_size=4, embed_dim=192, depth=6, num_heads=3, num_classes=10
    ),
    "ResNet-18": lambda: timm.create_model("resnet18", num_classes=10),
}


def clock() -> float:
    """CPU seconds of this process and of those that it has started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(model: nn.Module) -> tuple[float, float, int]:
    """CPU seconds of compiling, own over compiled time, and images with another flag."""
    images = torch.rand(N, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        labels = torch.cat([model(part).argmax(1) for part in images.split(BATCH)])
    attack = pgd(epsilon=1e-5, steps=STEPS, norm="Linf")

    def run(*, fast: bool) -> tuple[float, Any]:
        begun = clock()
        found = attack_pixel(
            attack,
            model,
            lambda rows: images[list(rows)],
            labels,
            [str(number) for number in range(N)],
            randomness=Randomness(0, attack.name),
            batch_size=BATCH,
            compiled=fast,
        )
        if fast and found.noted["compiled"]["refused"] is not None:
            sys.exit(f"not compiled: {found.noted['compiled']['refused']}")
        return clock() - begun, found

    first = run(fast=True)[0]
    pairs = [(run(fast=False), run(fast=True)) for _ in range(TURNS)]
    own, fast = (min(pair[side][0] for pair in pairs) for side in (0, 1))
    flags = int((pairs[0][0][1].correct != pairs[0][1][1].correct).sum())
    return first - fast, own / fast, flags


def main(names: list[str]) -> None:
    """Measures the named models, or all."""
    torch.set_num_threads(1)
    for name in names or MODELS:
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(dict.fromkeys(CACHES, folder))  # compiled anew
            compiling, ratio, flags = measured(MODELS[name]().eval().requires_grad_(False))
        told = f"compiled in {compiling:.0f} s, own / compiled {ratio:.2f}, other flags {flags} of {N}"
        sys.stdout.write(f"{name}: {told}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
