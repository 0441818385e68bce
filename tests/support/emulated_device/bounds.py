"""auto_LiRPA on the emulated device: it has tensors of its own class, and traces and compiles.

Its class becomes one of the device, too. It traces models on the CPU, where the device need not listen;
torch's compiler of scripts knows no device of this kind, and is off; some functions ask for the exact class.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from assay.workers.evaluation.engine.attack.bound_operators import library
from tests.support.emulated_device.device import EmulatedTensor


def _class_of(value: Any) -> type:
    return Tensor if type(value) is EmulatedTensor else builtins.type(value)


@contextmanager
def bounds_on_the_device() -> Iterator[None]:
    """For as long as the context lasts, auto_LiRPA takes tensors of the emulated device."""
    library()
    # Both can be imported only once `library` has mended the library.
    from auto_LiRPA import bound_general
    from auto_LiRPA.bounded_tensor import BoundedTensor

    make, parse = BoundedTensor.__new__, bound_general.parse_module

    class Bounded(BoundedTensor, EmulatedTensor):  # type: ignore[misc]
        """A tensor of the device with its perturbation."""

        @staticmethod
        def __new__(cls: Any, x: EmulatedTensor, ptb: Any) -> Any:
            return EmulatedTensor.__new__(cls, EmulatedTensor.detach(x)._host, x._lease)  # type: ignore[attr-defined]

        def clone(self, *args: Any, **options: Any) -> Any:
            return Bounded(super(BoundedTensor, self).clone(*args, **options), self.ptb)

        def _func(self, func: Any, *args: Any, **options: Any) -> Any:
            return BoundedTensor(func(*args, **options), self.ptb)

    def new(cls: Any, x: Any, ptb: Any = None, *args: Any, **options: Any) -> Any:
        if cls is BoundedTensor and isinstance(x, EmulatedTensor):
            return Bounded(x, ptb)
        with _disable_current_modes():
            return make(cls, x, ptb, *args, **options)

    def traced(*args: Any, **options: Any) -> Any:
        with _disable_current_modes():
            return parse(*args, **options)

    modules = [module for name, module in sys.modules.items() if name.startswith("auto_LiRPA.")]
    with ExitStack() as stack:
        stack.enter_context(patch.object(BoundedTensor, "__new__", new))
        stack.enter_context(patch.object(bound_general, "parse_module", traced))
        stack.enter_context(torch.jit.optimized_execution(False))
        for module in modules:
            stack.enter_context(patch.object(module, "type", _class_of, create=True))
        yield
