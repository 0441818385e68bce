"""Warnings of ensembles: what one stage saw is told of the whole, in any order of the stages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.square import square
from assay.attacks.adversarial.uniform_noise import uniform_noise
from assay.attacks.ensemble import Ensemble
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from assay.workers.jobs.warnings import Row, of_evaluation
from tests.support import networks

N = 24
PIXELS, LABELS = networks.digits()
# So small that no stage breaks much, and each gets the examples of those before.
EPSILON = 0.01


class Before(nn.Module):
    """A network behind a change of its pixels that costs it its gradients."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change, self.network = change, networks.network("undefended")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(self.change(images))
        return logits


def lost(images: Tensor) -> Tensor:
    return (images * 16).round() / 16


def broken(images: Tensor) -> Tensor:
    """The same pixels, with a gradient of NaN."""
    return images + 0 * (images - images.detach()).sqrt()


FLAGS: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "zero_gradient": (lost, apgd_ce(epsilon=EPSILON, steps=4)),
    "nonfinite_gradient": (broken, apgd_ce(epsilon=EPSILON, steps=4)),
    "unconverged": (
        lambda images: images,
        pgd(epsilon=4 * EPSILON, steps=10, relative_step_size=0.1, random_start=False),
    ),
}
QUIET = (square(epsilon=EPSILON, queries=3), uniform_noise(epsilon=EPSILON))


def run(attack: Any, model: nn.Module) -> ExampleOutcomes:
    return attack_pixel(
        attack,
        model,
        lambda rows: PIXELS[list(rows)],
        LABELS[:N],
        [f"digit-{row}" for row in range(N)],
        randomness=Randomness(0, attack.name),
        batch_size=8,
    )


@pytest.mark.parametrize("code", FLAGS)
def test_every_order_of_the_stages_tells_the_same(code: str) -> None:
    change, stage = FLAGS[code]
    model = Before(change).eval()
    alone = run(stage, model)
    count = alone.evidence()[code]
    assert count > 4
    row = Row("autoattack", {}, "native", attack=True, worst_case=True, planned={"n": N, "available": N})
    for order in permutations((stage, *QUIET)):
        found = run(Ensemble("autoattack", order), model)
        names = [one.name for one in order]
        assert found.evidence()[code] == count, names
        evidence: Any = [found.evidence()]
        told = {one.code: one for one in of_evaluation({"untrained": False, "batch_size": 8}, evidence, row)}
        assert told[code].evidence["count"] == count, names


def test_stages_that_see_nothing_tell_nothing() -> None:
    model = Before(lambda images: images).eval()
    evidence = run(Ensemble("several", QUIET), model).evidence()
    assert {code: evidence.get(code, 0) for code in FLAGS} == dict.fromkeys(FLAGS, 0)
    assert torch.equal(run(QUIET[0], model).clean_correct, run(QUIET[1], model).clean_correct)
