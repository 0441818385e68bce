"""Classes of ImageNet-1K and of the test sets for its models: WordNet ids in logit order.

Russakovsky et al. 2015, "ImageNet Large Scale Visual Recognition Challenge"; Hendrycks et al. 2021, "Natural
Adversarial Examples" (A, O) and "The Many Faces of Robustness" (R). Each of the three has 200 of the 1000
classes. Free of torch, because the processes that merge results do without it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from assay.service.catalog.class_lists import class_list as class_list

ALL = "imagenet"
# Side of the centre crop / short side in the published evaluations.
CROP_FRACTION = 0.875
TITLES = {
    "imagenet": "ImageNet",
    "imagenet_a": "ImageNet-A",
    "imagenet_o": "ImageNet-O",
    "imagenet_r": "ImageNet-R",
}
# Images of the published test sets; those of ImageNet-O with the 50 validation images of each of its classes.
PUBLISHED = {"imagenet": 50_000, "imagenet_a": 7_500, "imagenet_o": 2_000 + 10_000, "imagenet_r": 30_000}


class WholeSet(NamedTuple):
    """A test set of all 1000 classes, other than ImageNet's validation set."""

    title: str
    published: int


WHOLE_SETS = {
    "imagenet_sketch": WholeSet("ImageNet-Sketch", 50_889),
    "imagenet_v2": WholeSet("ImageNet-V2", 10_000),
}


def classes_of(name: str) -> tuple[str, ...]:
    """The WordNet ids of a set's classes, sorted, in label order; `name` is a key of TITLES or WHOLE_SETS."""
    return class_list(ALL if name in WHOLE_SETS else name)


def title_of(name: str) -> str:
    """Display name of such a set."""
    return WHOLE_SETS[name].title if name in WHOLE_SETS else TITLES[name]


def published_of(name: str) -> int:
    """Images of such a set as it was published."""
    return WHOLE_SETS[name].published if name in WHOLE_SETS else PUBLISHED[name]


def recognise(folders: Collection[str]) -> str | None:
    """The set with exactly these class folders, or None."""
    given = set(folders)
    return next((name for name in TITLES if given == set(class_list(name))), None)
