"""Sparse descent in L1, called SLD in the papers on attention.

Tramer and Boneh 2019, "Adversarial Training and Robustness for Multiple Perturbations" (SLIDE there), with
the arithmetic of cleverhans 4.0 (`sparse_l1_descent`): with q the sparsity and n the entries of an image,
what is outside the L1 ball after a step is rescaled, not moved to the ball's nearest point.

    e_i = sign(g_i) if |g_i| is at least the floor(q n)-th smallest, else 0
    x' = clip(x0 + P(x + s e / |e|_1 - x0)),    P scales to an L1 norm of at most epsilon

Deviations from the library: its random start has no effect (the image overwrites it, and its draws would be
Laplace around 1, not 0), ours is uniform in the ball; the loss is summed, not averaged; a gradient that is
not finite counts as zero; entries that the range would clip are not skipped unless asked for. In the `pixel`
protocol every iterate counts, in `paper` the last one of each restart. The other defaults are the library's,
with which RPC-Attention's released code calls it, without a range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.projected_ascent import Ascent
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.libraries.cleverhans import Cleverhans, native_only
from assay.attacks.expectation import PIXEL_ONLY, Expectation
from assay.attacks.kernel import Attack, Forward, Setting, State
from assay.attacks.threat import Ball, Fraction, L1Ball, clip_to, steepest_sparse

__all__ = ["sparse_l1_descent"]

TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative", "norm": "L1", "mean_loss_in": ["cleverhans"]}
TABLE = "attack"
FACTS = {"loss": "ce"}
PAPER = "Tramer and Boneh 2019, Adversarial Training and Robustness for Multiple Perturbations"
PASSES = parameters.ASCENT_PASSES
RULES = (
    parameters.RESTARTS_RULE,
    *parameters.TARGET_RULES,
    (
        "params.backend != 'cleverhans' or not params.random_start",
        "cleverhans' random start has no effect: use the native backend, or no random_start",
    ),
    parameters.EOT_RULE,
    PIXEL_ONLY,
)


def sparse_l1_descent(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1_000_000)] = 10.0,
    steps: parameters.Steps = 20,
    step_size: Annotated[Fraction, Interval(gt=0, le=1_000_000)] = 1.0,
    sparsity: Annotated[float, Interval(ge=0, lt=1)] = 0.99,
    skip_clipped: bool = True,
    random_start: bool = False,
    restarts: parameters.ProtocolRestarts = 1,
    targeted: parameters.Targeted = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    eot: parameters.Eot = 1,
    eot_average: parameters.EotAverage = "losses",
    judgement: parameters.Judging = "expected",
    model_draws: parameters.ModelDraws = 100,
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """Gradient steps along the few largest entries of the gradient, in an L1 ball of radius epsilon.

    Args:
        epsilon: L1 radius, summed over all entries of an image: in pixel units in `pixel`, in units of the
            normalised images in `paper`.
        step_size: L1 length of a step.
        sparsity: Share of the entries that a step leaves alone.
        skip_clipped: Choose no entries that are at the end of their range and would be moved beyond it
            (cleverhans' `clip_grad`, off by default there). Without it an attack stands still where the
            largest entries are such. No effect in `paper`, which has no range.
        random_start: Begin at a random point, uniform in the ball.
        backend: Our kernel, or the library's function (which looks at the last iterate only).
    """
    if steps < 1 or restarts < 1:
        raise ValueError(f"steps ({steps}) and restarts ({restarts}) must be at least 1")
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity is {sparsity}, it must be at least 0 and below 1")
    ball, goal = L1Ball(epsilon), Goal(targeted, target, target_class)
    if backend == "cleverhans":
        native_only(eot)
        return _cleverhans(ball, goal, step_size, steps, sparsity, skip_clipped, random_start, restarts)
    return SparseAscent(
        "sparse_l1_descent",
        ball,
        goal,
        step_size=step_size,
        steps=steps,
        restarts=restarts,
        random_start=random_start,
        expectation=Expectation(eot, eot_average, judgement, model_draws),
        sparsity=sparsity,
        skip_clipped=skip_clipped,
    )


@dataclass(frozen=True)
class SparseAscent(Ascent):
    """Projected ascent whose steps move the entries with the largest gradients."""

    sparsity: float = 0.99
    skip_clipped: bool = True

    def _direction(self, setting: Setting, state: State, gradient: Tensor) -> Tensor:
        entries = gradient[0].numel()
        count = entries - max(1, int(self.sparsity * entries)) + 1
        if self.skip_clipped and setting.box is not None:
            low, high = setting.box
            points = state["adversarial"]
            clipped = ((points <= low) & (gradient < 0)) | ((points >= high) & (gradient > 0))
            gradient = gradient.masked_fill(clipped, 0.0)
        return steepest_sparse(gradient, count)

    def _first_iterate(self, setting: Setting, rows: Tensor, restart: Tensor, images: Tensor) -> Tensor:
        if not self.random_start:
            return images
        ids, shape, number = setting.ids_of(rows), tuple(images.shape[1:]), restart.tolist()
        dtype, device = images.dtype, images.device
        direction = setting.randomness.uniform(ids, shape, restart=number, dtype=dtype, device=device)
        radius = setting.randomness.uniform(
            ids, (), restart=number, purpose="radius", dtype=dtype, device=device
        )
        return clip_to(images + self.ball.uniform_point(direction, radius), setting.box)


def _cleverhans(
    ball: Ball,
    goal: Goal,
    step_size: float,
    steps: int,
    sparsity: float,
    skip_clipped: bool,
    random_start: bool,
    restarts: int,
) -> Cleverhans:
    if random_start or restarts > 1:
        raise ValueError("cleverhans' random start has no effect: use the native backend for random starts")

    def run(model: Forward, images: Tensor, labels: Tensor, bounds: dict[str, float]) -> Tensor:
        from cleverhans.torch.attacks.sparse_l1_descent import sparse_l1_descent as theirs

        if int(sparsity * images[0].numel()) < 1:
            raise ValueError(f"sparsity ({sparsity}) must leave at least one entry alone in cleverhans")
        found: Tensor = theirs(
            model,
            images,
            ball.epsilon,
            step_size,
            steps,
            labels,
            goal.targeted,
            clip_grad=skip_clipped and bool(bounds),
            grad_sparsity=sparsity * 100,
            # It asserts on the host what the engine has checked.
            sanity_checks=False,
            **bounds,
        )
        return found

    return Cleverhans("sparse_l1_descent", ball, goal, run, steps)
