"""Names of a model's logits, where something states them, and its logits in the order of a set's classes.

A program or its upload, the record of a training in the weights, or the published list of pulled weights
states them. Where nothing does, logit k is class k of the job's data, and its names hold for other data.

B = batch, K = classes.
"""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.models.layers.huggingface.labels import LabelOrder, match_labels
from assay.models.layers.layers import Classifier
from assay.service.contract.stored_specs import ModelReference
from assay.workers.data.formats.images.imagenet_classes import ALL, class_list
from assay.workers.weights.pulled import pulled_weights

# What states the names: the program or its upload; labels that the model has matched itself; the record of a
# training; a published list; nothing, so that the job's data names them.
NamedBy = Literal["stated", "matched", "training", "published", "data"]


@dataclass(frozen=True)
class LogitNames:
    """Names of the logits in order, (K,): the first of the lists that fits the data is taken."""

    lists: tuple[tuple[str, ...], ...]
    source: NamedBy

    def order(self, class_names: Sequence[str]) -> LabelOrder:
        """The logit of each class of a data set; a ValueError where a program's names contradict them."""
        numbers = LabelOrder(tuple(range(len(class_names))), "number")
        for names in self.lists:
            if len(names) != len(class_names) and self.source == "stated":
                raise ValueError(
                    f"the model states {len(names)} class names, the data have {len(class_names)}"
                )
            if len(names) != len(class_names):
                continue
            if {*names} == {*class_names} and len({*names}) == len(names):
                places = {name: place for place, name in enumerate(names)}
                return LabelOrder(tuple(places[name] for name in class_names), "name")
            try:
                found = match_labels(names, class_names)
            except ValueError as error:
                if self.source == "stated":
                    raise ValueError(f"{error}; or upload it with the data's class names") from error
                continue
            if found.by == "name":
                return found
        return numbers


def names_of(
    classifier: Classifier, model: ModelReference, metadata: Mapping[str, str], class_names: tuple[str, ...]
) -> LogitNames:
    """The names of a classifier's logits."""
    backbone: Any = classifier.backbone
    if getattr(backbone, "labels_by", None) is not None:
        return LogitNames((class_names,), "matched")
    program = getattr(backbone, "program", backbone)
    if stated := (model["weights"] or {}).get("class_names") or getattr(program, "class_names", None):
        return LogitNames((tuple(stated),), "stated")
    if "trained_on" in metadata:
        return LogitNames((tuple(json.loads(metadata["trained_on"])["class_names"]),), "training")
    if pulled_weights(model) is not None and (lists := _published(backbone, class_names)):
        return LogitNames(lists, "published")
    return LogitNames((class_names,), "data")


def _published(backbone: Any, class_names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    config: Mapping[str, Any] = getattr(backbone, "pretrained_cfg", None) or {}
    own = config.get("label_names")
    if own:
        return (tuple(own.values() if isinstance(own, Mapping) else own),)
    wnids = class_list(ALL)
    if len(class_names) == len(wnids) == config.get("num_classes") and class_names == wnids:
        return (wnids,)
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset  # timm's models have imported it

    subset = infer_imagenet_subset(dict(config))
    if subset is None:
        return ()
    info = ImageNetInfo(subset)
    return tuple(info.label_names()), tuple(info.label_descriptions())


def reordered(classifier: Classifier, order: Sequence[int]) -> Classifier:
    """The same classifier with logit `order[k]` in place k; parameters and modules are shared, not copied."""
    backbone, other = copy.copy(classifier.backbone), copy.copy(classifier)
    for kind in ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"):
        vars(backbone)[kind] = OrderedDict(vars(backbone)[kind])
    backbone.register_forward_hook(_Permutation(order))
    vars(other)["_modules"] = {**vars(classifier)["_modules"], "backbone": backbone}
    return other


class _Permutation:
    """A hook that puts logits, (B, K) or (B, K, S, S), in another order."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = torch.tensor(order, dtype=torch.int64)

    def __call__(self, module: nn.Module, inputs: object, logits: Tensor) -> Tensor:
        del module, inputs
        return logits.index_select(1, self._order.to(logits.device))
