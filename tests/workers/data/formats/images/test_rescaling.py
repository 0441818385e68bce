"""Images at another size."""

from __future__ import annotations

import pytest
import torch

from assay.workers.data.formats.images.rescaling import rescale_map, rescale_pixels, size_with_short_side


@pytest.mark.parametrize(
    ("given", "short_side", "expected"),
    [
        ((512, 683), 512, (512, 683)),
        ((256, 341), 512, (512, 682)),
        ((683, 512), 256, (342, 256)),
        ((360, 480), 512, (512, 683)),
        ((100, 400), 50, (50, 200)),
        ((100, 500), 50, (40, 200)),  # the long side is at most four times the short side that is asked for
        ((1, 1000), 8, (1, 32)),
    ],
)
def test_sizes(given: tuple[int, int], short_side: int, expected: tuple[int, int]) -> None:
    assert size_with_short_side(*given, short_side) == expected


def test_pixels_are_interpolated_between_their_centres() -> None:
    pixels = torch.tensor([[[0, 255]]], dtype=torch.uint8)
    assert rescale_pixels(pixels, (1, 4)).flatten().tolist() == [0.0, 0.25, 0.75, 1.0]
    assert torch.equal(rescale_pixels(pixels, (1, 2)), pixels / 255)
    # Not anti-aliased: of four pixels the two in the middle of each half count.
    shrunk = rescale_pixels(torch.tensor([[[0, 255, 0, 0]]], dtype=torch.uint8), (1, 2))
    assert shrunk.flatten().tolist() == [0.5, 0.0]


def test_labels_are_never_mixed() -> None:
    labels = torch.tensor([[0, 9], [255, 3]], dtype=torch.uint8)
    larger = rescale_map(labels, (4, 6))
    assert larger.tolist() == [[0] * 3 + [9] * 3] * 2 + [[255] * 3 + [3] * 3] * 2
    assert rescale_map(larger, (2, 2)).tolist() == labels.tolist()
    assert larger.dtype == torch.uint8
