"""Handwritten digits without a download: the UCI set bundled with scikit-learn.

The test part of Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", with 17 grey levels.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from assay.workers.data.formats import parameters
from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.sampling import held_out_split

__all__ = ["digits"]

TASKS = ("classification",)
PAPER = "Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, UCI repository"
FACTS = {"classes": 10, "channels": 1, "size": 8, "train": 1442, "test": 355}

MEAN = (0.3047,)  # Of all train pixels at 8 x 8, in [0, 1]
STD = (0.3757,)
WHITE = 16


def digits(root: parameters.Root, split: parameters.Split) -> ArrayDataSet:
    """Handwritten digits (UCI, 1797 images of 8 x 8, 10 classes); part of the installation.

    The split is 80/20, stratified, by the hash of the example id: it depends on no seed. Of each
    digit the fifth (rounded down) with the smallest sha256("digits/" + id) is the test part. Ids are
    positions in scikit-learn's order, "0000" to "1796".
    """
    del root
    pixels, labels = load_all()
    ids = [f"{index:04d}" for index in range(len(labels))]
    train, test = held_out_split("digits", ids, labels.tolist())
    chosen = torch.tensor(train if split == "train" else test, dtype=torch.int64)
    part = pixels[chosen]
    return ArrayDataSet(
        name="digits",
        class_names=tuple("0123456789"),
        ids=[ids[index] for index in chosen.tolist()],
        labels=labels[chosen],
        shape=(1, 8, 8),
        white=WHITE,
        mean=MEAN,
        std=STD,
        read=lambda indices: part[torch.tensor(indices, dtype=torch.int64)],
    )


@cache
def load_all() -> tuple[Tensor, Tensor]:
    """All grey levels, uint8 (1797, 1, 8, 8), and labels, int64 (1797,)."""
    # scikit-learn's own reader takes a second to import, in every evaluator.
    installed = find_spec("sklearn")
    assert installed is not None
    assert installed.submodule_search_locations is not None
    (folder,) = installed.submodule_search_locations
    with gzip.open(Path(folder) / "datasets" / "data" / "digits.csv.gz", "rt") as lines:
        table = torch.tensor([[int(value) for value in line.split(",")] for line in lines])
    return table[:, :-1].to(torch.uint8).reshape(-1, 1, 8, 8), table[:, -1]
