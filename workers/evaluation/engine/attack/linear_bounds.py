"""Lower bounds of a classifier's margins over a ball, by auto_LiRPA on the operators that it bounds soundly.

Xu et al. 2020, "Automatic Perturbation Analysis for Scalable Certified Robustness and Beyond". An operator
that has no sound bounds is named with the module that calls it, of exported programs too.

B = batch, K = classes.
"""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.attack.bound_operators import (
    INTERVAL,
    PRODUCTS,
    RELAXED,
    UnsupportedModel,
    ball,
    library,
    own_operators,
)
from assay.workers.evaluation.engine.attack.verification import ABSOLUTE, RELATIVE

Method = Literal["IBP", "CROWN", "alpha-CROWN"]
Norm = Literal["Linf", "L2"]

# A margin is verified above this share of the logits' size: float32 has 6e-8, and errors add up over layers.
ROUNDING = 1e-4
# Of an error of the library.
MAX_TEXT = 300
# As models call them, and as exported programs do.
ATTENTIONS = (functional.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default)
EXPANSIONS = (Tensor.expand, torch.ops.aten.expand.default)


class MarginBounds:
    """Lower bounds of the margins z_y - z_j of a classifier.

    The model maps images (B, C, S, S) in [0, 1] to logits (B, K), and is left as it was; it is traced with
    `example`, (1, C, S, S). IBP takes intervals; CROWN linear relaxations; alpha-CROWN optimises their slopes
    in so many iterations.
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
        refused: list[tuple[str, str]] = []
        try:
            with _Traceable(), _scoped(self._model), _noted(refused), torch.no_grad():
                # What is perturbed is known of a graph that was traced with a perturbed input.
                self._bounded = self._lirpa.BoundedModule(
                    self._model,
                    self._lirpa.BoundedTensor(example.clone(), ball()(example, example, example, None)),
                    bound_opts=options,
                    device=example.device,
                    custom_ops=own_operators(intervals=method == "IBP"),
                )
        except (torch.OutOfMemoryError, MemoryError, UnsupportedModel):
            raise
        except Exception as error:  # of any kind: the library asserts and looks up
            what = _listed(refused) + self._allowed() if refused else _failure(error)
            raise self._unsupported(what) from error
        self._check_operators()

    def _unsupported(self, what: str) -> UnsupportedModel:
        return UnsupportedModel(f"no sound bounds by {self._method}: {what}")

    def _allowed(self) -> str:
        return "; allowed: " + ", ".join(sorted(INTERVAL if self._method == "IBP" else RELAXED))

    def _check_operators(self) -> None:
        allowed = INTERVAL if self._method == "IBP" else RELAXED
        refused, elsewhere = [], True
        for node in self._bounded.modules():
            kind = _kind(node)
            if node is self._bounded or not getattr(node, "perturbed", False):
                continue
            both = sum(getattr(one, "perturbed", False) for one in getattr(node, "inputs", ())) > 1
            if kind not in allowed or (kind in PRODUCTS and both and self._method != "IBP"):
                refused.append(
                    (node.name, f"{kind} of two perturbed inputs" if both and kind in allowed else kind)
                )
                elsewhere = elsewhere and kind in INTERVAL
        if refused:
            raise self._unsupported(_listed(refused) + " (IBP has them)" * elsewhere + self._allowed())

    def lower(self, images: Tensor, labels: Tensor, norm: Norm, epsilon: float) -> tuple[Tensor, Tensor]:
        """Lower bounds over the ball within [0, 1], and the logits of the images (B, C, S, S), in [0, 1].

        Images are bounded one at a time, so that the result does not depend on the batch, and a graph with a
        token that is expanded over the batch can be traced. The bounds of z_y - z_j are for the K - 1 wrong
        classes j in ascending order, (B, K - 1); the logits are (B, K). UnsupportedModel: an operator fails
        on these inputs, or the graph does not equal the model.
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
            image.clone(), ball()(low, high, image, radius if norm == "L2" else None)
        )
        try:
            traced = self._bounded(given).detach()
            with _default_dtype(image.dtype):
                found, _ = self._bounded.compute_bounds(
                    x=(given,), C=difference, method=self._method, bound_upper=False
                )
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:  # of any kind: the library asserts and looks up
            raise self._unsupported(_failure(error)) from error
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


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """The library makes tensors of torch's default type where it needs the model's type."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)


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


@contextmanager
def _scoped(model: nn.Module) -> Iterator[None]:
    """Names the modules in a trace; a classifier's as in its network, without the wrapper."""
    wrapper = "backbone" if isinstance(model, Classifier) else ""
    names = {module: name.removeprefix(wrapper).removeprefix(".") for name, module in model.named_modules()}
    jit: Any = torch.jit._trace
    kept = jit._trace_module_map
    jit._trace_module_map = {module: name for module, name in names.items() if name}
    try:
        yield
    finally:
        jit._trace_module_map = kept


def _place(name: str) -> str:
    return next((part for part in reversed(name.split("/")[:-1]) if part), "the model itself")


def _kind(node: object) -> str:
    return type(node).__name__.removeprefix("Bound")


def _listed(refused: Sequence[tuple[str, str]]) -> str:
    places: dict[str, dict[str, None]] = {}
    for name, kind in refused:
        places.setdefault(kind, {})[_place(name)] = None
    return "; ".join(
        f"{next(iter(found))}: {kind}{_others(len(found) - 1)}" for kind, found in places.items()
    )


def _others(count: int) -> str:
    return f" (and in {count} more module{'s' * (count > 1)})" if count else ""


def _failure(error: Exception) -> str:
    node, trace = None, error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        node = (
            owner if getattr(owner, "input_name", None) is not None and hasattr(owner, "perturbed") else node
        )
        trace = trace.tb_next
    said = str(error) if isinstance(error, UnsupportedModel) else f"{type(error).__name__}: {error}"
    said = said if len(said) <= MAX_TEXT else f"{said[:MAX_TEXT]}..."
    return said if node is None else f"{_place(node.name)}: {_kind(node)}: {said}"


class _Traceable(TorchFunctionMode):
    """Operators that the library lacks, by others, while a model is traced with one image.

    Attention becomes products and a softmax, and an expansion over that one image the tensor itself.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func in EXPANSIONS:
            expanded = func(*args, **options)
            return args[0] if expanded.shape == args[0].shape else expanded
        trace = torch._C._get_tracing_state()
        if func not in ATTENTIONS or trace is None:
            return func(*args, **options)
        query, key, value = args[:3]
        options = dict(zip(("attn_mask", "dropout_p", "is_causal"), args[3:], strict=False)) | options
        place = _place(f"{trace.current_scope()}/")
        if any(options.get(name) for name in ("is_causal", "enable_gqa", "dropout_p")):
            raise UnsupportedModel(f"no bounds: {place}: attention that is causal, grouped or drops out")
        if options.get("attn_mask") is not None:
            raise UnsupportedModel(f"no bounds: {place}: attention with a mask")
        scale = float(options.get("scale") or int(query.shape[-1]) ** -0.5)
        return (query @ key.transpose(-2, -1) * scale).softmax(-1) @ value


@contextmanager
def _noted(refused: list[tuple[str, str]]) -> Iterator[None]:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # logging takes a single tuple apart only where it is empty
            # A node is a named tuple, which logging takes for all arguments of the message.
            given: Any = record.args
            nodes = [given] if hasattr(given, "op") else [one for one in given or () if hasattr(one, "op")]
            operators = (str((node.attr or {}).get("operator", node.op)) for node in nodes)
            kinds = (operator.rpartition("::")[2] for operator in operators)
            refused.extend((node.name, kind) for node, kind in zip(nodes, kinds, strict=True) if node.name)

    logger: logging.Logger = importlib.import_module("auto_LiRPA.utils").logger
    handler, kept, spread = Handler(), list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = kept, spread
