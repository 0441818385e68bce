"""Stored corrupted images, CORRUPTION/SEVERITY/CLASS/IMAGE: ImageNet-C and sets like it.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". An example is an image of the clean set; each cell (a corruption at a severity) has a file for
it.

Legend: n examples, S requested side.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import SEVERITIES, TASK, Cell
from assay.service.submission.imagenet_c_layout import (
    LAYOUT,
    WantedLayout,
    find_gaps,
    folder_names,
    image_names,
)
from assay.workers.data.formats.dataset import (
    CorruptData,
    Levels,
    MissingData,
    checked_indices,
    checked_size,
    refuse_training,
)
from assay.workers.data.formats.folders import file_sha256, find_folder
from assay.workers.data.formats.images.pictures import in_threads, open_picture, picture_size
from assay.workers.data.image_folder import MEAN, RESAMPLING, STD

HASHED_TOGETHER = 4096  # Hashed at a time


@dataclass(frozen=True)
class Kind:
    """Description of a stored set."""

    name: str
    title: str
    clean: str  # data set of the clean images: `limit` takes the same examples
    classes: tuple[str, ...] | None = None  # of all classes; None: of the class folders
    prefix: str = ""  # makes ids equal to the clean set's
    crop: int | None = None  # side of the initial centre crop; None: the short side
    published: int | None = None
    count: int | None = None  # of class folders, where names are not given; None for any


def open_stored(kind: Kind, root: Path | None, split: str, folder: str, resize: str) -> StoredCorruptions:
    """The set in a folder."""
    refuse_training(kind.title, split)
    root, where = find_folder(root, folder)
    return StoredCorruptions(kind, where, root, RESAMPLING[resize])


class StoredCorruptions:
    """Corrupted images of a folder, decoded on demand by as many threads as torch may use."""

    task = TASK
    channels = 3
    mean = MEAN
    std = STD
    size: tuple[int, int] | None = None

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        base: Path,
        resampling: Image.Resampling,
        cells: Sequence[Cell] | None = None,
    ) -> None:
        self.kind = kind
        self.name = kind.name
        self.sampled_as = kind.clean
        self.published = kind.published
        self.folder = folder
        self.base = base
        self.resampling = resampling
        self.cells = list(cells) if cells is not None else self._present()

    def of_cells(self, cells: Sequence[Cell]) -> StoredCorruptions:
        """This set restricted to these cells."""
        return StoredCorruptions(self.kind, self.folder, self.base, self.resampling, cells)

    def check(self) -> None:
        """Compare all cells; reads every folder."""
        self._refuse(find_gaps(self._tree(self.cells)))
        if self.kind.count not in (None, self.classes):
            self._refuse(f"it has {self.classes} classes instead of {self.kind.count}")
        for cell in self.cells if self.kind.crop else ():
            self._check_size(self._path(cell, 0), picture_size(self._path(cell, 0)))

    @functools.cached_property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class, in label order."""
        return self.kind.classes or tuple(folder_names(self._cell(self.cells[0]), self.base))

    @property
    def sorted_classes(self) -> bool:
        """Whether nothing but their sorted names gives the order of the classes."""
        return self.kind.classes is None and self.kind.count is None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @functools.cached_property
    def _files(self) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = []
        for label, name in enumerate(self.class_names):
            place = self._cell(self.cells[0]) / name
            images = image_names(place, self.base)[0] if place.is_dir() else []
            found += [(f"{self.kind.prefix}{name}/{image}", f"{name}/{image}", label) for image in images]
        if not found:
            self._refuse(find_gaps(self._tree(self.cells)))
        return sorted(found)

    @functools.cached_property
    def ids(self) -> list[str]:
        """Ids of the images in the clean set, (n,)."""
        return [identifier for identifier, _, _ in self._files]

    @functools.cached_property
    def labels(self) -> Tensor:
        """int64 (n,)."""
        return torch.tensor([label for _, _, label in self._files], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self._files)

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1] of the first cell, float32 (len(indices), 3, size, size)."""
        return self.levels(indices, size).pixels()

    def levels(self, indices: Sequence[int], size: int) -> Levels:
        """Levels of the first cell; see `cell_images`."""
        return self.cell_images(self.cells[0], indices, size)

    def cell_images(self, cell: Cell, indices: Sequence[int], size: int) -> Levels:
        """A cell's images: the centre crop of `Kind.crop` pixels, resized to the model's size."""
        chosen = checked_indices(indices, len(self))
        pixels = torch.empty(len(chosen), 3, checked_size(size), size, dtype=torch.uint8)

        def fill(place: int) -> None:
            pixels[place] = self._decode(self._path(cell, chosen[place]), size)

        in_threads(fill, len(chosen))
        return Levels(pixels, 255)

    def content_sha256(self) -> str:
        """Hash of each file's cell, id, label and bytes."""
        total = hashlib.sha256(f"{self.name}\n".encode())
        for cell in sorted(self.cells):
            for start in range(0, len(self), HASHED_TOGETHER):
                rows = range(start, min(start + HASHED_TOGETHER, len(self)))
                digests = [""] * len(rows)

                def fill(
                    place: int, cell: Cell = cell, rows: range = rows, into: list[str] = digests
                ) -> None:
                    into[place] = file_sha256(self._path(cell, rows[place]))

                in_threads(fill, len(rows))
                for row, content in zip(rows, digests, strict=True):
                    identifier, _, label = self._files[row]
                    total.update(f"{cell[0]}/{cell[1]}/{identifier}\0{content} {label}\n".encode())
        return total.hexdigest()

    def _present(self) -> list[Cell]:
        every = [(name, severity) for name in corruption_names() for severity in SEVERITIES]
        cells = [cell for cell in every if self._cell(cell).is_dir()]
        if not cells:
            self._refuse(find_gaps(self._tree([cell for cell in every if cell[0] in FIFTEEN])))
        return cells

    def _refuse(self, gaps: str | None) -> None:
        if gaps is not None:
            raise MissingData(f"{self.kind.title} is wanted in {self.folder} as {LAYOUT}: {gaps}.")

    def _tree(self, cells: Sequence[Cell]) -> WantedLayout:
        return WantedLayout(self.folder, self.base, cells, self.kind.classes)

    def _cell(self, cell: Cell) -> Path:
        return self.folder / cell[0] / str(cell[1])

    def _path(self, cell: Cell, index: int) -> Path:
        return self._cell(cell) / self._files[index][1]

    def _check_size(self, path: Path, size: tuple[int, int]) -> None:
        crop = self.kind.crop
        if crop is not None and min(size) < crop:
            raise CorruptData(
                f"{path} has {size[0]} x {size[1]} pixels; images of {self.kind.title} have {crop} x {crop}"
            )

    def _decode(self, path: Path, size: int) -> Tensor:
        image = open_picture(path, mode="RGB")
        self._check_size(path, image.size)
        width, height = image.size
        side = self.kind.crop or min(width, height)
        left, top = round((width - side) / 2), round((height - side) / 2)
        image = image.crop((left, top, left + side, top + side))
        if side != size:
            image = image.resize((size, size), self.resampling)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)  # (H, W, 3) -> (3, H, W)


def corruption_names() -> list[str]:
    """The catalog's corruptions: the fifteen of ImageNet-C, then others by name."""
    return [*FIFTEEN, *(name for name in load().names("corruption") if name not in FIFTEEN)]
