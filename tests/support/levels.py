"""A classifier whose answer is known from the image: it takes the class whose grey level is the nearest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

SIZE = 8


class Levels(nn.Module):
    """Logits (B, n) of images by their mean m: -(m - level)^2 without m^2, for levels from 0 to 1.

    Logit k has the largest value for an image of level `places[k]` / (n - 1).
    """

    levels: Tensor

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("levels", torch.tensor(places).float() / (len(places) - 1))

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, n) of images (B, C, S, S)."""
        means = images.mean((1, 2, 3))[:, None]
        return 64 * (2 * means * self.levels - self.levels**2)


def write_levels(folder: Path, names: Sequence[str], *, each: int = 2) -> None:
    """Folders of images of one grey: of class k (in the order of the names) of level k / (n - 1)."""
    for place, name in enumerate(names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        grey = round(255 * place / (len(names) - 1))
        for number in range(each):
            Image.new("RGB", (SIZE, SIZE), (grey, grey, grey)).save(folder / name / f"{number}.png")
