"""Motion blur: means along a line."""

from __future__ import annotations

import math

import pytest
import torch

from assay.attacks.corruptions.imaging.motion import smear, taps


def test_streaks_are_means_along_a_line() -> None:
    fields = torch.rand(2, 1, 40, 50)
    angles = torch.tensor([-30.0, 45.0], dtype=torch.float64)
    found = smear(fields, 5, 3.0, angles, (-45.0, 45.0))
    assert found.shape == fields.shape
    for row, angle in enumerate(angles.tolist()):
        expected = torch.zeros(40, 50)
        weights = [math.exp(-0.5 * (step / 3) ** 2) for step in range(11)]
        for step, weight in enumerate(weights):
            down = math.ceil(step * math.sin(math.radians(angle)) - 0.5)
            across = math.ceil(step * math.cos(math.radians(angle)) - 0.5)
            rows = (torch.arange(40) + down).clamp(0, 39)
            columns = (torch.arange(50) + across).clamp(0, 49)
            expected += weight / sum(weights) * fields[row, 0][rows][:, columns]
        torch.testing.assert_close(found[row, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inside", [False, True])
def test_only_the_forks_streaks_darken_images_smaller_than_they(inside: bool) -> None:
    white = torch.ones(2, 3, 12, 9)
    smeared = smear(white, 10, 15.0, torch.tensor([0.0, 30.0]), (-45.0, 45.0), inside=inside)
    assert (float(smeared.max()) < 0.8) is inside
    assert inside or float((smeared - 1).abs().max()) < 1e-5


def test_streaks_longer_than_the_image_lose_their_ends() -> None:
    down, across, weights = taps(10, 15.0, torch.tensor([0.0]), 30, 12)
    assert int((weights > 0).sum()) == 12
    assert int(across.max()) == 11
    assert not down.any()
