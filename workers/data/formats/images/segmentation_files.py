"""Segmentation sets of pairs of files with the same name; n examples, H height, W width, S side."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.service.submission.data_folders import IMAGE_SUFFIXES, is_ignored
from assay.workers.data.formats.dataset import (
    CorruptData,
    Levels,
    ListedSet,
    MissingData,
    checked_indices,
    checked_size,
)
from assay.workers.data.formats.folders import check_inside, file_sha256
from assay.workers.data.formats.images.pictures import in_threads, open_picture, picture_size, resize_and_crop

LISTED = 5  # In a message


@dataclass(frozen=True)
class Pair:
    """Paths of image and annotation relative to the set's folder, and their id."""

    identifier: str
    image: str
    annotation: str


def find_pairs(folder: Path, base: Path, images: str, annotations: str) -> list[Pair]:
    """Images paired with annotations of the same name, sorted by id."""
    absent = [name for name in (images, annotations) if not (folder / name).is_dir()]
    if absent:
        raise MissingData(
            f"Images are wanted in {folder / images} and their annotations in {folder / annotations}; "
            f"missing: {', '.join(f'{name}/' for name in absent)}."
        )
    pictures = _files(folder / images, base, IMAGE_SUFFIXES)
    labels = _files(folder / annotations, base, (".png",))
    if not pictures:
        raise MissingData(
            f"Images are wanted in {folder / images}; it holds none with {', '.join(IMAGE_SUFFIXES)}."
        )
    bare = [f"{annotations}/{stem}.png" for stem in pictures if stem not in labels]
    lone = [f"{images}/{stem}" for stem in labels if stem not in pictures]
    if bare or lone:
        raise MissingData(
            f"Each image in {folder / images} needs an annotation of its name in {folder / annotations}; "
            f"missing: {_listing([*bare, *lone])}."
        )
    return [
        Pair(f"{images}/{stem}", f"{images}/{pictures[stem]}", f"{annotations}/{labels[stem]}")
        for stem in sorted(pictures)
    ]


def _files(folder: Path, base: Path, suffixes: tuple[str, ...]) -> dict[str, str]:
    check_inside(folder, base)
    found: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if is_ignored(path.name) or not path.name.lower().endswith(suffixes) or not path.is_file():
            continue
        if path.is_symlink():
            check_inside(path, base)
        if path.stem in found:
            raise CorruptData(f"{folder} has both {found[path.stem]} and {path.name}; keep one of them")
        found[path.stem] = path.name
    return found


def _listing(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


class SegmentationFiles(ListedSet):
    """Pairs of files, decoded on demand by as many threads as torch may use.

    An image's short side becomes S (bilinear, anti-aliased), then the centre S x S is cropped; nearest pixels
    of its annotation are cropped alike. Pixels outside are unused.
    """

    task = "segmentation"
    channels = 3
    size: tuple[int, int] | None = None

    def __init__(
        self,
        *,
        name: str,
        class_names: tuple[str, ...],
        folder: Path,
        pairs: Sequence[Pair],
        meaning: Mapping[int, int],
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        """`meaning`: an annotation's value to a class or IGNORE; other values are rejected."""
        super().__init__(name, class_names, [pair.identifier for pair in pairs])
        self.folder = folder
        self.pairs = pairs
        self.mean = mean
        self.std = std
        self._classes_of = np.full(256, -1, dtype=np.int16)
        for value, label in meaning.items():
            self._classes_of[value] = label

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1], float32 (len(indices), 3, size, size); grey images become RGB."""
        return self.levels(indices, size).pixels()

    def levels(self, indices: Sequence[int], size: int) -> Levels:
        """The same images as levels."""
        chosen = checked_indices(indices, len(self))
        pixels = torch.empty(len(chosen), 3, checked_size(size), size, dtype=torch.uint8)

        def fill(place: int) -> None:
            picture = open_picture(self.folder / self.pairs[chosen[place]].image, mode="RGB")
            prepared = resize_and_crop(picture, size, 1.0, Image.Resampling.BILINEAR)
            pixels[place] = torch.from_numpy(np.array(prepared)).permute(2, 0, 1)  # (3, S, S)

        in_threads(fill, len(chosen))
        return Levels(pixels, 255)

    def label_maps(self, indices: Sequence[int], size: int) -> Tensor:
        """Classes in [0, classes) or IGNORE, uint8 (len(indices), size, size)."""
        chosen = checked_indices(indices, len(self))
        maps = torch.empty(len(chosen), checked_size(size), size, dtype=torch.uint8)

        def fill(place: int) -> None:
            maps[place] = self._label_map(self.pairs[chosen[place]], size)

        in_threads(fill, len(chosen))
        return maps

    def example(self, index: int) -> tuple[Tensor, Tensor]:
        """An image at its own size, uint8 (3, H, W), and its label map, uint8 (H, W)."""
        (place,) = checked_indices([index], len(self))
        pair = self.pairs[place]
        pixels = np.array(open_picture(self.folder / pair.image, mode="RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1), self._label_map(pair, None)

    def _label_map(self, pair: Pair, size: int | None) -> Tensor:
        path = self.folder / pair.annotation
        picture = open_picture(path)
        if picture.mode not in ("L", "P"):  # grey levels, or indices into a palette
            raise CorruptData(f"{path} has mode {picture.mode}; an annotation has one channel of 8 bits")
        wanted = picture_size(self.folder / pair.image)
        if picture.size != wanted:
            raise CorruptData(f"{path} has {picture.size} pixels, its image {pair.image} has {wanted}")
        if size is not None:
            picture = resize_and_crop(picture, size, 1.0, Image.Resampling.NEAREST)
        values = np.array(picture)
        labels = self._classes_of[values]
        if (labels < 0).any():
            unknown = sorted(set(values[labels < 0].tolist()))
            allowed = np.flatnonzero(self._classes_of >= 0)
            raise CorruptData(
                f"{path} has the value {unknown[0]}, which is no class of {self.name}; "
                f"allowed: {allowed.min()} to {allowed.max()}"
            )
        return torch.from_numpy(labels.astype(np.uint8))

    def content_sha256(self) -> str:
        """Hash of every file's name and bytes (reads all of them)."""
        digest = hashlib.sha256(f"{self.name}\n".encode())
        for pair in self.pairs:
            for name in (pair.image, pair.annotation):
                digest.update(f"{name}\0{file_sha256(self.folder / name)}\n".encode())
        return digest.hexdigest()
