"""A study that fits a budget of computing time, and what it gives up.

The order: 1. seeds, down to 4; 2. the length of the trainings, down to half; 3. seeds, down to 2; 4. arms,
the last first, never the baseline and the arm of the primary question. With fewer arms it begins again at 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FEW_SEEDS, MIN_SEEDS, MIN_SHARE = 4, 2, 0.5
LENGTHS = ("epochs", "steps")  # Parameters of recipes that say how long they train


@dataclass(frozen=True)
class ArmCost:
    """Seconds that an arm takes with each seed. `shortens`: its recipe says how long it trains."""

    name: str
    train: float  # 0 without a training of its own
    evaluate: float
    shortens: bool
    kept: bool


@dataclass(frozen=True)
class Fit:
    """A study in its budget; `share` is what is left of the length of trainings, in (0, 1]."""

    arms: list[str]
    seeds: int
    share: float
    seconds: float


def fit(arms: Sequence[ArmCost], seeds: int, budget: float) -> Fit | None:
    """The study that gives up least for a budget in seconds; None where the least study is over it."""
    left = list(arms)
    while True:
        found = _with_arms(left, seeds, budget)
        droppable = [arm for arm in left if not arm.kept]
        if found is not None or not droppable:
            return found
        left.remove(droppable[-1])


def least_seconds(arms: Sequence[ArmCost], seeds: int) -> float:
    """Seconds of the least study."""
    return min(seeds, MIN_SEEDS) * _of_seed([arm for arm in arms if arm.kept], MIN_SHARE)


def _with_arms(arms: Sequence[ArmCost], seeds: int, budget: float) -> Fit | None:
    few, fewest = min(seeds, FEW_SEEDS), min(seeds, MIN_SEEDS)
    names = [arm.name for arm in arms]
    for count in range(seeds, few - 1, -1):
        if count * _of_seed(arms, 1.0) <= budget:
            return Fit(names, count, 1.0, count * _of_seed(arms, 1.0))
    for count in range(few, fewest - 1, -1):
        short = math.fsum(arm.train for arm in arms if arm.shortens)
        share = (budget / count - _of_seed(arms, 0.0)) / short if short else 0.0
        if share >= MIN_SHARE:
            share = min(share, 1.0)
            return Fit(names, count, share, count * _of_seed(arms, share))
    return None


def _of_seed(arms: Sequence[ArmCost], share: float) -> float:
    return math.fsum(arm.evaluate + arm.train * (share if arm.shortens else 1.0) for arm in arms)


def fitted_spec(spec: Mapping[str, Any], fit: Fit) -> tuple[dict[str, Any], list[str]]:
    """The spec of a valid study as it fits, and in words what it gives up; nothing if all fits."""
    kept, given_up = [], []
    out = [arm["name"] for arm in spec["arms"] if arm["name"] not in fit.arms]
    seeds = len(spec["seeds"])
    if fit.seeds < seeds:
        given_up.append(f"{fit.seeds} seed{'' if fit.seeds == 1 else 's'} of {seeds}")
    for arm in spec["arms"]:
        if arm["name"] in fit.arms:
            shorter, told = _shortened(arm, fit.share)
            kept.append(shorter)
            given_up += told
    if out:
        given_up.append(f"without arm{'' if len(out) == 1 else 's'} {', '.join(map(repr, out))}")
    changed = {**spec, "arms": kept, "seeds": spec["seeds"][: fit.seeds]}
    return changed, list(dict.fromkeys(given_up))


def shortens(arm: Mapping[str, Any]) -> bool:
    """Whether the recipe of an arm says how long it trains."""
    params = (arm["recipe"] or {}).get("params", {})
    return any(isinstance(params.get(name), int) for name in LENGTHS)


def _shortened(arm: Mapping[str, Any], share: float) -> tuple[dict[str, Any], list[str]]:
    if share == 1.0 or not shortens(arm):
        return dict(arm), []
    params = arm["recipe"]["params"]
    new = {
        name: max(1, math.floor(share * params[name]))
        for name in LENGTHS
        if isinstance(params.get(name), int)
    }
    told = [f"{value:,} {name} of {params[name]:,}" for name, value in new.items() if value < params[name]]
    return {**arm, "recipe": {**arm["recipe"], "params": {**params, **new}}}, told
