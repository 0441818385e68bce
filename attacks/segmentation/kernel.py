"""Contract between attacks on segmentation models and the engine that runs them.

The contract of `attacks.kernel` with another goal: as many wrong pixels per image as possible. An iterate
ends the attack on its image only if all its pixels are wrong (`broken`). The iterate that counts is the first
one with the fewest correct pixels; it may be the unattacked image.

Keys of every state (`begin` makes them; attacks add their own):

    on the CPU
        row, iteration, done, seen_gradient      as in `attacks.kernel`
    on the device of the images
        images        the unattacked images, (B, C, H, W)
        maps          their classes, or IGNORE, uint8 (B, H, W)
        adversarial   the current iterate
        best          the iterate that counts
        right         its number of correct pixels, int64 (B,)
        before_last   `right` before the last tenth of the steps, int64 (B,); -1 before that
        broken        no pixel is correct
        forward, backward, zero_gradient, nonfinite_gradient      as in `attacks.kernel`

Pixels whose logits are not finite are wrong; ignored pixels are excluded from every loss and count.

B slots, C channels, K classes, H and W height and width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from assay.attacks.kernel import Setting, State
from assay.attacks.passes import note_gradient
from assay.attacks.segmentation.losses import IGNORE, LossName, PixelLoss
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, as_column

Forward = Callable[[Tensor], Tensor]
"""The attacked model: images (B, C, H, W) to logits (B, K, H, W)."""

# A slot is unconverged if the last tenth of the steps turned more than this fraction of the pixels, and more
# than 5 % of the correct ones.
LAST_PART = 10
STILL_FALLING = 0.01


class PixelExamples(NamedTuple):
    """Images to attack."""

    rows: Tensor  # Index of each in `Setting.ids`, on the CPU, (B,)
    images: Tensor  # (B, C, H, W)
    maps: Tensor  # Their classes, or IGNORE, uint8 (B, H, W)
    right: Tensor  # Number of correct pixels without an attack, int64 (B,)


class PixelAttack(Protocol):
    """Attack on a segmentation model with one loss. Stateless."""

    @property
    def name(self) -> str:
        """Catalog name of the attack with one loss; random draws are keyed by it and by the loss."""

    @property
    def loss(self) -> PixelLoss:
        """The loss to maximise."""

    @property
    def ball(self) -> Ball:
        """The allowed perturbations."""

    def start(self, setting: Setting, examples: PixelExamples) -> State:
        """The state of a slot per image, with the first iterate in place."""

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Does one unit of work for every slot, in place. Called without autograd recording."""


@dataclass(frozen=True)
class PixelEnsemble:
    """Value of a component: one attack, or the worst case of several."""

    name: str  # Catalog name
    make: Callable[[PixelLoss], PixelAttack]  # Builds the attack for a loss
    losses: tuple[LossName, ...]  # Each is maximised on every image, from the unattacked image

    @property
    def balanced(self) -> bool:
        """Whether any loss needs class weights."""
        return any(PixelLoss(loss).balanced for loss in self.losses)

    def attacks(self, class_weights: tuple[float, ...] | None = None) -> list[PixelAttack]:
        """One attack per loss; `class_weights` (K,) is for balanced losses."""
        losses = [PixelLoss(name) for name in self.losses]
        return [self.make(PixelLoss(loss.name, class_weights) if loss.balanced else loss) for loss in losses]


def begin(examples: PixelExamples, adversarial: Tensor) -> State:
    """Initial state common to all attacks; `adversarial` is the first iterate."""
    n, device = len(examples.rows), examples.images.device
    number = torch.zeros(n, dtype=torch.int64, device=device)
    flag = torch.zeros(n, dtype=torch.bool, device=device)
    return {
        "row": examples.rows,
        "iteration": torch.zeros(n, dtype=torch.int64),
        "done": torch.zeros(n, dtype=torch.bool),
        "seen_gradient": torch.zeros(n, dtype=torch.bool),
        "images": examples.images,
        "maps": examples.maps,
        "adversarial": adversarial,
        "best": examples.images,
        "right": examples.right,
        "before_last": number - 1,
        "broken": examples.right == 0,
        "forward": number,
        "backward": number,
        "zero_gradient": flag,
        "nonfinite_gradient": flag,
    }


class Seen(NamedTuple):
    """The model's evaluation of the current iterates."""

    right: Tensor  # Number of correct pixels, int64 (B,)
    followed: Tensor  # The loss that is tracked, float64 (B,)
    gradient: Tensor  # Like the images; zero where not requested or not finite


def look(model: Forward, state: State, loss: PixelLoss, wants: Tensor, progress: Tensor) -> Seen:
    """Runs the model on the current iterates and counts the passes; gradients only for slots that need one.

    A model with `in_parts`, which knows how many images fit into memory, runs in parts. The loss is
    differentiated with respect to the iterates alone. On the CPU, (B,): which slots want a gradient, and
    their progress, the fraction of the steps taken, in [0, 1).
    """
    points = state["adversarial"]
    live = ~state["broken"]
    state["forward"] = state["forward"] + live
    state["backward"] = state["backward"] + (live & sent(wants, state["images"]))
    progress = sent(progress, state["images"])

    def part(rows: Tensor, differentiate: bool) -> Seen:
        maps = state["maps"][rows]
        with torch.set_grad_enabled(differentiate):
            moving = points[rows].detach().requires_grad_(differentiate)
            logits = model(moving)
            right = right_pixels(logits.detach(), maps)
            raised, followed = loss(logits, maps, right, progress[rows])
            gradient = torch.zeros_like(moving)
            if differentiate:
                (gradient,) = torch.autograd.grad(raised.sum(), moving)
        return Seen(right.flatten(1).sum(1), followed.detach().double(), gradient.detach())

    in_parts = getattr(model, "in_parts", None)
    order: list[Tensor] = []
    pieces: list[Seen] = []
    for chosen, differentiate in ((wants, True), (~wants, False)):
        rows = sent(chosen.nonzero().flatten(), state["images"])
        if len(rows) == 0:
            continue

        def work(some: Tensor, differentiate: bool = differentiate) -> Seen:
            return part(some, differentiate)

        pieces += [work(rows)] if in_parts is None else in_parts(rows, work)
        order.append(rows)
    back = torch.cat(order).argsort()
    right, followed, gradient = (torch.cat(values)[back] for values in zip(*pieces, strict=True))
    return Seen(right, followed, note_gradient(state, gradient, wants))


def right_pixels(logits: Tensor, maps: Tensor) -> Tensor:
    """Mask of correct pixels, bool (B, H, W); ties go to the lower class index."""
    prediction = predicted_classes(logits)
    return (prediction == maps) & (maps != IGNORE)


def predicted_classes(logits: Tensor) -> Tensor:
    """Predicted class per pixel, int64 (B, H, W); K where the logits (B, K, H, W) are not finite."""
    finite = logits.isfinite().all(dim=1)
    return logits.argmax(dim=1).masked_fill(~finite, logits.shape[1])


def record(state: State, right: Tensor, counts: Tensor | None = None) -> None:
    """Keeps the current iterates with fewer correct pixels than those that count so far.

    `right` is the number of correct pixels, int64 (B,); `counts`, on the CPU, (B,), the slots whose iterate
    may count, None for all.
    """
    better = right < state["right"]
    if counts is not None:
        better = better & sent(counts, better)
    state["best"] = torch.where(as_column(better, state["best"]), state["adversarial"], state["best"])
    state["right"] = torch.where(better, right, state["right"])
    state["broken"] = state["broken"] | (state["right"] == 0)


def note_last_part(state: State, there: Tensor) -> None:
    """Records how many pixels are correct before the last tenth of the steps; `there` is on the CPU, (B,)."""
    if there.any():
        state["before_last"] = torch.where(sent(there, state["right"]), state["right"], state["before_last"])


def unconverged(state: State) -> Tensor:
    """Slots whose last tenth of the steps still turned many pixels, bool (B,)."""
    before, right = state["before_last"], state["right"]
    judged = (state["maps"] != IGNORE).flatten(1).sum(1)
    fell = before - right
    return (before >= 0) & (right > 0) & (fell > STILL_FALLING * judged) & (fell > 0.05 * before)


def random_cube(setting: Setting, examples: PixelExamples) -> Tensor:
    """Uniform draws in [0, 1), keyed by example; shaped like the images."""
    images = examples.images
    return setting.randomness.uniform(
        setting.ids_of(examples.rows), tuple(images.shape[1:]), dtype=images.dtype, device=images.device
    )
