"""Leaderboards by method: the jobs of the same weights are one line, and the weights of a method one row.

Weights that several jobs measured on the same examples have the lowest accuracy of all of them. A method is a
model with its parameters and the training of its weights, without seeds: its accuracy is the mean over its
weights, which are its seeds. An arithmetic coarser than float32 makes a row of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from assay.service.contract.fractions import canonical
from assay.service.contract.results import data_label
from assay.service.contract.stored_specs import Spec, UserSpec, WeightsReference
from assay.service.contract.warning_codes import SEVERITIES, SEVERITY
from assay.service.leaderboard.entries import LeaderboardEntry, Method, gravest_first, value_of
from assay.service.metrics.statistics.student_t import quantile
from assay.service.reports.numbers import chosen_params, label_title

LEVEL = 0.05
READING = ("part", "normalization", "positions")  # What of a reference to weights changes their model.


def method_of(job: str, spec: UserSpec, sha256: str | None, trainings: Mapping[str, Spec]) -> Method:
    """The method that made an evaluation's weights; a deleted training makes a method of its own weights."""
    if sha256 is None:
        return Method(job, job)
    model, source = spec["model"], spec["model"]["weights"]
    reading = {name: (source or {}).get(name) for name in READING}
    made = {"model": [model["name"], model["params"]], "reading": reading}
    training = trainings.get((source or {}).get("job", ""))
    params = chosen_params(model["name"], model["params"], "model")
    recipe, seed = "random weights", spec["seed"] if source is None else None
    if training is not None and training["kind"] == "train":
        made_by, data = training["recipe"], label_title(data_label(training["data"]))
        recipe, seed = f"{made_by['name']} on {data}", training["seed"]
        chosen = chosen_params(made_by["name"], made_by["params"], "recipe")
        params |= {f"recipe {name}": value for name, value in chosen.items()}
    elif source is not None:
        recipe = "weights of unknown training" if {"job", "checkpoint"} & source.keys() else "pulled weights"
    origin = _origin(source, sha256, trainings)
    return Method(_key([made, origin]), _key([made, sha256]), recipe, seed, params)


def _origin(source: WeightsReference | None, sha256: str | None, trainings: Mapping[str, Spec]) -> Any:
    """What tells the training of weights from others, without seeds; the weights themselves where unknown."""
    if source is None:
        return "random"
    training = trainings.get(source.get("job", ""))
    if training is None or training["kind"] != "train":
        return sha256 if sha256 is not None else dict(source)
    start = training["model"]
    return {
        "model": [start["name"], start["params"]],
        "recipe": training["recipe"],
        "data": training["data"],
        "dtype": training["execution"]["dtype"],
        "start": _origin(start["weights"], None, trainings),
    }


def _key(content: Any) -> str:
    return json.dumps(canonical(content), sort_keys=True)


@dataclass(frozen=True)
class RankedMethod:
    """A method with its place in a group.

    `rank` is None where all its numbers are `unranked`. `distinct` is False where its interval overlaps that
    of the first: they are not told apart. `weights` has a line for each set of weights, the highest accuracy
    first, unranked ones last; `mean` and `sd` are over the others.
    """

    rank: int | None
    distinct: bool
    mean: float
    sd: float | None
    seeds: int
    weights: tuple[LeaderboardEntry, ...]


def same_weights(entries: Iterable[LeaderboardEntry]) -> list[LeaderboardEntry]:
    """One entry for the same weights in a group and arithmetic: the lowest accuracy, with all attacks."""
    # A number is left out where a warning of its own attack alone makes it invalid and another job has a
    # valid one; what makes every number of the weights invalid, as a model that sees the future, stays.
    found: dict[tuple[str, str], list[LeaderboardEntry]] = {}
    for entry in entries:
        found.setdefault((entry.method.weights, entry.arithmetic), []).append(entry)
    return [_joined(same) for same in found.values()]


def _joined(same: Sequence[LeaderboardEntry]) -> LeaderboardEntry:
    sound = [entry for entry in same if not entry.invalid]
    always = any(SEVERITY[warning.code] == SEVERITIES[0] for entry in same for warning in entry.warnings)
    counted = same if always or not sound else sound
    lowest = min(counted, key=lambda entry: (value_of(entry.metric), not entry.ensemble, entry.job))
    notes = [entry.strength for entry in counted if entry.ensemble]
    clean = next((entry for entry in (lowest, *counted) if entry.clean is not None), lowest)
    return replace(
        lowest,
        attacks=tuple(dict.fromkeys(name for entry in counted for name in entry.attacks)),
        ensemble=any(entry.ensemble for entry in counted),
        clean=clean.clean,
        clean_references=clean.clean_references,
        parameters=next((entry.parameters for entry in counted if entry.parameters is not None), None),
        passes=sum(entry.passes for entry in counted),
        seconds=math.fsum(entry.seconds for entry in counted),
        warnings=gravest_first(warning for entry in counted for warning in entry.warnings),
        strength=notes[0] if notes else lowest.strength,
        jobs=tuple(entry.job for entry in same),
    )


def ranked_methods(entries: Iterable[LeaderboardEntry], most: int | None = None) -> list[RankedMethod]:
    """The `most` first methods of a group by mean; equal ones share a rank, unranked ones come last."""
    found: dict[tuple[str, str], list[LeaderboardEntry]] = {}
    for entry in same_weights(entries):
        found.setdefault((entry.method.key, entry.arithmetic), []).append(entry)
    methods = sorted((_method(weights) for weights in found.values()), key=_order)[:most]
    ranked: list[RankedMethod] = []
    for place, method in enumerate(methods, start=1):
        equal = ranked[-1] if ranked and ranked[-1].mean == method.mean else None
        rank = None if method.weights[0].unranked else equal.rank if equal is not None else place
        ranked.append(replace(method, rank=rank, distinct=not _overlap(methods[0], method)))
    return ranked


def _order(method: RankedMethod) -> tuple[bool, float, str, str]:
    first = method.weights[0]
    return first.unranked, -method.mean, first.model, first.job


def _method(weights: Sequence[LeaderboardEntry]) -> RankedMethod:
    ordered = sorted(weights, key=lambda one: (one.unranked, -value_of(one.metric), one.job))
    counted = [one for one in ordered if not one.unranked] or ordered
    values = [value_of(one.metric) for one in counted]
    sd = stdev(values) if len(values) > 1 else None
    return RankedMethod(None, True, fmean(values), sd, len(values), tuple(ordered))


def _overlap(first: RankedMethod, other: RankedMethod) -> bool:
    low, high = _end(first, upper=False), _end(other, upper=True)
    if low is None or high is None:
        return first.mean == other.mean
    return high >= low


def _end(method: RankedMethod, *, upper: bool) -> float | None:
    """An end of the method's 95 % interval: Student's t over seeds, and the examples' interval."""
    counted = method.weights[: method.seeds]
    ends = [one.metric.ci_high if upper else one.metric.ci_low for one in counted]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    of_examples = abs(fmean(known) - method.mean)
    of_seeds = 0.0
    if method.sd is not None:
        of_seeds = quantile(LEVEL, method.seeds - 1) * method.sd / math.sqrt(method.seeds)
    return method.mean + (1 if upper else -1) * math.hypot(of_examples, of_seeds)
