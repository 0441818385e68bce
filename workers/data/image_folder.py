"""Labelled image files in folders: the ImageNet layout and a user's own.

Files of the model's size are taken as they are. Others are prepared as in the usual ImageNet evaluation (He
et al. 2016) with timm's numbers, on 8-bit pixels.

Legend: n examples, S requested side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Gt, Le
from PIL import Image
from torch import Tensor

from assay.service.contract.findings.data_findings import Ignored
from assay.service.submission.class_folders import ignored_in
from assay.service.submission.class_order import WrongClasses, in_stated_order, stated_names
from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, Levels, ListedSet, checked_indices, checked_size
from assay.workers.data.formats.folders import file_sha256, find_folder
from assay.workers.data.formats.images.image_files import ImageFiles, find_images
from assay.workers.data.formats.images.labels_files import listed_images
from assay.workers.data.formats.images.pictures import (
    MODES,
    fitted,
    in_threads,
    open_picture,
    picture_size,
    pixels_of,
)
from assay.workers.data.formats.table_labels import ClassNames, ClassNamesFile

__all__ = ["image_folder"]

TASKS = ("classification",)
BY_CHANNELS = {"1": {"channels": 1}, "3": {"channels": 3}}
FACTS = {"class_folders": True, "by_parameter": {"channels": BY_CHANNELS}}
PAPER = "Deng et al. 2009, ImageNet: A Large-Scale Hierarchical Image Database (layout and normalisation)"

MEAN = (0.485, 0.456, 0.406)  # Per channel over ImageNet's train pixels in [0, 1]
STD = (0.229, 0.224, 0.225)
# Of luminance: weighted sums; the deviation is as of channels that rise and fall together.
GREY_MEAN = (0.459,)
GREY_STD = (0.226,)

RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def image_folder(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.Folder,
    splits: Literal["auto", "all"] = "auto",
    resize: Literal["bicubic", "bilinear"] = "bicubic",
    crop_fraction: Annotated[float, Gt(0), Le(1)] | None = None,
    channels: Literal[1, 3] = 3,
    exif_orientation: bool = False,
    labels: Annotated[str, "file_name"] | None = None,
    class_names: ClassNames | None = None,
    class_names_file: ClassNamesFile = None,
) -> ImageFolder:
    """A folder of labelled images: FOLDER/{train,val,test}/CLASS/IMAGE (ImageNet) or FOLDER/CLASS/IMAGE.

    Classes are numbered in the order of their folder names, by the `train` folder where there is one: by
    value where all are whole numbers, else as text; or in the order that is stated. The id of an example is
    its path relative to the folder. Training and evaluation never share a file, unless `splits` is "all".

    Args:
        split: "train" reads `train`; "test" reads `val`, else `test`. In a folder without any of the three,
            the fifth of each class with the smallest sha256("image_folder/" + id) is the test part
            (rounded down, at least one of two or more images).
        splits: "auto" keeps training and evaluation apart, by the train, val and test folders or by hash;
            "all" takes every image for either.
        resize: interpolation of the short side.
        crop_fraction: side of the centre crop / short side after resizing; 1 keeps the whole short side. If
            absent, as in the model's training here, else files of the model's size stay as they are, and
            others have 0.875.
        channels: 3 for RGB, grey images with three equal channels; 1 for luminance, 0.299 R + 0.587 G +
            0.114 B.
        exif_orientation: turn images as their EXIF tag says; by default they are as stored, as in
            torchvision and timm.
        labels: name of a CSV or TSV file in the folder with the columns name and label, for images without
            class folders.
        class_names: names of all class folders in the order of the model's logits.
    """
    root, where = find_folder(root, folder)
    if labels is None:
        found = find_images(where, root, split, splits, "image_folder")
    else:
        found = listed_images(where, root, labels, split, splits, "image_folder")
    files = _with_stated_classes(found, where, root, class_names, class_names_file)
    data = ImageFolder(where, files, RESAMPLING[resize], crop_fraction)
    data.sorted_classes, data.exif_orientation = files is found, exif_orientation
    if channels == 1:
        data.channels, data.mean, data.std = channels, GREY_MEAN, GREY_STD
    return data


def _with_stated_classes(
    files: ImageFiles, folder: Path, base: Path, class_names: list[str] | None, class_names_file: str | None
) -> ImageFiles:
    try:
        stated = stated_names(folder, base, class_names, class_names_file)
        if stated is None:
            return files
        names = in_stated_order(stated, files.class_names, str(folder), "class folder")
    except WrongClasses as error:
        raise CorruptData(str(error)) from error
    place = {name: label for label, name in enumerate(names)}
    labels = [place[files.class_names[label]] for label in files.labels]
    return replace(files, class_names=tuple(names), labels=labels)


class ImageFolder(ListedSet):
    """Image files with labels, decoded on demand by as many threads as torch may use.

    `sorted_classes`: nothing but sorted names gives the classes' order.
    """

    sorted_classes = False
    task = "classification"
    channels = 3
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    size: tuple[int, int] | None = None
    exif_orientation = False

    def __init__(
        self,
        folder: Path,
        files: ImageFiles,
        resampling: Image.Resampling,
        crop_fraction: float | None,
        name: str = "image_folder",
    ) -> None:
        super().__init__(name, files.class_names, files.ids)
        self.folder = folder
        self.divided_from = files.divided_from
        self.paths: Sequence[str] = files.ids if files.paths is None else files.paths
        self.labels = torch.tensor(files.labels, dtype=torch.int64)
        self.resampling = resampling
        self.crop_fraction = crop_fraction

    @cached_property
    def ignored(self) -> Ignored:
        """What is in the folder beside images."""
        return ignored_in(self.folder)

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1], float32 (len(indices), C, size, size); errors as for `open_picture`."""
        return self.levels(indices, size).pixels()

    def levels(self, indices: Sequence[int], size: int) -> Levels:
        """The same images as levels; errors as for `open_picture`."""
        chosen = checked_indices(indices, len(self))
        pixels = torch.empty(len(chosen), self.channels, checked_size(size), size, dtype=torch.uint8)

        def fill(place: int) -> None:
            pixels[place] = self._decode(self.folder / self.paths[chosen[place]], size)

        in_threads(fill, len(chosen))
        return Levels(pixels, 255)

    def picture(self, index: int) -> Image.Image:
        """The image as stored, RGB or grey at its own size; errors as for `open_picture`."""
        (chosen,) = checked_indices([index], len(self))
        return self.opened(self.folder / self.paths[chosen])

    def stored_size(self, index: int) -> tuple[int, int]:
        """Width and height of an image, from its file's header."""
        (chosen,) = checked_indices([index], len(self))
        return picture_size(self.folder / self.paths[chosen])

    def opened(self, path: Path) -> Image.Image:
        """The decoded image of a file; errors as for `open_picture`."""
        return open_picture(path, mode=MODES[self.channels], exif_orientation=self.exif_orientation)

    def _decode(self, path: Path, size: int) -> Tensor:
        return pixels_of(fitted(self.opened(path), size, self.crop_fraction, self.resampling))

    def content_sha256(self) -> str:
        """Hash of every file's id, label and bytes (reads all of them)."""
        digest = hashlib.sha256(f"{self.name}\n".encode())
        for identifier, path, label in zip(self.ids, self.paths, self.labels.tolist(), strict=True):
            content = file_sha256(self.folder / path)
            digest.update(f"{identifier}\0{content} {label}\n".encode())
        return digest.hexdigest()
