"""The Square Attack, a random search that uses logits only.

Andriushchenko et al. 2020 (`kernels/square_windows.py`). The defaults are from AutoAttack's standard version.
Native draws are keyed by example: the released code has the same squares for a whole batch.

    x' = P(x + the change of a random square), kept where z_y - max_{i != y} z_i falls

Deviations from the released code (pyautoattack 0.2.0): images of any shape, also in L2; nothing fails where
all examples are broken at the start; a margin of exactly 0 doesn't end the search while the label is still
predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.losses import margin
from assay.attacks.adversarial.kernels.square.draws import Keyed, SquareDraws, Streamed
from assay.attacks.adversarial.kernels.square.proposals import (
    L1Proposals,
    L2Proposals,
    LinfProposals,
    Proposals,
)
from assay.attacks.adversarial.kernels.square.windows import SCHEDULE_LENGTH
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.libraries.cleverhans import native_only
from assay.attacks.adversarial.libraries.pyautoattack_square_fab import library_square
from assay.attacks.expectation import JUDGING, PIXEL_ONLY, SINGLE, Expectation
from assay.attacks.kernel import Attack, Examples, Forward, Objective, Setting, State, begin, record
from assay.attacks.passes import ask
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, BallNorm, LpNorm, as_column, lp_ball

__all__ = ["square"]

ALSO = ("square attack",)
TASKS = ("classification",)
THREAT = {
    "knowledge": "black_box",
    "search": "iterative",
    "batch_draws": {"compatible": "True", "pyautoattack": "True"},
}
TABLE = "attack"
PAPER = "Andriushchenko et al. 2020, Square Attack: a query-efficient black-box attack via random search"
# One pass for the clean image; per restart one for the start and one per query; the library's function judges
# the images at the beginning and at the end, and the kernel judges its result again.
PASSES = (f"params.restarts * (params.queries + 2) * params.eot + 3 + {JUDGING}", "0")
RULES = (
    parameters.LINF_RULE,
    ("not params.targeted or params.backend == 'native'", "only the native backend has targets"),
    *parameters.TARGET_RULES,
    parameters.EOT_RULE,
    PIXEL_ONLY,
)


def square(
    *,
    epsilon: parameters.ProtocolRadius = 8 / 255,
    norm: LpNorm = "Linf",
    queries: Annotated[int, Interval(ge=1, le=1_000_000)] = 5000,
    share: Annotated[float, Interval(gt=0, le=1)] = 0.8,
    rescale_schedule: bool = False,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    targeted: bool = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    eot: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    eot_average: parameters.EotAverage = "losses",
    judgement: parameters.Judging = "expected",
    model_draws: parameters.ModelDraws = 100,
    backend: parameters.LibraryBackend = "native",
) -> Attack:
    """Random search with squares of falling size; it needs no gradients.

    Args:
        norm: Norm of the ball.
        queries: Squares that are tried in each restart, after the start.
        share: Share of the image that the first squares cover (p_init).
        rescale_schedule: Shrink the squares over `queries` instead of over 10 000.
        restarts: How many starts.
        targeted: Lower the cross-entropy to a target class instead of the margin; an example that is
            misclassified in any way counts as broken all the same; `target_hit_rate`
            counts those that end in the target.
        eot: Passes at each iterate, for models that answer at random (expectation over transformation).
            Native only.
    """
    if backend != "native":
        native_only(eot)
    if queries < 1 or restarts < 1:
        raise ValueError(f"queries ({queries}) and restarts ({restarts}) must be at least 1")
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, it must be above 0 and at most 1")
    if targeted and backend != "native":
        raise ValueError(f"only the native backend has targets, not {backend}")
    ball, goal = lp_ball(norm, epsilon), Goal(targeted, target, target_class)
    if backend == "pyautoattack":
        return library_square(
            ball, queries=queries, share=share, rescale_schedule=rescale_schedule, restarts=restarts
        )
    expectation = Expectation(eot, eot_average, judgement, model_draws)
    return _Square(ball, goal, queries, share, rescale_schedule, restarts, backend, expectation)


@dataclass(frozen=True)
class _Square:
    """A step of the kernel evaluates one proposal for every slot, keeps it if it is better, and proposes."""

    ball: Ball
    goal: Goal
    queries: int
    share: float
    rescale_schedule: bool
    restarts: int
    backend: parameters.LibraryBackend
    expectation: Expectation = SINGLE
    name: ClassVar[str] = "square"
    gradient: ClassVar[bool] = False

    @cached_property
    def _proposals(self) -> Proposals:
        chosen: dict[BallNorm, Callable[[float, float], Proposals]]
        chosen = {"Linf": LinfProposals, "L2": L2Proposals, "L1": L1Proposals}
        return chosen[self.ball.norm](self.ball.epsilon, self.share)

    @cached_property
    def _draws(self) -> SquareDraws:
        return Streamed() if self.backend == "compatible" else Keyed()

    @property
    def _own_best(self) -> bool:
        return self.restarts > 1 or self.expectation.expected or self.goal.targeted

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots.

        With several restarts, a target, or expected accuracy, it adds `current`, the best iterate of the
        present restart, and `highest`, its objective, (B,).
        """
        images = examples.images
        state = begin(examples, self.goal.choose(setting, examples), images, targeted=self.goal.targeted)
        if self._own_best:
            state |= {"current": images, "highest": torch.full_like(state["objective"], torch.nan)}
        width = self._proposals.plan_width(*images.shape[1:])
        return state | self._draws.state(len(images), width, images.device)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Draws a start or a proposal for every slot, evaluates it, and keeps it where it is better."""
        least, most = (int(number) for number in state["iteration"].aminmax())
        if most > 0:
            self._propose(setting, state)
        if least == 0:
            self._begin(setting, state, (state["iteration"] == 0).nonzero().flatten())
        logits, values = ask(model, state, self._objective(state["goal"]), self.expectation)
        record(setting, state, logits, values)
        if self._own_best:
            self._accept(state, values)
        state["iteration"] += 1
        if most == self.queries:
            final = state["iteration"] > self.queries
            state["iteration"][final] = 0
            state["restart"] += final
            state["done"] = state["restart"] >= self.restarts

    def _objective(self, goal: Tensor) -> Objective:
        return self.goal.objective(goal) if self.goal.targeted else lambda logits: margin(logits, goal)

    def _begin(self, setting: Setting, state: State, slots: Tensor) -> None:
        index = sent(slots, state["images"])
        images = state["images"][index]
        tiles, width = self._proposals.start_shape(*images.shape[1:])
        draws = self._draws.start(setting, state["row"][slots], state["restart"][slots], tiles, width)
        first = self._proposals.start(images, sent(draws, images), setting.box)
        state["adversarial"] = state["adversarial"].index_copy(0, index, first)
        if self._own_best:
            # Lower than the objective of any start.
            state["highest"] = state["highest"].index_fill(0, index, torch.nan)

    def _propose(self, setting: Setting, state: State) -> None:
        images, query, proposals = state["images"], state["iteration"] - 1, self._proposals
        width, shared = proposals.query_width(images.shape[1])

        def plan(draws: Tensor, queries: Tensor) -> Tensor:
            return proposals.plan(draws, self._on_schedule(queries), images.shape[1:])

        plans = self._draws.query(setting, state, query, width, shared, plan)
        best = state["current" if self._own_best else "best"]
        state["adversarial"] = proposals.propose(images, best, plans, self._on_schedule(query), setting.box)

    def _on_schedule(self, query: Tensor) -> Tensor:
        if not self.rescale_schedule:
            return query
        return (query.double() / self.queries * SCHEDULE_LENGTH).long()

    @staticmethod
    def _accept(state: State, values: Tensor) -> None:
        # NaN is below everything, as in `record`.
        better = ~(values <= state["highest"])
        chosen = as_column(better, state["current"])
        state["current"] = torch.where(chosen, state["adversarial"], state["current"])
        state["highest"] = torch.where(better, values, state["highest"])
