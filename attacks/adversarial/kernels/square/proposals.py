"""Proposals of the Square Attack: Andriushchenko et al. 2020, algorithms 2 (Linf) and 3 (L2), and L1.

From draws in [0, 1), in the arithmetic of the released code. Without a box (`paper` protocol) nothing is
clipped.

B batch, C channels, H height, W width, s side of a square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.l1_projection import l1_projected
from assay.attacks.adversarial.kernels.square.windows import (
    covered,
    flat_index,
    inside,
    pattern,
    positions,
    square_sizes,
    tiles,
)
from assay.attacks.sending import sent
from assay.attacks.threat import Box, as_column, clip_to, sizes

TINY = 1e-12
# In L1 the released code projects onto a ball that is smaller by this share.
SLACK = 1e-6


class Proposals(Protocol):
    """Interface: starts and proposals in one norm."""

    def start_shape(self, channels: int, height: int, width: int) -> tuple[int, int]:
        """How many draws a start takes: (tiles, numbers per tile)."""

    def query_width(self, channels: int) -> tuple[int, int]:
        """How many draws a query takes, and how many of them the released code shares."""

    def plan_width(self, channels: int, height: int, width: int) -> int:
        """The length of the plan of a query."""

    def start(self, images: Tensor, draws: Tensor, box: Box | None) -> Tensor:
        """The first iterates."""

    def plan(self, draws: Tensor, query: Tensor, shape: torch.Size) -> Tensor:
        """Computes from draws the plans of K queries of each slot, float32 (B, K, plan_width).

        Draws are float32 (B, K, query_width), in [0, 1); `query` is the number on the schedule, int64 (B, K),
        or (1, K) for all, on the CPU; the shape is an image's, (C, H, W).
        """

    def propose(
        self, images: Tensor, current: Tensor, plan: Tensor, query: Tensor, box: Box | None
    ) -> Tensor:
        """The next iterates to try, from the best so far (`current`), like the images (B, C, H, W).

        `plan` is (B, plan_width); `query` is its number on the schedule, int64 (B,), on the CPU.
        """


@dataclass(frozen=True)
class LinfProposals:
    """Vertical stripes at first, then squares of a single colour; all pixels are at a corner of the ball."""

    epsilon: float
    share: float

    def start_shape(self, channels: int, height: int, width: int) -> tuple[int, int]:
        """Returns (1, C * W)."""
        del height
        return 1, channels * width

    def query_width(self, channels: int) -> tuple[int, int]:
        """Returns C + 2, and C + 2: the released code shares all draws."""
        return channels + 2, channels + 2

    def plan_width(self, channels: int, height: int, width: int) -> int:
        """Returns C * H + W."""
        return channels * height + width

    def start(self, images: Tensor, draws: Tensor, box: Box | None) -> Tensor:
        """The images with vertical stripes."""
        channels, _, width = images.shape[1:]
        stripes = _signs(draws.reshape(-1, channels, 1, width)).to(images)
        return clip_to(images + self.epsilon * stripes, box)

    def plan(self, draws: Tensor, query: Tensor, shape: torch.Size) -> Tensor:
        """The sign of the square in each row, 0 outside, and 1 in its columns, 0 outside."""
        _, height, width = shape
        sizes = sent(square_sizes(query, height, width, self.share, smallest=1, odd=False), draws)
        top, left = positions(draws[..., 0], height, sizes), positions(draws[..., 1], width, sizes)
        rows = _signs(draws[..., 2:, None]) * covered(top, sizes, height)[..., None, :]  # (B, K, C, H)
        return torch.cat([rows.flatten(2), covered(left, sizes, width).to(draws)], dim=2)

    def propose(
        self, images: Tensor, current: Tensor, plan: Tensor, query: Tensor, box: Box | None
    ) -> Tensor:
        """Moves one square by 2 epsilon in each channel, up or down, and back into the ball."""
        del query
        channels, height = images.shape[1:3]
        rows = plan[:, : channels * height].view(-1, channels, height, 1)
        columns = plan[:, None, None, channels * height :]  # (B, 1, 1, W)
        moved = torch.addcmul(current, rows, columns, value=2.0 * self.epsilon)
        return clip_to(moved.clamp(images - self.epsilon, images + self.epsilon), box)


@dataclass(frozen=True)
class L2Proposals:
    """Tiles at first; then one square takes over the perturbation of another."""

    epsilon: float
    share: float

    def start_shape(self, channels: int, height: int, width: int) -> tuple[int, int]:
        """Returns (tiles, 1 + C)."""
        return len(tiles(height, width)[1]), 1 + channels

    def query_width(self, channels: int) -> tuple[int, int]:
        """Returns 5 + C, and 5: two positions and the turn, which the released code shares, and signs."""
        return channels + 5, 5

    def plan_width(self, channels: int, height: int, width: int) -> int:
        """Returns C + 5: the draws themselves."""
        del height, width
        return channels + 5

    def start(self, images: Tensor, draws: Tensor, box: Box | None) -> Tensor:
        """The images with a pattern in each tile."""
        height, width = images.shape[2:]
        side, corners = tiles(height, width)
        delta = torch.zeros_like(images)
        for number, (top, left) in enumerate(corners):
            rows, columns = min(side, height - top), min(side, width - left)
            if rows > 0 and columns > 0:
                tile = self._turned(draws[:, number, 0], side, images) * _signs(
                    draws[:, number, 1:, None, None]
                )
                delta[:, :, top : top + rows, left : left + columns] += tile[:, :, :rows, :columns]
        return self._at_radius(images, delta, box)

    def plan(self, draws: Tensor, query: Tensor, shape: torch.Size) -> Tensor:
        """The draws: their effect depends on the iterate."""
        del query, shape
        return draws

    def propose(
        self, images: Tensor, current: Tensor, plan: Tensor, query: Tensor, box: Box | None
    ) -> Tensor:
        """Proposes for the slots of each square size; there is one size where all are at the same query."""
        height, width = images.shape[2:]
        sizes = square_sizes(query, height, width, self.share, smallest=3, odd=True)
        present = sizes.unique().tolist()
        if len(present) == 1:
            return self._moved(images, current, plan, present[0], box)
        proposed = torch.empty_like(images)
        for size in present:
            slots = sent((sizes == size).nonzero().flatten(), images)
            moved = self._moved(images[slots], current[slots], plan[slots], size, box)
            proposed.index_copy_(0, slots, moved)
        return proposed

    def _moved(self, images: Tensor, current: Tensor, draws: Tensor, size: int, box: Box | None) -> Tensor:
        channels = images.shape[1]
        delta = current - images
        first, second, either = _two_squares(draws, size, images)
        held = (delta * either).square().sum((2, 3), keepdim=True)  # (B, C, 1, 1)
        length = _l2(delta)
        # A tensor: the released code rounds epsilon to the images' dtype before it squares it.
        radius = torch.full_like(length, self.epsilon)
        free = (radius**2 - length**2).clamp(min=0.0)  # (B, 1, 1, 1)
        flat = delta.flatten(2)  # (B, C, H * W)
        old = flat.gather(2, first).reshape(-1, channels, size, size)
        old = old / (TINY + old.square().sum((2, 3), keepdim=True).sqrt())
        new = self._turned(draws[:, 4], size, images) * _signs(draws[:, 5:, None, None]) + old
        norm = new.square().sum((2, 3), keepdim=True).sqrt()
        new = new / (TINY + norm) * (free / channels + held).sqrt()
        flat = flat.scatter(2, second, 0.0).scatter(2, first, new.flatten(2))
        return self._at_radius(images, flat.reshape(images.shape), box)

    def _at_radius(self, images: Tensor, delta: Tensor, box: Box | None) -> Tensor:
        return clip_to(images + delta / (_l2(delta) + TINY) * self.epsilon, box)

    def _turned(self, uniform: Tensor, size: int, images: Tensor) -> Tensor:
        return _on_side(pattern(size), uniform, images)


@dataclass(frozen=True)
class L1Proposals(L2Proposals):
    """As in L2, with L1 norms and a steeper pattern; proposals are projected onto the ball and the box.

    Croce and Hein 2021, "Mind the Box", section 5.
    """

    def _moved(self, images: Tensor, current: Tensor, draws: Tensor, size: int, box: Box | None) -> Tensor:
        channels = images.shape[1]
        delta = current - images
        first, second, either = _two_squares(draws, size, images)
        held = (delta * either).abs().sum((2, 3), keepdim=True)  # (B, C, 1, 1)
        free = (self.epsilon - as_column(sizes(delta, "L1"), delta)).clamp(min=0.0)  # (B, 1, 1, 1)
        flat = delta.flatten(2)  # (B, C, H * W)
        old = flat.gather(2, first).reshape(-1, channels, size, size)
        old = old / (TINY + old.abs().sum((2, 3), keepdim=True))
        new = self._turned(draws[:, 4], size, images) * _signs(draws[:, 5:, None, None]) + old
        norm = new.abs().sum((2, 3), keepdim=True)
        new = new / (TINY + norm) * (free / channels + held) * channels
        flat = flat.scatter(2, second, 0.0).scatter(2, first, new.flatten(2))
        return self._at_radius(images, flat.reshape(images.shape), box)

    def _at_radius(self, images: Tensor, delta: Tensor, box: Box | None) -> Tensor:
        return l1_projected(images, images + delta, self.epsilon * (1 - SLACK), box)

    def _turned(self, uniform: Tensor, size: int, images: Tensor) -> Tensor:
        return _on_side(pattern(size, "L1"), uniform, images)


def _signs(uniform: Tensor) -> Tensor:
    return (2 * uniform - 1).sign()


def _l2(delta: Tensor) -> Tensor:
    return as_column(delta.square().flatten(1).sum(1).sqrt(), delta)


def _on_side(upright: Tensor, uniform: Tensor, images: Tensor) -> Tensor:
    upright = sent(upright.to(images.dtype), images)
    return torch.where(uniform[:, None, None, None] > 0.5, upright.T, upright)


def _two_squares(draws: Tensor, size: int, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    channels, height, width = images.shape[1:]
    corners = [
        (positions(draws[:, place], height, size), positions(draws[:, place + 1], width, size))
        for place in (0, 2)
    ]
    first, second = (
        flat_index(top, left, size, width)[:, None].expand(-1, channels, -1) for top, left in corners
    )
    either = inside(*corners[0], size, height, width) | inside(*corners[1], size, height, width)
    return first, second, either
