"""Parity of the corruptions with the released ones: `python -m benchmarks.corruption_parity`.

The reference is `imagecorruptions-imaug` with our draws. For each corruption, over all severities: the max
difference in levels, and the fraction of values that differ at all. Crops of 224 pixels of photographs of
scikit-learn, or of the images below a folder (`--folder`, sorted, evenly spread).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from benchmarks.corruptions import EXTRA, FIFTEEN, crops, ours
from tests.support.imagecorruptions import released

SIZE = 224
SEVERITIES = (1, 2, 3, 4, 5)


def from_folder(folder: Path, count: int) -> Tensor:
    """Levels (count, 3, SIZE, SIZE): upper-left crops of sufficiently large images."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg", ".png"))
    found = []
    for path in files[:: max(1, len(files) // count)][:count]:
        pixels = np.array(Image.open(path).convert("RGB").crop((0, 0, SIZE, SIZE)))
        found.append(torch.from_numpy(pixels).permute(2, 0, 1))
    return torch.stack(found).float()


def compare(name: str, images: Tensor) -> tuple[int, float]:
    """Max difference in levels, and the fraction of values that differ."""
    ids = [str(number) for number in range(len(images))]
    largest, shares = 0, []
    for severity in SEVERITIES:
        corruption = ours(name, severity)
        for row, identifier in enumerate(ids):
            draws = corruption.draws([identifier], images.shape[1:], 0)
            levels = corruption.apply(images[row : row + 1].clone(), *draws)[0]
            difference = (levels - released(corruption, images[row], draws, pytest.MonkeyPatch())).abs()
            largest = max(largest, int(difference.max()))
            shares.append(float((difference > 0).double().mean()))
    return largest, sum(shares) / len(shares)


def main() -> None:
    """Print a line for each corruption."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--images", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.folder:
        images = from_folder(options.folder, options.images)
    else:
        images = crops(options.images, SIZE).permute(0, 3, 1, 2).float()
    sys.stdout.write(
        f"{len(images)} images, all severities: largest difference in levels, share that differs\n"
    )
    for name in (*FIFTEEN, *EXTRA):
        largest, share = compare(name, images)
        sys.stdout.write(f"{name:20s}{largest:4d}{share:12.6f}\n")


if __name__ == "__main__":
    main()
