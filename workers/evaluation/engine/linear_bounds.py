"""Lower bounds of a classifier's margins over a ball, by auto_LiRPA on the operators that it bounds soundly.

Xu et al. 2020, "Automatic Perturbation Analysis for Scalable Certified Robustness and Beyond". The library is
imported on use: an extra, which needs a few names that its dependencies no longer have. Its release 0.3
relaxes some operators unsoundly (the upper line of Sqrt has a negative slope), and accepts others with an
assumption. So only the operators listed here are accepted, and one that is not is named.

B = batch, K = classes.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import logging
import math
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, cast

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from assay.workers.evaluation.engine.verification import ABSOLUTE, RELATIVE

Method = Literal["IBP", "CROWN", "alpha-CROWN"]
Norm = Literal["Linf", "L2"]

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
INTERVAL = RELAXED | {"Softmax", "Exp", "Erf", "Quotient", "Square", "Sqrt", "Clip", "Abs"}
# Whose second input may be perturbed too, over intervals only.
PRODUCTS = frozenset({"MatMul", "Mul", "Div"})
# A margin is verified above this share of the logits' size: float32 has 6e-8, and errors add up over layers.
ROUNDING = 1e-4


class UnsupportedModel(ValueError):
    """The model has operators that cannot be bounded."""


def require_library() -> None:
    """Refuses where the library is missing.

    Raises:
        ValueError: says how to install it.
    """
    if importlib.util.find_spec("auto_LiRPA") is None:
        raise ValueError(INSTALL)


@cache
def library() -> Any:
    """auto_LiRPA, after the names that it expects of numpy and torch are there.

    Raises:
        ValueError: it is missing.
    """
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
    logging.getLogger("auto_LiRPA.utils").propagate = False
    return found


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


@cache
def _operators() -> dict[str, Any]:
    """Operators over intervals that the library lacks (Erf, Clip), or bounds unsoundly (Div, Pow)."""
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
        "onnx::Pow": operator("Square", torch.pow, _square),
        "onnx::Clip": BoundClip,
    }


@cache
def _ball() -> Any:
    """The box around an image, as a perturbation, and within it a ball of radius `l2`, or None."""

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


class MarginBounds:
    """Lower bounds of the margins z_y - z_j of a classifier.

    Args:
        model: maps images (B, C, S, S) in [0, 1] to logits (B, K); is left as it was.
        example: one image, (1, C, S, S), to trace the model with.
        method: IBP takes intervals; CROWN linear relaxations; alpha-CROWN optimises their slopes.
        iterations: of that optimisation.

    Raises:
        UnsupportedModel: names the operators that cannot be bounded.
        ValueError: the library is missing.
    """

    def __init__(self, model: nn.Module, example: Tensor, method: Method, iterations: int = 20) -> None:
        self._lirpa, self._method = library(), method
        self._model = _without_dropout(model)
        options = {
            "conv_mode": "matrix",
            "softmax": "interval",
            # Shortcuts that a single image breaks.
            "sparse_features_alpha": False,
            "sparse_spec_alpha": False,
            "optimize_bound_args": {"iteration": iterations},
        }
        refused: list[str] = []
        custom = _operators() if method == "IBP" else {}
        try:
            with _Traceable(), _noted(refused), torch.no_grad():
                # What is perturbed is known of a graph that was traced with a perturbed input.
                ball = _ball()(example, example, example, None)
                self._bounded = self._lirpa.BoundedModule(
                    self._model,
                    self._lirpa.BoundedTensor(example.clone(), ball),
                    bound_opts=options,
                    device=example.device,
                    custom_ops=custom,
                )
        except (AssertionError, RuntimeError, KeyError, TypeError, IndexError, SystemError) as error:
            names = ", ".join(sorted(set(refused))) or f"{type(error).__name__}: {error}"
            raise UnsupportedModel(f"auto_LiRPA has no bounds for this model: {names}") from error
        self._check_operators()

    def _check_operators(self) -> None:
        allowed = INTERVAL if self._method == "IBP" else RELAXED
        refused = set()
        for node in self._bounded.modules():
            kind = type(node).__name__.removeprefix("Bound")
            if node is self._bounded or not getattr(node, "perturbed", False):
                continue
            both = sum(getattr(one, "perturbed", False) for one in getattr(node, "inputs", ())) > 1
            if kind not in allowed or (kind in PRODUCTS and both and self._method != "IBP"):
                refused.add(f"{kind} of two perturbed inputs" if both and kind in allowed else kind)
        if refused:
            raise UnsupportedModel(
                f"{self._method} has no sound bounds here for {', '.join(sorted(refused))};"
                f" allowed: {', '.join(sorted(allowed))}"
            )

    def lower(self, images: Tensor, labels: Tensor, norm: Norm, epsilon: float) -> tuple[Tensor, Tensor]:
        """Lower bounds over the ball within [0, 1], and the logits of the images.

        Images are bounded one at a time, so that the result does not depend on the batch, and a graph with a
        token that is expanded over the batch can be traced.

        Args:
            images: in [0, 1], (B, C, S, S).
            labels: true classes, (B,).
            norm: of the ball.
            epsilon: radius.

        Returns:
            The bounds of z_y - z_j for the K - 1 wrong classes j in ascending order, (B, K - 1), and the
            logits (B, K).

        Raises:
            UnsupportedModel: an operator fails on these inputs, or the graph does not equal the model.
        """
        both = [
            self._lower(image[None], label[None], norm, epsilon)
            for image, label in zip(images, labels, strict=True)
        ]
        bounds, logits = zip(*both, strict=True)
        return torch.cat(bounds), torch.cat(logits)

    def _lower(self, image: Tensor, label: Tensor, norm: Norm, epsilon: float) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            logits: Tensor = self._model(image)
        difference = _differences(label, logits.shape[1]).to(logits)
        # All images that count as attacks: a ball of 1e-8 would be the image itself in float32.
        radius = epsilon * (1 + RELATIVE) + ABSOLUTE
        low, high = (image - radius).clamp(0, 1), (image + radius).clamp(0, 1)
        given = self._lirpa.BoundedTensor(
            image.clone(), _ball()(low, high, image, radius if norm == "L2" else None)
        )
        try:
            traced = self._bounded(given).detach()
            found, _ = self._bounded.compute_bounds(
                x=(given,), C=difference, method=self._method, bound_upper=False
            )
        except torch.OutOfMemoryError:
            raise
        except (AssertionError, RuntimeError) as error:
            raise UnsupportedModel(
                f"auto_LiRPA has no {self._method} bounds for this model: {type(error).__name__}: {error}"
            ) from error
        margins = torch.einsum("bjk,bk->bj", difference, logits)
        slack = ROUNDING * (1 + logits.abs().amax(1, keepdim=True))
        if ((traced - logits).abs() > slack).any():
            raise UnsupportedModel("the graph that auto_LiRPA traced does not compute the model's logits")
        bounds = cast(Tensor, found.detach())
        if (bounds > margins + slack).any():
            raise UnsupportedModel("auto_LiRPA gave a lower bound above the margin of the image itself")
        return bounds, logits


def proved(bounds: Tensor, logits: Tensor) -> Tensor:
    """Whether every margin is above 0 by more than rounding, (B,); one that is not a number is not."""
    slack = ROUNDING * (1 + logits.abs().amax(1, keepdim=True))
    return (bounds > slack).all(1) & logits.isfinite().all(1)


def _differences(labels: Tensor, classes: int) -> Tensor:
    """Rows e_y - e_j for the wrong classes j, (B, K - 1, K)."""
    eye = torch.eye(classes)
    rows = [eye[label] - eye[torch.arange(classes) != label] for label in labels.tolist()]
    return torch.stack(rows)


def _without_dropout(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode, whose dropout is the identity that it then is: the library refuses it."""
    copied = copy.deepcopy(model).eval().requires_grad_(False)
    for parent in copied.modules():
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(parent, name, nn.Identity())
    return copied


class _Traceable(TorchFunctionMode):
    """Operators that the library lacks, by others, while a model is traced with one image.

    Attention becomes products and a softmax, and an expansion over that one image the tensor itself.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func is Tensor.expand:
            expanded = func(*args, **options)
            return args[0] if expanded.shape == args[0].shape else expanded
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **options)
        (query, key, value), rest = args[:3], args[3:]
        if rest or any(options.get(name) for name in ("is_causal", "enable_gqa", "dropout_p")):
            raise UnsupportedModel("attention with further options")
        if options.get("attn_mask") is not None:
            raise UnsupportedModel("attention with a mask")
        scale = float(options.get("scale") or int(query.shape[-1]) ** -0.5)
        return (query @ key.transpose(-2, -1) * scale).softmax(-1) @ value


@contextmanager
def _noted(refused: list[str]) -> Iterator[None]:
    """Collects the operators that the library refuses; it only logs them."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # logging takes a single tuple apart only where it is empty
            # A node is a named tuple, which logging takes for all arguments of the message.
            given: Any = record.args
            nodes = [given] if hasattr(given, "op") else [one for one in given or () if hasattr(one, "op")]
            refused.extend(str((node.attr or {}).get("operator", node.op)) for node in nodes)

    logger: logging.Logger = importlib.import_module("auto_LiRPA.utils").logger
    handler, kept, spread = Handler(), list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = kept, spread
