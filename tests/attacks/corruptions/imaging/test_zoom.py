"""Central zoom: sizes, corners and borders."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.attacks.corruptions.imaging.zoom import zoom_into_the_middle
from assay.attacks.corruptions.zoom_blur import ZOOMS, factors, zoom_blur


@pytest.mark.sampled
@pytest.mark.parametrize(("end", "step"), {zoom for table in ZOOMS.values() for zoom in table})
def test_zooms_are_those_of_arange(end: float, step: float) -> None:
    assert factors(end, step) == tuple(np.arange(1, end, step).tolist())


def test_a_zoom_keeps_the_corners_of_the_middle_and_has_no_dark_border() -> None:
    ramp = torch.arange(12.0).expand(1, 1, 12, 12)
    zoomed = zoom_into_the_middle(ramp, 2.0)
    assert zoomed.shape == (1, 1, 12, 12)
    torch.testing.assert_close(zoomed[0, 0, 0], torch.linspace(3, 8, 12))
    white = torch.ones(1, 3, 160, 160)
    assert torch.equal(zoom_blur(severity=5)(white, ("white",), 0), white)
