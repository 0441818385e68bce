"""The jobs of a valid study: of each arm with each seed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from assay.service.contract.fractions import canonical
from assay.service.contract.stored_specs import EvaluateJobSpec, TrainJobSpec
from assay.service.studies.wire import ArmTemplate
from assay.service.submission.shape import STUDY

MAX_NAME = 200


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed: the jobs to store."""

    arm: int  # position of the arm
    seed: int
    train: TrainJobSpec | None  # the training; None for an arm that is not trained
    key: str  # equal for equal trainings
    evaluate: EvaluateJobSpec  # the evaluation; see `with_weights`


def planned_runs(templates: Sequence[ArmTemplate], seeds: Sequence[int], study: str) -> Iterator[PlannedRun]:
    """The jobs of a study, seed by seed: of a study that is stopped, the first seeds are whole."""
    for seed in seeds:
        for index, template in enumerate(templates):
            label = f"{study or STUDY}: {template['name']}, seed {seed}"
            train = template["train"]
            if train is not None:
                train = {**train, "seed": seed, "name": f"{label}, training"[:MAX_NAME]}
            evaluate = {**template["evaluate"], "seed": seed, "name": label[:MAX_NAME]}
            yield PlannedRun(index, seed, train, training_key(train), cast(EvaluateJobSpec, evaluate))


def training_key(train: Mapping[str, Any] | None) -> str:
    """Equal for trainings that give the same weights: model, data, recipe, seed and execution are equal."""
    if train is None:
        return ""
    same = {name: train[name] for name in ("model", "data", "recipe", "seed", "execution")}
    return json.dumps(same, sort_keys=True)


def configuration_of(template: ArmTemplate) -> str:
    """Equal for arms that differ in nothing but their name: model, recipe, data and execution are equal."""
    evaluate = template["evaluate"]
    same = {name: evaluate[name] for name in ("model", "data", "execution")}
    return json.dumps(canonical([training_key(template["train"]), same]), sort_keys=True)


def equal_arms(arms: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    """What to say of arms with the configuration of an earlier arm; an arm is its name and configuration."""
    first: dict[str, str] = {}
    for name, configuration in arms:
        if configuration is None:
            continue
        earlier = first.setdefault(configuration, name)
        if earlier != name:
            yield (
                f"arms {earlier!r} and {name!r} are the same configuration (model, recipe and data):"
                " their difference does not compare methods"
            )


def with_weights(evaluate: EvaluateJobSpec, training: str) -> EvaluateJobSpec:
    """The evaluation of the weights of a stored training."""
    model = {**evaluate["model"], "weights": {"job": training}}
    return cast(EvaluateJobSpec, {**evaluate, "model": model})


def job_count(arms: Sequence[bool], seeds: int) -> int:
    """Jobs of a study, those counted twice that are shared."""
    return seeds * sum(2 if trained else 1 for trained in arms)
