"""The Pathfinder task of Long Range Arena: do two circles lie on the same dashed path?

Linsley et al., NeurIPS 2018; Tay et al., ICLR 2021, from a difficulty's folder of lra_release, such as
pathfinder32/curv_contour_length_14: text files metadata/*.npy, whose lines have an image's folder and name, a
number, the label and more, with spaces between; and PNG files, 32 x 32 in grey. A sequence is an image's
levels, row by row.

The released pipeline shuffles at every preprocessing: 80 % training, 10 % validation, 10 % test; here the
sha256 of seed and id gives the order. It takes the level as token, with 0 as padding: black pixels, nearly
all of an image, are left out (`black` = "padding"). By default black is a token. Empty files are left out, as
released.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from PIL import Image
from torch import Tensor

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.images.pictures import UNREADABLE, unreadable
from assay.workers.data.formats.sampling import example_key
from assay.workers.data.formats.sequences import DrawSeed, Evaluated, TokenSequences, grey_ids, grey_levels
from assay.workers.data.formats.text_files import content_lines

__all__ = ["pathfinder"]

TASKS = ("sequence",)
PAPER = (
    "Tay et al. 2021, Long Range Arena; Linsley et al. 2018, Learning Long-Range Spatial Dependencies with"
    " Horizontal Gated Recurrent Units"
)
FACTS = {"classes": 2, "words": False, "sentences": False, "pairs": False, "long_range_task": "pathfinder"}

CLASS_NAMES = ("apart", "connected")
METADATA = "metadata"
LABEL_CELL = 3
SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


def pathfinder(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: Annotated[str, "folder"] = "lra_release/pathfinder32/curv_contour_length_14",
    black: Literal["token", "padding"] = "token",
    evaluated: Evaluated = "test",
    seed: DrawSeed = 0,
) -> TokenSequences:
    """Pathfinder as sequences of grey levels (two classes), from FOLDER/metadata/*.npy and its PNG files.

    Args:
        split: which part: 80 % of the images for training, 10 % for evaluation.
        folder: relative name of the folder of a difficulty.
        black: "token": black pixels take part; "padding": they do not, as released.
        seed: another seed, another split.
    """
    root, where = find_folder(root, folder)
    labels = _listed(where, root)
    order = sorted(labels, key=lambda name: example_key(f"pathfinder/{seed}", name))
    begin, end = (round(share * len(order)) for share in SHARES["train" if split == "train" else evaluated])
    chosen = sorted(order[begin:end])
    if not chosen:
        raise MissingData(f"{where} has only {len(order)} images: too few for three parts")

    def read(index: int) -> tuple[Tensor, ...]:
        return (grey_ids(_levels(where / chosen[index], root), black=black),)

    return TokenSequences(
        name="pathfinder",
        class_names=CLASS_NAMES,
        ids=chosen,
        labels=[labels[name] for name in chosen],
        vocabulary=grey_levels(black),
        read=read,
    )


def _listed(where: Path, base: Path) -> dict[str, int]:
    lists = sorted((where / METADATA).glob("*.npy"))
    if not lists:
        raise MissingData(
            f"no lists (*.npy) in {where / METADATA}. The data set 'pathfinder' wants the folder of a"
            " difficulty of lra_release, such as pathfinder32/curv_contour_length_14, with metadata and"
            " images."
        )
    found: dict[str, int] = {}
    for path in lists:
        check_inside(path, base)
        for number, line in enumerate(content_lines(path), start=1):
            cells = line.split(" ")
            if len(cells) <= LABEL_CELL or cells[LABEL_CELL] not in ("0", "1"):
                raise CorruptData(
                    f"{path} line {number}: {line[:80]!r} is not a folder, a file, a number and a label"
                )
            image = where / cells[0] / cells[1]
            check_inside(image, base)
            if not image.is_file():
                raise MissingData(f"{path} line {number}: {image} does not exist")
            if image.stat().st_size:
                found[f"{cells[0]}/{cells[1]}"] = int(cells[LABEL_CELL])
    return found


def _levels(path: Path, base: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    check_inside(path, base)
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("L"), dtype=np.int64)
    except UNREADABLE as error:
        raise unreadable(str(path), error) from error
