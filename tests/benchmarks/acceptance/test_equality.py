"""Flips between devices: those within the rounding are explained, a planted fault is not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from benchmarks.acceptance.equality import ATTACKS, CPU, Pair, attacks, compared
from benchmarks.acceptance.record import Row
from benchmarks.acceptance.worst import Cases
from tests.support import networks

N = 60


@pytest.fixture
def pair() -> Pair:
    pixels, labels = networks.digits()
    return Pair("net", networks.network("fgsm-trained"), pixels[:N], labels[:N])


def reordered(model: nn.Module) -> nn.Module:
    """The same function, whose sums have another order: as another device rounds."""
    made = copy.deepcopy(model)
    order = torch.randperm(made[1].out_features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for part in (made[1].weight, made[1].bias):
            part.copy_(part[order])
        made[3].weight.copy_(made[3].weight[:, order])
    return made


class Another(nn.Module):
    """Logits of which one is wrong for some images, as from a broken kernel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits


def run(pair: Pair, there: nn.Module, names: tuple[str, ...], dtype: str = "float32") -> dict[str, Row]:
    makers = {name: maker for name, maker in attacks(False).items() if name in names}
    found = Cases()
    here = pair.on(CPU, dtype)  # type: ignore[arg-type]
    rows = compared(found, pair, dtype, CPU, here, there, makers)  # type: ignore[arg-type]
    assert found.rows()[-1]["held"], found.rows()[-1]
    return {row["what"].partition(": ")[2].partition(" in ")[0].partition(" on ")[0]: row for row in rows}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_another_order_of_sums_makes_no_flip_without_an_explanation(pair: Pair, dtype: str) -> None:
    there = reordered(pair.on(CPU, dtype))  # type: ignore[arg-type]
    rows = run(pair, there, ("clean", "fgsm", "pgd", "apgd", "square", "fab"), dtype)
    assert 0 < rows["largest difference of logits"]["value"] < 1e-4  # type: ignore[operator]
    assert rows["flips without an explanation"]["value"] == 0


def test_a_weaker_attack_on_the_device_is_noticed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a kernel that does nothing there: the logits are the same, and the attack is not."""
    run_there = Pair.run

    def weaker(self: Pair, attack: object, model: nn.Module, *rest: object) -> object:
        return run_there(self, None if isinstance(model, Another) else attack, model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Pair, "run", weaker)
    rows = run(pair, Another(pair.on(CPU, "float32")), ("pgd",))
    assert rows["flips without an explanation"]["value"] > 0  # type: ignore[operator]
    assert not rows["flips without an explanation"]["held"]


def test_whole_evaluations_are_of_every_kind() -> None:
    assert {"fgsm", "pgd", "apgd", "autoattack", "square", "carlini_wagner", "fab"} == ATTACKS.keys()
