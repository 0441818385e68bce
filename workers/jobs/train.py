"""The train shard: trains a classifier, resuming from its last checkpoint, then evaluates it once.

The result of a training job is the clean accuracy of the final weights on the data set's held-out split,
and artifacts: `weights.safetensors`, `training_log.jsonl` and `training_curves.svg`; a recipe that keeps an
average of the weights leaves `weights_ema.safetensors` too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from service.contract.results import data_label
from workers import catalog, provenance
from workers.artifacts import describe
from workers.data.sampling import evaluation_order
from workers.jobs.backbone import source_of
from workers.jobs.evaluate import Shard, answer
from workers.jobs.plan import choose_batch_size, facts_of, measure_cost
from workers.jobs.session import Session, state_sha256
from workers.jobs.trained_on import TrainedOn
from workers.training.loop import train
from workers.training.making import makers_for
from workers.training.recipe import Recipe

Report = Callable[[Mapping[str, Any]], None]
CLEAN: dict[str, Any] = {"name": "clean", "params": {}}


def run(request: Mapping[str, Any], session: Session, report: Report) -> dict[str, Any]:
    """Answer a train request.

    Raises:
        MissingData: the data set is not there.
        TrainingDiverged: the loss is not finite.
        ValueError: model and data do not fit each other.
    """
    spec, begun = request["spec"], time.monotonic()
    data = session.data(spec["data"], "train")
    held_out = session.data(spec["data"], "test")  # if it is missing, that is said before the training
    shared = len(set(data.ids) & set(held_out.ids))
    catalog.check_rules(spec, data)
    loaded = session.classifier(spec, device=spec["execution"]["device"], weights=request["weights"])
    recipe: Recipe = catalog.build("recipe", spec["recipe"]["name"], spec["recipe"]["params"])()
    size = loaded.image_size if recipe.crops is None else recipe.crops.size
    _, saved_bytes = measure_cost(loaded, data.channels, size)
    batch_size = choose_batch_size(spec["execution"]["batch_size"], loaded.device.type, saved_bytes)
    classifier = loaded.classifier
    sources = _sources(spec["model"], request["weights"])
    trained = train(
        classifier,
        data,
        recipe,
        seed=spec["seed"],
        image_size=loaded.image_size,
        batch_size=batch_size,
        device=loaded.device,
        dtype=loaded.dtype,
        folder=Path(request["folder"]),
        checkpoint_seconds=request["checkpoint_seconds"],
        report=report,
        makers=makers_for(request["cores"], torch.get_num_threads()),
        metadata={"job": request["job"], "model": json.dumps(spec["model"], sort_keys=True)}
        | TrainedOn(spec["data"], data.class_names, shared).as_metadata(),
    )
    # The cached classifier now holds trained weights; the next request must not mistake it for a new one.
    session.forget()
    order = evaluation_order(held_out.name, held_out.ids, None)
    outcomes = Shard(held_out, order, loaded, batch_size, spec, _silent).evaluate(CLEAN)
    outcome = answer(outcomes, time.monotonic() - begun)
    left = [trained.weights_path, trained.log_path, trained.curves_path, trained.average_path]
    examples = trained.steps * min(batch_size, len(data.ids))
    forward, backward = (1, 1) if recipe.adversarial is None else recipe.adversarial.passes
    return outcome | {
        "forward_passes": examples * forward + outcome["forward_passes"],
        "backward_passes": examples * backward,
        "extra": {
            "plan": {
                "device": loaded.device.type,
                "batch_size": batch_size,
                "untrained": False,
                "weights_sha256": state_sha256(classifier),
                "sources": sources,
                # The metric is measured on the held-out split, as in an evaluation job.
                "data_sha256": {
                    data_label(spec["data"]): held_out.content_sha256(),
                    f"{data_label(spec['data'])} (training split)": data.content_sha256(),
                },
                "evaluations": [facts_of(held_out, len(order)) | ({"seen": shared} if shared else {})],
            },
            "artifacts": [describe(path) for path in left if path is not None],
            "attack": False,
            "evidence": outcomes.evidence(),
            "provenance": provenance.collect(loaded.device, loaded.dtype),
        },
    }


def _sources(model: Mapping[str, Any], weights: str | None) -> dict[str, Any]:
    """The job that a backbone's weights come from, for the provenance; a checkpoint's hash is in the spec."""
    stated = model["weights"] or {}
    if weights is None or stated.get("part") is None or "job" not in stated:
        return {}
    return {stated["job"]: source_of(model, Path(weights))}


def _silent(message: Mapping[str, Any]) -> None:
    """The held-out evaluation is not counted as training steps."""
