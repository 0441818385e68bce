"""Label lists for ImageNet's validation images in one flat folder.

The names of the challenge's 50 000 images (Russakovsky et al. 2015) have no class.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside
from assay.workers.data.formats.images.imagenet_classes import ALL, class_list, published_of

IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})")
DEVKIT = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
# Places of lists below the set's folder.
PLACES = ("", "data", "ILSVRC2012_devkit_t12/data", "devkit/data", "meta")
FIRST_IMAGE = "n01751748"  # Canary: a list in another class order would silently give wrong accuracies

Labels = Mapping[int, int]


def read_labels(places: Sequence[Path], base: Path) -> tuple[Path, Labels]:
    """First label list found."""
    for name, read in READERS.items():
        for place in places:
            for below in PLACES:
                path = place / below / name
                if path.is_file():
                    check_inside(path, base)
                    return path, _checked(path, read(path))
    raise MissingData(
        f"The images in {places[0]} lie in no class folders, so a list of their labels is wanted beside "
        f"them: one of {', '.join(READERS)} (the last with {META} of the development kit), in {places[-1]} "
        f"or in its {', '.join(place for place in PLACES if place)}."
    )


def _checked(path: Path, labels: Labels) -> Labels:
    wnids = class_list(ALL)
    if 1 in labels and wnids[labels[1]] != FIRST_IMAGE:
        raise CorruptData(
            f"{path} gives image 1 the class {wnids[labels[1]]}; in ImageNet's validation set it is "
            f"{FIRST_IMAGE}: the list is of another set, or in another order of classes"
        )
    each = published_of(ALL) // len(wnids)
    wrong = [wnids[label] for label, count in Counter(labels.values()).items() if count != each]
    if len(labels) == published_of(ALL) and wrong:
        raise CorruptData(
            f"{path} does not have {each} images of every class: {', '.join(sorted(wrong)[:5])} differ"
        )
    return labels


def _named(path: Path) -> Labels:
    return dict(_pair(path, *(line.split(maxsplit=1))) for line in _lines(path))


def _kaggle(path: Path) -> Labels:
    """A CSV file with ImageId and PredictionString, which starts with the class."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) == 2 and IMAGE.search(row[0])]
    return dict(_pair(path, name, box.split(maxsplit=1)[0] if box.strip() else "") for name, box in rows)


def _synsets(path: Path) -> Labels:
    return {number: _label(path, wnid) for number, wnid in enumerate(_lines(path), start=1)}


def _devkit(path: Path) -> Labels:
    numbers = _class_numbers(path.with_name(META))
    lines = _lines(path)
    unknown = [line for line in lines if line not in numbers]
    if unknown:
        raise CorruptData(
            f"{path} has the class {unknown[0][:20]!r}, which {META} has not; unpack the kit again"
        )
    return {number: numbers[line] for number, line in enumerate(lines, start=1)}


def _class_numbers(path: Path) -> Mapping[str, int]:
    from scipy.io import loadmat  # a second of import, for this layout only

    if not path.is_file():
        raise MissingData(
            f"{path} is wanted: it says which class a number of {DEVKIT} is. Unpack the kit again."
        )
    try:
        synsets = loadmat(path, squeeze_me=True)["synsets"]
        pairs = [(str(int(row["ILSVRC2012_ID"])), str(row["WNID"])) for row in synsets]
    except Exception as error:  # the file is damaged
        raise CorruptData(f"{path} is not the {META} of the development kit ({error})") from error
    places = {wnid: label for label, wnid in enumerate(class_list(ALL))}
    found = {number: places[wnid] for number, wnid in pairs if wnid in places}
    if len(set(found.values())) != len(places):
        raise CorruptData(
            f"{path} has {len(set(found.values()))} of ImageNet's {len(places)} classes; unpack the kit again"
        )
    return found


def _lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _pair(path: Path, name: str, given: str = "") -> tuple[int, int]:
    number = IMAGE.search(name)
    if number is None:
        raise CorruptData(f"{path} has a line for {name[:80]!r}, which is no ILSVRC2012_val_NUMBER.JPEG")
    return int(number[1]), _label(path, given)


def _label(path: Path, given: str) -> int:
    wnids = class_list(ALL)
    if given.isdecimal() and len(given) <= 4 and int(given) < len(wnids):
        return int(given)
    if given not in _PLACES_OF:
        raise CorruptData(
            f"{path} has the class {given[:40]!r}; a WordNet id of ImageNet or a number from 0 to "
            f"{len(wnids) - 1} is wanted"
        )
    return _PLACES_OF[given]


_PLACES_OF = {wnid: label for label, wnid in enumerate(class_list(ALL))}
# By file names.
READERS: Mapping[str, Callable[[Path], Labels]] = {
    "LOC_val_solution.csv": _kaggle,
    "imagenet_2012_validation_synset_labels.txt": _synsets,
    "imagenet2012_val_synset_codes.txt": _named,
    "val.txt": _named,
    "val_list.txt": _named,
    "ILSVRC2012_val.txt": _named,
    DEVKIT: _devkit,
}
