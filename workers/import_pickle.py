"""`assay import-pickle`: converts a legacy PyTorch checkpoint to safetensors, which can then be uploaded.

`weights_only=True` makes only tensors and plain values. What training scripts store beside them (arguments,
NumPy's values, paths, dates) is replaced and dropped: none of its code runs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.models.weights.layouts import LAYOUTS, Layout
from assay.service.files.pickled_model import pickled_model
from assay.service.fitted_text import say, tell
from assay.workers.training.files import save_tensors

# Usual keys of a state dict; the first present key is used.
WRAPPERS = ("model", "state_dict", "model_ema", "module")
MOST_TIMES = 16  # All tensors by the file: tied weights are stored once
COMPILED = "_orig_mod."  # torch.compile's
# No tensors, by their makers in a pickle.
DROPPED = (
    *("argparse.Namespace", "types.SimpleNamespace", "_codecs.encode", "uuid.UUID", "decimal.Decimal"),
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *("numpy._core.numeric._frombuffer", "numpy.core.numeric._frombuffer", "numpy.dtype", "numpy.ndarray"),
    *(f"datetime.{name}" for name in ("datetime", "date", "time", "timedelta", "timezone")),
    *(
        f"{module}.{kind}Path"
        for module in ("pathlib", "pathlib._local")
        for kind in ("Posix", "Windows", "PurePosix", "PureWindows")
    ),
)


class _Dropped:
    """Replaces a value that is not needed."""

    def __new__(cls, *_: Any, **__: Any) -> _Dropped:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        """Take no state."""


STAND_INS: list[Any] = [(_Dropped, name) for name in DROPPED]


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0, or 2 with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="assay import-pickle",
        description="Convert a legacy PyTorch checkpoint (.pth, .pt, .bin) to safetensors.",
        epilog="example: assay import-pickle deit_tiny.pth deit_tiny.safetensors",
    )
    parser.add_argument("file", type=Path, help="the pickle")
    parser.add_argument("output", type=Path, help="the file to write; it must not be there")
    parser.add_argument("--key", help="which part of the file is the state dict (default: found by its name)")
    options = parser.parse_args(arguments)
    try:
        say(convert(options.file, options.output, options.key).removesuffix("\n"))
    except (ValueError, OSError) as error:
        tell(f"error: {error}")
        return 2
    return 0


def convert(file: Path, output: Path, key: str | None = None) -> str:
    """Write a pickle's tensors as safetensors; returns a report of converted and dropped entries.

    `key`: of the state dict; None: a usual name. Raises ValueError: the pickle could run code, has no state
    dict, or the output exists; OSError.
    """
    if output.exists():
        raise ValueError(f"{output} is there already")
    content = read_pickle(file)
    tensors, where = state_dict(content, key)
    left = [str(name) for name in content if name not in (where, *tensors)] if where else []
    tensors = _without(COMPILED, tensors)
    layout = wrapper_of(tensors)
    tensors = _without(COMPILED, _without(layout.theirs, tensors))
    size, most = sum(tensor.nbytes for tensor in tensors.values()), MOST_TIMES * file.stat().st_size
    if size > most:
        raise ValueError(
            f"the tensors of {file} repeat their values, and would take {size} bytes; allowed: {most}"
        )
    save_tensors(tensors, output, {"imported_from": file.name})
    return report(tensors, where, layout, left)


def read_pickle(file: Path) -> Mapping[Any, Any]:
    """A pickle's tensors and plain values; ValueError for others; OSError."""
    if (found := pickled_model(file)) is not None:
        raise ValueError(f"{file} {found.what}; allowed: {found.remedy}")
    try:
        with torch.serialization.safe_globals(STAND_INS):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # of damaged files
        # torch's message goes on to say how to run the file's code.
        named = re.search(r"(?i:unsupported (?:global|class|operand)[: ]+)(?:GLOBAL )?([\w.]+)", str(error))
        reason = "it is no PyTorch checkpoint, or is damaged"
        if named:
            reason = (
                f"it has {named[1]}. Where it was made, load it and save the state dict alone:"
                " torch.save(model.state_dict(), ...)"
            )
        raise ValueError(f"{file} cannot be read as tensors and plain values alone: {reason}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{file} holds a {type(content).__name__}, allowed: a dict")
    return content


def state_dict(content: Mapping[Any, Any], key: str | None) -> tuple[dict[str, Tensor], str | None]:
    """Tensors by name, and their key; None at the top level; ValueError: none, or other values too."""
    wrappers = WRAPPERS if key is None else (key,)
    where = next((name for name in wrappers if isinstance(content.get(name), Mapping)), None)
    if key is not None and where is None:
        raise ValueError(f"there is no dict {key!r} in the file; there are: {', '.join(map(str, content))}")
    found: Mapping[Any, Any] = content if where is None else content[where]
    odd = [
        str(name)
        for name, value in found.items()
        if not (isinstance(name, str) and isinstance(value, Tensor))
    ]
    if odd or not found:
        listed = ", ".join(odd[:8]) or "nothing is in it"
        raise ValueError(
            f"{where or 'the file'} is no state dict, what is no tensor: {listed}; --key names another"
        )
    return dict(found), where


def _without(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if not all(name.startswith(prefix) for name in tensors):
        return dict(tensors)
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def wrapper_of(tensors: Mapping[str, Tensor]) -> Layout:
    """The layout with the longest common prefix of all names; last timm's, without."""
    fitting = [layout for layout in LAYOUTS[1:] if all(name.startswith(layout.theirs) for name in tensors)]
    return max(fitting, key=lambda layout: len(layout.theirs))


def report(tensors: Mapping[str, Tensor], where: str | None, layout: Layout, left: list[str]) -> str:
    """A line per tensor, and the changes of names."""
    lines = [f"{name}  {tuple(tensor.shape)}  {tensor.dtype}" for name, tensor in sorted(tensors.items())]
    count = sum(tensor.numel() for tensor in tensors.values())
    lines.append(f"{len(tensors)} tensors, {count} numbers, from {where or 'the top of the file'}")
    if layout.theirs:
        lines.append(f"{layout.theirs!r} was taken from the beginning of every name")
    if left:
        lines.append(f"left out: {', '.join(left)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
