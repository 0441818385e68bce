"""Threat models: allowed perturbations of an image, and their directions of steepest ascent.

The arithmetic and the constants are from cleverhans 4.0 (`optimize_linear`, `clip_eta`): squared L2 norms are
bounded below by 1e-12 before the square root, so a gradient smaller than 1e-6 gives a step shorter than one.
L1 perturbations that are too large are rescaled, as in its `sparse_l1_descent`, not projected to the nearest
point of the ball.

B batch, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, get_args

import torch
from torch import Tensor

Norm = Literal["Linf", "L2"]
"""Norms that users of an attack may choose."""
LpNorm = Literal["Linf", "L2", "L1"]
"""Norms of the attacks of AutoAttack."""
BallNorm = Literal["Linf", "L2", "L1", "L0"]
"""Norms of a perturbation; L0 counts the values of an image that change, of every channel."""
DUAL: dict[BallNorm, BallNorm] = {"Linf": "L1", "L2": "L2", "L1": "Linf"}
"""Norm of a gradient that says by how much a step of length 1 raises a linear function at the most."""
Fraction = Annotated[float, "fraction"]
"""Number that JSON may also give as text: `"8/255"`. Components receive the float."""

Box = tuple[float, float]
PIXELS: Box = (0.0, 1.0)

MIN_SQUARE = 1e-12

# Rules of attacks on image classifiers and on classifiers of time series, whose values have no range.
IMAGE_OR_SERIES = (
    (
        "params.norm != 'Linf' or params.epsilon <= 1 or 'series' in data.tasks",
        "epsilon is at most 1 in Linf: pixels lie in [0, 1]",
    ),
    ("params.backend == 'native' or 'series' not in data.tasks", "time series need backend 'native'"),
)


def sizes(perturbation: Tensor, norm: BallNorm) -> Tensor:
    """Norm of each perturbation: (B, ...) to (B,)."""
    flat = perturbation.flatten(1)
    if norm == "L0":
        return (flat != 0).sum(1).to(flat.dtype)
    if norm == "L1":
        return flat.abs().sum(1)
    return flat.abs().amax(1) if norm == "Linf" else flat.square().sum(1).sqrt()


def clip_to(images: Tensor, box: Box | None) -> Tensor:
    """Clips images to the box; None leaves them unchanged."""
    return images if box is None else images.clamp(*box)


def as_column(values: Tensor, like: Tensor) -> Tensor:
    """Reshapes (B,) so that it broadcasts against `like` of shape (B, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True)
class Ball:
    """All perturbations whose norm is at most epsilon (in the units of the attacked images)."""

    norm: BallNorm
    epsilon: float
    norms: ClassVar[tuple[str, ...]] = get_args(Norm)

    def __post_init__(self) -> None:
        if self.norm not in self.norms:
            raise ValueError(f"norm is {self.norm!r}, allowed are {', '.join(self.norms)}")
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise ValueError(f"epsilon is {self.epsilon}, it must be finite and at least 0")

    def project(self, perturbation: Tensor) -> Tensor:
        """Shortens perturbations (B, ...) outside the ball: clamps in Linf, rescales in L2."""
        if self.norm == "Linf":
            return perturbation.clamp(-self.epsilon, self.epsilon)
        return perturbation * (self.epsilon / _safe_l2(perturbation)).clamp(max=1.0)

    def cube_start(self, uniform: Tensor) -> Tensor:
        """Turns draws from [0, 1) into a start: the cube of half-width epsilon, projected (cleverhans).

        In high-dimensional L2 nearly all of these starts are on the sphere.
        """
        return self.project((2 * uniform - 1) * self.epsilon)

    def uniform_point(self, direction: Tensor, radius: Tensor) -> Tensor:
        """Turns draws into points uniform in the ball.

        The direction (B, ...) is uniform in [0, 1) in Linf and standard normal in L2, where the radius (B,),
        uniform in [0, 1), is used, too.
        """
        if self.norm == "Linf":
            return (2 * direction - 1) * self.epsilon
        shell = radius.pow(1 / direction[0].numel()) * self.epsilon
        return direction / _safe_l2(direction) * as_column(shell, direction)


@dataclass(frozen=True)
class L1Ball(Ball):
    """All perturbations whose L1 norm is at most epsilon. `L1Ball(epsilon)`."""

    norm: BallNorm = field(default="L1", init=False)
    norms: ClassVar[tuple[str, ...]] = ("L1",)

    def project(self, perturbation: Tensor) -> Tensor:
        """Rescales perturbations (B, ...) outside the ball to epsilon less one part in 10 million."""
        return perturbation.renorm(p=1, dim=0, maxnorm=self.epsilon)

    def uniform_point(self, direction: Tensor, radius: Tensor) -> Tensor:
        """Turns uniform draws in [0, 1), (B, ...) and (B,), into points uniform in the ball."""
        laplace = _laplace(direction)
        shell = radius.pow(1 / direction[0].numel()) * self.epsilon
        return laplace * as_column(shell / sizes(laplace, "L1"), laplace)


def lp_ball(norm: LpNorm, epsilon: float) -> Ball:
    """The ball of this norm and radius."""
    return L1Ball(epsilon) if norm == "L1" else Ball(norm, epsilon)


def steepest(gradient: Tensor, norm: BallNorm) -> Tensor:
    """Direction of unit norm that raises a linear function the most, (B, ...).

    In L1 that is one entry, or equal shares of several where the gradient's largest entries tie.
    """
    if norm == "L1":
        return steepest_sparse(gradient, 1)
    return gradient.sign() if norm == "Linf" else gradient / _safe_l2(gradient)


def steepest_sparse(gradient: Tensor, count: int) -> Tensor:
    """Direction of L1 norm 1, equal along the gradient's `count` largest entries and ties, (B, ...)."""
    flat = gradient.flatten(1)
    magnitude = flat.abs()
    chosen = magnitude >= magnitude.topk(count, dim=1, sorted=False).values.amin(1, keepdim=True)
    return (flat.sign() * chosen / chosen.sum(1, keepdim=True)).view_as(gradient)


def _laplace(uniform: Tensor) -> Tensor:
    """Turns draws from [0, 1) into Laplace draws, which are isotropic in L1."""
    centered = 2 * uniform - 1
    # The draw 0 would map to infinity.
    return -centered.sign() * (1 - centered.abs()).clamp(min=torch.finfo(uniform.dtype).eps).log()


def _safe_l2(values: Tensor) -> Tensor:
    axes: Sequence[int] = range(1, values.dim())
    square = values.square().sum(tuple(axes), keepdim=True)
    return torch.sqrt(square.clamp(min=MIN_SQUARE))
