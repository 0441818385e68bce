"""The dtypes of a weights file: which of them are numbers that a model can compute with.

What is refused would load without a word and give wrong numbers: integers and float8 are quantised weights,
whose scales are kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from assay.models.weights.layouts import Layout

# By the names that the format has for them.
PRECISIONS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
INTEGERS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})


def read_dtypes(path: Path) -> dict[str, str]:
    """The dtype of each tensor of a safetensors file, by the format's names; no tensor is read."""
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118


def wrong_dtypes(given: Mapping[str, str], layout: Layout, state: Mapping[str, Tensor]) -> Iterator[str]:
    """Each tensor of a file whose numbers are not of the kind that the model's are, in words.

    Args:
        given: the dtypes of the file's tensors.
        layout: whose names the file has.
        state: the Classifier's state dict, on any device.
    """
    for key, tensor in state.items():
        for part in layout.parts(key):
            dtype = given.get(part.name)
            if dtype is None or dtype in PRECISIONS:
                continue
            if tensor.is_floating_point():
                yield (
                    f"{part.name} is of dtype {dtype}, allowed: {', '.join(PRECISIONS)}"
                    " (quantised weights lack the scales that belong to them)"
                )
            elif dtype not in INTEGERS:
                yield f"{part.name} is of dtype {dtype}, allowed: integers"
