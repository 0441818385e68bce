"""Facts of the data of an evaluation, for the merge and its warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch

from assay.service.catalog.catalog import load
from assay.service.contract.findings.data_findings import (
    DataFound,
    EmptyClasses,
    GuessedOrder,
    OtherContent,
    ResampledImages,
    ResizedImages,
)
from assay.service.contract.records import ModelJoin, PlannedEvaluation
from assay.service.contract.stored_specs import ComponentReference
from assay.service.plots.tallies import MAX_CLASSES
from assay.service.submission.class_order import are_places
from assay.workers import catalog
from assay.workers.data.formats.dataset import CorruptData, DataSet, ExampleSet, model_class_names
from assay.workers.data.formats.images.imagenet_classes import ALL, CROP_FRACTION, class_list
from assay.workers.data.image_folder import ImageFolder
from assay.workers.jobs.loading import Loaded
from assay.workers.published.sequences import known_sequences
from assay.workers.weights.fit import order_for

# Image files, the first in the evaluation's order: their headers are read.
LOOKED_AT = 200
# Names of empty classes, or of logits, that are kept.
LISTED = 10
MAX_CLASS_NAME = 60  # Characters of a name for plots
# Logits that are shown beside the names of their classes.
PAIRS = 5


def count_cut(examples: ExampleSet, order: Sequence[int], length: int) -> int:
    """How many of these examples are sequences of tokens that a model of this length reads in part."""
    count = getattr(examples, "count_cut", None)
    return 0 if count is None else int(count(order, length))


def facts_of(examples: ExampleSet, n: int) -> PlannedEvaluation:
    """Facts of the data for the merge: `n` examples are used, or n repeats of a measurement are made."""
    facts: PlannedEvaluation = {"n": n, "available": len(examples.ids), "classes": examples.classes}
    name = catalog.task(examples.task).known_as(examples) or known_sequences(
        examples.name, examples.classes, len(examples.ids)
    )
    published = getattr(examples, "published", None)
    if published is not None and published != len(examples.ids):
        facts["published"] = published
    if name is not None:
        facts["known_as"] = name
    if names := _named_classes(examples):
        facts["class_names"] = names
    if (empty := empty_classes(examples)) is not None:
        facts["empty_classes"] = empty
    return facts


def _named_classes(examples: ExampleSet) -> list[str]:
    """Names of at most `MAX_CLASSES` classes in order; empty where they are their numbers."""
    names: Sequence[str] = getattr(examples, "class_names", ())
    if len(names) > MAX_CLASSES or list(names) == [str(label) for label in range(len(names))]:
        return []
    return [name[:MAX_CLASS_NAME] for name in names]


def resampled_images(examples: ExampleSet, order: Sequence[int], size: int) -> ResampledImages | None:
    """How image files of the model's size are enlarged and cropped, or others beside them; None if none are.

    With a stated crop fraction, all files that are looked at, at most 200, have this size. Without it, these
    stay as they are, and some others do not. None also where a header cannot be read.
    """
    if not isinstance(examples, ImageFolder) or not len(order):
        return None
    fraction = examples.crop_fraction or CROP_FRACTION
    enlarged = math.floor(size / fraction)
    if enlarged == size:
        return None
    looked = order[:LOOKED_AT]
    try:
        same = sum(examples.stored_size(index) == (size, size) for index in looked)
    except CorruptData:  # the evaluation says so
        return None
    found: ResampledImages = {"size": size, "resized_to": enlarged, "crop_fraction": fraction}
    if examples.crop_fraction is not None:
        return found if same == len(looked) else None
    return {**found, "as_they_are": same, "looked_at": len(looked)} if 0 < same < len(looked) else None


def resized_images(examples: ExampleSet, order: Sequence[int], size: int) -> ResizedImages | None:
    """How a user's own image files of other sizes than the model's are resized and cropped; None if none are.

    At most 200 files are looked at. None also where a header cannot be read.
    """
    if type(examples) is not ImageFolder or not len(order):
        return None
    looked, fraction = order[:LOOKED_AT], examples.crop_fraction or CROP_FRACTION
    try:
        others = sum(examples.stored_size(index) != (size, size) for index in looked)
    except CorruptData:  # the evaluation says so
        return None
    if not others:
        return None
    short_side = math.floor(size / fraction)
    return {
        "size": size,
        "short_side": short_side,
        "crop_fraction": fraction,
        "others": others,
        "looked_at": len(looked),
    }


def found_in(examples: ExampleSet, stated: float | None) -> DataFound:
    """What was read of files and tables, for the provenance; `stated` is the crop fraction of the job."""
    found: DataFound = {}
    if (files := getattr(examples, "files_read", None)) is not None:
        found["files"] = files
    if (ignored := getattr(examples, "ignored", None)) is not None and ignored["count"]:
        found["ignored"] = ignored
    if stated is None and (used := getattr(examples, "crop_fraction", None)) is not None:
        found["crop_fraction"] = used
    return found


def other_content(data: ComponentReference, sha256: str, classes: int | None) -> OtherContent | None:
    """A hash that is not the published hash of the evaluated part; None where it is, or none is known.

    For a component that reads several sets, the number of classes, or of words, tells which set it is.
    """
    facts = load().find("data", data["name"]).facts or {}
    part = data["params"].get("evaluated", "test")
    published = facts.get("content", {}).get(part, sha256)
    if published == sha256 or facts.get("content_classes", classes) != classes:
        return None
    return {"sha256": sha256, "published": published}


def divided_from(examples: ExampleSet) -> int | None:
    """Examples of a folder or table without parts, which a hash divided into training and evaluation."""
    whole = getattr(examples, "divided_from", None)
    if whole is None:
        whole = sum(part["rows"] for part in getattr(examples, "files_read", None) or ())
    return whole if whole > len(examples.ids) else None


def empty_classes(examples: ExampleSet) -> EmptyClasses | None:
    """Classes without any example in the evaluated part of a labelled set; None if all have examples."""
    if not load().task(examples.task).labelled:
        return None
    there = set(torch.as_tensor(cast(DataSet, examples).labels).tolist())
    names = [name for label, name in enumerate(examples.class_names) if label not in there]
    return {"count": len(names), "classes": names[:LISTED]} if names else None


def join_by_names(loaded: Loaded, data: ExampleSet) -> ModelJoin | None:
    """How the names of a model's logits were matched with the data's; a ValueError as of `order_for`."""
    # There is nothing to tell where recorded or published names are the data's in their order.
    names = loaded.logit_names
    if names is None or names.source in ("matched", "data"):
        return None
    found = order_for(loaded, data)
    changed = found.order != tuple(range(len(found.order)))
    told = {"stated": True, "published": changed or found.by == "number", "training": changed}
    if not told[names.source]:
        return None
    return {"labels_by": found.by, "labels": [*names.lists[0][:LISTED]], "own_tokenizer": False}


def guessed_order(loaded: Loaded, examples: ExampleSet, data: ExampleSet) -> GuessedOrder | None:
    """The logits taken for the classes of examples where only sorted names give their order; None elsewhere.

    It is no guess where names are the numbers of their places, or ImageNet's, in their published order.
    """
    names = loaded.logit_names
    if names is None or names.source != "data" or loaded.untrained:
        return None
    ordered_by = data if order_for(loaded, examples).by == "name" else examples
    classes = model_class_names(ordered_by)
    if not getattr(ordered_by, "sorted_classes", False) or are_places(classes) or classes == class_list(ALL):
        return None
    pairs = [f"logit {logit} = {name}" for logit, name in enumerate(classes[:PAIRS])]
    return {"pairs": pairs, "classes": len(classes)}
