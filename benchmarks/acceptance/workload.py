"""Networks and images of the measurements of throughput.

Networks are untrained, and epsilon is so small that hardly an image breaks: all images take all steps. In a
dry run sizes are tiny.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.workers import catalog
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks import attention
from benchmarks.clock import clock
from tests.support import networks

EPSILON, BATCH = 1e-5, 256
SMALL = "ViT of 32 px"


@dataclass(frozen=True)
class Work:
    """A network, images and the classes that it gives them, and how many go through at once."""

    name: str
    model: nn.Module  # on the device, without gradients of its weights
    images: Tensor  # (n, C, S, S), on the CPU
    labels: Tensor  # (n,), on the CPU
    batch: int
    device: torch.device

    def engine(self, attack: Attack | Ensemble, **options: Any) -> int:
        """Attacks all images; the passes that the outcomes count, of both kinds."""
        found = self.outcomes(attack, **options)
        return int(found.forward.sum() + found.backward.sum())

    def outcomes(self, attack: Attack | Ensemble, **options: Any) -> ExampleOutcomes:
        """Attacks all images through the engine."""
        return attack_pixel(
            attack,
            self.model,
            lambda rows: self.images[list(rows)],
            self.labels,
            [str(number) for number in range(len(self.images))],
            randomness=Randomness(0, attack.name),
            batch_size=self.batch,
            device=self.device,
            **options,
        )

    def ascend(self, steps: int, **options: Any) -> int:
        """PGD through the engine."""
        return self.engine(catalog.build("attack", "pgd", {"epsilon": EPSILON, "steps": steps})(), **options)

    def loop(self, steps: int, *, bfloat16: bool) -> None:
        """PGD as it is written by hand: from the image, without a verdict but the last."""
        for images, truth in self.batches():
            points = images
            for _ in range(steps):
                gradient = self._gradient(points, truth, bfloat16=bfloat16)
                moved = (points + EPSILON / 4 * gradient.sign() - images).clamp(-EPSILON, EPSILON)
                points = (images + moved).clamp(0, 1)
            with torch.no_grad():
                self.model(points)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and classes on the device."""
        for part, classes in zip(self.images.split(self.batch), self.labels.split(self.batch), strict=True):
            yield part.to(self.device), classes.to(self.device)

    def operations(self) -> float:
        """Floating-point operations for an image: of its logits, and as many of its gradient."""
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.model(self.images[:1].to(self.device))
        return 2.0 * float(counter.get_total_flops())

    def _gradient(self, points: Tensor, truth: Tensor, *, bfloat16: bool) -> Tensor:
        with torch.enable_grad():
            points = points.detach().requires_grad_(True)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=bfloat16):
                logits = self.model(points)
            loss = cross_entropy(logits.float(), truth, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, points)
        return gradient


class Wide(nn.Module):
    """The shape of WideResNet-28-10 (Zagoruyko and Komodakis 2016): 36.5 million weights, images of 32 px."""

    def __init__(self, blocks: int = 4, widths: Sequence[int] = (16, 160, 320, 640)) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False)]
        for before, after, stride in zip(widths, widths[1:], (1, 2, 2), strict=False):
            layers += [
                WideBlock(before, after, stride),
                *(WideBlock(after, after, 1) for _ in range(1, blocks)),
            ]
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(widths[-1]), nn.ReLU())
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, 32, 32) to logits (B, 10)."""
        logits: Tensor = self.head(self.layers(images).mean((2, 3)))
        return logits


class WideBlock(nn.Module):
    """Two convolutions after normalisation, beside the identity or a convolution of one pixel."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(before), nn.BatchNorm2d(after)])
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.short = (
            None if (before, stride) == (after, 1) else nn.Conv2d(before, after, 1, stride, bias=False)
        )

    def forward(self, values: Tensor) -> Tensor:
        """(B, before, H, W) to (B, after, H / stride, W / stride)."""
        active = self.norms[0](values).relu()
        changed = self.second(self.norms[1](self.first(active)).relu())
        other = values if self.short is None else self.short(active)
        total: Tensor = changed + other
        return total


def made_networks(dry: bool) -> Iterator[tuple[str, Callable[[], nn.Module], int, int]]:
    """Name, maker, side of the images and their number of each network; the smallest one comes last."""
    if dry:
        yield "WideResNet-28-10", partial(Wide, 1, (4, 4, 8, 8)), 32, 4
        yield SMALL, partial(networks.network, "symvit"), 32, 4
        return
    yield "ViT-S/16", partial(timm.create_model, "vit_small_patch16_224"), 224, 256
    yield "ResNet-50", partial(timm.create_model, "resnet50"), 224, 256
    yield "WideResNet-28-10", Wide, 32, 512
    yield "RPC-SymViT-tiny", partial(attention.RPC, 1000, 3, iterations=6), 224, 256
    small: dict[str, Any] = {"img_size": 32, "patch_size": 4, "embed_dim": 192, "depth": 6, "num_heads": 3}
    yield SMALL, partial(timm.create_model, "vit_tiny_patch16_224", num_classes=10, **small), 32, 1024


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of a run between idle states of the device."""
    begun = clock(device)
    run()
    return max(clock(device) - begun, 1e-9)
