"""Why a module cannot be exported: the part of the module, the line of its code, and what to do."""

from __future__ import annotations

import itertools
import logging
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from assay.models.layers.layers import Classifier

SHOWN = 300
# Logs what torch learns of a dynamic size, on the stack of the call that fixes it.
SIZES = logging.getLogger("torch.fx.experimental.symbolic_shapes")
FIXED = "set_replacement"
# Names of the user's module inside the module that is exported.
WRAPPERS = ("network.backbone", "network")
NOT_THEIRS = (str(Path(torch.__file__).parent), "<")


class SizeLog(logging.Handler):
    """Notes where a module makes the size of its batch a constant: torch says so only while it happens."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(logging.INFO)
        self.network = network
        self.place = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Takes the first line of the module's code that fixes a size."""
        if FIXED in str(record.msg) and not self.place:
            self.place = _named(list(traceback.walk_stack(sys._getframe()))[::-1], self.network)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes torch's log of sizes, which is then written nowhere else."""
        level, propagate, handlers = SIZES.level, SIZES.propagate, SIZES.handlers
        SIZES.setLevel(logging.INFO)
        SIZES.propagate, SIZES.handlers = False, [self]
        try:
            yield
        finally:
            SIZES.setLevel(level)
            SIZES.propagate, SIZES.handlers = propagate, handlers


class TrainingCalls(TorchFunctionMode):
    """Notes where a module calls a function of torch that is switched to training, as sentence parts."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.places: dict[str, None] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        switches = kwargs or {}
        dropped = func is scaled_dot_product_attention and (switches.get("dropout_p") or any(args[4:5]))
        switched = switches.get("training") or switches.get("train") or (len(args) == 3 and args[2] is True)
        if switched or dropped:
            self.places[_named(list(traceback.walk_stack(sys._getframe()))[::-1], self.network)] = None
        return func(*args, **switches)


def reason(error: Exception, network: nn.Module, sizes: SizeLog) -> str:
    """What stopped an export, with the place in the module's code, and what to do."""
    text = str(error)
    if type(error).__name__.startswith("GuardOnDataDependent"):
        return (
            f"its forward asks for the value of a tensor{place(error, network)}, and a program has one graph"
            " for all inputs: write the condition with torch.where, and leave out .item(), float() and bool()"
        )
    if "Constraints violated" in text or "specialized it to be a constant" in text:
        return (
            f"its forward works for one size of the batch only{sizes.place}: take the size from its input"
            " (x.shape[0]) without int(), loop over no examples in Python, keep no tensor of a fixed batch"
        )
    return f"torch.export cannot follow its forward{place(error, network)}: {short(error)}"


def place(error: Exception, network: nn.Module) -> str:
    """The innermost line of the module's code that an error passed, as a part of a sentence; or nothing."""
    return _named(list(traceback.walk_tb(error.__traceback__)), network)


def _named(frames: Sequence[tuple[types.FrameType, int]], network: nn.Module) -> str:
    parts = [(name, part) for name, part in network.named_modules() if part is not network]
    paths = {id(part): name for name, part in parts if not isinstance(part, Classifier)}
    found = ""
    for number, (frame, _) in enumerate(frames):
        part = frame.f_locals.get(next(iter(frame.f_code.co_varnames), ""))  # self
        if id(part) not in paths:
            continue
        # Functions that the part calls are the user's, until one is torch's.
        calls = ((at.f_code, line) for at, line in frames[number:])
        own = list(itertools.takewhile(lambda call: _is_own(call[0].co_filename), calls))
        if own:
            path, (code, line) = own_path(paths[id(part)]), own[-1]
            name = f"{path!r} ({type(part).__name__})" if path else type(part).__name__
            found = f", in {name} at {code.co_filename}:{line}"
    return found


def _is_own(file: str) -> bool:
    return not file.startswith(NOT_THEIRS) and Path(file).parent != Path(__file__).parent


def own_path(path: str) -> str:
    """The path of a part as it is in the user's own module; empty for the module itself."""
    for wrapper in WRAPPERS:
        if path == wrapper or path.startswith(f"{wrapper}."):
            return path.removeprefix(wrapper).removeprefix(".")
    return path


def short(error: Exception) -> str:
    """An error's first paragraph on one line."""
    text = " ".join(str(error).split("\n\n")[0].split()) or type(error).__name__
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
