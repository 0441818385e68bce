"""Where a program waited, and what it reads that has not arrived."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[3]
HERE = str(Path(__file__).parent)
TORCH = str(Path(torch.__file__).parent)


class Place(NamedTuple):
    """Where the host waited: the operator, and the line that asked."""

    operator: str
    line: str


def poison(target: Tensor, value: Tensor) -> None:
    """Wrong numbers, until the copy ends."""
    if target.dtype == torch.bool:
        target.copy_(~value)
    elif target.is_floating_point():
        target.fill_(torch.nan)
    else:
        target.fill_(torch.iinfo(target.dtype).min)


def place_of(func: Any) -> Place:
    """The operator, and the line of the first caller that is neither torch nor this."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((HERE, TORCH, "<")):
        frame = frame.f_back
    return Place(str(func), f"{frame.f_code.co_filename.removeprefix(f'{ROOT}/')}:{frame.f_lineno}")
