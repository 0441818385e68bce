"""SVHN: digits of house numbers, cropped, from the .mat files of its authors.

Netzer et al. 2011, "Reading Digits in Natural Images with Unsupervised Feature Learning", format 2: X is
uint8 (32, 32, 3, n), y (n, 1) has labels from 1 to 10, where 10 is the digit 0.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.workers.data.formats import parameters
from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.folders import find_file

__all__ = ["svhn"]

TASKS = ("classification",)
PAPER = "Netzer et al. 2011, Reading Digits in Natural Images with Unsupervised Feature Learning"
IMAGES = {"train": 73_257, "test": 26_032}
FACTS = {
    "classes": 10, "channels": 3, "size": 32, **IMAGES, "marks": [f"{part}_32x32.mat" for part in IMAGES],
}  # fmt: skip

CLASS_NAMES = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
MEAN = (0.4377, 0.4438, 0.4728)  # Per channel over the train pixels in [0, 1]
STD = (0.1980, 0.2010, 0.1970)

AUTHORS = "http://ufldl.stanford.edu/housenumbers/"


def svhn(
    root: parameters.Root, split: parameters.Split, *, folder: Annotated[str, "folder"] = "svhn"
) -> ArrayDataSet:
    """SVHN (10 digits of house numbers, 32 x 32 colour images; 73 257 train, 26 032 test).

    Below the folder, `train_32x32.mat` or `test_32x32.mat`, whichever the split needs. The
    label is the digit. Ids are "test/00012", in the order of the file.

    Args:
        folder: relative name of the folder that holds the files.
    """
    name = f"{split}_32x32.mat"
    path = find_file(root, folder, name, advice=f"SVHN is wanted there: {name} from {AUTHORS} (format 2).")
    n = IMAGES[split]
    digits = _array(path, "y", (n, 1)).reshape(n).astype(np.int64)
    if not 1 <= int(digits.min()) <= int(digits.max()) <= 10:
        raise CorruptData(f"{path}: a label is outside 1..10; fetch the file again")
    pixels = functools.cache(lambda: _array(path, "X", (32, 32, 3, n)))

    def read(indices: list[int]) -> Tensor:
        chosen = pixels()[..., indices].transpose(3, 2, 0, 1)  # (H, W, C, n) -> (n, C, H, W)
        return torch.from_numpy(np.ascontiguousarray(chosen))

    return ArrayDataSet(
        name="svhn",
        class_names=CLASS_NAMES,
        ids=[f"{split}/{index:05d}" for index in range(n)],
        labels=torch.from_numpy(digits % 10),
        shape=(3, 32, 32),
        white=255,
        mean=MEAN,
        std=STD,
        read=read,
    )


def _array(path: Path, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    from scipy.io import loadmat  # a second of import

    try:
        found: Any = loadmat(path, variable_names=[name]).get(name)
    except Exception as error:  # the file is damaged
        raise CorruptData(f"{path} cannot be read as a MATLAB 5 file ({error}); fetch it again") from error
    if (
        not isinstance(found, np.ndarray)
        or found.shape != shape
        or not np.issubdtype(found.dtype, np.integer)
    ):
        there = "no such array" if found is None else f"shape {found.shape} and type {found.dtype}"
        raise CorruptData(
            f"{path}: SVHN's array {name} has shape {shape} and whole numbers; the file has {there}"
        )
    return found.astype(np.uint8, copy=False)
