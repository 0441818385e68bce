"""SPSA: gradient ascent with gradients estimated from forward passes only.

Uesato et al. 2018, "Adversarial Risk and the Dangers of Evaluating Against Weak Attacks", algorithm 1: with f
the margin of the best wrong class over the label, and v_1 .. v_S vectors of random signs,

    g  = 1/S sum_s (f(z + delta v_s) - f(z - delta v_s)) / (2 delta) v_s,    v_s in {-1, 1}^D
    x' = clip(x0 + P(x - x0 + Adam(g))),    P projects onto the ball

Arithmetic, start (uniform in the cube, projected) and Adam's constants are as in cleverhans 4.0 (`spsa`).

z is the iterate, as in the paper. cleverhans takes twice the unattacked image, at every step (its issue 1249:
a function that adds the image already is given the image instead of the perturbation), as does
`gradient_point="shifted"`.

Other deviations from the library: images and directions run in common batches; more `samples` are its
`spsa_iters`; a difference that is not finite counts as zero. In the `pixel` protocol the random start and the
iterate after each step are evaluated, one forward pass each, and an example leaves at the first that is
misclassified; the library would stop after a step with `early_stop_loss_threshold=0`, but not at the start.
In `paper` only the final iterate is evaluated.

The defaults are from RPC-Attention's released code, 10 steps; its paper says 40 steps and epsilon 0.1.

S = directions, D = entries of an image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.losses import margin
from assay.attacks.adversarial.kernels.random_signs import random_signs, unpack
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.libraries.cleverhans import native_only
from assay.attacks.adversarial.libraries.cleverhans_spsa import cleverhans_spsa
from assay.attacks.expectation import JUDGING, PIXEL_ONLY, SINGLE, Expectation
from assay.attacks.kernel import Attack, Examples, Forward, Objective, Setting, State, begin, record
from assay.attacks.passes import ask
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, Fraction, as_column, clip_to

__all__ = ["spsa"]

TASKS = ("classification",)
THREAT = {"knowledge": "black_box", "search": "iterative"}
TABLE = "attack"
PAPER = "Uesato et al. 2018, Adversarial Risk and the Dangers of Evaluating Against Weak Attacks"
# Clean image and random start, then for each step two passes per direction and one for the new iterate.
PASSES = (f"(params.steps * (2 * params.samples + 1) + 1) * params.eot + 1 + {JUDGING}", "0")
RULES = (
    parameters.LINF_RULE,
    *parameters.TARGET_RULES,
    parameters.EOT_RULE,
    PIXEL_ONLY,
    (
        "params.backend != 'cleverhans' or params.gradient_point == 'shifted'",
        "cleverhans 4.0 estimates the gradient at 2x (its issue 1249): ask for gradient_point 'shifted'",
    ),
)

# Adam's, in torch and in the library.
DECAY, SQUARE_DECAY, MIN_ROOT = 0.9, 0.999, 1e-8

GradientPoint = Literal["true", "shifted"]


def spsa(
    *,
    epsilon: parameters.ProtocolRadius = 1 / 255,
    norm: parameters.NormOfBall = "Linf",
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 10,
    samples: Annotated[int, Interval(ge=1, le=1_000_000)] = 128,
    samples_per_pass: Annotated[int, Interval(ge=1, le=1_000_000)] = 128,
    delta: Annotated[Fraction, Interval(gt=0, le=1000)] = 0.01,
    learning_rate: Annotated[float, Interval(gt=0, le=1000)] = 0.01,
    gradient_point: GradientPoint = "true",
    targeted: bool = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    eot: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    eot_average: parameters.EotAverage = "losses",
    judgement: parameters.Judging = "expected",
    model_draws: parameters.ModelDraws = 100,
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """Adam steps along gradients that are estimated from forward passes at random points nearby.

    Args:
        steps: Adam steps (cleverhans: `nb_iter`).
        samples: Random directions per step (`spsa_samples`); each takes two forward passes.
        samples_per_pass: How many directions, of one or several images, go through the model together: the
            batch has twice as many rows. It bounds the memory and changes nothing but rounding.
        delta: How far the random points are away, in every entry, in units of epsilon's space.
        learning_rate: Adam's, in the same units.
        gradient_point: `true` estimates the gradient at the iterate; `shifted` at twice the unattacked image,
            as cleverhans 4.0 does by mistake (its issue 1249).
        targeted: Raise the margin of a target class instead of lowering the label's; an example that is
            misclassified in any way counts as broken all the same; `target_hit_rate`
            counts those that end in the target.
        eot: Passes at each iterate, for models that answer at random (expectation over transformation).
            Native only.
        backend: Our kernel, or the library's function (which looks at the last iterate only, and knows
            `gradient_point="shifted"` only).
    """
    if min(steps, samples, samples_per_pass) < 1:
        raise ValueError(
            f"steps ({steps}), samples ({samples}), samples_per_pass ({samples_per_pass}) must be at least 1"
        )
    ball, goal = Ball(norm, epsilon), Goal(targeted, target, target_class)
    if backend == "cleverhans":
        native_only(eot)
        if gradient_point != "shifted":
            raise ValueError("cleverhans estimates the gradient at 2x: ask for gradient_point 'shifted'")
        return cleverhans_spsa(
            ball, goal, steps=steps, samples=samples, delta=delta, learning_rate=learning_rate
        )
    expectation = Expectation(eot, eot_average, judgement, model_draws)
    return Spsa(
        ball, goal, steps, samples, samples_per_pass, delta, learning_rate, gradient_point, expectation
    )


@dataclass(frozen=True)
class Spsa:
    """Ascends from a random start.

    A step of the kernel moves the slots whose iterate has been judged, then judges all iterates. Besides the
    keys of `begin`, a state has

        judged            whether the present iterate was evaluated, on the CPU; new slots wait for it
        first, second     Adam's moments, like the images
    """

    ball: Ball
    goal: Goal
    steps: int
    samples: int
    samples_per_pass: int
    delta: float
    learning_rate: float
    gradient_point: GradientPoint
    expectation: Expectation = SINGLE
    name: ClassVar[str] = "spsa"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = False

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at a random start."""
        images = examples.images
        draws = setting.randomness.uniform(
            setting.ids_of(examples.rows), tuple(images.shape[1:]), dtype=images.dtype, device=images.device
        )
        first = clip_to(images + self.ball.cube_start(draws), setting.box)
        return begin(examples, self.goal.choose(setting, examples), first, targeted=self.goal.targeted) | {
            "judged": torch.full((len(images),), setting.final_iterate),
            "first": torch.zeros_like(images),
            "second": torch.zeros_like(images),
        }

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Moves the slots that are judged, and judges the iterates that count."""
        moving = state["judged"].nonzero().flatten()
        if len(moving):
            self._move(setting, model, state, moving)
        final = state["iteration"] >= self.steps
        if not setting.final_iterate or bool(final.any()):
            logits, values = ask(model, state, self._margin(state["goal"]), self.expectation)
            record(setting, state, logits, values, final if setting.final_iterate else None)
        state["judged"] = torch.ones_like(final)
        state["done"] |= final

    def _move(self, setting: Setting, model: Forward, state: State, moving: Tensor) -> None:
        index = sent(moving, state["images"])
        images, points, first, second, goal, broken = (
            state[key][index] for key in ("images", "adversarial", "first", "second", "goal", "broken")
        )
        rows, taken = state["row"][moving], state["iteration"][moving]
        anchors = 2 * images if self.gradient_point == "shifted" else points
        gradient = self._estimate(setting, model, anchors, goal, rows, taken)
        first = first.lerp(gradient, 1 - DECAY)
        second = (second * SQUARE_DECAY).addcmul(gradient, gradient, value=1 - SQUARE_DECAY)
        count = taken.double() + 1
        rate, root = (
            as_column(sent(values.to(images.dtype), images), images)
            for values in (self.learning_rate / (1 - DECAY**count), (1 - SQUARE_DECAY**count).sqrt())
        )
        ascended = points - images + rate * (first / (second.sqrt() / root + MIN_ROOT))
        moved = clip_to(images + self.ball.project(ascended), setting.box)
        for key, values in (("adversarial", moved), ("first", first), ("second", second)):
            state[key] = state[key].index_copy(0, index, values)
        passes = 2 * self.samples * self.expectation.passes
        state["forward"] = state["forward"].index_add(0, index, passes * ~broken)
        state["iteration"][moving] += 1

    def _estimate(
        self, setting: Setting, model: Forward, anchors: Tensor, goal: Tensor, rows: Tensor, taken: Tensor
    ) -> Tensor:
        """Estimates the margin's gradient at `anchors`, like them, from directions keyed by example."""
        entries, found = anchors[0].numel(), []
        together = max(1, self.samples_per_pass // self.samples)
        for group, classes, owners, steps in zip(
            *(values.split(together) for values in (anchors, goal, rows, taken)), strict=True
        ):
            packed = random_signs(setting, owners, steps, self.samples, entries, group.device)
            total = torch.zeros_like(group).flatten(1)  # (B, D)
            for part in packed.split(self.samples_per_pass, dim=1):
                signs = unpack(part, entries, group.dtype)  # (B, S, D)
                slopes = self._differences(model, group, signs, classes) / (2 * self.delta)  # (B, S)
                total += torch.bmm(slopes[:, None], signs)[:, 0]
            found.append((total / self.samples).view_as(group))
        return torch.cat(found)

    def _differences(self, model: Forward, anchors: Tensor, signs: Tensor, goal: Tensor) -> Tensor:
        slots, count, _ = signs.shape
        origin = anchors.flatten(1)[:, None]
        points = torch.empty(2, *signs.shape, dtype=signs.dtype, device=signs.device)
        torch.add(origin, signs, alpha=self.delta, out=points[0])
        torch.sub(origin, signs, alpha=self.delta, out=points[1])
        objective = self._margin(goal[None, :, None].expand(2, slots, count).flatten())
        drawn = [model(points.view(-1, *anchors.shape[1:])) for _ in range(self.expectation.passes)]
        if self.expectation.average == "logits":
            drawn = [torch.stack(drawn).mean(0)]
        values = torch.stack([objective(logits) for logits in drawn]).mean(0)
        above, below = values.view(2, slots, count)
        difference: Tensor = above - below
        return difference.where(difference.isfinite(), 0.0)

    def _margin(self, goal: Tensor) -> Objective:
        if self.goal.targeted:
            return lambda logits: -margin(logits, goal)
        return lambda logits: margin(logits, goal)
