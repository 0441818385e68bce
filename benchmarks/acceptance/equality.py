"""Outcomes on the device against those of the CPU: whole evaluations of stored networks.

Devices round differently, so that an example close to the border of its class may fall on either side. Per
network and dtype the largest difference of logits between the devices on the same images, clean and
adversarial ones of both, is measured; FACTOR times that is the bound. A flip is explained where the logit
margin on the image that counts is within the bound on one of the devices. All others are unexplained, and
there must be none. In float64 the bound is so small that it explains next to nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers import catalog
from assay.workers.data.digits import digits as digits_data
from assay.workers.evaluation.engine.loader import DType
from assay.workers.evaluation.engine.protocols import attack_pixel, classify
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row, exactly, told
from benchmarks.acceptance.text import text_rows
from benchmarks.acceptance.worst import Cases
from tests.laws.test_corruption_laws import MODULES
from tests.laws.test_corruption_laws import make as corruption
from tests.support import networks

# A path of many steps adds up and stretches what one pass rounds.
FACTOR = 64.0
SMALLEST = 1e-12  # of the bound, where the devices agree to the last bit
CPU = torch.device("cpu")
EPSILON = 0.1
BATCH = {False: 64, True: 6}
# Attack, its parameters, and what is left of these in a dry run.
ATTACKS: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "fgsm": ("fgsm", {"epsilon": EPSILON}, {}),
    "pgd": ("pgd", {"epsilon": EPSILON, "steps": 20}, {"steps": 4}),
    "apgd": ("apgd", {"epsilon": EPSILON, "steps": 20}, {"steps": 4}),
    "autoattack": (
        "autoattack",
        {"epsilon": EPSILON, "version": "custom", "stages": ["apgd_ce", "fab_t", "square"], "queries": 100},
        {"stages": ["apgd_ce", "square"], "queries": 10},
    ),
    "square": ("square", {"epsilon": EPSILON, "queries": 200}, {"queries": 10}),
    "carlini_wagner": (
        "carlini_wagner",
        {"iterations": 40, "searches": 3, "learning_rate": 0.05},
        {"iterations": 4, "searches": 1},
    ),
    "fab": ("fab", {"epsilon": EPSILON, "iterations": 10, "restarts": 1}, {"iterations": 2}),
}


class Pair:
    """A network with its images, on the CPU and on the device.

    Args:
        name: For the rows.
        model: On the CPU, float32.
        pixels: Images (n, C, H, W) in [0, 1].
        labels: Classes (n,).
    """

    def __init__(self, name: str, model: nn.Module, pixels: Tensor, labels: Tensor) -> None:
        self.name, self.pixels, self.labels = name, pixels, labels
        self._model = model.eval()

    def on(self, device: torch.device, dtype: DType) -> nn.Module:
        """A copy of the network there."""
        kind = torch.float64 if dtype == "float64" else torch.float32
        return copy.deepcopy(self._model).to(kind).to(device)

    def run(
        self, attack: Attack | None, model: nn.Module, device: torch.device, dtype: DType, batch: int
    ) -> Any:
        """Outcomes of an attack; without one of the images as they are."""
        ids = [f"digit-{row}" for row in range(len(self.pixels))]

        def images_of(rows: Any) -> Tensor:
            return self.pixels[list(rows)]

        given: dict[str, Any] = {"batch_size": batch, "device": device, "dtype": dtype}
        if attack is None:
            return classify(model, images_of, self.labels, ids, **given)
        randomness = Randomness(0, attack.name)
        given |= {"randomness": randomness, "keep_adversarial": True}
        return attack_pixel(attack, model, images_of, self.labels, ids, **given)


def pairs(dry: bool) -> list[Pair]:
    """Stored networks and digits that they did not see."""
    n = 8 if dry else networks.REGULARISED_FROM
    pixels, labels = networks.digits()
    regularised = Classifier(networks.network("regularised"), (networks.MEAN,), (networks.STD,))
    found = [Pair("regularised", regularised, pixels[:n], labels[:n])]
    if not dry:
        start = networks.CONVOLUTIONAL_FROM
        found.append(
            Pair(
                "convolutional",
                networks.network("convolutional-fgsm-trained"),
                pixels[:start],
                labels[:start],
            )
        )
        held_out = digits_data(None, "test")
        rows = range(128)
        images, truth = held_out.images(list(rows), 32), held_out.labels[:128]
        found += [Pair(name, networks.network(name), images, truth) for name in ("symvit", "rpc_symvit")]
    return found


def outcomes(context: Context) -> list[Row]:
    """Clean, under attack, corrupted, and in text: no flip between the devices but by rounding."""
    found, rows = Cases(), []
    with context.opened() as device:
        for pair in context.share(pairs(context.dry)):
            for dtype in cast(tuple[DType, ...], ("float32", "float64")):
                rows += compared(
                    found,
                    pair,
                    dtype,
                    device,
                    pair.on(CPU, dtype),
                    pair.on(device, dtype),
                    attacks(context.dry),
                )
        _corruptions(found, context, device)
    return [*rows, *found.rows(), *text_rows(context)]


def attacks(dry: bool) -> dict[str, Callable[[], Attack | None]]:
    """Makers of the attacks by name; that of `clean` makes none."""
    found: dict[str, Callable[[], Attack | None]] = {"clean": lambda: None}
    for name, (component, params, fewer) in ATTACKS.items():
        found[name] = catalog.build("attack", component, dict(params) | (dict(fewer) if dry else {}))
    return found


def compared(
    found: Cases,
    pair: Pair,
    dtype: DType,
    device: torch.device,
    here: nn.Module,
    there: nn.Module,
    makers: Mapping[str, Callable[[], Attack | None]],
) -> list[Row]:
    """Runs every attack on both sides.

    Args:
        found: Gets the cases.
        pair: The network and its images.
        dtype: Arithmetic.
        device: Where `there` is.
        here: The network on the CPU.
        there: The same on the device.
        makers: Of attacks.
    """
    results: dict[str, tuple[Any, Any]] = {}
    batch = BATCH[len(pair.pixels) <= 8]
    for name, maker in makers.items():
        with found.case(f"evaluations of {pair.name}, {dtype}", f"{name} of {pair.name}, {dtype}"):
            results[name] = (
                pair.run(maker(), here, CPU, dtype, batch),
                pair.run(maker(), there, device, dtype, batch),
            )
    shown = [pair.pixels] + [
        one.adversarial for both in results.values() for one in both if one.adversarial is not None
    ]
    images = torch.cat([part.to(next(here.parameters()).dtype) for part in shown])
    with torch.no_grad():
        logits = here(images)
        difference = float((there(images.to(device)).cpu() - logits).abs().max())
    bound = max(FACTOR * difference, SMALLEST)
    flips, explained = 0, 0
    for one, other in results.values():
        flipped = (one.correct != other.correct).nonzero().flatten().tolist()
        margins = [_margins(side, pair, here) for side in (one, other)]
        flips += len(flipped)
        explained += sum(min(abs(float(side[row])) for side in margins) <= bound for row in flipped)
    name = f"{pair.name}, {dtype}"
    return [
        told(f"{name}: largest difference of logits on {len(images)} images", difference),
        told(f"{name}: bound of a margin, {FACTOR:g} times that", bound),
        told(f"{name}: flips in {sum(len(one.correct) for one, _ in results.values())} outcomes", flips),
        exactly(f"{name}: flips without an explanation", flips - explained, 0),
    ]


def _margins(outcomes: Any, pair: Pair, model: nn.Module) -> Tensor:
    """The logit of the true class less the highest other one on the image that counts."""
    if outcomes.margin is not None:
        margin: Tensor = outcomes.margin
        return margin
    with torch.no_grad():
        return _margin(model(pair.pixels.to(next(model.parameters()).dtype)), pair.labels)


def _margin(logits: Tensor, labels: Tensor) -> Tensor:
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return own - others


def _corruptions(found: Cases, context: Context, device: torch.device) -> None:
    """Corrupted digits: a flip is due to a margin within the change that the images' own difference makes."""
    pair = pairs(context.dry)[0]
    here, there = pair.on(CPU, "float64"), pair.on(device, "float64")
    ids = [f"digit-{row}" for row in range(len(pair.pixels))]
    for name in context.share(list(MODULES)[:: 4 if context.dry else 1]):
        with found.case("corruptions of regularised", name), torch.no_grad():
            near = corruption(name, 3)(pair.pixels, ids, 0)
            far = corruption(name, 3)(pair.pixels.to(device), ids, 0)
            expected, answer = here(near.double()), there(far.double()).cpu()
            moved = (here(far.cpu().double()) - expected).abs().amax(1)
            flipped = expected.argmax(1) != answer.argmax(1)
            margin = _margin(expected, expected.argmax(1))
            unexplained = flipped & (margin > 2 * moved + 1e-9)
            found.hold("flips are explained by the images' difference", not bool(unexplained.any()), name)
            found.worst("flipped share under a corruption", float(flipped.double().mean()), 0.05, name)
