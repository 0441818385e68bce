"""Square and FAB of the pyautoattack library, as kernels whose one step is one whole run.

The library seeds torch's generator in each run, so its draws depend on the batch (FAB draws nothing in its
first restart). The generator is restored afterwards. The library clips to [0, 1]; where clipping is not
allowed, it gets the images scaled so that no clip binds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.fab import Boundary
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, record
from assay.attacks.threat import PIXELS, Ball, as_column, sizes

Run = Callable[[Forward, float, int, Tensor, Tensor], Tensor]
"""The library's attack: (model, epsilon, seed, images in [0, 1], labels) to images."""

# The library computes in float32.
SLACK = 1e-6


@dataclass(frozen=True)
class PyAutoAttack:
    """An attack of pyautoattack 0.2.0. Its iterates are float32 for any dtype of the model."""

    name: str
    ball: Ball
    gradient: bool
    run: Run
    every_class: bool = False
    backend: ClassVar[str] = "pyautoattack"

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        del setting  # the library draws
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """One whole run from the images, and the evaluation of its result."""
        images, every = state["images"], torch.ones_like(state["done"])
        factor = 1.0 if setting.box == PIXELS else _factor(images, self.ball.epsilon)
        counted = _Counted(model, factor, images.dtype, self.every_class)
        epsilon, seed = self.ball.epsilon / factor, setting.randomness.seed
        kind = images.device.type
        devices = [] if kind == "cpu" else [images.device]
        with torch.random.fork_rng(devices=devices, device_type=kind):
            found = self.run(counted, epsilon, seed, _shrunk(images, factor).float(), state["goal"])
        state["adversarial"] = self._usable(images, _enlarged(found.detach().to(images.dtype), factor))
        logits = model(state["adversarial"])
        # The library judges changing parts of the batch: each slot bears an equal share, rounded up.
        state["forward"] += 1 - (-counted.forward // len(images))
        state["backward"] += -(-counted.backward // len(images))
        record(setting, state, logits, Goal().objective(state["goal"])(logits).double(), every)
        state["restart"] += 1
        state["done"] = every

    def _usable(self, images: Tensor, found: Tensor) -> Tensor:
        allowed = self.ball.epsilon * (1 + SLACK) + SLACK
        usable = found.isfinite().flatten(1).all(1) & (sizes(found - images, self.ball.norm) <= allowed)
        return torch.where(as_column(usable, images), found, images)


class _Counted:
    """The model as the library calls it. Counts the images of all passes."""

    def __init__(self, model: Forward, factor: float, dtype: torch.dtype, every_class: bool) -> None:
        self.forward = 0
        self.backward = 0
        self._model = model
        self._factor = factor
        self._dtype = dtype
        self._every_class = every_class

    def __call__(self, points: Tensor) -> Tensor:
        # A copy, because the library writes to the logits.
        logits = self._model(_enlarged(points.to(self._dtype), self._factor)).to(points.dtype).clone()
        self.forward += len(points)
        if points.requires_grad:
            self.backward += len(points) * (logits.shape[1] if self._every_class else 1)
        return logits


def _factor(images: Tensor, epsilon: float) -> float:
    """A power of two by which images shrink far enough around 0.5 that no clip binds."""
    return 2.0 ** math.ceil(math.log2(4 * (float((images - 0.5).abs().amax()) + epsilon)))


def _shrunk(images: Tensor, factor: float) -> Tensor:
    return images if factor == 1 else 0.5 + (images - 0.5) / factor


def _enlarged(images: Tensor, factor: float) -> Tensor:
    return images if factor == 1 else 0.5 + (images - 0.5) * factor


def library_square(
    ball: Ball, *, queries: int, share: float, rescale_schedule: bool, restarts: int
) -> PyAutoAttack:
    """Returns pyautoattack's `SquareAttack` as a kernel."""

    def run(model: Forward, epsilon: float, seed: int, images: Tensor, labels: Tensor) -> Tensor:
        from pyautoattack.square import SquareAttack

        attack = SquareAttack(
            model,
            norm=ball.norm,
            n_queries=queries,
            eps=epsilon,
            p_init=share,
            n_restarts=restarts,
            seed=seed,
            resc_schedule=rescale_schedule,
        )
        found: Tensor = attack.perturb(images, labels)
        return found

    return PyAutoAttack("square", ball, False, run)


def library_fab(ours: Boundary) -> PyAutoAttack:
    """Returns pyautoattack's `FABAttack_PT` as a kernel, with the native attack's parameters."""
    targets = ours.targets

    def run(model: Forward, epsilon: float, seed: int, images: Tensor, labels: Tensor) -> Tensor:
        from pyautoattack.fab_pt import FABAttack_PT

        attack = FABAttack_PT(
            model,
            norm=ours.ball.norm,
            n_restarts=ours.restarts,
            n_iter=ours.iterations,
            eps=epsilon,
            alpha_max=ours.alpha_max,
            eta=ours.eta,
            beta=ours.beta,
            seed=seed,
            targeted=targets is not None,
        )
        if targets is not None:
            with torch.no_grad():
                classes = model(images[:1]).shape[1]
            attack.n_target_classes = min(targets, classes - 1)
        found: Tensor = attack.perturb(images, labels)
        return found

    return PyAutoAttack(ours.name, ours.ball, True, run, targets is None)
