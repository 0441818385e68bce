"""Which released code a corruption follows: its constants, and its steps where those differ.

The authors (Hendrycks and Dietterich 2019, repository hendrycks/robustness) have a script for each image
size; `imagecorruptions` is the fork of Michaelis et al. 2019, with ImageNet-C's constants.
docs/corruptions.md lists the differences.

    imagenet_c          make_imagenet_c.py, 224 pixels
    cifar_c             make_cifar_c.py, 32 pixels
    tiny_imagenet_c     make_tinyimagenet_c.py and make_imagenet_64_c.py, 64 pixels
    imagecorruptions    the fork, any size
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar, get_args

from annotated_types import doc

T = TypeVar("T")

Script = Literal["imagenet_c", "cifar_c", "tiny_imagenet_c", "imagecorruptions"]
Constants = Annotated[Script, doc("Which released script's constants.")]
Released = Mapping[Constants, Sequence[T]]
"""Constants of each script for the severities 1 to 5."""
FORK: Constants = "imagecorruptions"
# Side of the images that the authors made with each, in pixels.
SIDES: Mapping[Constants, int] = {"cifar_c": 32, "tiny_imagenet_c": 64, "imagenet_c": 224}


# Quality of the JPEG files that the authors store; CIFAR-10-C is arrays.
FILE_QUALITY: Mapping[Constants, int] = {"imagenet_c": 85, "tiny_imagenet_c": 85}


def at(severity: int, values: Sequence[T]) -> T:
    """The entry for a severity, 1 to 5."""
    if isinstance(severity, bool) or severity not in range(1, len(values) + 1):
        raise ValueError(f"severity is {severity!r}, it must be a whole number from 1 to {len(values)}")
    return values[severity - 1]


def constant(constants: Constants, severity: int, table: Released[T]) -> T:
    """The entry of a table for a severity, 1 to 5; the fork has ImageNet-C's where it has none of its own."""
    if constants not in get_args(Script):
        raise ValueError(f"constants is {constants!r}, it must be one of {', '.join(get_args(Script))}")
    return at(severity, table.get(constants, table["imagenet_c"]))


def constants_for(side: int) -> Constants:
    """The authors' constants for the size, in pixels, that is nearest in proportion."""
    return min(SIDES, key=lambda constants: abs(math.log(side / SIDES[constants])))
