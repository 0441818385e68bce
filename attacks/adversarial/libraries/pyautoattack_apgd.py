"""AutoAttack's own Auto-PGD (the package pyautoattack) as a kernel whose one step is one run of the library.

One run is one restart for one target. Assay's keyed draws replace the library's, from torch's global
generator for the whole batch. Targets are Assay's too: both take them in the order of the logits of the
unattacked image.

The library clamps to [0, 1]. In the `paper` protocol it sees the images in an interval so wide that nothing
is clamped, mapped onto [0, 1], with epsilon scaled alike.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from assay.attacks.adversarial.kernels.auto_pgd_l1 import RADII, parts
from assay.attacks.adversarial.kernels.losses import Loss, Untargeted
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import note_gradient
from assay.attacks.threat import Ball, as_column

# It warns of zero gradients, which are counted here.
_SILENT = logging.Logger("pyautoattack", logging.CRITICAL + 1)


class _GivenStart(TorchFunctionMode):
    """Makes the first draw return given numbers."""

    def __init__(self, draws: Tensor) -> None:
        super().__init__()
        self.draws: Tensor | None = draws

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.draws is not None and func in (torch.rand, torch.randn, torch.randn_like):
            draws, self.draws = self.draws, None
            return draws
        return func(*args, **(kwargs or {}))


class _Watch:
    """Follows the iterates of a run: the first gradients, and the first misclassified point of each slot."""

    def __init__(self, state: State, eot: int) -> None:
        self.state = state
        self.eot = eot
        self.passes = 0
        self.wrong = torch.zeros_like(state["broken"])
        self.points = state["images"]

    def note(self, points: Tensor, logits: Tensor, *, counts: bool) -> None:
        """Records one pass; the last pass at an iterate judges it, as in the library."""
        points.register_hook(self._note_gradient)
        self.passes += 1
        if counts and self.passes % self.eot == 0:
            wrong = logits.detach().argmax(1) != self.state["goal"]
            fresh = as_column(wrong & ~self.wrong, points)
            self.points = torch.where(fresh, points.detach(), self.points)
            self.wrong = self.wrong | wrong

    def first_wrong(self, others: Tensor) -> Tensor:
        """The first misclassified point of each slot, or the slot of `others`."""
        return torch.where(as_column(self.wrong, others), self.points, others)

    def _note_gradient(self, gradient: Tensor) -> None:
        note_gradient(self.state, gradient, torch.ones_like(self.state["done"]))


@dataclass(frozen=True)
class LibraryAutoPGD:
    """Auto-PGD of pyautoattack.

    The first misclassified iterate is taken, without one the iterate with the highest loss; the library keeps
    the last misclassified one, and stops no example early.
    """

    name: str
    ball: Ball
    loss: Loss
    steps: int
    restarts: int
    rho: float
    eot: int
    backend: ClassVar[str] = "pyautoattack"
    gradient: ClassVar[bool] = True

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        return begin(examples, examples.labels, examples.images) | {
            "target": torch.zeros_like(examples.rows),
            "targets": self.loss.targets(examples.labels, examples.logits),
        }

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """One whole run for the present target, and the evaluation of its result."""
        target = state["targets"].gather(1, state["target"].to(state["targets"].device)[:, None]).squeeze(1)
        state["adversarial"] = self._found(setting, model, state, target)
        logits = model(state["adversarial"])
        values = self.loss.objective(state["goal"], target)(logits).double()
        live = ~state["broken"]
        # The library differentiates the last iterate too, in L1 the last iterate of each part of a run.
        iterates = self.steps + (len(RADII) if self.ball.norm == "L1" else 1)
        state["forward"] += live * (iterates * self.eot + 1)
        state["backward"] += live * (iterates * self.eot)
        record(setting, state, logits, values)
        state["restart"] += 1
        over = state["restart"] == self.restarts
        state["target"] += over
        state["restart"][over] = 0
        state["done"] = state["target"] >= state["targets"].shape[1]

    def _found(self, setting: Setting, model: Forward, state: State, target: Tensor) -> Tensor:
        images = state["images"]
        watch = _Watch(state, self.eot)
        # Place of the library's [0, 1] among the images.
        low, width = (0.0, 1.0) if setting.box is not None else _wide(images, self.ball.epsilon)

        def inner(points: Tensor) -> Tensor:
            logits = model(points * width + low)
            # In L1 the first parts of a run are at larger radii.
            watch.note(points, logits, counts=attack.eps <= self.ball.epsilon / width)
            return logits

        attack = self._attack(inner, target, width)
        pixels = (images - low) / width
        attack.init_hyperparam(pixels)
        with _GivenStart(self._draws(setting, state).to(images.device)):
            highest = self._run(attack, pixels, state["goal"])
        found = (highest if setting.final_iterate else watch.first_wrong(highest)).detach() * width + low
        # Gradients that are NaN make NaN images: no attack succeeded there.
        usable = found.isfinite().flatten(1).all(1)
        return torch.where(as_column(usable, images), found, images)

    def _run(self, attack: Any, pixels: Tensor, labels: Tensor) -> Tensor:
        if self.ball.norm != "L1":
            highest: Tensor = attack.attack_single_run(pixels, labels)[0]
            return highest
        radii = [share * attack.eps for share in RADII]
        last: Tensor = attack.decr_eps_pgd(pixels, labels, radii, list(parts(self.steps)))[0]
        return last

    def _attack(self, model: Forward, target: Tensor, width: float) -> Any:
        from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted

        common = {
            "n_iter": self.steps,
            "norm": self.ball.norm,
            "eps": self.ball.epsilon / width,
            "eot_iter": self.eot,
            "rho": self.rho,
            "logger": _SILENT,
        }
        if isinstance(self.loss, Untargeted):
            return APGDAttack(model, loss=self.loss.name, **common)
        attack = APGDAttack_targeted(model, **common)
        attack.y_target = target
        return attack

    def _draws(self, setting: Setting, state: State) -> Tensor:
        source = setting.randomness
        draw = source.uniform if self.ball.norm == "Linf" else source.normal
        return draw(
            setting.ids_of(state["row"]),
            tuple(state["images"].shape[1:]),
            restart=state["restart"].tolist(),
            target=state["target"].tolist(),
            dtype=state["images"].dtype,
        )


def _wide(images: Tensor, epsilon: float) -> tuple[float, float]:
    """An interval (its lower end and width) that holds all perturbed images; powers of two scale exactly."""
    reach = 2.0 ** math.ceil(math.log2(float(images.abs().max()) + epsilon + 1))
    return -reach, 2 * reach
