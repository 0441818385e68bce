"""auto_LiRPA, an extra: which of its operators have sound bounds, and Assay's own intervals of others.

Xu et al. 2020, "Automatic Perturbation Analysis for Scalable Certified Robustness and Beyond". The library is
imported on use, and needs a few names and signatures that its dependencies no longer have. Its release 0.3
relaxes some operators unsoundly (the upper line of Sqrt has a negative slope), and accepts others with an
assumption. So only the operators listed here are accepted.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import sys
import types
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy
import torch
from torch import Tensor

INSTALL = (
    "verified needs auto_LiRPA: install it with `pip install --no-deps auto-lirpa==0.3 appdirs tqdm`; its"
    " metadata asks for a torch below 1.13"
)
# By the library's class names: linear maps and changes of shape.
LINEAR = frozenset(
    {
        "Linear",
        "Conv",
        "BatchNormalization",
        "Add",
        "Sub",
        "Neg",
        "MatMul",
        "Mul",
        "Div",
        "Reshape",
        "Flatten",
    }
    | {"Unsqueeze", "Squeeze", "Transpose", "Concat", "Slice", "Split", "Gather", "Expand", "Pad"}
    | {
        "Shape",
        "ReduceMean",
        "ReduceSum",
        "AveragePool",
        "GlobalAveragePool",
        "Identity",
        "Dropout",
        "Cast",
        "Input",
    }
)
RELAXED = LINEAR | {"Relu", "LeakyRelu", "Tanh", "Sigmoid"}
# Monotone or exact over intervals.
INTERVAL = RELAXED | {"Softmax", "Exp", "Erf", "Quotient", "Reciprocal", "Square", "Sqrt", "Clip", "Abs"}
# Whose second input may be perturbed too, over intervals only.
PRODUCTS = frozenset({"MatMul", "Mul", "Div"})
# Enough for its walks through deep networks, and little enough for the stack of C.
MAX_RECURSION = 10_000
# That the library lacks.
LACKING = ("onnx::Erf", "onnx::Clip")


class UnsupportedModel(ValueError):
    """The model has operators that cannot be bounded."""


def require_library() -> None:
    """Refuses, by a ValueError that says how to install it, where the library is missing."""
    if importlib.util.find_spec("auto_LiRPA") is None:
        raise ValueError(INSTALL)


@cache
def library() -> Any:
    """auto_LiRPA, after the names that it expects of numpy and torch are there; as `require_library`."""
    require_library()
    from torch.onnx._internal.torchscript_exporter import _globals

    if "numpy.lib.arraysetops" not in sys.modules:
        old = types.ModuleType("numpy.lib.arraysetops")
        old.isin = numpy.isin  # type: ignore[attr-defined]
        sys.modules[old.__name__] = old
    # The package has an attribute of the same name that is another module.
    symbolic_helper: Any = importlib.import_module("torch.onnx.symbolic_helper")
    if not hasattr(symbolic_helper, "_set_opset_version"):

        def set_opset(version: int) -> None:
            _globals.GLOBALS.export_onnx_opset_version = version

        symbolic_helper._set_opset_version = set_opset
    node: Any = torch._C.Node
    if not hasattr(node, "__getitem__"):
        node.__getitem__ = lambda self, name: getattr(self, self.kindOf(name))(name)
    found = importlib.import_module("auto_LiRPA")
    # It allows a million: with so many, a hostile file of nested JSON ends the process in place of an error.
    sys.setrecursionlimit(min(sys.getrecursionlimit(), MAX_RECURSION))
    logging.getLogger("auto_LiRPA.utils").propagate = False
    members = found.BoundedModule._named_members

    def named_members(
        self: Any, get: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Any:
        """Takes the argument that torch has had since; the library's own never repeats a member."""
        del remove_duplicate
        return members(self, get, prefix, recurse)

    found.BoundedModule._named_members = named_members
    activation: Any = importlib.import_module("auto_LiRPA.operators.activation")
    activation.BoundRelu._relu_mask_alpha = staticmethod(_slopes)
    shape: Any = importlib.import_module("auto_LiRPA.operators.shape")
    shape.BoundShape.interval_propagate = _sizes
    return found


def _sizes(self: object, values: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The shape of an input, twice, on its device: the library's are on the CPU, and mixed with others."""
    del self
    sizes = torch.tensor(values[0].shape, device=values[0].device)
    return sizes, sizes


def _slopes(
    lower: Tensor, upper: Tensor, below: Tensor | None, above: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Slopes of the lower lines of ReLUs in alpha-CROWN: 1 where it is linear, 0 where it is zero, else free.

    In place of the library's, which clamps the free ones: they begin at 0 or 1, where the clamp of today's
    torch has no gradient, and would stay there. `lower` and `upper` bound the input of each ReLU; `below` and
    `above` are slopes for lower and upper bounds of the output, cut to [0, 1], None if none is computed.
    """

    def within(slopes: Tensor | None) -> Tensor | None:
        if slopes is None:
            return None
        cut = slopes + (slopes.clamp(0, 1) - slopes).detach()
        return torch.where(lower >= 0, 1.0, torch.where(upper <= 0, 0.0, cut))

    return within(below), within(above), (upper <= 0).all()


Interval = tuple[Tensor, Tensor]


def _quotient(values: Interval, divisor: Interval) -> Interval:
    if not (divisor[0] > 0).all():
        raise UnsupportedModel("a division by what may be 0 or less")
    ends = [one / other for one in values for other in divisor]
    stacked = torch.stack(torch.broadcast_tensors(*ends))
    return stacked.amin(0), stacked.amax(0)


def _square(values: Interval, exponent: Interval) -> Interval:
    if not all((one == 2).all() for one in exponent):
        raise UnsupportedModel("a power other than 2")
    low, high = values
    ends = torch.stack([low.square(), high.square()])
    return ends.amin(0).where((low > 0) | (high < 0), 0.0), ends.amax(0)


def own_operators(*, intervals: bool) -> dict[str, Any]:
    """Operators that the library lacks, or bounds unsoundly over intervals (Div, Pow); intervals alone.

    `intervals`: whether others are replaced too, which have to be for intervals alone.
    """
    return {name: one for name, one in _operators().items() if intervals or name in LACKING}


@cache
def _operators() -> dict[str, Any]:
    library()
    Bound: Any = importlib.import_module("auto_LiRPA.operators.base").Bound  # noqa: N806 (a class)

    def operator(name: str, forward: Callable[..., Tensor], interval: Callable[..., Interval]) -> Any:
        methods = {
            "forward": lambda self, *values: forward(*values),
            "interval_propagate": lambda self, *values: interval(*values),
        }
        return type(f"Bound{name}", (Bound,), methods)

    class BoundClip(Bound):  # type: ignore[misc]
        def __init__(self, attr: Any, inputs: Any, output_index: int, options: Any) -> None:
            super().__init__(attr, inputs, output_index, options)
            self.ends = attr.get("min"), attr.get("max")

        def forward(self, x: Tensor, *ends: Tensor) -> Tensor:
            # Older graphs have the ends as attributes, newer ones as constants, an empty one for no end.
            if not ends:
                return x.clamp(*self.ends)
            low, high = (end if end.numel() else None for end in (*ends, x.new_empty(0))[:2])
            return x.clamp(low, high)

        def interval_propagate(self, *v: Any) -> tuple[Tensor, Tensor]:
            if any((low != high).any() for low, high in v[1:]):
                raise UnsupportedModel("a clamp at what is not constant")
            ends = [low for low, _ in v[1:]]
            return self.forward(v[0][0], *ends), self.forward(v[0][1], *ends)

    class BoundSquare(Bound):  # type: ignore[misc]
        def forward(self, x: Tensor, exponent: Tensor) -> Tensor:
            return x.pow(exponent)

        def interval_propagate(self, *v: Any) -> tuple[Tensor, Tensor]:
            return _square(v[0], v[1])

    return {
        "onnx::Erf": operator("Erf", torch.erf, lambda values: (torch.erf(values[0]), torch.erf(values[1]))),
        "onnx::Div": operator("Quotient", torch.div, _quotient),
        "onnx::Reciprocal": operator(
            "Reciprocal", torch.reciprocal, lambda values: _quotient((values[0].new_ones(()),) * 2, values)
        ),
        "onnx::Pow": operator("Square", torch.pow, _square),
        "onnx::Clip": BoundClip,
    }


@cache
def ball() -> Any:
    """The class of perturbations: the box around an image, and within it a ball of radius `l2`, or None."""

    class Ball(library().PerturbationLpNorm):  # type: ignore[misc]
        def __init__(self, low: Tensor, high: Tensor, centre: Tensor, l2: float | None) -> None:
            super().__init__(norm=math.inf, x_L=low, x_U=high)
            self.centre, self.l2 = centre, l2

        def concretize_matrix(self, x: Tensor, A: Any, sign: int, extra_constr: Any) -> Tensor:  # noqa: N803
            """The better of the bounds over the box and over the ball: both hold."""
            box = cast(Tensor, super().concretize_matrix(x, A, sign, extra_constr))
            if self.l2 is None or not isinstance(A, Tensor):
                return box
            rows = A.reshape(A.shape[0], A.shape[1], -1)
            middle = rows.matmul(self.centre.reshape(len(self.centre), -1, 1)).squeeze(-1)
            ball = middle + sign * self.l2 * rows.norm(dim=-1)
            return torch.maximum(box, ball) if sign < 0 else torch.minimum(box, ball)

    return Ball
