"""The nearest point of a linearised boundary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pyautoattack.fab_pt import FABAttack_PT
from torch import Tensor

from assay.attacks.adversarial.kernels.fab import nearest_boundary
from assay.attacks.threat import Norm
from tests.attacks.adversarial.batches import digits, network


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_nearest_boundary(norm: Norm) -> None:
    """Against the library's gradients of all classes; in parts too."""
    model, images, labels = network("undefended"), digits()[0][:20], digits()[1][:20]
    theirs = FABAttack_PT(model, norm=norm, eps=1.0, seed=0, targeted=False)
    theirs.device = images.device
    differences, gradients = theirs.get_diff_logits_grads_batch(images, labels)
    flat = gradients.flatten(2)
    dual = flat.abs().sum(2) if norm == "Linf" else flat.square().sum(2).sqrt()
    nearest = (differences.abs() / (1e-12 + dual)).argmin(1)
    rows = torch.arange(20)

    class Parts:
        def __call__(self, points: Tensor) -> Tensor:
            assert len(points) <= 6
            result: Tensor = model(points)
            return result

        def in_parts(self, indices: Tensor, work: Any) -> list[Any]:
            return [work(part) for part in indices.split(6)]

    for run in (model, Parts()):
        offset, weights, classes = nearest_boundary(run, images, labels, norm)
        assert classes == 10
        torch.testing.assert_close(offset, differences[rows, nearest])
        torch.testing.assert_close(weights, gradients[rows, nearest])
