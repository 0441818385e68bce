"""The classes of ImageNet-1K and of the test sets made for its models: WordNet ids in order of the labels.

Russakovsky et al. 2015, "ImageNet Large Scale Visual Recognition Challenge"; Hendrycks et al. 2021, "Natural
Adversarial Examples" (A, O) and "The Many Faces of Robustness" (R).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

FILE = Path(__file__).with_name("class_lists.json")


@functools.cache
def _lists() -> dict[str, tuple[str, ...]]:
    lists = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: tuple(ids) for name, ids in lists.items()}


def class_list(name: str) -> tuple[str, ...]:
    """The WordNet ids of a set's classes, sorted, in label order."""
    return _lists()[name]


def listed_sets() -> tuple[str, ...]:
    """The sets that have a list of classes, ImageNet-1K first."""
    return tuple(_lists())
