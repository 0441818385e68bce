"""Cost of a model's attention against the number of tokens, relative to softmax attention.

The figures of Nguyen et al., "A primal-dual framework for transformers and neural networks", ICLR 2023, and
of Chen et al., "Primal-Attention", NeurIPS 2023, on efficiency. One layer of the model is run alone on random
tokens, N = `lengths`, beside softmax attention of the same width and heads by torch's fused kernel: the first
layer whose attention is a mechanism of the catalog other than softmax, or softmax itself if all are. Both are
causal where the model's layer is.

Operations, seconds and memory are as in `efficiency`: matrix products and convolutions only, wall time,
and the allocator's peak above what was held before. Training is a forward and a backward pass. The two sides
alternate, so that other work on the machine slows both.

    ratio  = y / y of softmax attention           y = seconds, bytes or operations, at the longest N
    growth = log(y_2 / y_1) / log(N_2 / N_1)      at the two longest N; 1 is linear, 2 quadratic
    Of seconds, the median over repeats of the ratio, or of the growth

N = tokens, C = width, n = rows: repeats of each length.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Interval, Len
from torch import Tensor, nn

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.lookup import attentions
from assay.workers.evaluation.efficiency import count_flops, peak_bytes, timed
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.attention_layers import LAYER_TASKS
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["attention_cost"]

TASKS = LAYER_TASKS
TABLE = "attention_cost"
TOO_LONG = (
    "the attention has weights for the places of the model's own sequence, and takes no longer one: the least"
    " of lengths must not be more"
)
RULES = (
    ("ascending(params.lengths)", "lengths must be in ascending order, each once"),
    ("not part.attention_fixed_length or min(params.lengths) <= model.length", TOO_LONG),
    (
        "not part.attention_fixed_length or model.image_size is None or min(params.lengths)"
        " <= (model.image_size // model.patch_size) * (model.image_size // model.patch_size) + 1",
        TOO_LONG,
    ),
    (
        "not part.attention_fixed_length or min(params.lengths) <= (part.backbone_image_size"
        " // part.backbone_patch_size) * (part.backbone_image_size // part.backbone_patch_size) + 1",
        TOO_LONG,
    ),
    ("min(params.lengths) <= part.attention_patches + 1", TOO_LONG),
)
PAPER = "Nguyen et al., A primal-dual framework for transformers and neural networks, ICLR 2023"
REPEATS = "params.repeats * len(params.lengths)"
PASSES = ("4 * len(params.lengths)", "2 * len(params.lengths)")

KINDS = ("test", "train")

Pass = Callable[[], None]


def attention_cost(
    *,
    lengths: Annotated[list[Annotated[int, Interval(ge=2, le=65536)]], Len(1, 12)] = [256, 512, 1024, 2048],  # noqa: B006 (never changed)
    repeats: Annotated[int, Interval(ge=3, le=1000)] = 5,
) -> Evaluation:
    """Operations, time and memory of one attention layer against sequence length, relative to softmax.

    Args:
        lengths: numbers of tokens, the class token included; in ascending order.
        repeats: timed passes of each kind and length.

    Raises:
        ValueError: `lengths` are not in ascending order.
    """
    if sorted(set(lengths)) != list(lengths):
        raise ValueError(f"lengths must be in ascending order, each once: got {lengths}")
    return _AttentionCost(tuple(lengths), repeats)


@dataclass(frozen=True)
class _AttentionCost:
    lengths: tuple[int, ...]
    repeats: int

    def measure(self, shard: Shard) -> Measured:
        """One row per length and repeat: seconds of both mechanisms and kinds of pass, each (n,).

        The rows of a length that the layer refuses have no seconds.
        """
        layer, name = layer_of(shard.classifier)
        own = copy.deepcopy(layer).requires_grad_(True)
        width = next(part.in_features for part in own.modules() if isinstance(part, nn.Linear))
        heads: Any = own.heads
        dtype = next(own.parameters()).dtype
        softmax = SoftmaxAttention(width, heads, causal=getattr(own, "causal", False))
        softmax = softmax.to(shard.device, dtype)
        rows: dict[str, list[float]] = {
            f"{side}{kind}_seconds": [] for side in ("", "softmax_") for kind in KINDS
        }
        counted: list[dict[str, float]] = []
        names: list[str] = []
        refused: dict[str, str] = {}
        for length in self.lengths:
            generator = torch.Generator().manual_seed(length)
            x = torch.randn(1, length, width, generator=generator).to(shard.device, dtype)
            try:
                own.eval()(x, grid=(1, length - int(getattr(own, "prefix_tokens", 0))))
            except ValueError as error:
                refused[str(length)] = str(error)
                for column in rows.values():
                    column.extend([math.nan] * self.repeats)
            else:
                counted.append({"length": length} | self._measured(own, softmax, x, shard, rows))
            names += [f"{length:06d}-{repeat:04d}" for repeat in range(self.repeats)]
            shard.progress(len(names))
        if not counted:
            raise ValueError(
                f"{name} in this model takes none of the lengths {list(self.lengths)}: {refused}"
            )
        values = {key: torch.tensor(found, dtype=torch.float64) for key, found in rows.items()}
        passed = values["test_seconds"].isfinite().long()
        facts = {"mechanism": name, "counted": counted, "refused": refused}
        return Measured(tuple(names), values, 4 * passed, 2 * passed, facts)

    def _measured(
        self, own: nn.Module, softmax: nn.Module, x: Tensor, shard: Shard, rows: dict[str, list[float]]
    ) -> dict[str, float]:
        found: dict[str, float] = {}
        for kind in KINDS:
            sides = {"": pass_of(own, x, kind, shard), "softmax_": pass_of(softmax, x, kind, shard)}
            for side, run in sides.items():
                run()
                found[f"{side}{kind}_flops"] = count_flops(run)
                found[f"{side}{kind}_bytes"] = peak_bytes(run, shard.device)
            for _ in range(self.repeats):
                for side, run in sides.items():
                    rows[f"{side}{kind}_seconds"].append(timed(run, shard.device))
        return found


def layer_of(model: nn.Module) -> tuple[nn.Module, str]:
    """The measured layer, and its mechanism's name; a ValueError without attention of the catalog."""
    kinds: dict[Any, str] = {mechanism: name for name, mechanism in attentions().items()}
    found = [(part, kinds[type(part)]) for part in model.modules() if type(part) in kinds]
    if not found:
        raise ValueError("attention_cost needs a model with attention of the catalog: this one has none")
    others = [one for one in found if one[1] != SoftmaxAttention.name]
    return (others or found)[0]


def pass_of(attention: nn.Module, x: Tensor, kind: str, shard: Shard) -> Pass:
    """A forward pass without gradients ("test"), or forward and backward in training mode ("train")."""
    grid = (1, x.shape[1] - int(getattr(attention, "prefix_tokens", 0)))

    def forward(given: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=shard.dtype == "bfloat16"):
            output: Tensor = attention(given, grid=grid)
        return output.float().sum()

    def test() -> None:
        with torch.no_grad():
            attention.train(False)
            forward(x)

    def train() -> None:
        with torch.enable_grad():
            attention.train(True)
            torch.autograd.backward(forward(x.detach().requires_grad_()))
        attention.zero_grad(set_to_none=True)

    return test if kind == "test" else train
