"""The Retrieval task of Long Range Arena: does one of two papers cite the other?

Tay et al., ICLR 2021, with pairs of the ACL Anthology Network (Radev et al. 2013), from
tsv_data/new_aan_pairs.{train,eval,test}.tsv of lra_release. A line has the label (0 or 1, also 0.0 and 1.0),
two paper ids and two texts, with tabs between and without quotes. A token is a byte of the UTF-8 text, its id
one more; a model reads the first bytes of both, the papers 4000 each.

Only the lines' places are in memory; a pair is read when needed.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.folders import find_file
from assay.workers.data.formats.sequences import BYTES, Evaluated, TokenSequences

__all__ = ["lra_retrieval"]

TASKS = ("sequence",)
PAPER = "Tay et al. 2021, Long Range Arena; Radev et al. 2013, The ACL Anthology Network Corpus"
FACTS = {
    "classes": 2, "channels": 257, "words": False, "sentences": False, "pairs": True, "train": 147_086,
    "test": 17_437, "long_range_task": "retrieval",
}  # fmt: skip

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
CELLS = 5


class Lines(NamedTuple):
    """Labels (n,), and bytes of each line's two texts, (n, 3): start, tab, end."""

    labels: list[int]
    places: NDArray[np.int64]


def lra_retrieval(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "lra_release/tsv_data",
    evaluated: Evaluated = "test",
) -> TokenSequences:
    """Pairs of papers as bytes (Long Range Arena's Retrieval), from FOLDER/new_aan_pairs.*.tsv."""
    part = "train" if split == "train" else evaluated
    advice = f"The data set 'lra_retrieval' wants {', '.join(FILES.values())}, as in tsv_data of lra_release."
    path = find_file(root, folder, FILES[part], advice=advice)
    lines = _scan(path)

    def read(index: int) -> tuple[Tensor, ...]:
        start, tab, end = (int(place) for place in lines.places[index])
        with path.open("rb") as file:
            file.seek(start)
            raw = file.read(end - start)
        return tuple(_ids(text) for text in (raw[: tab - start], raw[tab - start + 1 :]))

    return TokenSequences(
        name="lra_retrieval",
        class_names=("unrelated", "cited"),
        ids=[f"{part}/{number:06d}" for number in range(len(lines.labels))],
        labels=lines.labels,
        vocabulary=BYTES,
        read=read,
    )


def _ids(raw: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).astype(np.int64) + 1)


def _scan(path: Path) -> Lines:
    if path.stat().st_size == 0:
        raise CorruptData(f"{path} has no pairs")
    labels, places = [], []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        offset = 0
        for number, line in enumerate(iter(whole.readline, b""), start=1):
            body = line.rstrip(b"\r\n")
            cells = body.split(b"\t")
            if len(cells) != CELLS or cells[0] not in LABELS or not (cells[3] and cells[4]):
                raise CorruptData(
                    f"{path} line {number}: {body[:80]!r} is not a label (0 or 1), two ids and two texts"
                )
            start = offset + len(body) - len(cells[3]) - len(cells[4]) - 1
            labels.append(LABELS[cells[0]])
            places.append((start, start + len(cells[3]), offset + len(body)))
            offset += len(line)
    return Lines(labels, np.array(places, dtype=np.int64))
