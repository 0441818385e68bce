"""Classes of ImageNet-1K and of the test sets for its models: WordNet ids in logit order.

Russakovsky et al. 2015, "ImageNet Large Scale Visual Recognition Challenge"; Hendrycks et al. 2021, "Natural
Adversarial Examples" (A, O) and "The Many Faces of Robustness" (R). Each of the three has 200 of the 1000
classes. Free of torch, because the processes that merge results do without it.
"""

from __future__ import annotations

from collections.abc import Collection

from assay.service.catalog.class_lists import class_list as class_list

ALL = "imagenet"
TITLES = {
    "imagenet": "ImageNet",
    "imagenet_a": "ImageNet-A",
    "imagenet_o": "ImageNet-O",
    "imagenet_r": "ImageNet-R",
}
# Images of the published test sets; those of ImageNet-O with the 50 validation images of each of its classes.
PUBLISHED = {"imagenet": 50_000, "imagenet_a": 7_500, "imagenet_o": 2_000 + 10_000, "imagenet_r": 30_000}


def recognise(folders: Collection[str]) -> str | None:
    """The set with exactly these class folders, or None."""
    given = set(folders)
    return next((name for name in TITLES if given == set(class_list(name))), None)
