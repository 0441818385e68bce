"""The convolutional stem: a few 3 x 3 convolutions of stride 2 in place of a wide patch embedding.

El-Nouby et al., "XCiT: Cross-covariance image transformers", NeurIPS 2021, for patches of 16 and 8 pixels;
the code of Zhou et al., "Understanding the robustness in vision transformers", ICML 2022, for 4 pixels. Names
and layouts of the weights are the same.

B = batch, C = width, H and W = height and width in pixels, N = tokens.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from annotated_types import doc
from torch import Tensor, nn

from assay.models.layers.checks import at_least

StemPatchSize = Annotated[
    Literal[4, 8, 16], doc("height and width of a patch in pixels; must divide `image_size`.")
]

# Per patch size, C divided by the channels after each convolution.
DIVISORS = {16: (8, 4, 2, 1), 8: (4, 2, 1), 4: (4, 1)}
MIN_WIDTH = 8  # below it, a convolution has no channels left

STEM_RULES = ((f"model.width >= {MIN_WIDTH}", f"width must be at least {MIN_WIDTH}"),)


class ConvStem(nn.Module):
    """Embeds an image as one token per patch: (B, channels, H, W) to (B, N, C), row by row.

    Each convolution halves height and width, then batch normalisation and, but after the last, a GELU. In
    training mode the tokens of an example depend on the batch.
    """

    def __init__(self, channels: int, patch_size: int, width: int) -> None:
        super().__init__()
        if patch_size not in DIVISORS:
            raise ValueError(f"patch_size must be one of {sorted(DIVISORS)}: got {patch_size}")
        at_least("width", width, MIN_WIDTH)
        self.patch_size = patch_size
        widths = [channels, *(width // divisor for divisor in DIVISORS[patch_size])]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [_halving(before, after), nn.GELU()]
        self.proj = nn.Sequential(*layers[:-1])

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Tokens (B, N, C) and (height, width) in tokens. A ValueError: patches do not divide the image."""
        height, width = images.shape[-2:]
        if height % self.patch_size or width % self.patch_size:
            raise ValueError(
                f"patch_size must divide height and width of the images: got {self.patch_size}"
                f" and {(height, width)}"
            )
        patches = self.proj(images)  # (B, C, H / patch, W / patch)
        return patches.flatten(2).transpose(1, 2), (height // self.patch_size, width // self.patch_size)


def _halving(before: int, after: int) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after))
