"""Classes of ImageNet-1K and of the test sets for its models: WordNet ids in logit order.

Russakovsky et al. 2015, "ImageNet Large Scale Visual Recognition Challenge"; Hendrycks et al. 2021, "Natural
Adversarial Examples" (A, O) and "The Many Faces of Robustness" (R). Each of the three has 200 of the 1000
classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.catalog.class_lists import class_list as class_list
from assay.service.catalog.class_lists import listed_sets as listed_sets

ALL = "imagenet"
CROP_FRACTION = 0.875  # Side of the centre crop / short side in the published evaluations


def classes_of(name: str) -> tuple[str, ...]:
    """The WordNet ids of a set's classes, sorted, in label order; all 1000 of a set without a list."""
    return class_list(name if name in listed_sets() else ALL)


def title_of(name: str) -> str:
    """Display name of a set for models of ImageNet."""
    return str(_facts(name)["title"])


def published_of(name: str) -> int:
    """Images of a set for models of ImageNet as it was published."""
    return int(_facts(name).get("published") or _facts(name)["test"])


def recognise(folders: Collection[str]) -> str | None:
    """The set with exactly these class folders, or None."""
    given = set(folders)
    return next((name for name in listed_sets() if given == set(class_list(name))), None)


def _facts(name: str) -> Mapping[str, Any]:
    return load().find("data", name).facts or {}
