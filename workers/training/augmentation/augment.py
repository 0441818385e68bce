"""Augmentation of a batch on its device, keyed by seed and step.

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

from assay.attacks.randomness import Randomness
from assay.attacks.sending import sent
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.training.distributed.processes import Part, everything
from assay.workers.training.randomness import derive_seed, generator
from assay.workers.training.recipe import Augmentation


def move_pixels(
    images: Tensor, augmentation: Augmentation, *, seed: int, step: int, part: Part | None = None
) -> Tensor:
    """Rotate, scale, mirror and shift each image of (B, C, S, S) by random amounts, in one interpolation.

    Outside pixels are 0 (black). A seed and step give the same amounts on every device; images of a `part` of
    a batch get the amounts of its rows.
    """
    if not augmentation.moves:
        return images
    transform = _affine(part or everything(len(images)), augmentation, generator(seed, "augment", step))
    moves = sent(transform.to(images.dtype), images)
    grid = functional.affine_grid(moves, list(images.shape), align_corners=False)  # (B, S, S, 2)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def move_maps(
    maps: Tensor, augmentation: Augmentation, *, seed: int, step: int, part: Part | None = None
) -> Tensor:
    """Move label maps (B, S, S) as `move_pixels` moves images, by nearest pixels; outside is IGNORE."""
    if not augmentation.moves:
        return maps.to(torch.int64)
    transform = _affine(part or everything(len(maps)), augmentation, generator(seed, "augment", step))
    shifted = maps[:, None].to(torch.float32) - IGNORE  # grid_sample's zero padding becomes IGNORE
    moves = sent(transform.to(shifted.dtype), shifted)
    grid = functional.affine_grid(moves, list(shifted.shape), align_corners=False)
    moved = functional.grid_sample(shifted, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return (moved[:, 0] + IGNORE).to(torch.int64)


def _affine(part: Part, augmentation: Augmentation, draws: torch.Generator) -> Tensor:
    """Maps from output to input coordinates, in [-1, 1] across the image: (n, 2, 3)."""
    uniform = part.of(torch.rand(part.whole, 5, generator=draws, dtype=torch.float64))  # (n, 5)
    n = len(uniform)
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


def erase(
    images: Tensor, erased: Tensor, keys: Sequence[int], noise: tuple[Sequence[float], Sequence[float]]
) -> None:
    """Fill a rectangle of each image (B, C, S, S) in place with noise, standard normal after normalisation.

    Random erasing: Zhong et al., AAAI 2020. Rectangles: top, left, bottom, right, int64 (B, 4), on the CPU,
    may be empty. `noise`: each channel's mean and standard deviation. An image's noise depends on its key
    alone.
    """
    rows = (erased[:, 2] > erased[:, 0]).nonzero().flatten()
    if len(rows) == 0:
        return
    names = [str(keys[row]) for row in rows.tolist()]
    drawn = Randomness(0, "erasing").normal(names, tuple(images.shape[1:]), device=images.device)
    mean, std = (sent(torch.tensor(values).view(-1, 1, 1), images) for values in noise)
    top, left, bottom, right = sent(erased[rows], images).view(-1, 4, 1, 1, 1).unbind(1)
    across = torch.arange(images.shape[-1], device=images.device)
    down = across[:, None]
    inside = (top <= down) & (down < bottom) & (left <= across) & (across < right)  # (R, 1, S, S)
    chosen = sent(rows, images)
    images.index_copy_(0, chosen, torch.where(inside, drawn * std + mean, images[chosen]))


def mix(
    images: Tensor,
    labels: Tensor,
    augmentation: Augmentation,
    *,
    classes: int,
    seed: int,
    step: int,
    part: Part | None = None,
) -> tuple[Tensor, Tensor]:
    """Mixup and cutmix of each image (B, C, S, S) with its mirror image in the batch; labels are int64 (B,).

    Examples of a `part` of a batch are mixed as in the whole batch. Returns images (B, C, S, S), and labels
    (B,) or, when mixed, class probabilities (B, K).
    """
    if augmentation.cutmix > 0:
        from assay.workers.training.augmentation import timm_augment

        return timm_augment.mix_batch(images, labels, augmentation, classes=classes, seed=seed, step=step)
    if augmentation.mixup == 0:
        return images, labels
    draws = random.Random(derive_seed(seed, "mixup", step))
    alpha = augmentation.mixup
    part = part or everything(len(images))
    own = [draws.betavariate(alpha, alpha) for _ in range(part.whole)]
    weight = part.of(torch.tensor(own, dtype=torch.float64)).to(images.dtype)
    weight = sent(weight, images)  # (B,)
    target = functional.one_hot(labels, classes).to(images)  # (B, K)
    pixels = weight.view(-1, 1, 1, 1)
    share = weight.view(-1, 1)
    return (pixels * images + (1 - pixels) * images.flip(0), share * target + (1 - share) * target.flip(0))
