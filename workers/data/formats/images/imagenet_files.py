"""Image files of ImageNet and of the sets made for its models; incomplete sets are rejected.

A class without images, or a folder that is not a class, would change the meaning of every label and average.
The folders must therefore be exactly the classes of the set; the message lists missing and extra ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from annotated_types import doc

from assay.service.submission.class_folders import holds_images, is_image, visible_folders
from assay.workers.data.formats.dataset import CorruptData, MissingData, refuse_training
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.images.image_files import ImageFiles, walk_images
from assay.workers.data.formats.images.imagenet_classes import (
    ALL,
    class_list,
    classes_of,
    listed_sets,
    published_of,
    recognise,
    title_of,
)
from assay.workers.data.formats.images.imagenet_labels import IMAGE, read_labels
from assay.workers.data.image_folder import RESAMPLING, ImageFolder

# Below the folder of the set: the usual layout, the archive's, and Kaggle's.
PARTS = {
    "val": ("val", "ILSVRC2012_img_val", "ILSVRC/Data/CLS-LOC/val", "Data/CLS-LOC/val"),
    "train": ("train", "ILSVRC2012_img_train", "ILSVRC/Data/CLS-LOC/train", "Data/CLS-LOC/train"),
}
AUTHORS = "https://people.eecs.berkeley.edu/~hendrycks"
REMEDY = {
    "imagenet": "Layouts: FOLDER/val/WNID/IMAGE, FOLDER/WNID/IMAGE, or FOLDER/val/ILSVRC2012_val_NUMBER.JPEG"
    " with a list of labels; train/WNID/IMAGE for training.",
    **{
        name: f"Unpack {AUTHORS}/{name.replace('_', '-')}.tar there." for name in listed_sets() if name != ALL
    },
    "imagenet_sketch": "Unpack ImageNet-Sketch.zip from https://github.com/HaohanWang/ImageNet-Sketch there.",
    "imagenet_v2": "Unpack an archive of https://github.com/modestyachts/ImageNetV2 there.",
}
LISTED = 5  # Names listed in a message

Resize = Annotated[Literal["bicubic", "bilinear"], doc("interpolation of the short side.")]


class Labelled(NamedTuple):
    """Image with its layout-independent id, its path below the data root, and its label."""

    identifier: str
    path: str
    label: int


class ImageNetFiles(ImageFolder):
    """Images of some or all of ImageNet's classes, for 1000-class models."""

    model_class_names = class_list(ALL)

    def __init__(
        self, name: str, base: Path, images: Sequence[Labelled], resize: Resize, crop_fraction: float
    ) -> None:
        ordered = sorted(images)
        ids, paths, labels = (list(column) for column in zip(*ordered, strict=True))
        files = ImageFiles(classes_of(name), ids, labels, paths)
        super().__init__(base, files, RESAMPLING[resize], crop_fraction, name)
        self.published: int | None = published_of(name)


def find_classes(
    folder: Path, base: Path, name: str, prefix: str = "", folders: Sequence[str] | None = None
) -> list[Labelled]:
    """Images of a folder that has exactly one folder per class of a set."""
    found, wanted = visible_folders(folder, base), folders or classes_of(name)
    below, images, empty, there = _relative(folder, base), [], [], set(found)
    for label, wnid in enumerate(wanted):
        if wnid not in there:
            continue
        paths = list(walk_images(folder / wnid, base, wnid))
        images += [Labelled(f"{prefix}{path}", f"{below}/{path}", label) for path in paths]
        if not paths:
            empty.append(wnid)
    _check_whole(folder, name, found, empty, wanted)
    return images


def training_images(folder: Path, base: Path) -> list[Labelled]:
    """ImageNet's training images, in class folders; errors as for `find_classes`."""
    place = _part(folder, base, "train")
    if place is None:
        raise MissingData(
            f"ImageNet's training images are wanted in {folder / 'train'}, which does not exist. "
            f"{REMEDY[ALL]}"
        )
    return find_classes(place, base, ALL, "train/")


def validation_images(folder: Path, base: Path) -> list[Labelled]:
    """ImageNet's validation images, in class folders or in one folder with a list of labels.

    An image has the same id in both. Errors as for `find_classes` and `read_labels`.
    """
    place = _part(folder, base, "val") or folder
    classes = set(visible_folders(place, base)).intersection(class_list(ALL))
    twice = set() if place == folder else set(visible_folders(folder, base)).intersection(class_list(ALL))
    if twice or (classes and holds_images(place)):
        others = f"the folder {place.name}" if twice else "images"
        raise CorruptData(
            f"{folder if twice else place} has both class folders and {others} beside them; keep one kind "
            f"only, so that it is clear what is evaluated."
        )
    if classes or not holds_images(place):
        return find_classes(place, base, ALL, "val/")
    return _flat(place, folder, base)


def _flat(place: Path, folder: Path, base: Path) -> list[Labelled]:
    source, labels = read_labels([place, folder, place.parent] if place != folder else [place], base)
    below, wnids, images = _relative(place, base), class_list(ALL), []
    strange, unlisted = [], []
    for name in sorted(_images(place, base)):
        number = IMAGE.fullmatch(Path(name).stem)
        if number is None:
            strange.append(name)
        elif int(number[1]) not in labels:
            unlisted.append(name)
        else:
            label = labels[int(number[1])]
            images.append(Labelled(f"val/{wnids[label]}/{name}", f"{below}/{name}", label))
    if strange or unlisted:
        reason = "are not called ILSVRC2012_val_NUMBER" if strange else f"have no label in {source}"
        names = strange or unlisted
        raise CorruptData(f"{place}: {len(names)} images {reason}: {_listing(names)}.")
    without = set(range(len(wnids))).difference(image.label for image in images)
    _check_whole(place, ALL, wnids, [wnids[label] for label in sorted(without)], wnids)
    return images


def _images(folder: Path, base: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_image(entry):
                if entry.is_symlink():
                    check_inside(Path(entry.path), base)
                yield entry.name


def _part(folder: Path, base: Path, part: str) -> Path | None:
    for name in PARTS[part]:
        if (folder / name).is_dir():
            check_inside(folder / name, base)
            return folder / name
    return None


def _check_whole(
    folder: Path, name: str, found: Sequence[str], empty: Sequence[str], wanted: Sequence[str]
) -> None:
    numbered = wanted[0].isdecimal()
    called = f"its number, {wanted[0]} to {wanted[-1]}" if numbered else "its WordNet id"
    missing, unexpected = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    counts = {"missing": missing, "without an image": empty, "unexpected": unexpected}
    listed = [f"{len(names)} {what} ({_listing(names)})" for what, names in counts.items() if names]
    if not listed:
        return
    message = (
        f"{title_of(name)} is wanted in {folder}, with a folder of images for each of its {len(wanted)} "
        f"classes, named by {called}, and no other folders: {'; '.join(listed)}. "
        f"{_hint(folder, name, found, wanted)}"
    )
    raise MissingData(message) if missing or empty else CorruptData(message)


def _hint(folder: Path, name: str, found: Sequence[str], wanted: Sequence[str]) -> str:
    other = recognise(found)
    if other is not None and set(wanted) != set(class_list(other)):
        return f"These are the classes of {title_of(other)}."
    inner = next((one for one in found if set(wanted) <= _names(folder / one)), None)
    return f"{REMEDY[name]} (Did you mean the folder {inner!r} in it?)" if inner else REMEDY[name]


def _names(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.is_dir() else set()


def _relative(folder: Path, base: Path) -> str:
    return folder.relative_to(base).as_posix()


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")


def natural_shift(
    name: str,
    root: Path | None,
    split: str,
    folder: str,
    resize: Resize,
    crop_fraction: float,
    folders: Sequence[str] | None = None,
) -> ImageNetFiles:
    """A test set with a folder for each class, by default named by its WordNet id."""
    refuse_training(title_of(name), split)
    base, where = find_folder(root, folder)
    images = find_classes(where, base, name, folders=folders)
    return ImageNetFiles(name, base, images, resize, crop_fraction)
