"""Attacks of the library cleverhans, as kernels whose one step is one whole run of the library.

The library gets the model as a function, and Assay's keyed draws for uniform numbers: its attacks are as
independent of batching as the native ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from assay.attacks.adversarial.kernels.tanh_descent import TanhDescent
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, concatenate, record, select
from assay.attacks.passes import note_gradient
from assay.attacks.threat import PIXELS, Ball, BallNorm, as_column, sizes


class _KeyedUniform(TorchFunctionMode):
    """Makes `tensor.uniform_(low, high)` use given draws in [0, 1)."""

    def __init__(self, draws: Tensor) -> None:
        super().__init__()
        self.draws = draws

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.uniform_:
            tensor, low, high = args
            return tensor.copy_(low + (high - low) * self.draws)
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Cleverhans:
    """An attack of cleverhans 4.0. Its iterates are float32 for any dtype of the model."""

    name: str
    ball: Ball | None
    goal: Goal
    run: Callable[[Forward, Tensor, Tensor, dict[str, float]], Tensor]
    steps: int
    restarts: int = 1
    draws: bool = False
    queries: int = 0
    gradient: bool = True
    alone: bool = False
    counts_classes: bool = False
    backend: ClassVar[str] = "cleverhans"

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        state = begin(
            examples, self.goal.choose(setting, examples), examples.images, targeted=self.goal.targeted
        )
        return state | {"classes": torch.full_like(examples.rows, examples.logits.shape[1])}

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """One whole run from the images, and the evaluation of its result."""
        index = torch.arange(len(state["row"]))
        parts = [select(state, part) for part in index.split(1 if self.alone else len(index))]
        for part in parts:
            part["adversarial"] = self._adversarial(setting, model, part)
        state |= concatenate(parts)
        logits = model(state["adversarial"])
        values = self.goal.objective(state["goal"])(logits).double()
        live = ~state["broken"]
        state["forward"] += live * (self.steps + self.queries + 1)
        state["backward"] += live * self.steps
        record(setting, state, logits, values)
        state["restart"] += 1
        state["done"] = state["restart"] >= self.restarts

    def _adversarial(self, setting: Setting, model: Forward, state: State) -> Tensor:
        images = state["images"]
        every = torch.ones_like(state["done"])

        def note(gradient: Tensor) -> None:
            note_gradient(state, gradient, every)

        def widened(points: Tensor) -> Tensor:
            if points.requires_grad:
                points.register_hook(note)
            # The library casts to float32, the model may be in float64.
            return model(points.to(images.dtype))

        bounds = {} if setting.box is None else {"clip_min": setting.box[0], "clip_max": setting.box[1]}
        if self.counts_classes:
            bounds["n_classes"] = int(state["classes"][0])
        with torch.enable_grad(), self._keyed(setting, state):
            found = self.run(widened, images, state["goal"], bounds)
        found = found.detach().to(images.dtype)
        # Gradients that are NaN make NaN images: no attack succeeded there.
        usable = found.isfinite().flatten(1).all(1)
        return torch.where(as_column(usable, images), found, images)

    def _keyed(self, setting: Setting, state: State) -> TorchFunctionMode:
        images, draws = state["images"], torch.empty(0)
        if self.draws:
            draws = setting.randomness.uniform(
                setting.ids_of(state["row"]),
                tuple(images.shape[1:]),
                restart=state["restart"].tolist(),
                dtype=images.dtype,
                device=images.device,
            )
        return _KeyedUniform(draws)


def native_only(eot: int) -> None:
    """Refuses averaged gradients: the library differentiates one pass."""
    if eot > 1:
        raise ValueError(f"eot is {eot}, above 1 it needs backend 'native'")


def cleverhans_fgsm(ball: Ball, goal: Goal) -> Cleverhans:
    """Returns cleverhans' `fast_gradient_method` as a kernel."""

    def run(model: Forward, images: Tensor, labels: Tensor, bounds: dict[str, float]) -> Tensor:
        from cleverhans.torch.attacks.fast_gradient_method import fast_gradient_method

        found: Tensor = fast_gradient_method(
            model, images, ball.epsilon, order(ball.norm), y=labels, targeted=goal.targeted, **bounds
        )
        return found

    return Cleverhans("fgsm", ball, goal, run, steps=1 if ball.epsilon else 0)


def cleverhans_pgd(
    ball: Ball, goal: Goal, *, step_size: float, steps: int, random_start: bool, restarts: int
) -> Cleverhans:
    """Returns cleverhans' `projected_gradient_descent` as a kernel."""
    if step_size > ball.epsilon:
        raise ValueError(f"cleverhans allows no step_size ({step_size}) above epsilon ({ball.epsilon})")

    def run(model: Forward, images: Tensor, labels: Tensor, bounds: dict[str, float]) -> Tensor:
        from cleverhans.torch.attacks.projected_gradient_descent import projected_gradient_descent

        found: Tensor = projected_gradient_descent(
            model,
            images,
            ball.epsilon,
            step_size,
            steps,
            order(ball.norm),
            y=labels,
            targeted=goal.targeted,
            rand_init=random_start,
            # It asserts on the host what the engine has checked.
            sanity_checks=False,
            **bounds,
        )
        return found

    works = ball.epsilon > 0 and step_size > 0
    return Cleverhans("pgd", ball, goal, run, steps if works else 0, restarts, draws=random_start and works)


def cleverhans_noise(ball: Ball, draws: int) -> Cleverhans:
    """Returns cleverhans' `noise` as a kernel; it has Linf only."""
    if ball.norm != "Linf":
        raise ValueError(f"cleverhans has uniform noise in Linf only, not in {ball.norm}")

    def run(model: Forward, images: Tensor, labels: Tensor, bounds: dict[str, float]) -> Tensor:
        from cleverhans.torch.attacks.noise import noise

        found: Tensor = noise(images, ball.epsilon, order(ball.norm), **bounds)
        return found

    return Cleverhans("uniform_noise", ball, Goal(), run, 0, draws, draws=True, gradient=False)


def cleverhans_carlini_wagner(ours: TanhDescent) -> Cleverhans:
    """Returns cleverhans' `carlini_wagner_l2` as a kernel, with the native attack's parameters."""

    def run(model: Forward, images: Tensor, labels: Tensor, options: dict[str, float]) -> Tensor:
        from cleverhans.torch.attacks.carlini_wagner_l2 import carlini_wagner_l2

        found: Tensor = carlini_wagner_l2(
            model,
            images,
            y=labels,
            targeted=ours.goal.targeted,
            lr=ours.learning_rate,
            confidence=ours.confidence,
            initial_const=ours.initial_constant,
            binary_search_steps=ours.searches,
            max_iterations=ours.iterations,
            **options,
        )
        if ours.epsilon is None:
            return found
        box = (options.get("clip_min", PIXELS[0]), options.get("clip_max", PIXELS[1]))
        unattacked = images.clamp(*box)
        near = sizes(found - unattacked, "L2") <= ours.epsilon
        return torch.where(as_column(near, found), found, unattacked)

    steps = ours.searches * ours.iterations
    return Cleverhans(ours.name, None, ours.goal, run, steps, alone=True, counts_classes=True)


def order(norm: BallNorm) -> float:
    """The norm in the library's notation."""
    return {"Linf": float("inf"), "L2": 2.0, "L1": 1.0}[norm]
