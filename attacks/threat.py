"""Threat models: how far an adversary may move an image, and the steepest way to move it.

The arithmetic and the constants are those of cleverhans 4.0 (`optimize_linear`, `clip_eta`): squared L2
sizes are bounded below by 1e-12 before the square root is taken, so a gradient smaller than 1e-6 gives a
step shorter than one.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import torch
from torch import Tensor

Norm = Literal["Linf", "L2"]
Fraction = Annotated[float, "fraction"]
"""A number that JSON may also write as text: `"8/255"`. Components receive the float."""

Box = tuple[float, float]
PIXELS: Box = (0.0, 1.0)

SMALLEST_SQUARE = 1e-12


def sizes(perturbation: Tensor, norm: Norm) -> Tensor:
    """Returns the norm of each perturbation: (B, ...) to (B,)."""
    flat = perturbation.flatten(1)
    return flat.abs().amax(1) if norm == "Linf" else flat.square().sum(1).sqrt()


def clip_to(images: Tensor, box: Box | None) -> Tensor:
    """Clips images to the box; None leaves them as they are."""
    return images if box is None else images.clamp(*box)


def as_column(values: Tensor, like: Tensor) -> Tensor:
    """Reshapes (B,) so that it broadcasts against `like` of shape (B, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True)
class Ball:
    """All perturbations whose norm is at most epsilon (in the units of the attacked images).

    Raises:
        ValueError: If the norm is unknown, or epsilon is negative or not finite.
    """

    norm: Norm
    epsilon: float

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            raise ValueError(f"norm is {self.norm!r}, allowed are {', '.join(get_args(Norm))}")
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise ValueError(f"epsilon is {self.epsilon}, it must be finite and at least 0")

    def project(self, perturbation: Tensor) -> Tensor:
        """Shortens perturbations (B, ...) that lie outside: clamps in Linf, rescales in L2."""
        if self.norm == "Linf":
            return perturbation.clamp(-self.epsilon, self.epsilon)
        return perturbation * (self.epsilon / _safe_l2(perturbation)).clamp(max=1.0)

    def cube_start(self, uniform: Tensor) -> Tensor:
        """Turns draws from [0, 1) into a start: the cube of half-width epsilon, projected (cleverhans).

        In L2 and many dimensions nearly all of these starts lie on the sphere.
        """
        return self.project((2 * uniform - 1) * self.epsilon)

    def uniform_point(self, direction: Tensor, radius: Tensor) -> Tensor:
        """Turns draws into points that are uniform in the ball.

        Args:
            direction: In Linf uniform draws in [0, 1), in L2 standard normal draws, (B, ...).
            radius: Uniform draws in [0, 1), (B,); only used in L2.
        """
        if self.norm == "Linf":
            return (2 * direction - 1) * self.epsilon
        shell = radius.pow(1 / direction[0].numel()) * self.epsilon
        return direction / _safe_l2(direction) * as_column(shell, direction)


def steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """Returns the direction of unit norm that raises a linear function the most, (B, ...)."""
    return gradient.sign() if norm == "Linf" else gradient / _safe_l2(gradient)


def _safe_l2(values: Tensor) -> Tensor:
    axes: Sequence[int] = range(1, values.dim())
    square = values.square().sum(tuple(axes), keepdim=True)
    return torch.sqrt(square.clamp(min=SMALLEST_SQUARE))
