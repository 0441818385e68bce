from __future__ import annotations

import pytest
import torch
from timm.models.xcit import ConvPatchEmbed

from assay.models.layers.conv_stem import ConvStem
from tests.support.weights import disturb


@pytest.mark.parametrize("patch_size", [8, 16])
@pytest.mark.parametrize("training", [False, True])
def test_equals_timms_stem_with_its_weights(patch_size: int, training: bool) -> None:
    theirs = ConvPatchEmbed(224, patch_size, 3, 24)
    disturb(theirs)
    ours = ConvStem(3, patch_size, 24).double()
    ours.load_state_dict(theirs.double().state_dict())
    images = torch.randn(2, 3, 3 * patch_size, 5 * patch_size, dtype=torch.float64)
    tokens, grid = ours.train(training)(images)
    expected, theirs_grid = theirs.train(training)(images)
    assert grid == theirs_grid == (3, 5)
    torch.testing.assert_close(tokens, expected, rtol=0, atol=1e-12)


def test_a_patch_of_4_pixels_takes_two_convolutions() -> None:
    stem = ConvStem(1, 4, 24).eval()
    tokens, grid = stem(torch.randn(2, 1, 12, 20))
    assert (tokens.shape, grid) == ((2, 15, 24), (3, 5))
    widths = [part.out_channels for part in stem.modules() if isinstance(part, torch.nn.Conv2d)]
    assert widths == [6, 24]


def test_tokens_are_row_by_row() -> None:
    stem = ConvStem(1, 8, 16).eval()
    images = torch.zeros(1, 1, 24, 40)
    changed = images.clone()
    changed[..., 8, 32] = 1.0  # the centre of the window of row 1, column 4, which ends 7 pixels from it
    difference = (stem(changed)[0] - stem(images)[0]).abs().sum(dim=-1)[0]
    assert difference.nonzero().tolist() == [[1 * 5 + 4]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 12, 24), r"patch_size must be one of \[4, 8, 16\]: got 12"),
        ((3, 16, 7), "width must be at least 8: got 7"),
    ],
)
def test_refuses_other_sizes(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConvStem(*arguments)


def test_refuses_images_that_are_not_whole_patches() -> None:
    message = r"patch_size must divide height and width of the images: got 8 and \(24, 20\)"
    with pytest.raises(ValueError, match=message):
        ConvStem(1, 8, 16)(torch.zeros(1, 1, 24, 20))
