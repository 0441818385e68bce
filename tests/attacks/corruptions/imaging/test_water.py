"""Edges, distances and evened-out levels against OpenCV, which the released code calls."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.water import canny, distance_to, equalised, shading


def blobs(seed: int) -> Tensor:
    """Levels (1, 1, 64, 72) with smooth drops."""
    noise = torch.randn(1, 1, 16, 18, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(noise, size=(64, 72), mode="bicubic", align_corners=False)
    return (smooth * 200).clamp(0, 255).floor()


def test_edges_are_those_of_opencv() -> None:
    for seed in range(8):
        levels = blobs(seed)
        expected = cv2.Canny(levels[0, 0].numpy().astype(np.uint8), 50, 150) > 0
        assert expected.any()
        assert np.array_equal(canny(levels)[0, 0].numpy(), expected)


def test_distances_are_those_of_opencv_up_to_twenty() -> None:
    for seed in range(4):
        edges = torch.rand(1, 1, 64, 72, generator=torch.Generator().manual_seed(seed)) < 0.003
        found = distance_to(edges)[0, 0].clamp(max=20)
        expected = cv2.distanceTransform(255 - 255 * edges[0, 0].numpy().astype(np.uint8), cv2.DIST_L2, 5)
        # OpenCV counts in fixed point.
        torch.testing.assert_close(found, torch.tensor(expected).clamp(max=20), rtol=0, atol=1e-3)


def test_levels_are_evened_out_as_by_opencv() -> None:
    for seed in range(4):
        levels = blobs(seed)
        expected = cv2.equalizeHist(levels[0, 0].numpy().astype(np.uint8))
        assert np.array_equal(equalised(levels)[0, 0].numpy(), expected.astype(np.float32))
    flat = torch.full((1, 1, 8, 8), 7.0)
    assert torch.equal(equalised(flat), flat)


def test_no_drops_no_edges() -> None:
    nothing = torch.zeros(2, 1, 20, 20)
    assert not canny(nothing).any()
    assert shading(nothing).shape == nothing.shape
