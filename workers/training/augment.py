"""Augmentation of a batch, keyed by seed and step.

mixup: Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, with one weight per
example and the batch mixed with itself in reverse order.

Shapes: B batch, C channels, S image side, K classes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from workers.data.segmentation import IGNORE
from workers.training.randomness import derive_seed, generator
from workers.training.recipe import Augmentation


def move_pixels(images: Tensor, augmentation: Augmentation, *, seed: int, step: int) -> Tensor:
    """Rotate, scale, mirror and shift each image by amounts of its own, in one interpolation.

    Args:
        images: (B, C, S, S); what comes in from outside an image is 0 (black).
        augmentation: the largest amounts.
        seed: the job's seed.
        step: the step that the images are for; the same seed and step give the same amounts on
            every device.

    Returns:
        A tensor of the same shape, type and range.
    """
    if not augmentation.moves:
        return images
    transform = _affine(len(images), augmentation, generator(seed, "augment", step))
    grid = functional.affine_grid(
        transform.to(images), list(images.shape), align_corners=False
    )  # (B, S, S, 2)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def move_maps(maps: Tensor, augmentation: Augmentation, *, seed: int, step: int) -> Tensor:
    """Move label maps as `move_pixels` moves their images, to the nearest pixel.

    Args:
        maps: classes or IGNORE, (B, S, S); what comes in from outside an image is IGNORE.
        augmentation: the largest amounts.
        seed: the job's seed.
        step: the step that the maps are for.

    Returns:
        int64 (B, S, S).
    """
    if not augmentation.moves:
        return maps.to(torch.int64)
    transform = _affine(len(maps), augmentation, generator(seed, "augment", step))
    shifted = maps[:, None].to(torch.float32) - IGNORE  # 0, with which grid_sample pads, becomes IGNORE
    grid = functional.affine_grid(transform.to(shifted), list(shifted.shape), align_corners=False)
    moved = functional.grid_sample(shifted, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return (moved[:, 0] + IGNORE).to(torch.int64)


def _affine(n: int, augmentation: Augmentation, draws: torch.Generator) -> Tensor:
    """Maps from output to input coordinates, which run from -1 to 1 across the image: (n, 2, 3)."""
    uniform = torch.rand(n, 5, generator=draws, dtype=torch.float64)  # (n, 5)
    symmetric = 2 * uniform - 1
    angle = symmetric[:, 0] * math.radians(augmentation.rotate)
    zoom = 1 + symmetric[:, 1] * augmentation.scale
    side = 2.0  # of the image, in grid coordinates
    shift = symmetric[:, 2:4] * augmentation.shift * side  # (n, 2)
    mirror = torch.ones(n, dtype=torch.float64)
    if augmentation.flip:
        mirror[uniform[:, 4] < 0.5] = -1
    cosine, sine = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    rows = [cosine * mirror, -sine, shift[:, 0], sine * mirror, cosine, shift[:, 1]]
    return torch.stack(rows, dim=1).view(n, 2, 3)


def transform(
    images: Tensor,
    augmentation: Augmentation,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
    step: int,
) -> Tensor:
    """All changes of single images: moves, crops, RandAugment, erasing.

    Args:
        images: (B, C, S, S) in [0, 1].
        augmentation: what to do.
        mean: mean of each channel by which the model normalises.
        std: standard deviation of each channel.
        seed: the job's seed.
        step: the step that the images are for.
    """
    moved = move_pixels(images, augmentation, seed=seed, step=step)
    if not augmentation.uses_timm:
        return moved
    from workers.training import timm_augment  # timm takes seconds

    recoloured = timm_augment.recolour(moved, augmentation, mean=mean, seed=seed, step=step)
    return timm_augment.erase(recoloured, augmentation, mean=mean, std=std, seed=seed, step=step)


def mix(
    images: Tensor, labels: Tensor, augmentation: Augmentation, *, classes: int, seed: int, step: int
) -> tuple[Tensor, Tensor]:
    """Mix each example with its mirror image in the batch (mixup, cutmix).

    Args:
        images: (B, C, S, S).
        labels: int64 (B,).
        augmentation: `mixup` and `cutmix` are the Beta parameters; without both, images and labels are
            returned as they are.
        classes: K.
        seed: the job's seed.
        step: the step that the batch is for.

    Returns:
        Images (B, C, S, S), and labels (B,) or, when mixed, class probabilities (B, K).
    """
    if augmentation.cutmix > 0:
        from workers.training import timm_augment

        return timm_augment.mix_batch(images, labels, augmentation, classes=classes, seed=seed, step=step)
    if augmentation.mixup == 0:
        return images, labels
    draws = random.Random(derive_seed(seed, "mixup", step))
    alpha = augmentation.mixup
    own = [draws.betavariate(alpha, alpha) for _ in range(len(images))]
    weight = torch.tensor(own, dtype=torch.float64).to(images)  # (B,)
    target = functional.one_hot(labels, classes).to(images)  # (B, K)
    pixels = weight.view(-1, 1, 1, 1)
    share = weight.view(-1, 1)
    return (
        pixels * images + (1 - pixels) * images.flip(0),
        share * target + (1 - share) * target.flip(0),
    )
