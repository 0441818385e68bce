"""ObjectNet: its classes that ImageNet has.

Barbu et al. 2019, "ObjectNet: A large-scale bias-controlled dataset for pushing the limits of object
recognition models". Several of ImageNet's classes may be a class of ObjectNet (lists in its archive): the
largest of their logits counts, as in the evaluation of Wortsman et al. 2022 (WiSE-FT).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from PIL import Image

from assay.service.submission.class_folders import visible_folders
from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, MissingData, refuse_training
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.images.image_files import ImageFiles, walk_images
from assay.workers.data.formats.images.imagenet_classes import ALL, class_list
from assay.workers.data.formats.images.imagenet_files import Resize
from assay.workers.data.formats.images.pictures import open_picture
from assay.workers.data.formats.text_files import read_text
from assay.workers.data.image_folder import RESAMPLING, ImageFolder

__all__ = ["objectnet"]

TASKS = ("classification",)
PAPER = "Barbu et al. 2019, ObjectNet: A large-scale bias-controlled dataset"
SHARED = 113  # of its 313 classes
IMAGES, MAPPINGS = "images", "mappings"
IMAGENET_OF_LABEL = "objectnet_to_imagenet_1k.json"
FACTS = {
    "classes": SHARED, "model_classes": 1000, "channels": 3, "test": 18_574, "test_only": True,
    "marks": [f"{MAPPINGS}/{IMAGENET_OF_LABEL}"],
}  # fmt: skip

LABEL_OF_FOLDER = "folder_to_objectnet_label.json"
LINE_OF_LOGIT = "pytorch_to_imagenet_2012_id.json"
IMAGENET_LABELS = "imagenet_to_label_2012_v2"
SEPARATOR = "; "
LISTED = 5


def objectnet(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "objectnet-1.0",
    border: Annotated[int, Ge(0), Le(16)] = 2,
    resize: Resize = "bicubic",
    crop_fraction: parameters.CropFraction = 0.875,
) -> ObjectNet:
    """ObjectNet: objects in unusual places and poses (18,574 images of 113 of ImageNet's classes).

    For models of ImageNet's 1000 classes: of those that are one class of ObjectNet the largest logit counts,
    and the 113 are compared. FOLDER/images/NAME/IMAGE and FOLDER/mappings, as the archive unpacks; its 200
    other classes are left out.

    Args:
        border: pixels that are cut from each side; the archive's images have a red border of one.
    """
    refuse_training("ObjectNet", split)
    root, where = find_folder(root, folder)
    labels, groups = _classes(where / MAPPINGS, root)
    images = where / IMAGES
    if not images.is_dir():
        raise MissingData(f"ObjectNet's images are wanted in {images}. Unpack objectnet-1.0.zip there.")
    check_inside(images, root)
    found = visible_folders(images, root)
    chosen = sorted(name for name in labels if labels[name] in groups)
    _check_folders(images, found, chosen, labels)
    ids, places = [], []
    for place, name in enumerate(chosen):
        paths = list(walk_images(images / name, root, name))
        if not paths:
            raise MissingData(f"ObjectNet's class {labels[name]!r} has no image in {images / name}.")
        ids += paths
        places += [place] * len(paths)
    order = sorted(range(len(ids)), key=ids.__getitem__)
    files = ImageFiles(
        tuple(labels[name] for name in chosen), [ids[one] for one in order], [places[one] for one in order]
    )
    chosen_groups = tuple(groups[labels[name]] for name in chosen)
    return ObjectNet(images, files, chosen_groups, border, RESAMPLING[resize], crop_fraction)


class ObjectNet(ImageFolder):
    """Images of the classes that ImageNet has, without their red border."""

    model_class_names = class_list(ALL)
    published = FACTS["test"]

    def __init__(
        self,
        folder: Path,
        files: ImageFiles,
        groups: tuple[tuple[int, ...], ...],
        border: int,
        resampling: Image.Resampling,
        crop_fraction: float,
    ) -> None:
        super().__init__(folder, files, resampling, crop_fraction, "objectnet")
        self.logit_groups = groups
        self.border = border

    def opened(self, path: Path) -> Image.Image:
        """The image without its border; errors as for `open_picture`."""
        image = open_picture(path, mode="RGB")
        width, height = image.size
        if min(width, height) <= 2 * self.border:
            raise CorruptData(f"{path} has {width} x {height} pixels: nothing is left within the border")
        return image.crop((self.border, self.border, width - self.border, height - self.border))

    def stored_size(self, index: int) -> tuple[int, int]:
        """Width and height of an image within its border; errors as for `ImageFolder`."""
        width, height = super().stored_size(index)
        return width - 2 * self.border, height - 2 * self.border

    def content_sha256(self) -> str:
        """Hash of every file's id, label and bytes, and of every class's logits."""
        content = f"{super().content_sha256()}\n{json.dumps(self.logit_groups)}"
        return hashlib.sha256(content.encode()).hexdigest()


def _classes(folder: Path, base: Path) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    labels = _texts(_mapping(folder, LABEL_OF_FOLDER, base), folder / LABEL_OF_FOLDER)
    shared = _texts(_mapping(folder, IMAGENET_OF_LABEL, base), folder / IMAGENET_OF_LABEL)
    lines = _mapping(folder, LINE_OF_LOGIT, base)
    numbers = {str(number) for number in range(len(class_list(ALL)))}
    if set(lines) != numbers or {str(line) for line in lines.values()} != numbers:
        raise CorruptData(f"{folder / LINE_OF_LOGIT} does not give each of 1000 logits a line from 0 to 999")
    logit_of_line = {int(line): int(logit) for logit, line in lines.items()}
    names = [line.strip() for line in _text(folder, IMAGENET_LABELS, base).splitlines()]
    if len(names) != len(numbers):
        raise CorruptData(
            f"{folder / IMAGENET_LABELS} has {len(names)} lines, not one for each of 1000 classes"
        )
    unknown = sorted(set(shared) - set(labels.values()))
    if unknown or len(set(labels.values())) != len(labels) or len(shared) != SHARED:
        raise CorruptData(
            f"{folder}: {len(shared)} labels of {IMAGENET_OF_LABEL}, which has {SHARED} in the archive, are"
            f" not labels of a folder each in {LABEL_OF_FOLDER}: {', '.join(unknown[:LISTED]) or 'some'}"
        )
    groups = {}
    for label, wanted in shared.items():
        found = wanted.split(SEPARATOR)
        wrong = [name for name in found if names.count(name) != 1]
        if wrong:
            raise CorruptData(
                f"{folder / IMAGENET_LABELS} does not have {wrong[0]!r} once, which is {label!r}"
            )
        groups[label] = tuple(sorted(logit_of_line[names.index(name)] for name in found))
    return labels, groups


def _text(folder: Path, name: str, base: Path) -> str:
    path = folder / name
    if not path.is_file():
        raise MissingData(f"ObjectNet's list {path} is wanted. Unpack objectnet-1.0.zip with its {MAPPINGS}.")
    check_inside(path, base)
    return read_text(path)


def _mapping(folder: Path, name: str, base: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(folder, name, base))
    except ValueError as error:
        raise CorruptData(f"{folder / name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorruptData(f"{folder / name} is not an object of names")
    return found


def _texts(found: Mapping[str, Any], path: Path) -> dict[str, str]:
    if not all(isinstance(value, str) for value in found.values()):
        raise CorruptData(f"{path} does not give each name a text")
    return dict(found)


def _check_folders(images: Path, found: list[str], chosen: list[str], labels: Mapping[str, str]) -> None:
    missing, unexpected = sorted(set(chosen) - set(found)), sorted(set(found) - set(labels))
    listed = [
        f"{len(names)} {what} ({', '.join(names[:LISTED])}{', ...' if len(names) > LISTED else ''})"
        for what, names in (("missing", missing), ("unexpected", unexpected))
        if names
    ]
    if listed:
        message = f"ObjectNet is wanted in {images}, with the folders of its {LABEL_OF_FOLDER}"
        raise (MissingData if missing else CorruptData)(f"{message}: {'; '.join(listed)}.")
