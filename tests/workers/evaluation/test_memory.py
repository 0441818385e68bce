"""Memory kept for backward passes: that of one batch, for any number of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.fab_t import fab_t
from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.spsa import spsa
from assay.attacks.randomness import Randomness
from assay.workers import catalog
from assay.workers.evaluation.engine.protocols import attack_pixel

BATCH, SIZE = 16, 32
SHAPE = {"image_size": SIZE, "patch_size": 8, "depth": 3, "width": 48, "heads": 3}
MAX_GROWTH = 1.2

ATTACKS: dict[str, Callable[[], Any]] = {
    "fgsm": fgsm,
    "pgd": lambda: pgd(steps=3),
    "pgd_restarts": lambda: pgd(steps=3, restarts=2),
    "apgd_ce": lambda: apgd_ce(steps=5),
    "apgd_ce_eot": lambda: apgd_ce(steps=3, eot=3),
    "fab_t": lambda: fab_t(iterations=2, targets=2),
    "carlini_wagner": lambda: carlini_wagner(iterations=3, searches=2),
}


class Kept:
    """A tensor that a graph keeps; counts the bytes of those that are kept at the same time."""

    now = peak = 0
    ignored: frozenset[int] = frozenset()

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        storage = tensor.untyped_storage()
        self.size = 0 if storage.data_ptr() in Kept.ignored else tensor.nbytes
        Kept.now += self.size
        Kept.peak = max(Kept.peak, Kept.now)

    def __del__(self) -> None:
        Kept.now -= self.size


def peak(model: nn.Module, work: Callable[[], object]) -> int:
    """The most bytes that graphs kept at one time, without the weights."""
    Kept.now = Kept.peak = 0
    Kept.ignored = frozenset(p.untyped_storage().data_ptr() for p in model.parameters())
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        work()
    return Kept.peak


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = catalog.build("model", "vit", SHAPE)(10, 1).eval()
    return made


def forward_and_backward(model: nn.Module) -> int:
    images = torch.rand(BATCH, 1, SIZE, SIZE)
    labels = torch.zeros(BATCH, dtype=torch.int64)
    return peak(model, lambda: nn.functional.cross_entropy(model(images), labels).backward())


def attacked(model: nn.Module, attack: Any, count: int) -> int:
    images = torch.rand(count, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        labels = model(images).argmax(1)

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    def work() -> None:
        ids = [str(row) for row in range(count)]
        randomness = Randomness(0, attack.name)
        attack_pixel(attack, model, images_of, labels, ids, randomness=randomness, batch_size=BATCH)

    return peak(model, work)


@pytest.mark.costly
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_keeps_what_one_pass_keeps_and_no_more(model: nn.Module, name: str) -> None:
    one = forward_and_backward(model)
    model.zero_grad()
    few, many = (attacked(model, ATTACKS[name](), count) for count in (BATCH, 5 * BATCH))
    assert 0 < few <= MAX_GROWTH * one
    assert many <= few
    assert Kept.now == 0, "nothing is left behind"


def test_an_attack_without_gradients_keeps_nothing(model: nn.Module) -> None:
    assert attacked(model, spsa(steps=1, samples=4), BATCH) == 0
