"""The train shard: trains a classifier, resuming from its last checkpoint, then evaluates it once.

The result of a training job is the clean accuracy of the final weights on the data set's held-out split (of
a language model its perplexity), and artifacts: `weights.safetensors`, `training_log.jsonl` and
`training_curves.svg`; a recipe that averages the weights writes `weights_ema.safetensors` too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.messages import OutcomeReport, TrainRequest
from assay.service.contract.records import Evidence, ForeignModel, PlannedEvaluation
from assay.service.contract.results import data_label
from assay.service.contract.stored_specs import ModelReference, TrainJobSpec
from assay.workers import catalog
from assay.workers.data.formats.sampling import evaluation_order
from assay.workers.evaluation.engine.pursuit import watched_pursuit
from assay.workers.jobs import provenance
from assay.workers.jobs.artifacts import describe
from assay.workers.jobs.data_facts import count_cut, facts_of
from assay.workers.jobs.evaluate import answer, evaluation_of, shard_of
from assay.workers.jobs.final_evaluation import final_evaluation
from assay.workers.jobs.loading import Loaded, state_sha256
from assay.workers.jobs.session import Session
from assay.workers.jobs.trainer import Report, Told, shared_examples, train_model
from assay.workers.training.distributed.launch import train_on_devices
from assay.workers.training.recipe import Recipe
from assay.workers.training.result import Trained
from assay.workers.weights.backbone import source_of


def run(request: TrainRequest, session: Session, report: Report) -> OutcomeReport:
    """Answer a train request; errors as of `train_model`."""
    spec, begun = request["spec"], time.monotonic()
    data = session.data(spec["data"], "train")
    held_out = session.data(spec["data"], "test")  # if it is missing, this fails before the training
    shared = shared_examples(data.ids, held_out.ids)
    catalog.check_rules(spec, data)
    recipe: Recipe = catalog.build("recipe", spec["recipe"]["name"], spec["recipe"]["params"])()
    sources = _sources(spec["model"], request["weights"])
    provenance.remember_origin(spec["model"])  # after the training they may be gone
    devices, told = spec["execution"].get("devices", 1), Told(report)
    if devices == 1:
        loaded, trained = train_model(request, session, told.steps)
    else:
        session.forget()  # an earlier model leaves no room for the others
        trained = train_on_devices(request, told.steps)
        loaded = _trained_model(spec, session, str(trained.weights_path))
    each = -(-trained.at_once // devices)  # one device evaluates
    order = evaluation_order(held_out.name, held_out.ids, None)
    shard = shard_of(spec, loaded, held_out, order, batch_size=each, progress=told.judged(len(order)))
    with watched_pursuit(loaded.classifier) as pursuit:
        outcomes = evaluation_of(final_evaluation(spec), held_out.task).measure(shard)
    outcome = answer(outcomes, time.monotonic() - begun)
    left = [trained.weights_path, trained.log_path, trained.curves_path, trained.average_path]
    examples = trained.steps * trained.batch_size
    facts = facts_of(held_out, len(order))
    if shared:
        facts["seen"] = shared
    if cut := count_cut(held_out, order, loaded.image_size):
        facts["cut"] = cut
    if cut := count_cut(data, range(len(data.ids)), loaded.image_size):
        facts["cut_in_training"], facts["training"] = cut, len(data.ids)
    _note_course(facts, recipe, trained)
    asked = spec["execution"]["batch_size"]
    _note_step(facts, recipe, trained.batch_size, loaded.image_size, None if asked == "auto" else asked)
    forward, backward = (1, 1) if recipe.adversarial is None else recipe.adversarial.passes
    return {
        **outcome,
        "forward_passes": examples * forward + outcome["forward_passes"],
        "backward_passes": examples * backward,
        "extra": {
            "plan": {
                "device": loaded.device_class,
                "batch_size": trained.batch_size,
                "untrained": False,
                "weights_sha256": state_sha256(loaded.classifier),
                "sources": sources,
                # The metric is measured on the held-out split, as in an evaluation job.
                "data_sha256": {
                    data_label(spec["data"]): held_out.content_sha256(),
                    f"{data_label(spec['data'])} (training split)": data.content_sha256(),
                },
                "evaluations": [facts],
            },
            "artifacts": [describe(path) for path in left if path is not None],
            "attack": False,
            "protocol": load_catalog().task(held_out.task).row_protocol("pixel"),
            "evidence": cast(Evidence, outcomes.evidence() | shard.methods.evidence(shard) | pursuit),
            "provenance": provenance.collect(loaded.device, loaded.dtype, spec),
        },
    }


def _note_course(facts: PlannedEvaluation, recipe: Recipe, trained: Trained) -> None:
    if trained.reduced is not None:
        facts["reduced_in_training"] = trained.reduced
    if trained.unsaved:
        facts["unsaved_checkpoints"] = trained.unsaved
    if recipe.selection == "released_test":
        facts["selected_on_test"] = 1


def _note_step(
    facts: PlannedEvaluation, recipe: Recipe, batch: int, length: int, asked: int | None = None
) -> None:
    published = recipe.published_examples(length)
    if published is None or published == batch:
        return
    facts["published_batch"], facts["step_batch"] = published, batch
    # A step is smaller than asked for only where the training set is.
    if (wanted := recipe.step_examples(asked or batch, length)) > batch:
        facts["asked_batch"] = wanted
    if recipe.reference_batch is not None:
        facts["peak"] = recipe.peak_learning_rate(batch)
        facts["published_peak"] = recipe.peak_learning_rate(published)


def _trained_model(spec: TrainJobSpec, session: Session, weights: str) -> Loaded:
    plain: TrainJobSpec = {**spec, "model": {**spec["model"], "weights": {"job": ""}}}
    return session.classifier(plain, device=spec["execution"]["device"], weights=weights)


def _sources(model: ModelReference, weights: str | None) -> dict[str, ForeignModel]:
    """The job that a backbone's weights come from, for the provenance; a checkpoint's hash is in the spec."""
    stated = model["weights"] or {}
    if weights is None or stated.get("part") is None or "job" not in stated:
        return {}
    return {stated["job"]: source_of(model, Path(weights))}
