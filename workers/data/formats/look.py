"""A look at a data set's examples before a job: what cannot be decoded, is ignored or is empty."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import torch

from assay.service.contract.findings.data_findings import Ignored
from assay.workers.data.formats.dataset import CorruptData, DataSet, ExampleSet, MissingData
from assay.workers.data.formats.images.pictures import ORIENTATION, REMEDY
from assay.workers.data.formats.sampling import evaluation_order, sampled_as

SIDE, TOGETHER = 32, 64  # Side of images that the set decodes, and examples decoded together
UPRIGHT = 1
NAMED = 20  # of the unreadable examples in a message


@dataclass
class Look:
    """What was found in the `decoded` examples of a split."""

    decoded: int = 0
    unreadable: list[str] = field(default_factory=list)
    ignored: Ignored | None = None
    empty_classes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def look_at(data: ExampleSet, seconds: float, limit: int | None = None) -> Look:
    """Decodes all examples that a job of this limit evaluates, or a fixed random sample for these seconds."""
    found = Look(ignored=getattr(data, "ignored", None), empty_classes=_empty_classes(data))
    asked = evaluation_order(sampled_as(data), data.ids, limit)
    order = random.Random(0).sample(asked, len(asked))
    read = _reader(data)
    if read is None:
        found.decoded = len(order)
        found.notes += _notes_on_texts(data)
        return found
    turned = 0
    for error, orientation in _results(read, iter(order), time.monotonic() + seconds):
        found.decoded += 1
        turned += orientation != UPRIGHT
        if error is not None:
            found.unreadable.append(error)
    found.unreadable.sort()
    if turned and not getattr(data, "exif_orientation", True):
        found.notes.append(
            f"{turned} of {found.decoded} images have an EXIF orientation, and are read as they are stored;"
            ' "exif_orientation": true turns them'
        )
    return found


def with_others(error: CorruptData, sets: Iterable[ExampleSet], seconds: float = 10.0) -> str:
    """The message of an error about an example, and the other unreadable examples found in these seconds."""
    for data in sets:
        found = look_at(data, seconds)
        others = [text.removesuffix(REMEDY) for text in found.unreadable if text != str(error)]
        if others and len(others) < len(found.unreadable):
            dots = "; ..." if len(others) > NAMED else ""
            count = f"{len(others)} more of {found.decoded} examples looked at"
            return f"{error}; {count}: {'; '.join(others[:NAMED])}{dots}"
    return str(error)


def _results(
    read: Callable[[int], int], order: Iterator[int], until: float
) -> Iterator[tuple[str | None, int]]:
    def attempt(index: int) -> tuple[str | None, int]:
        try:
            return None, read(index)
        except (CorruptData, MissingData, OSError) as error:
            return str(error), UPRIGHT

    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        while time.monotonic() < until and (some := list(islice(order, TOGETHER))):
            yield from pool.map(attempt, some)


def _reader(data: Any) -> Callable[[int], int] | None:
    if (picture := getattr(data, "picture", None)) is not None:
        return lambda index: int(picture(index).getexif().get(ORIENTATION, UPRIGHT))
    if (images := getattr(data, "images", None)) is None or getattr(data, "folder", None) is None:
        return None
    parts = [images, *(part for part in [getattr(data, "label_maps", None)] if part is not None)]

    def read(index: int) -> int:
        for part in parts:
            part([index], SIDE)
        return UPRIGHT

    return read


def _empty_classes(data: ExampleSet) -> list[str]:
    labels = getattr(data, "labels", None)
    if labels is None or not len(labels) or torch.as_tensor(labels).is_floating_point():  # of a regression
        return []
    there = set(torch.as_tensor(cast(DataSet, data).labels).tolist())
    return [name for label, name in enumerate(data.class_names) if label not in there]


def _notes_on_texts(data: Any) -> list[str]:
    texts = getattr(data, "sentences", None)
    if texts is None:
        return []
    counts = Counter(_kind_of(text) for text in texts)
    notes = []
    if counts["empty"]:
        notes.append(f"{counts['empty']} of {len(texts)} texts have no word")
    if counts["quoted"] > len(texts) // 10:
        notes.append(
            f"{counts['quoted']} of {len(texts)} texts begin and end with a double quote, which the model"
            ' reads; "quoting": "double" takes it as a mark around the text'
        )
    return notes


def _kind_of(text: str) -> str:
    if not text.strip():
        return "empty"
    return "quoted" if len(text) > 1 and text[0] == text[-1] == '"' else "plain"
