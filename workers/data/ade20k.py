"""ADE20K as in the scene parsing challenge (CVPR 2017): 20,210 training and 2,000 validation images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.images.segmentation_files import SegmentationFiles, find_pairs
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.data.image_folder import MEAN, STD

__all__ = ["ade20k"]

TASKS = ("segmentation",)
PAPER = "Zhou et al. 2017, Scene parsing through ADE20K dataset"
ARCHIVE = "ADEChallengeData2016"
FACTS = {"classes": 150, "channels": 3, "marks": [ARCHIVE]}

NAMES_FILE = "objectInfo150.txt"
CLASSES = 150
PARTS = {"train": "training", "test": "validation"}
MEANING = {0: IGNORE} | {label + 1: label for label in range(CLASSES)}  # 0 is "other"


def ade20k(
    root: parameters.Root, split: Literal["train", "test"], *, folder: Annotated[str, "folder"] = "ade20k"
) -> SegmentationFiles:
    """ADE20K: scenes, 150 classes, from FOLDER/ADEChallengeData2016 as the archive unpacks.

    That is {images,annotations}/{training,validation}/X and objectInfo150.txt. Annotation values are 1 to 150
    for classes and 0 for ignored pixels. The short side of an image becomes the requested side, and its
    centre is cropped. An incomplete set of images is accepted.

    Args:
        split: "train" reads `training`, "test" reads `validation`.
        folder: relative name of the folder that holds `ADEChallengeData2016`, or of that folder itself.
    """
    root, where = find_folder(root, folder)
    if (where / ARCHIVE).is_dir():
        check_inside(where / ARCHIVE, root)
        where = where / ARCHIVE
    part = PARTS[split]
    return SegmentationFiles(
        name="ade20k",
        class_names=_class_names(where / NAMES_FILE, root),
        folder=where,
        pairs=find_pairs(where, root, f"images/{part}", f"annotations/{part}"),
        meaning=MEANING,
        mean=MEAN,
        std=STD,
    )


def _class_names(path: Path, base: Path) -> tuple[str, ...]:
    """Last column of a table with a header: number, share, counts, name."""
    if not path.is_file():
        raise MissingData(
            f"The names of ADE20K's classes are wanted in {path}. Unpack ADEChallengeData2016.zip from "
            f"http://sceneparsing.csail.mit.edu there; the file is part of it."
        )
    check_inside(path, base)
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]]
    names = tuple(row[-1].strip() for row in rows)
    if len(set(names)) != CLASSES or len(names) != CLASSES:
        raise CorruptData(f"{path} has {len(set(names))} different names; ADE20K has {CLASSES} classes")
    return names
