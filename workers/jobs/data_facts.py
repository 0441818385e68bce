"""Facts of the data of an evaluation, for the merge and its warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch

from assay.service.contract.data_findings import EmptyClasses, ResampledImages
from assay.service.contract.records import PlannedEvaluation
from assay.workers.data.formats.dataset import CorruptData, DataSet, ExampleSet, model_class_names
from assay.workers.data.formats.text import LanguageSet, is_text
from assay.workers.data.image_folder import ImageFolder
from assay.workers.published.language import known_text
from assay.workers.published.match import known_as
from assay.workers.published.sequences import known_sequences

# Image files whose headers are read; the first ones of the evaluation's order.
LOOKED_AT = 200
# Names of empty classes that are kept.
LISTED = 10
# Tasks whose examples have one label each, among all the classes of the set.
LABELLED = ("classification", "sequence", "series", "stored_corruptions")


def count_cut(examples: ExampleSet, order: Sequence[int], length: int) -> int:
    """How many of these examples are sequences of tokens that a model of this length reads in part."""
    count = getattr(examples, "count_cut", None)
    return 0 if count is None else int(count(order, length))


def facts_of(examples: ExampleSet, n: int) -> PlannedEvaluation:
    """Facts of the data for the merge.

    Returns:
        `n` examples of the `available` ones are used (or n repeats of a machine measurement are made), with
        so many `classes`, some of which may be `empty_classes`; `known_as` is the name of a well-known set;
        `published` is the number of examples of the published set, where it differs.
    """
    facts: PlannedEvaluation = {"n": n, "available": len(examples.ids), "classes": examples.classes}
    if is_text(examples):
        language = examples.task == "language"
        count = cast(LanguageSet, examples).starts[-1] if language else len(examples.ids)
        name = known_text(examples.name, examples.classes, count)
    else:
        shown = (examples.class_names, len(examples.ids), model_class_names(examples))
        name = known_as(*shown, task=examples.task)
    name = name or known_sequences(examples.name, examples.classes, len(examples.ids))
    published = getattr(examples, "published", None)
    if published is not None and published != len(examples.ids):
        facts["published"] = published
    if name is not None:
        facts["known_as"] = name
    if (empty := empty_classes(examples)) is not None:
        facts["empty_classes"] = empty
    return facts


def resampled_images(examples: ExampleSet, order: Sequence[int], size: int) -> ResampledImages | None:
    """How image files are enlarged and cropped that have the model's size already; None if they are not.

    Args:
        examples: the data set.
        order: its evaluated examples.
        size: height and width of the model's images in pixels.

    Returns:
        None also where a file has another size, or its header cannot be read; 200 files are looked at.
    """
    if not isinstance(examples, ImageFolder) or not len(order):
        return None
    enlarged = math.floor(size / examples.crop_fraction)
    if enlarged == size:
        return None
    try:
        if any(examples.stored_size(index) != (size, size) for index in order[:LOOKED_AT]):
            return None
    except CorruptData:  # the evaluation says so
        return None
    return {"size": size, "resized_to": enlarged, "crop_fraction": examples.crop_fraction}


def empty_classes(examples: ExampleSet) -> EmptyClasses | None:
    """Classes without any example in the evaluated part of a labelled set; None if there are none."""
    if examples.task not in LABELLED:
        return None
    there = set(torch.as_tensor(cast(DataSet, examples).labels).tolist())
    names = [name for label, name in enumerate(examples.class_names) if label not in there]
    return {"count": len(names), "classes": names[:LISTED]} if names else None
