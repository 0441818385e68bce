"""Compatibility of data and model: channels, number of logits, and their meaning."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from assay.models.layers.huggingface.labels import LabelOrder
from assay.models.layers.layers import Classifier
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, logit_groups, model_class_names, model_classes
from assay.workers.data.formats.own_tokens import tokenized
from assay.workers.data.formats.text import TextSet, is_text
from assay.workers.jobs.loading import Loaded
from assay.workers.weights.logit_names import reordered
from assay.workers.weights.training_record import trained_on

FACTS = ("classes", "channels")


def made_for(data: ExampleSet, fact: str) -> int:
    """Classes or channels of a model made for this data."""
    return model_classes(data) if fact == "classes" else data.channels


def check_fit(
    examples: ExampleSet, model_data: ExampleSet, trained: Sequence[str] | None, where: str
) -> None:
    """Reject data that a model cannot be evaluated on.

    For a set that uses some of a model's logits, the names of all classes are compared, too: a count cannot
    show that the logits match.
    """
    for fact in FACTS:
        given, wanted = made_for(examples, fact), made_for(model_data, fact)
        if given != wanted:
            some = f"{examples.classes} of " if given != getattr(examples, fact) else ""
            raise ValueError(
                f"{where}: {examples.name!r} has {some}{given} {fact}, the model was made for {wanted}"
            )
    catalog.task(examples.task).check_fit(examples, model_data, trained, where)
    if logit_groups(examples) is None:
        return
    wanted_names = model_class_names(examples)
    sources = (("the job's data", model_class_names(model_data)), ("the data of its training", trained))
    for whose, names in sources:
        if names is not None and tuple(names) != wanted_names:
            place = next(
                i for i, pair in enumerate(zip(names, wanted_names, strict=True)) if len({*pair}) > 1
            )
            raise ValueError(
                f"{where}: {examples.name!r} takes {examples.classes} of the model's logits by their names,"
                f" and {whose} calls class {place} {names[place]!r} instead of {wanted_names[place]!r}; use"
                " the data set 'imagenet', or a folder whose classes have ImageNet's names"
            )


def looking_at(loaded: Loaded, data: ExampleSet) -> Loaded:
    """The classifier restricted to the logits of the data's classes, in their order."""
    order, groups = order_for(loaded, data).order, logit_groups(data)
    if groups is not None:
        placed = [[order[logit] for logit in group] for group in groups]
        return replace(loaded, classifier=restricted(loaded.classifier, placed))
    if order == tuple(range(len(order))):
        return loaded
    return replace(loaded, classifier=reordered(loaded.classifier, order))


def order_for(loaded: Loaded, data: ExampleSet) -> LabelOrder:
    """The classifier's logit for each class; a ValueError where the model's names contradict the data's."""
    names = model_class_names(data)
    if loaded.logit_names is None:
        return LabelOrder(tuple(range(len(names))), "number")
    return loaded.logit_names.order(names)


def read_by(loaded: Loaded, data: ExampleSet) -> ExampleSet:
    """The data as the classifier reads them: its tokens of texts, images cropped as in its training."""
    return tokenized(loaded.classifier.backbone, _cropped_as_in_training(loaded, data))


def _cropped_as_in_training(loaded: Loaded, data: ExampleSet) -> ExampleSet:
    if getattr(data, "crop_fraction", 0) is not None or (source := trained_on(loaded)) is None:
        return data
    # Versions with another default, 0.875, recorded the fraction.
    fraction = source.data["params"].get("crop_fraction")
    if not isinstance(fraction, float | int):
        return data
    changed = copy.copy(data)
    changed.crop_fraction = fraction  # type: ignore[attr-defined]
    return changed


def check_vocabulary(examples: ExampleSet, model_data: ExampleSet, trained: str | None, where: str) -> None:
    """Reject text with other word ids than the model's training had."""
    if not is_text(examples):
        return
    own, made = (cast(TextSet, data).vocabulary.sha256 for data in (examples, model_data))
    sources = (("the job's data", made), ("the data of the model's training", trained))
    for whose, digest in sources:
        if digest is not None and digest != own:
            raise ValueError(
                f"{where}: {examples.name!r} has another vocabulary than {whose}: the model would read other"
                " words. Labelled texts take the vocabulary of a language data set by their parameter"
                " vocabulary; texts for language models have their own training part's"
            )


class SomeClasses(nn.Module):
    """Backbone followed by a selection of its logits, or by the largest of each group: (B, K) to (B, k)."""

    chosen: Tensor

    def __init__(self, backbone: nn.Module, groups: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.backbone = backbone
        self.largest = max(map(len, groups))
        # Index -1 stands for a logit of minus infinity behind the last one.
        filled = [index for group in groups for index in [*group, *[-1] * (self.largest - len(group))]]
        self.register_buffer("chosen", torch.tensor(filled, dtype=torch.int64))

    def forward(self, images: Tensor) -> Tensor:
        """The chosen logits (B, k) of normalised images (B, C, H, W)."""
        logits: Tensor = self.backbone(images)
        if self.largest == 1:
            return logits.index_select(1, self.chosen)
        padded = nn.functional.pad(logits, (0, 1), value=float("-inf"))
        chosen = self.chosen.where(self.chosen >= 0, logits.shape[1])
        groups: Tensor = padded.index_select(1, chosen).reshape(len(logits), -1, self.largest)
        return groups.amax(2)


def restricted(classifier: Classifier, groups: Sequence[Sequence[int]]) -> Classifier:
    """The same classifier with a logit for each group, in order; parameters are shared, not copied."""
    mean, std = (values.flatten().tolist() for values in (classifier.mean, classifier.std))
    return Classifier(SomeClasses(classifier.backbone, groups), mean, std).to(classifier.mean).eval()
