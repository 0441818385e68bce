"""Which logit of a model with labels of its own is which class of a data set.

Names decide where they can, else numbers do:

    names are compared in lower case, with `_` and `-` as spaces; of "tench, Tinca tinca" each part is a name
    all classes found among the labels, one to one      by name: the logits are put in the data's order
    none of them found                                  by number: logit k is class k
    some found, all of these at their own number        by number
    some found, one at another number                   refused: which is meant cannot be known
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import doc
from torch import Tensor, nn

from assay.models.layers.huggingface.folder import check_classes

Labels = Annotated[
    Literal["auto", "number"],
    doc(
        '"auto" finds the logit of each class by its name where all names are the same, else by its number; '
        '"number" always by its number.'
    ),
]


class LabelOrder(NamedTuple):
    """The logit of each class, (classes,), and what it was found by."""

    order: tuple[int, ...]
    by: Literal["name", "number"]


def match_labels(labels: Sequence[str], class_names: Sequence[str], how: Labels = "auto") -> LabelOrder:
    """The logit of each class of a data set."""
    check_classes(tuple(labels), len(class_names))
    numbers = tuple(range(len(labels)))
    if how == "number":
        return LabelOrder(numbers, "number")
    known = _by_name(labels)
    found = [known.get(_plain(name)) for name in class_names]
    if None not in found and len({*found}) == len(labels):
        return LabelOrder(tuple(place for place in found if place is not None), "name")
    own = Counter(map(_plain, class_names))
    for number, place in enumerate(found):
        if place is not None and place != number and own[_plain(class_names[number])] == 1:
            raise ValueError(
                f"the model's label {labels[place]!r} is its logit {place}, and the data set calls class"
                f" {number} {class_names[number]!r}, but not all names are the same (the model has"
                f" {_some(labels)}; the data {_some(class_names)}): rename the classes, or give the model's"
                ' parameter labels "number" to go by their numbers'
            )
    return LabelOrder(numbers, "number")


class OwnLabels(nn.Module):
    """Base of models with names of their own for the logits."""

    order: Tensor

    def __init__(self, label_names: Sequence[str], labels: Labels) -> None:
        super().__init__()
        self.label_names = tuple(label_names)
        self.labels_by: str | None = None  # what the order of the logits was found by, after `suit`
        self._how: Labels = labels
        self.register_buffer("order", torch.arange(len(self.label_names)), persistent=False)

    def suit(self, class_names: Sequence[str], size: tuple[int, int] | None) -> None:
        """Put the logits in the order of a data set's classes; a ValueError as of `match_labels`.

        `size` is the height and width of its images, None where they vary or without images.
        """
        del size
        found = match_labels(self.label_names, class_names, self._how)
        self.order = torch.tensor(found.order, device=self.order.device)
        self.labels_by = found.by

    def ordered(self, logits: Tensor) -> Tensor:
        """Logits (B, classes) in the order of the data set."""
        return logits.index_select(1, self.order)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _by_name(labels: Sequence[str]) -> dict[str, int]:
    """Names that one logit alone has, whole and in parts, and that logit."""
    whole = [_plain(label) for label in labels]
    parts = [
        {one, *(_plain(part) for part in label.split(","))} for one, label in zip(whole, labels, strict=True)
    ]
    counts = Counter(name for names in parts for name in names)
    found = {name: place for place, names in enumerate(parts) for name in names if counts[name] == 1}
    return found | {name: place for place, name in enumerate(whole) if whole.count(name) == 1}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
