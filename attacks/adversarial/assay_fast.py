"""A cheap ensemble: targeted margins with a growing budget, then a check without gradients.

Its accuracy is not comparable with published ones of AutoAttack (`docs/attacks.md`). Each stage attacks what
those before have left:

    apgd_pairs    Auto-PGD on the margin z_t - z_y: `steps` steps for the wrong class t with the highest
                  logit, then for each of the other `targets` side by side, then up to `rounds` times
                  2 `steps` more for the pairs that have come close to the boundary or still approach it
    square        `queries` random squares for a share `check_share` of the examples: they need no gradient;
                  where they break any, gradients are masked
    confirm       the stages of AutoAttack's version "standard"; only if asked for

Targets are the classes with the highest logits; of more than 20 classes those that a linear model reaches
first among `candidates` (MALT, Melamed et al. 2024). Rule for the budget: `kernels/paired_ascent.py`. The
sample is drawn with the job's seed and the example's id. Auto-PGD is by Croce and Hein 2020, the margin by
Carlini and Wagner 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.adversarial.kernels.paired_ascent import PairedAscent
from assay.attacks.adversarial.square import square
from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, concatenate, select
from assay.attacks.threat import Ball

__all__ = ["assay_fast"]

TASKS = ("classification",)
THREAT = {
    "knowledge": "white_box",
    "search": "ensemble",
    "upper_bound": "assay_fast gives an upper bound on true robustness, as AutoAttack does: an adaptive"
    " attack, made for this model, is needed before it is called robust",
}
TABLE = "attack"
PAPER = (
    "Croce and Hein 2020, Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse "
    "Parameter-free Attacks (Auto-PGD); Melamed et al. 2024, MALT Powers Up Adversarial Attacks (targets)"
)
# A loading pass per stage, and AutoAttack's passes with `confirm`.
PASSES = (
    "4 + params.targets * (params.steps + 1 + params.rounds * (2 * params.steps + 1)) + params.queries"
    " + params.confirm * (4 + 101 + 9 * 101 + 9 * 202 + 5003)",
    "params.candidates + params.targets * params.steps * (1 + 2 * params.rounds)"
    " + params.confirm * (100 + 9 * 100 + 9 * 200)",
)
# Under any protocol of the job.
PROTOCOLS = ("pixel",)
RULES = (
    parameters.LINF_RULE,
    ("params.candidates >= params.targets", "candidates must be at least targets"),
    ("not params.confirm or data.classes >= 4", "confirm needs at least 4 classes, as AutoAttack does"),
)
# With more classes than this the logits are a poor order of targets.
MANY_CLASSES = 20


def assay_fast(
    *,
    epsilon: parameters.BallRadius = 8 / 255,
    norm: parameters.NormOfBall = "Linf",
    targets: Annotated[int, Interval(ge=1, le=1000)] = 6,
    steps: Annotated[int, Interval(ge=1, le=10_000)] = 5,
    rounds: Annotated[int, Interval(ge=0, le=100)] = 3,
    candidates: Annotated[int, Interval(ge=1, le=1000)] = 10,
    queries: Annotated[int, Interval(ge=1, le=1_000_000)] = 200,
    check_share: Annotated[float, Interval(ge=0, le=1)] = 0.05,
    confirm: bool = False,
) -> Ensemble:
    """Targeted margin attacks with a budget that grows where it pays, and a black-box check; not AutoAttack.

    Args:
        targets: Wrong classes that are attacked side by side; all of them where there are fewer.
        steps: Gradient steps on each target before any is given up.
        rounds: How often a target that may still be reached gets twice as many steps more.
        candidates: Among how many classes the targets are chosen where there are more than 20.
        queries: Of Square, for each example of the sample.
        check_share: Share of the remaining examples that Square attacks.
        confirm: Whether AutoAttack (version standard) attacks what is left.
    """
    if min(targets, steps, candidates) < 1 or rounds < 0:
        raise ValueError(
            f"targets ({targets}), steps ({steps}) and candidates ({candidates}) must be at least 1, and"
            f" rounds ({rounds}) at least 0"
        )
    if candidates < targets:
        raise ValueError(f"candidates is {candidates}, it must be at least targets, {targets}")
    if not 0 <= check_share <= 1:
        raise ValueError(f"check_share is {check_share}, it must be from 0 to 1")
    ball = Ball(norm, epsilon)
    stages: list[Attack] = [
        PairedAscent("apgd_pairs", ball, targets, steps, rounds, candidates, MANY_CLASSES),
        _Sample(square(epsilon=epsilon, norm=norm, queries=queries), check_share),
    ]
    more = autoattack(epsilon=epsilon, norm=norm).stages if confirm else ()
    return Ensemble("assay_fast", (*stages, *more))


@dataclass(frozen=True)
class _Sample:
    """An attack on a share of the examples; the others leave at once, without a pass."""

    attack: Attack
    share: float
    backend: ClassVar[str] = "native"

    @property
    def name(self) -> str:
        return self.attack.name

    @property
    def gradient(self) -> bool:
        return self.attack.gradient

    @property
    def ball(self) -> Ball | None:
        return self.attack.ball

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots; those outside the sample are done."""
        state, ids = self.attack.start(setting, examples), setting.ids_of(examples.rows)
        drawn = setting.randomness.uniform(ids, (), purpose="sample", dtype=torch.float64)
        left_out = drawn >= self.share
        return state | {"left_out": left_out, "done": state["done"] | left_out}

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        attacked = (~state["left_out"]).nonzero().flatten()
        if len(attacked) == 0:
            return
        if len(attacked) == len(state["left_out"]):
            self.attack.step(setting, model, state)
            return
        resting = state["left_out"].nonzero().flatten()
        moved = select(state, attacked)
        self.attack.step(setting, model, moved)
        both = concatenate([moved, select(state, resting)])
        state.update(select(both, torch.cat([attacked, resting]).argsort()))
