"""Tiny ImageNet.

Le and Yang 2015, "Tiny ImageNet Visual Recognition Challenge". Lines of `val/val_annotations.txt` begin with
an image and its class, separated by tabs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Gt, Le

from assay.service.submission.class_folders import holds_images, visible_folders
from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, find_file, find_folder
from assay.workers.data.formats.images.image_files import ImageFiles, walk_images
from assay.workers.data.formats.images.imagenet_files import Resize
from assay.workers.data.formats.text_files import content_lines, read_text
from assay.workers.data.image_folder import RESAMPLING, ImageFolder

__all__ = ["tiny_imagenet"]

TASKS = ("classification",)
PAPER = "Le and Yang 2015, Tiny ImageNet Visual Recognition Challenge"
CLASS_FILE = "wnids.txt"
CLASSES, TEST = 200, 10_000
FACTS = {"classes": CLASSES, "channels": 3, "train": 100_000, "test": TEST, "marks": [CLASS_FILE]}

ANNOTATIONS = "val_annotations.txt"
LISTED = 5  # In a message
REMEDY = "Unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip there."


class TinyImageNet(ImageFolder):
    """The images of a part."""

    published: int | None = None


def tiny_imagenet(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.ArchiveFolder = "tiny-imagenet-200",
    resize: Resize = "bicubic",
    crop_fraction: Annotated[float, Gt(0), Le(1)] = 1.0,
) -> TinyImageNet:
    """Tiny ImageNet (200 classes, 64 x 64; 100,000 train, 10,000 validation images for evaluation).

    FOLDER/wnids.txt, FOLDER/train/WNID/images/IMAGE, and FOLDER/val/images/IMAGE with
    FOLDER/val/val_annotations.txt, as the archive unpacks; or FOLDER/val/WNID/IMAGE, where the validation
    images were sorted by class. An image has the same id in both ("val/WNID/IMAGE"). Labels are in the
    order of the sorted WordNet ids, as of torchvision's ImageFolder, not in the order of wnids.txt.

    Args:
        split: "train" reads the training images, "test" the validation images.
        resize: interpolation for models of another image size than 64.
        crop_fraction: side of the centre crop / short side after resizing; 1 keeps the whole image.
    """
    base, where = find_folder(root, folder)
    classes = _classes(find_file(root, folder, CLASS_FILE, advice=f"Tiny ImageNet is wanted there. {REMEDY}"))
    find = _train if split == "train" else _validation
    found = find(where, base, classes)
    _check_whole(where, split, classes, [label for _, _, label in found])
    ids, paths, labels = (list(column) for column in zip(*sorted(found), strict=True))
    files = ImageFiles(classes, ids, labels, paths)
    data = TinyImageNet(where, files, RESAMPLING[resize], crop_fraction, "tiny_imagenet")
    data.published = None if split == "train" else TEST
    return data


Found = list[tuple[str, str, int]]  # Id, path below the folder, label


def _classes(path: Path) -> tuple[str, ...]:
    names = read_text(path).split()
    if len(names) != CLASSES or len(set(names)) != CLASSES:
        raise CorruptData(f"{path} has {len(set(names))} different classes; Tiny ImageNet has {CLASSES}")
    return tuple(sorted(names))


def _train(where: Path, base: Path, classes: Sequence[str]) -> Found:
    return _of_folders(where, base, "train", classes)


def _validation(where: Path, base: Path, classes: Sequence[str]) -> Found:
    images = where / "val" / "images"
    if images.is_dir() and holds_images(images):
        return _annotated(where, base, {wnid: label for label, wnid in enumerate(classes)})
    return _of_folders(where, base, "val", classes)


def _annotated(where: Path, base: Path, labels: Mapping[str, int]) -> Found:
    path, listed = where / "val" / ANNOTATIONS, {}
    check_inside(path, base)
    if not path.is_file():
        raise MissingData(f"{path} is wanted: it has the classes of the images in val/images. {REMEDY}")
    for number, line in enumerate(content_lines(path), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in labels:
            raise CorruptData(f"{path} line {number}: {wnid[:20]!r} is none of the classes of {CLASS_FILE}")
        listed[f"val/images/{name}"] = wnid
    images = list(walk_images(where / "val" / "images", base, "val/images"))
    if strange := sorted(set(images).difference(listed)):
        raise CorruptData(f"{where}: {len(strange)} images are not in {ANNOTATIONS}: {_listing(strange)}.")
    return [_found("val", listed[image], image, labels[listed[image]]) for image in images]


def _of_folders(where: Path, base: Path, part: str, classes: Sequence[str]) -> Found:
    if not (where / part).is_dir():
        raise MissingData(f"{where / part} does not exist. Tiny ImageNet is wanted in {where}. {REMEDY}")
    there = visible_folders(where / part, base)
    if strange := sorted(set(there).difference(classes)):
        raise CorruptData(
            f"{where / part}: {len(strange)} folders are none of the classes: {_listing(strange)}."
        )
    return [
        _found(part, wnid, path, label)
        for label, wnid in enumerate(classes)
        if wnid in there
        for path in walk_images(where / part / wnid, base, f"{part}/{wnid}")
    ]


def _found(part: str, wnid: str, path: str, label: int) -> tuple[str, str, int]:
    return f"{part}/{wnid}/{path.rsplit('/', 1)[1]}", path, label


def _check_whole(where: Path, split: str, classes: Sequence[str], labels: Sequence[int]) -> None:
    there = set(labels)
    if empty := [wnid for label, wnid in enumerate(classes) if label not in there]:
        raise MissingData(
            f"Tiny ImageNet {split} is wanted in {where}, but {len(empty)} of {len(classes)} classes have no"
            f" image: {_listing(empty)}. {REMEDY}"
        )


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
