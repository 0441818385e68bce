"""Values that a device sends to the host while both go on."""

from __future__ import annotations

import pytest
import torch

from assay.workers.evaluation.engine.arriving import Arriving
from tests.support.emulated_device import rules
from tests.support.emulated_device.device import emulated_device

VALUES = {"loss": torch.tensor([0.5, 2.0], dtype=torch.float64), "right": torch.tensor([True, False])}


def test_values_of_the_device_arrive_without_a_wait_for_the_device() -> None:
    with emulated_device() as device:
        arriving = Arriving({name: value.to(device.device) for name, value in VALUES.items()})
        device.forget_counts()
        with pytest.raises(rules.PinnedMemoryError):
            arriving._values["loss"].sum()  # not there yet
        found = arriving.read()
        assert all(torch.equal(found[name], value) for name, value in VALUES.items())
        assert arriving.read() is found
        assert (device.event_waits, device.waits.total()) == (1, 0)


def test_values_that_are_queued_later_are_not_waited_for() -> None:
    with emulated_device() as device:
        first, second = (Arriving({"loss": VALUES["loss"].to(device.device)}) for _ in range(2))
        first.read()
        assert device.copies, "the second is still under way"
        assert torch.equal(second.read()["loss"], VALUES["loss"])


def test_values_of_the_cpu_are_there() -> None:
    assert Arriving(VALUES).read()["loss"] is VALUES["loss"]
    assert Arriving({}).read() == {}
