"""CamVid in the layout of SegNet's tutorial: road scenes with 11 classes.

Brostow et al., Pattern Recognition Letters 2009; classes and splits (367 train, 101 val, 233 test) of
Badrinarayanan et al., "SegNet", TPAMI 2017.
"""

from __future__ import annotations

from typing import Literal

from assay.workers.data.formats import parameters
from assay.workers.data.formats.folders import find_folder
from assay.workers.data.formats.images.segmentation_files import SegmentationFiles, find_pairs
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.data.image_folder import MEAN, STD

__all__ = ["camvid"]

TASKS = ("segmentation",)
PAPER = "Brostow et al. 2009, Semantic object classes in video; Badrinarayanan et al. 2017, SegNet"
FACTS = {"classes": 11, "channels": 3, "marks": ["trainannot", "valannot", "testannot"]}

CLASS_NAMES = (
    "sky", "building", "pole", "road", "pavement", "tree", "sign symbol", "fence", "car",
    "pedestrian", "bicyclist",
)  # fmt: skip
VOID = 11
MEANING = {label: label for label in range(len(CLASS_NAMES))} | {VOID: IGNORE}


def camvid(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.Folder = "camvid",
    evaluated: Literal["test", "val"] = "test",
) -> SegmentationFiles:
    """CamVid: road scenes, 11 classes, from FOLDER/{train,val,test}/X.png and {train,val,test}annot/X.png.

    Annotation values are 0 to 10 for classes and 11 for ignored pixels. The short side of an image becomes
    the requested side, and its centre is cropped.

    Args:
        split: "train" reads `train`.
        evaluated: which part is read for evaluation.
    """
    root, where = find_folder(root, folder)
    part = "train" if split == "train" else evaluated
    return SegmentationFiles(
        name="camvid",
        class_names=CLASS_NAMES,
        folder=where,
        pairs=find_pairs(where, root, part, f"{part}annot"),
        meaning=MEANING,
        mean=MEAN,
        std=STD,
    )
