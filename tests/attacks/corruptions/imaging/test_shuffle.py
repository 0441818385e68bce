"""Chains of pixels that take each other's values, followed with looks (on a CPU) and without."""

from __future__ import annotations

import pytest
import torch

from assay.attacks.corruptions.glass_blur import GLASSES
from assay.attacks.corruptions.imaging.shuffle import ends, shuffle, taking_part
from tests.support.emulated_device.device import emulated_device


@pytest.mark.sampled
@pytest.mark.parametrize("pixels", [1, 2, 3, 4, 5, 8, 9, 100, 128, 129])
def test_the_longest_chain_is_followed_to_its_end(pixels: int) -> None:
    # Each pixel takes the new value of the next; the last takes the old value of the first.
    pointers = torch.arange(2 * pixels, 3 * pixels, dtype=torch.int32) + 1
    pointers[-1] = 0
    still = torch.arange(pixels, dtype=torch.int32)
    found = ends(torch.stack([pointers, still]), pixels)
    assert torch.equal(found, torch.stack([torch.zeros_like(still), still]))


@pytest.mark.sampled
@pytest.mark.parametrize("glass", GLASSES["imagenet_c"])
@pytest.mark.parametrize("size", [(3, 3), (40, 52)])
def test_a_device_moves_the_same_values_without_waiting(
    glass: tuple[float, int, int], size: tuple[int, int]
) -> None:
    _, reach, rounds = glass
    rows, columns = (last - first for first, last in (taking_part(side, reach) for side in size))
    chance = torch.Generator().manual_seed(0)
    offsets = torch.randint(-reach, reach, (2, rounds, 2, rows, columns), generator=chance, dtype=torch.int8)
    levels = torch.arange(2 * 3 * size[0] * size[1], dtype=torch.float32).view(2, 3, *size)
    with emulated_device() as device:
        moved = shuffle(levels.to(device.device), offsets.to(device.device), reach)
        assert not device.waits
        assert torch.equal(moved.cpu(), shuffle(levels, offsets, reach))
