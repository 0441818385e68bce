from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm


def test_one_gradient_two_forward_passes_and_only_the_end_counts(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:100], digits[1][:100]
    state = run(fgsm(epsilon=0.08), network, images, labels)
    assert (state["forward"] == 2).all()
    assert (state["backward"] == 1).all()
    # Even where the loss fell: the outcome is that of the moved image.
    moved = (state["best"] - images).abs().flatten(1).amax(1)
    torch.testing.assert_close(moved, torch.full((100,), 0.08))


def test_the_direction_follows_the_gradient(run: Any) -> None:
    class Linear(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            return points.flatten(1) @ torch.tensor([[-1.0, 1.0], [2.0, -2.0]])

    images = torch.full((1, 1, 1, 2), 0.5)
    attacked = run(fgsm(epsilon=0.1), Linear(), images, torch.tensor([0]))["best"].flatten()
    torch.testing.assert_close(attacked, torch.tensor([0.6, 0.4]))
    targeted = fgsm(epsilon=0.1, targeted=True, target_class=1)
    assert torch.equal(run(targeted, Linear(), images, torch.tensor([0]))["best"].flatten(), attacked)
    longer = run(fgsm(epsilon=0.1, norm="L2"), Linear(), images, torch.tensor([0]))["best"].flatten()
    torch.testing.assert_close(longer - 0.5, torch.tensor([1.0, -2.0]) / 5**0.5 * 0.1)


def test_epsilon_zero_changes_nothing(digits: tuple[Tensor, Tensor], network: nn.Module, run: Any) -> None:
    images, labels = digits[0][:50], digits[1][:50]
    for backend in ("native", "cleverhans"):
        state = run(fgsm(epsilon=0.0, backend=backend), network, images, labels)  # type: ignore[arg-type]
        assert torch.equal(state["best"], images)
