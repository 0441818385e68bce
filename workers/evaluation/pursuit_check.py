"""What Principal Attention Pursuit does in a model: what S, L and the constraint are, and where S lies.

Teo and Nguyen, "Unveiling the hidden structure of self-attention via kernel principal component analysis",
NeurIPS 2024, section 3 and Algorithm 1: the pursuit splits the keys, K = L + S, with L of low rank and S
sparse, so that S takes up the corruption of the input. This measures whether it does. No such measurement was
published; the measures are

    |K - L - S| / |K|, the constraint; the share of S that is not 0; the effective rank of L
    AUROC of |S_j| = sum over heads and features of the magnitudes of token j, for "token j was corrupted"

where a square of patches of each image is corrupted: by Gaussian noise, by a grey patch, or by projected
gradient ascent on the loss (Madry et al. 2018, without a random start; one step of it is FGSM) that moves
these pixels only. The same AUROC of the same tokens in the image as it is shows how much of it is the place,
and the AUROC of the keys' magnitude |K_j| how much is there without a pursuit.

The arms are the trained model with another setting of the pursuit in every layer: no sparse part (lambda
infinite), the threshold of the paper's text (tau = lambda / mu) or of the released code (lambda mu), and the
other sign of the dual variable. Each is attacked by its own gradients.

B = batch, P = patch tokens, S = side of the image in pixels, g = side of the grid of tokens, n = examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Interval, MaxLen, MinLen
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.attacks.judgement import right
from assay.attacks.kernel import frozen
from assay.attacks.randomness import Randomness
from assay.attacks.sending import sent
from assay.attacks.threat import Fraction
from assay.models.attention import rpc
from assay.models.layers.attention.probe import PursuitLayer, observed, pursuit_layers
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.loader import Loader
from assay.workers.evaluation.engine.pursuit import arms_of, as_arm, auroc, decomposition, token_sizes
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["pursuit_check"]

TASKS = ("classification",)
TABLE = "pursuit_check"
NEEDS = ("pursuit",)
PAPER = rpc.PAPER
# The model and three arms, each on the image as it is, corrupted in up to three ways, and along the ascent.
PASSES = ("4 * (1 + len(params.planted) + params.adversarial_steps)", "4 * params.adversarial_steps")

Kind = Literal["noise", "occlusion", "adversarial"]

GREY = 0.5
# Of the ascent: the length of all its steps together, as a share of the radius.
REACH = 2.5


def pursuit_check(
    *,
    planted: Annotated[list[Kind], MinLen(1), MaxLen(3)] = ["noise", "occlusion", "adversarial"],  # noqa: B006
    share: Annotated[float, Interval(gt=0, lt=1)] = 0.1,
    noise: Annotated[float, Interval(gt=0, le=10)] = 0.25,
    adversarial_epsilon: Annotated[Fraction, Interval(gt=0, le=1)] = 8 / 255,
    adversarial_steps: Annotated[int, Interval(ge=1, le=1000)] = 10,
) -> Evaluation:
    """RPC-Attention from the inside: share of S, residual and rank by iteration, where S lies, control arms.

    Args:
        planted: how a square of patches is corrupted: "noise", "occlusion" by grey, "adversarial".
        share: of the patches that the square has, rounded to a whole side of at least one.
        noise: standard deviation of the noise, in pixel units; the result is clipped to [0, 1].
        adversarial_epsilon: radius of the adversarial perturbation, Linf, in pixel units.
        adversarial_steps: gradient steps of it; one step is FGSM.
    """
    kinds = tuple(dict.fromkeys(planted))
    return _PursuitCheck(kinds, share, noise, adversarial_epsilon, adversarial_steps)


@dataclass(frozen=True)
class _PursuitCheck:
    planted: tuple[Kind, ...]
    share: float
    noise: float
    epsilon: float
    steps: int

    def measure(self, shard: Shard) -> Measured:
        """One row per example; the columns are described by the outcome table.

        A ValueError: no layer has RPC-Attention, or its tokens are no square grid of patches.
        """
        layers = pursuit_layers(shard.classifier)
        if not layers:
            raise ValueError(
                "pursuit_check needs a model with RPC-Attention in some layer: this one has none"
            )
        loader = shard.loader()
        look = _Look(self, shard, loader, layers)
        found: list[dict[str, Tensor]] = []
        done = 0
        with torch.no_grad(), frozen(shard.classifier):
            for rows in loader.batches():
                found += loader.forward.in_parts(rows, look.at)
                done += len(rows)
                shard.progress(done)
        values = {name: torch.cat([part[name] for part in found]) for name in found[0]}
        passes = torch.ones(len(shard.ids), dtype=torch.int64) * (1 + len(look.arms))
        steps = self.steps if "adversarial" in self.planted else 0
        facts = {
            "layers": [number for number, _ in layers],
            "iterations": look.iterations,
            "arms": look.arms,
            "side": look.side,
            "block": look.block,
            **loader.noted(),
        }
        forward, backward = passes * (1 + len(self.planted) + steps), passes * steps
        return Measured(shard.ids, values, forward, backward, facts)


class _Look:
    """Measures a batch under the model's own setting and the further `arms`.

    `iterations` are each layer's; the grid of patch tokens has the side g, `block` is the corrupted square's
    in tokens.
    """

    def __init__(
        self, check: _PursuitCheck, shard: Shard, loader: Loader, layers: Sequence[tuple[int, PursuitLayer]]
    ) -> None:
        self._check, self._loader, self._layers = check, loader, layers
        self._ids, self._draws = shard.ids, Randomness(shard.seed, "pursuit_check")
        self.arms = arms_of([layer for _, layer in layers])
        self.iterations: list[int] = []
        self.side = self.block = 0

    def at(self, rows: Tensor) -> dict[str, Tensor]:
        """Measurements of some examples on the CPU; starts again after running out of memory."""
        images, labels = self._loader.images(rows), self._loader.labels_of(rows)
        names = [self._ids[row] for row in rows.tolist()]
        found: dict[str, Tensor] = {}
        layers = [layer for _, layer in self._layers]
        for arm in (None, *self.arms):
            with as_arm(layers, arm):
                for kind in (None, *self._check.planted):
                    shown, held = self._corrupted(images, labels, names, kind)
                    if arm is None:
                        logits, traced = self._traced(shown, names, kind)
                        found |= traced
                    else:
                        logits = self._loader.forward.whole(shown)
                    name = f"correct_{arm or 'model'}_{kind or 'clean'}"
                    found[name] = held & right(logits, labels)
        return {name: values.cpu() for name, values in found.items()}

    def _traced(
        self, images: Tensor, names: Sequence[str], kind: Kind | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits of images, and what the pursuit does in their layers: lists over layers and iterations."""
        parts: dict[str, list[Tensor]] = {}
        iterations: list[int] = []
        tag = kind or "unplanted"

        def see(_number: int, layer: nn.Module, x: Tensor, mask: Tensor | None) -> None:
            assert isinstance(layer, PursuitLayer)
            trace = layer.pursuit(x, mask)
            iterations.append(len(trace.sparse))
            self._note_grid(x.shape[1] - layer.prefix_tokens)
            with torch.autocast(x.device.type, enabled=False):
                where = sent(self._tokens(names), x.device)
                sizes = [token_sizes(sparse, layer.prefix_tokens) for sparse in trace.sparse]
                of_keys = auroc(token_sizes(trace.keys, layer.prefix_tokens), where)
                seen = {
                    f"auroc_{tag}": torch.stack([auroc(size, where) for size in sizes], dim=1),
                    f"keys_auroc_{tag}": of_keys[:, None],
                }
                if kind is None:
                    seen |= decomposition(trace)
                else:
                    every = [(part != 0).double().mean(dim=(1, 2, 3)) for part in trace.sparse]
                    seen[f"nonzero_{tag}"] = torch.stack(every, dim=1)
            for name, values in seen.items():
                parts.setdefault(name, []).append(values)

        with observed(self._layers, see):  # type: ignore[arg-type]
            logits = self._loader.forward.whole(images)
        self.iterations = iterations
        return logits, {name: torch.cat(values, dim=1) for name, values in parts.items()}

    def _note_grid(self, tokens: int) -> None:
        side = math.isqrt(max(tokens, 0))
        if side < 2 or side * side != tokens or self.side not in (0, side):
            raise ValueError(
                "pursuit_check plants corruption in a square grid of at least 2 x 2 patches, the same in"
                f" every layer with RPC-Attention: one has {tokens} patch tokens"
            )
        self.side = side
        self.block = min(max(1, round(side * math.sqrt(self._check.share))), side - 1)

    def _tokens(self, names: Sequence[str]) -> Tensor:
        """The tokens of each example's square, boolean (B, P), row by row of the grid."""
        places = self._draws.uniform(names, (2,), purpose="place", dtype=torch.float64)
        starts = (places * (self.side - self.block + 1)).long()[..., None]  # (B, 2, 1)
        at = torch.arange(self.side)
        inside = (at >= starts) & (at < starts + self.block)  # (B, 2, g)
        return (inside[:, 0, :, None] & inside[:, 1, None, :]).flatten(1)

    def _corrupted(
        self, images: Tensor, labels: Tensor, names: Sequence[str], kind: Kind | None
    ) -> tuple[Tensor, Tensor]:
        """The images with their squares corrupted, and which were right all along the way, (B,)."""
        held = torch.ones_like(labels, dtype=torch.bool)
        if kind is None:
            return images, held
        cell = torch.arange(images.shape[-1]) * self.side // images.shape[-1]  # of each pixel's row or column
        grid = self._tokens(names).unflatten(1, (self.side, self.side))
        square = sent(grid[:, None, cell][..., cell], images)  # (B, 1, S, S)
        if kind == "occlusion":
            return images.masked_fill(square, GREY), held
        if kind == "noise":
            drawn = self._draws.normal(names, tuple(images.shape[1:]), purpose="noise", dtype=images.dtype)
            moved = images + self._check.noise * drawn.to(images.device)
            return torch.where(square, moved.clamp(0.0, 1.0), images), held
        return self._ascended(images, labels, square)

    def _ascended(self, images: Tensor, labels: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
        """The last point of the ascent, and which examples were right at every point before it."""
        epsilon, steps = self._check.epsilon, self._check.steps
        length = epsilon if steps == 1 else REACH * epsilon / steps
        low, high = (images - epsilon).clamp(min=0.0), (images + epsilon).clamp(max=1.0)
        point, held = images, torch.ones_like(labels, dtype=torch.bool)
        for _ in range(steps):
            with torch.enable_grad():
                moving = point.detach().requires_grad_(True)
                logits = self._loader.forward.whole(moving)
                (gradient,) = torch.autograd.grad(cross_entropy(logits, labels, reduction="sum"), moving)
            held &= right(logits.detach(), labels)
            uphill = length * gradient.nan_to_num(0.0, 0.0, 0.0).sign()
            point = torch.where(square, torch.minimum(torch.maximum(point + uphill, low), high), images)
        return point, held
