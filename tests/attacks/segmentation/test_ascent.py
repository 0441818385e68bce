"""PGD and SegPGD on a pixel loss: the plain loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.attacks.adversarial.segmentation_pgd import segmentation_pgd
from assay.attacks.adversarial.segpgd import segpgd
from tests.attacks.segmentation import plain
from tests.attacks.segmentation.pixels import (
    EPSILON,
    N,
    attacked,
    examples,
    network,
    only,
    starts,
)


@pytest.mark.parametrize("make", [segmentation_pgd, segpgd])
@pytest.mark.parametrize("random_start", [False, True])
def test_pgd_is_the_plain_loop(make: Any, random_start: bool) -> None:
    model = network()
    given, attack = examples(model), only(make(epsilon=EPSILON, steps=12, random_start=random_start))
    state = attacked(attack, model, given)
    draws = starts(attack.name, given)
    for row in range(N):
        one = plain.Attacked(model, given.images[row], given.maps[row], attack.loss.name, None)
        start = one.image
        if random_start:
            start = (start + (2 * draws[row] - 1) * EPSILON).clamp(0, 1)
        plain.pgd(one, start, EPSILON, 0.15 * EPSILON, 12)
        assert int(state["right"][row]) == one.fewest < int(given.right[row])
        torch.testing.assert_close(state["best"][row], one.best, rtol=0, atol=1e-12)
