"""Machinery of corruptions: division that rounds alike on every device."""

from __future__ import annotations

import torch

from assay.attacks.corruptions.imaging.corruption import TOP, divided
from tests.support.emulated_device.device import emulated_device


def test_every_level_is_divided_to_the_last_bit_on_a_device() -> None:
    levels = torch.arange(TOP + 1, dtype=torch.float64)
    exact = torch.tensor([level / TOP for level in range(TOP + 1)], dtype=torch.float64)
    assert torch.equal(divided(levels, TOP), exact)
    with emulated_device() as device:
        there = levels.to(device.device)
        device.forget_counts()
        found = divided(there, TOP)
        assert not device.waits
        assert not device.uploads
        assert torch.equal(found.cpu(), exact)
