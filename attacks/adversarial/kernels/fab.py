"""The fast adaptive boundary attack: steps to the linearised decision boundary, close to the image.

Croce and Hein 2020, "Minimally distorted Adversarial Examples with a Fast Adaptive Boundary Attack",
algorithm 1. At the point x the classifier is linearised; d is the shortest way from x, d0 the way from the
image x0, to the hyperplane between the label and the nearest (or the target) class. With alpha = min(|d| /
(|d| + |d0|), alpha_max), equation 9,

    x' = clip((1 - alpha) (x + eta d) + alpha (x0 + eta d0))

and, where x' is misclassified, the next point is x0 + beta (x' - x0).

The hyperplane is the nearest class's by equation 7: with f_k = z_k - z_label and 1/p + 1/q = 1,

    s = argmin over k != label of  |f_k(x)| / |grad f_k(x)|_q

with one backward pass for each class.

FAB looks for the smallest perturbation; here the first point within epsilon breaks an example, which leaves
the flags as they are. As in the reference code (pyautoattack 0.2.0) only x' is judged, by a forward pass of
its own: nearly every step moves points back from the boundary, so sharing passes costs more than it saves.

Deviations: gradients belong to the images alone; of the untargeted classes only the nearest hyperplane is
kept; an example's targets never hold its label, and are no more than the wrong classes.

B batch, T targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval, doc
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.hyperplane import way_to_hyperplane
from assay.attacks.adversarial.kernels.losses import margin
from assay.attacks.kernel import Examples, Forward, Objective, Setting, State, begin, record
from assay.attacks.passes import ask, evaluate, note_gradient
from assay.attacks.sending import sent
from assay.attacks.threat import DUAL, Ball, BallNorm, as_column, clip_to, sizes

FabAlphaMax = Annotated[
    float, Interval(ge=0, le=1), doc("The largest weight of the step that begins at the image.")
]
FabEta = Annotated[float, Interval(ge=1, le=10), doc("Length of a step; 1 ends on the linearised boundary.")]
FabBeta = Annotated[
    float, Interval(ge=0, le=1), doc("Where to go on after a success, as a share of the way from the image.")
]
TINY = 1e-12
MIN_DISTANCE = 1e-8


@dataclass(frozen=True)
class Boundary:
    """One step of the kernel is one iteration."""

    name: str
    ball: Ball
    targets: int | None
    iterations: int
    restarts: int
    alpha_max: float
    eta: float
    beta: float
    backend: parameters.LibraryBackend
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.restarts < 1 or (self.targets is not None and self.targets < 1):
            raise ValueError("iterations, restarts and targets must be at least 1")

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image.

        It adds `targets`, the classes in their order, (B, T), and `target`, the number of the present one, on
        the CPU, (B,).
        """
        state = begin(examples, examples.labels, examples.images)
        state["targets"] = self._targets(examples)
        state["target"] = torch.zeros_like(state["restart"])
        values = margin(examples.logits, examples.labels).double()
        record(setting, state, examples.logits, values)
        return state

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """One iteration for every slot; then the next restart or target, or the end."""
        fresh = state["iteration"] == 0
        if fresh.any():
            self._begin(setting, state, fresh.nonzero().flatten())
        images = state["images"]
        if self.targets is None:
            offset, weights = self._nearest(model, state)
        else:
            offset, weights = self._targeted(model, state)
        moved = self._moved(setting, state, offset, weights)
        state["adversarial"] = moved
        goal = state["goal"]
        logits, values = ask(model, state, lambda logits: margin(logits, goal))
        within = sizes(moved - images, self.ball.norm) <= self.ball.epsilon
        record(setting, state, logits, values, within)
        back = as_column(logits.argmax(1) != state["goal"], images)
        state["adversarial"] = torch.where(back, images + (moved - images) * self.beta, moved)
        self._count(state)

    def _targets(self, examples: Examples) -> Tensor:
        if self.targets is None:
            return examples.labels[:, None]
        # Moves it out of the order, for any ties.
        others = examples.logits.scatter(1, examples.labels[:, None], torch.inf)
        return others.sort(dim=1, descending=True).indices[:, 1 : self.targets + 1]

    def _begin(self, setting: Setting, state: State, slots: Tensor) -> None:
        index = sent(slots, state["images"])
        first = state["images"][index]
        state["adversarial"] = state["adversarial"].index_copy(0, index, first)
        slots = slots[state["restart"][slots] > 0]
        if len(slots) == 0:
            return
        index = sent(slots, state["images"])
        first = self._random_point(setting, state, slots, state["images"][index])
        state["adversarial"] = state["adversarial"].index_copy(0, index, first)

    def _random_point(self, setting: Setting, state: State, slots: Tensor, images: Tensor) -> Tensor:
        linf = self.ball.norm == "Linf"
        draws = setting.draw(
            "uniform" if linf else "normal",
            state["row"][slots],
            images,
            restart=state["restart"][slots].tolist(),
            target=state["target"][slots].tolist(),
        )
        direction = 2 * draws - 1 if linf else draws
        length = as_column(sizes(direction, self.ball.norm), images).clamp(min=TINY)
        return clip_to(images + self.ball.epsilon * direction / length * 0.5, setting.box)

    def _targeted(self, model: Forward, state: State) -> tuple[Tensor, Tensor]:
        """Returns target minus label: its value (B,) and gradient at the present points."""
        every = torch.ones_like(state["done"])
        place = sent(state["target"], state["goal"])[:, None]
        target = state["targets"].gather(1, place).squeeze(1)
        _, offset, weights = evaluate(model, state, _difference(state["goal"], target), every)
        return offset.to(weights.dtype), weights

    def _nearest(self, model: Forward, state: State) -> tuple[Tensor, Tensor]:
        offset, weights, classes = nearest_boundary(
            model, state["adversarial"], state["goal"], self.ball.norm
        )
        live = ~state["broken"]
        state["forward"] += live
        state["backward"] += live * classes
        return offset, note_gradient(state, weights, torch.ones_like(state["done"]))

    def _moved(self, setting: Setting, state: State, offset: Tensor, weights: Tensor) -> Tensor:
        """Returns x', one step along both ways; offset is <w, x> - b at the present point x."""
        points, images, norm = state["adversarial"], state["images"], self.ball.norm
        flat = weights.flatten(1)
        # Where logits are not finite, the point stays where it is.
        offset = offset.where(offset.isfinite(), 0.0)
        from_image = offset + (flat * (images - points).flatten(1)).sum(1)
        way, own_way = (
            way_to_hyperplane(start.flatten(1), flat, distance, norm, setting.box).reshape(images.shape)
            for start, distance in ((points, offset), (images, from_image))
        )
        length, own_length = (sizes(steps, norm).clamp(min=MIN_DISTANCE) for steps in (way, own_way))
        alpha = as_column((length / (length + own_length)).clamp(max=self.alpha_max), images)
        moved = (points + self.eta * way) * (1 - alpha) + (images + self.eta * own_way) * alpha
        return clip_to(moved, setting.box)

    def _count(self, state: State) -> None:
        """Restarts follow each other within a target, as in the reference code."""
        state["iteration"] += 1
        final = state["iteration"] >= self.iterations
        state["iteration"][final] = 0
        state["restart"] += final
        through = state["restart"] >= self.restarts
        state["restart"][through] = 0
        state["target"] += through
        state["done"] |= state["target"] >= state["targets"].shape[1]


def _difference(labels: Tensor, target: Tensor) -> Objective:
    def value(logits: Tensor) -> Tensor:
        pair = logits.gather(1, torch.stack([labels, target], dim=1))
        return pair[:, 1] - pair[:, 0]

    return value


def nearest_boundary(
    model: Forward, points: Tensor, labels: Tensor, norm: BallNorm
) -> tuple[Tensor, Tensor, int]:
    """Linearises a model around points (B, C, H, W), whose `labels` (B,) are the classes to get away from.

    Returns f_s (B,), its gradient like the points, and the number of classes. Where no class has a finite
    distance, both are zero.
    """
    in_parts = getattr(model, "in_parts", None)

    def part(rows: Tensor) -> tuple[Tensor, Tensor, int]:
        return _nearest(model, points[rows], labels[rows], norm)

    rows = torch.arange(len(points), device=points.device)
    parts: list[tuple[Tensor, Tensor, int]] = [part(rows)] if in_parts is None else in_parts(rows, part)
    return torch.cat([one[0] for one in parts]), torch.cat([one[1] for one in parts]), parts[0][2]


def _nearest(model: Forward, points: Tensor, labels: Tensor, norm: BallNorm) -> tuple[Tensor, Tensor, int]:
    points = points.detach().requires_grad_(True)
    with torch.enable_grad():
        logits = model(points)
    classes = logits.shape[1]
    least = torch.full_like(logits[:, 0], torch.inf)
    offset, weights = torch.zeros_like(least), torch.zeros_like(points)
    for other in range(classes):
        with torch.enable_grad():
            values = logits[:, other] - logits.gather(1, labels[:, None]).squeeze(1)
            (gradient,) = torch.autograd.grad(values.sum(), points, retain_graph=other < classes - 1)
        values = values.detach()
        distance = values.abs() / (TINY + _dual(gradient, norm))
        closer = (distance < least) & (labels != other)
        least = torch.where(closer, distance, least)
        offset = torch.where(closer, values, offset)
        weights = torch.where(as_column(closer, points), gradient, weights)
    return offset, weights, classes


def _dual(gradient: Tensor, norm: BallNorm) -> Tensor:
    return sizes(gradient, DUAL[norm])
