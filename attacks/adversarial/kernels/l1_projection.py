"""The nearest point of an L1 ball that is also in the box of pixels.

Croce and Hein 2021 (`auto_pgd_l1.py`), section 3: with the perturbation d, and in each coordinate the room r
that the box leaves in the direction of d,

    d'_i = sign(d_i) min(max(|d_i| - s, 0), r_i)

where the shift s is 0 if that has a norm of at most epsilon, else it solves sum |d'_i| = epsilon. The sum
falls piecewise linearly in s, neither convex nor concave: Newton's method inside a bracket that every step
narrows ends on the solution's piece, without the sort of 2 D numbers of the released code.

B batch, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.threat import Box, clip_to

# The bracket is halved at least in every step that Newton's method leaves it.
MAX_STEPS = 64
# Steps between two looks at whether all rows have ended: one waits for a GPU.
STEPS_BETWEEN_LOOKS = 4


def l1_projection(images: Tensor, perturbation: Tensor, epsilon: float | Tensor, box: Box | None) -> Tensor:
    """The nearest perturbations of at most this L1 norm that keep the images in the box.

    Images and perturbation are (B, ...), the images in the box; the radius is a number or (B,).
    """
    flat = perturbation.flatten(1)
    size = flat.abs()
    room = size
    if box is not None:
        points = images.flatten(1)
        room = torch.minimum(size, torch.where(flat > 0, box[1] - points, points - box[0]))
    radius = epsilon.to(flat.dtype) if isinstance(epsilon, Tensor) else flat.new_full((), epsilon)
    shift = _shift(size, room, radius.expand(len(flat)))[:, None]
    projected = torch.minimum((size - shift).clamp(min=0), room)
    return (flat.sign() * projected).view_as(perturbation)


def l1_projected(images: Tensor, points: Tensor, epsilon: float | Tensor, box: Box | None) -> Tensor:
    """The nearest points of the ball around the images that are in the box, to the last bit."""
    return clip_to(images + l1_projection(images, points - images, epsilon, box), box)


def _shift(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    """Solves sum min(max(size - s, 0), room) = radius for s, (B,); 0 where the sum is below it at once."""
    low, high = torch.zeros_like(radius), size.amax(1)
    shift, piece, solved = low, torch.full_like(low, torch.nan), torch.zeros_like(low, dtype=torch.bool)
    over = torch.minimum(size, room).sum(1) <= radius
    for number in range(1, MAX_STEPS + 1):
        left = size - shift[:, None]
        moving, full = (left > 0) & (left < room), left >= room
        slope = moving.sum(1).to(size)
        # The linear piece at this shift; where Newton's method came from the same one, the shift is its zero.
        present = torch.where(moving, size, torch.where(full, room, 0.0)).sum(1)
        over = over | (solved & (present == piece))
        if (number % STEPS_BETWEEN_LOOKS == 0 or size.device.type == "cpu") and bool(over.all()):
            break
        excess = torch.minimum(left.clamp(min=0), room).sum(1) - radius
        low, high = torch.where(excess > 0, shift, low), torch.where(excess > 0, high, shift)
        newton = shift + excess / slope.clamp(min=1)
        solved = (slope > 0) & (newton >= low) & (newton <= high)
        risen = torch.where(solved, newton, (low + high) / 2)
        shift, piece = torch.where(over, shift, risen), present
    return shift
