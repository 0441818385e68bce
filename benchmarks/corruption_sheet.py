"""Contact sheet of every corruption at every severity, on one photograph.

`python -m benchmarks.corruption_sheet docs/images/corruptions.png` makes the picture of docs/corruptions.md,
from a photograph bundled with scikit-learn; `--image FILE` takes another one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image
from torch import Tensor

from benchmarks.corruptions import EXTRA, FIFTEEN, ours

TILE, GAP, TITLE = 112, 2, 18
SEVERITIES = (1, 2, 3, 4, 5)
BLOCKS = 2
COLOURS = 256


def tile(photograph: Image.Image) -> Tensor:
    """Central square of a photograph, (1, 3, TILE, TILE) in [0, 1]."""
    side = min(photograph.size)
    left, top = (photograph.width - side) // 2, (photograph.height - side) // 2
    square = photograph.convert("RGB").crop((left, top, left + side, top + side))
    pixels = np.array(square.resize((TILE, TILE), Image.Resampling.LANCZOS))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255


def picture(images: Tensor) -> Image.Image:
    """Converts one image (1, 3, H, W) to a picture."""
    return Image.fromarray((images[0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())


def sheet(images: Tensor) -> Image.Image:
    """Rows of five severities under the name of the corruption, in blocks; the original comes last."""
    names = [*FIFTEEN, *EXTRA, "original"]
    rows = -(-len(names) // BLOCKS)
    height, width = rows * (TITLE + TILE + GAP), BLOCKS * (len(SEVERITIES) * (TILE + GAP) + 4 * GAP)
    paper = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(paper), ImageFont.load_default(size=13)
    for number, name in enumerate(names):
        left = number // rows * (width // BLOCKS)
        top = number % rows * (TITLE + TILE + GAP)
        pen.text((left + 2, top + 1), name, fill="black", font=font)
        for place, severity in enumerate(SEVERITIES):
            if name == "original" and place:
                break
            shown = images if name == "original" else ours(name, severity)(images, ("sheet",), 0)
            paper.paste(picture(shown), (left + place * (TILE + GAP), top + TITLE))
    return paper


def main() -> None:
    """Draw the sheet and save it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--image", type=Path, help="a photograph instead of scikit-learn's")
    options = parser.parse_args()
    photograph = (
        Image.open(options.image) if options.image else Image.fromarray(load_sample_image("china.jpg"))
    )
    # A palette takes a third of the bytes and is invisible at this size.
    sheet(tile(photograph)).quantize(COLOURS).save(options.file, optimize=True)


if __name__ == "__main__":
    main()
