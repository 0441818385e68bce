"""Stored corrupted images in arrays, CORRUPTION.npy and labels.npy: CIFAR-10-C and CIFAR-100-C.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". An array has a block of all test images for each severity, 1 to 5: a cell.

Legend: n examples, S requested side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.service.contract.corruption_cells import SEVERITIES, TASK, Cell
from assay.service.submission.imagenet_c_layout import (
    ARRAY_LAYOUT,
    LABELS_FILE,
    array_file,
    find_missing_arrays,
)
from assay.workers.data.formats.dataset import (
    CorruptData,
    Levels,
    MissingData,
    checked_indices,
    refuse_training,
    resize,
)
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.stored_corruptions import corruption_names

HASHED_TOGETHER = 1000  # Hashed at a time


@dataclass(frozen=True)
class ArrayKind:
    """Description of a set."""

    name: str
    title: str
    clean: str
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: int
    side: int = 32


def open_arrays(kind: ArrayKind, root: Path | None, split: str, folder: str) -> StoredArrays:
    """The set in a folder."""
    refuse_training(kind.title, split)
    root, where = find_folder(root, folder)
    return StoredArrays(kind, where, root)


class StoredArrays:
    """Corrupted images in memory-mapped arrays, in the cells of `of_cells`."""

    task = TASK
    channels = 3

    def __init__(
        self, kind: ArrayKind, folder: Path, base: Path, cells: Sequence[Cell] | None = None
    ) -> None:
        self.kind = kind
        self.name = kind.name
        self.sampled_as = kind.clean
        self.class_names = kind.class_names
        self.classes = len(kind.class_names)
        self.mean, self.std = kind.mean, kind.std
        self.size: tuple[int, int] | None = (kind.side, kind.side)
        self.folder = folder
        self.base = base
        self._mapped: tuple[str, NDArray[np.uint8]] = ("", np.empty(0, np.uint8))
        self.cells = list(cells) if cells is not None else self._present()
        self.ids: Sequence[str] = [f"test/{index:05d}" for index in range(kind.images)]
        self.labels = self._labels()

    def of_cells(self, cells: Sequence[Cell]) -> StoredArrays:
        """This set restricted to these cells."""
        return StoredArrays(self.kind, self.folder, self.base, cells)

    def check(self) -> None:
        """Look at every array that will be read."""
        self._refuse(find_missing_arrays(self.folder, self.base, self.cells))
        for name in dict(self.cells):
            self._array(name)

    def __len__(self) -> int:
        return self.kind.images

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1] of the first cell, float32 (len(indices), 3, size, size), bilinear if resized."""
        return resize(self._stored(self.cells[0], indices).pixels(), size)

    def levels(self, indices: Sequence[int], size: int) -> Levels | None:
        """Levels of the first cell; None at other than the stored size."""
        return self._stored(self.cells[0], indices) if size == self.kind.side else None

    def cell_images(self, cell: Cell, indices: Sequence[int], size: int) -> Tensor | Levels:
        """Images under a corruption: as stored, or resized like `images`."""
        found = self._stored(cell, indices)
        return found if size == self.kind.side else resize(found.pixels(), size)

    def _stored(self, cell: Cell, indices: Sequence[int]) -> Levels:
        pixels = torch.from_numpy(self._rows(cell, checked_indices(indices, len(self))))
        return Levels(pixels.permute(0, 3, 1, 2), 255)

    def content_sha256(self) -> str:
        """Hash of each cell's ids, labels and pixels (reads all of them)."""
        digest, labels = hashlib.sha256(f"{self.name}\n".encode()), self.labels.tolist()
        for cell in sorted(self.cells):
            for start in range(0, len(self), HASHED_TOGETHER):
                rows = list(range(start, min(start + HASHED_TOGETHER, len(self))))
                for row, pixels in zip(rows, self._rows(cell, rows), strict=True):
                    digest.update(f"{cell[0]}/{cell[1]}/{self.ids[row]} {labels[row]}\n".encode())
                    digest.update(pixels.tobytes())
        return digest.hexdigest()

    def _rows(self, cell: Cell, rows: list[int]) -> NDArray[np.uint8]:
        first = SEVERITIES.index(cell[1]) * len(self)
        found: NDArray[np.uint8] = self._array(cell[0])[[first + row for row in rows]]
        return found

    def _array(self, name: str) -> NDArray[np.uint8]:
        """A corruption's images, uint8 (5 n, H, W, 3), alone mapped: all would be gigabytes."""
        last, array = self._mapped
        if last != name:
            shape = (len(SEVERITIES) * len(self), self.kind.side, self.kind.side, 3)
            array = self._open(array_file(name), shape, np.uint8)
            self._mapped = (name, array)
        return array

    def _labels(self) -> Tensor:
        """int64 (n,); the blocks of the file must be the same."""
        path, n, last = self.folder / LABELS_FILE, len(self), self.classes - 1
        if not path.is_file():
            self._refuse(f"{LABELS_FILE} is missing")
        blocks = np.asarray(self._open(LABELS_FILE, (len(SEVERITIES) * n,))).reshape(len(SEVERITIES), n)
        if (blocks != blocks[0]).any():
            raise CorruptData(f"{path}: the labels of the severities differ; unpack the archive again")
        if not 0 <= int(blocks.min()) <= int(blocks.max()) <= last:
            raise CorruptData(f"{path}: a label is outside 0..{last}; this is not {self.kind.title}")
        return torch.from_numpy(blocks[0].astype(np.int64))

    def _open(self, name: str, shape: tuple[int, ...], kind: type[np.generic] = np.integer) -> NDArray[Any]:
        path = self.folder / name
        check_inside(path, self.base)
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise CorruptData(
                f"{path} cannot be read as an array ({error}); unpack the archive again"
            ) from error
        if not isinstance(array, np.ndarray):
            array.close()
            raise CorruptData(f"{path} is an archive of arrays; wanted is one array of shape {shape}")
        if array.shape != shape or not np.issubdtype(array.dtype, kind):
            raise CorruptData(
                f"{path} has shape {array.shape} and type {array.dtype}; {self.kind.title} has shape {shape}"
                f" and type {kind.__name__}"
            )
        return array

    def _present(self) -> list[Cell]:
        names = [name for name in corruption_names() if (self.folder / array_file(name)).is_file()]
        cells = [(name, severity) for name in names for severity in SEVERITIES]
        if not cells:
            wanted = [(name, severity) for name in corruption_names()[:1] for severity in SEVERITIES]
            self._refuse(find_missing_arrays(self.folder, self.base, wanted))
        return cells

    def _refuse(self, gaps: str | None) -> None:
        if gaps is not None:
            raise MissingData(f"{self.kind.title} is wanted in {self.folder} as {ARRAY_LAYOUT}: {gaps}.")
