"""Auto-PGD on a pixel loss: the plain loop, and radii that shrink."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.attacks.adversarial.kernels.auto_pgd import start_direction
from assay.attacks.adversarial.segmentation_apgd import segmentation_apgd
from assay.attacks.kernel import Setting
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Ball
from tests.attacks.segmentation import plain
from tests.attacks.segmentation.pixels import (
    EPSILON,
    IDS,
    WEIGHTS,
    N,
    attacked,
    examples,
    network,
    only,
    starts,
)


@pytest.mark.parametrize("loss", ["mce", "mce_bal", "js", "ce"])
def test_auto_pgd_is_the_plain_loop(loss: Any) -> None:
    model = network()
    given, attack = examples(model), only(segmentation_apgd(epsilon=EPSILON, steps=60, loss=loss))
    state = attacked(attack, model, given)
    spread = start_direction(starts(attack.name, given), Ball("Linf", 2 * EPSILON))
    for row in range(N):
        one = plain.Attacked(model, given.images[row], given.maps[row], loss, WEIGHTS)
        start = (one.image + 2 * EPSILON * spread[row]).clamp(0, 1)
        plain.shrinking_auto_pgd(one, start, EPSILON, 60)
        assert int(state["right"][row]) == one.fewest < int(given.right[row])
        torch.testing.assert_close(state["best"][row], one.best, rtol=0, atol=1e-9)


def test_runs_shrink_and_only_the_last_one_counts() -> None:
    attack = only(segmentation_apgd(epsilon=0.1, steps=300))
    assert attack.runs == ((0.2, 90), (pytest.approx(0.15), 90), (0.1, 120))  # type: ignore[attr-defined]
    assert only(segmentation_apgd(epsilon=0.1, steps=3)).runs == ((0.1, 3),)  # type: ignore[attr-defined]
    model = network()
    given, attack = examples(model), only(segmentation_apgd(epsilon=EPSILON, steps=20))
    setting = Setting(IDS, Randomness(0, attack.name))
    state = attack.start(setting, given)
    widest = []
    with torch.no_grad():
        while not state["done"].all():
            attack.step(setting, model, state)
            widest.append(float((state["adversarial"] - given.images).abs().max()))
            if not (state["run"] == 2).all():
                assert torch.equal(state["best"], given.images)
    assert max(widest) > 1.5 * EPSILON
    assert max(widest[14:]) <= EPSILON + 1e-12
    assert state["forward"].tolist() == [23] * N
    assert state["backward"].tolist() == [20] * N
