"""Images a second under attack, beside a loop written by hand and the limit of the card, in one run.

PGD on networks of four kinds in every arithmetic, with and without captured passes; then twelve attacks on
a small transformer. Networks are untrained, and epsilon is so small that hardly an image breaks: all images
take all steps. Operations are counted; ceilings (products of matrices, a copy) are measured in the same run.
In a dry run sizes are tiny.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack, frozen
from assay.attacks.randomness import Randomness
from assay.workers import catalog
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks import attention
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row, at_least, told
from benchmarks.clock import clock
from tests.support import networks

EPSILON, STEPS = 1e-5, 20
# Goals: engine over the loop of the same arithmetic, and the same on a small network.
LOOP, LOOP_IN_BFLOAT16 = 0.97, 0.85
SMALL_LOOP, SMALL_LOOP_IN_BFLOAT16 = 1.5, 3.5
SMALL = "ViT of 32 px"
BATCH = 256
# Twelve attacks, with so few steps that each takes about a second on one H100.
ATTACKS: dict[str, dict[str, Any]] = {
    "fgsm": {},
    "pgd": {"steps": 10},
    "mi_fgsm": {"steps": 10},
    "apgd_ce": {"steps": 10},
    "apgd_dlr": {"steps": 10},
    "apgd_t": {"steps": 5, "targets": 2},
    "carlini_wagner": {"iterations": 10, "searches": 1},
    "ddn": {"steps": 10},
    "fmn": {"steps": 10},
    "fab": {"iterations": 5, "restarts": 1},
    "square": {"queries": 20},
    "spsa": {"steps": 2, "samples": 16},
}
UNBOUNDED = ("carlini_wagner", "ddn", "fmn")


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
        for part, classes in zip(self.images.split(self.batch), self.labels.split(self.batch), strict=True):
            images, truth = part.to(self.device), classes.to(self.device)
            points = images
            for _ in range(steps):
                gradient = self._gradient(points, truth, bfloat16=bfloat16)
                moved = (points + EPSILON / 4 * gradient.sign() - images).clamp(-EPSILON, EPSILON)
                points = (images + moved).clamp(0, 1)
            with torch.no_grad():
                self.model(points)

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


def _networks(dry: bool) -> Iterator[tuple[str, Callable[[], nn.Module], int, int]]:
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


def throughput(context: Context) -> list[Row]:
    """PGD on every network, then twelve attacks on the last one."""
    rows: list[Row] = []
    with context.opened() as device:
        ceilings = _ceilings(context.dry, device)
        rows += [told(f"ceiling, {name}", value) for name, value in ceilings.items()]
        for name, make, side, count in _networks(context.dry):
            torch.manual_seed(0)
            model = make().to(device).eval()
            with torch.no_grad(), frozen(model):
                channels = 1 if context.dry and name == SMALL else 3
                images = torch.rand(count, channels, side, side)
                labels = torch.cat([model(part.to(device)).argmax(1).cpu() for part in images.split(BATCH)])
                work = Work(name, model, images, labels, min(BATCH, count // 2), device)
                rows += _pgd(context, work, ceilings["matmul in float32, TFLOP/s"])
                if name == SMALL:
                    few = images[: count // 4], labels[: count // 4]
                    rows += _attacks(replace(work, images=few[0], labels=few[1], batch=work.batch // 2))
            del model, work
    return rows


def _pgd(context: Context, work: Work, ceiling: float) -> list[Row]:
    steps = 2 if context.dry else STEPS
    rough: dict[str, Any] = {"screening": "bfloat16_gradients"}
    runs: dict[str, Callable[[int], object]] = {
        "loop, float32": partial(work.loop, bfloat16=False),
        "loop, bfloat16": partial(work.loop, bfloat16=True),
        "engine, float32": work.ascend,
        "engine, float32, captured": partial(work.ascend, capture=True),
        "engine, bfloat16 gradients": partial(work.ascend, **rough),
        "engine, bfloat16 gradients, captured": partial(work.ascend, capture=True, **rough),
    }
    speeds = {}
    for name, run in runs.items():
        run(1)  # to warm up
        speeds[name] = len(work.images) / _seconds(partial(run, steps), work.device)
    rows = [told(f"{work.name}, PGD-{steps}, {name}, images/s", speed) for name, speed in speeds.items()]
    operations = work.operations() * steps
    reached = speeds["engine, float32"] * operations / 1e12
    rows.append(told(f"{work.name}, engine, float32, TFLOP/s", reached))
    rows.append(told(f"{work.name}, engine, float32, share of the ceiling", reached / ceiling))
    goals = (SMALL_LOOP, SMALL_LOOP_IN_BFLOAT16) if work.name == SMALL else (LOOP, LOOP_IN_BFLOAT16)
    for kind, loop, goal in zip(
        ("float32", "bfloat16 gradients"), ("float32", "bfloat16"), goals, strict=True
    ):
        best = max(speeds[f"engine, {kind}"], speeds[f"engine, {kind}, captured"]) / speeds[f"loop, {loop}"]
        what = f"{work.name}, engine over loop, {kind}"
        rows.append(told(what, best) if context.dry else at_least(what, best, goal))
    return rows


def _attacks(work: Work) -> list[Row]:
    """Passes a second of each attack, by arithmetic, with and without captured passes."""
    rows = []
    for name, params in ATTACKS.items():
        given = params if name in UNBOUNDED else {"epsilon": EPSILON, **params}
        attack = catalog.build("attack", name, given)()
        for rough in (False, True):
            for capture in (False, True):
                options: dict[str, Any] = {"capture": capture}
                if rough:
                    options["screening"] = "bfloat16_gradients"
                passes = work.engine(attack, **options)
                seconds = _seconds(partial(work.engine, attack, **options), work.device)
                kind = ("bfloat16 gradients" if rough else "float32") + ", captured" * capture
                rows.append(told(f"{work.name}, {name}, {kind}, passes/s", passes / seconds))
    return rows


def _ceilings(dry: bool, device: torch.device) -> dict[str, float]:
    """What the card gives: products of matrices, and a copy of memory."""
    side = 64 if dry else 8192
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        factor = torch.randn(side, side, device=device, dtype=dtype)
        torch.matmul(factor, factor)
        seconds = _seconds(partial(torch.matmul, factor, factor), device)
        found[f"matmul in {str(dtype).removeprefix('torch.')}, TFLOP/s"] = 2 * side**3 / seconds / 1e12
    seconds = _seconds(factor.clone, device)
    found["copy, GB/s"] = 2 * factor.nbytes / seconds / 1e9
    return found


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    begun = clock(device)
    run()
    return max(clock(device) - begun, 1e-9)
