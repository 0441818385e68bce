"""Data and other models of evaluations: they must fit, and keep the content that the plan recorded."""

from __future__ import annotations

from typing import TypedDict

from assay.service.contract.corruption_cells import content_label
from assay.service.contract.extras import require_module
from assay.service.contract.messages import EvaluateRequest, HashReport, HashRequest, ModelSource, PlanRequest
from assay.service.contract.problems import path_text
from assay.service.contract.records import ForeignModel, Plan
from assay.service.contract.results import data_label
from assay.service.contract.stored_specs import ComponentReference, EvaluateJobSpec, EvaluationItem
from assay.service.submission.dependencies import Dependency, dependencies_of
from assay.service.submission.requirements import library_of
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, MissingData
from assay.workers.jobs.failures import BadWeights, OtherData
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.session import Session
from assay.workers.weights.fit import FACTS, check_fit, made_for
from assay.workers.weights.training_record import trained_on


class PlannedSources(TypedDict):
    """The fields of a plan about other models."""

    sources: dict[str, ForeignModel]
    sources_not_compared: list[str]


def planned_sources(request: PlanRequest, session: Session, loaded: Loaded) -> PlannedSources:
    """The plan's record of other models used by a job, and the jobs with `gradients_not_compared`.

    The request's `sources` are {job: {"spec", "weights"}}, with the path of the weights, by a job's id or
    `checkpoint:NAME@SHA256`. The record is {job: {"model": {"name", "params"}, "weights_sha256"}}.
    """
    found: dict[str, ForeignModel] = {}
    not_compared: list[str] = []
    for dependency in _required(request):
        source = _source(dependency, request)
        if source["spec"]["kind"] == "train":
            _check_data(dependency, source, request["spec"], session)
        else:
            _check_upload(dependency, source, request["spec"], session, loaded)
        if dependency.job not in found:
            other = _load(dependency, source, request["spec"], session, loaded)
            stated = source["spec"]["model"]
            model: ComponentReference = {"name": stated["name"], "params": stated["params"]}
            found[dependency.job] = {"model": model, "weights_sha256": other.weights_sha256}
            not_compared += [dependency.job] * other.gradients_not_compared
    return {"sources": found, "sources_not_compared": not_compared}


def shard_sources(request: EvaluateRequest, session: Session, loaded: Loaded) -> dict[str, Loaded]:
    """The other models of a request's evaluation, by job; BadWeights, or a ValueError where they changed."""
    planned = request["plan"].get("sources", {})  # plans of earlier versions have none
    found: dict[str, Loaded] = {}
    for dependency in _required(request):
        if dependency.evaluation != request["evaluation"]:
            continue
        other = _load(dependency, _source(dependency, request), request["spec"], session, loaded)
        if dependency.job in planned and other.weights_sha256 != planned[dependency.job]["weights_sha256"]:
            raise ValueError(f"the weights of {_named(dependency)} changed since the job was planned")
        found[dependency.job] = other
    return found


def _required(request: PlanRequest | EvaluateRequest) -> list[Dependency]:
    return [
        dependency for dependency in dependencies_of(request["spec"]) if dependency.evaluation is not None
    ]


def _source(dependency: Dependency, request: PlanRequest | EvaluateRequest) -> ModelSource:
    source = request.get("sources", {}).get(dependency.job)
    if source is None:
        raise BadWeights(
            f"{path_text(dependency.loc)}: {_named(dependency)}, whose model is needed, was deleted"
        )
    return source


def _named(dependency: Dependency) -> str:
    return f"job {dependency.job}" if dependency.checkpoint is None else f"checkpoint {dependency.checkpoint}"


def _check_upload(
    dependency: Dependency, source: ModelSource, spec: EvaluateJobSpec, session: Session, loaded: Loaded
) -> None:
    assert dependency.evaluation is not None
    examples = session.data(spec["evaluations"][dependency.evaluation]["data"] or spec["data"], "test")
    record = trained_on(_load(dependency, source, spec, session, loaded))
    names = None if record is None else record.class_names
    check_fit(examples, session.data(spec["data"], "test"), names, path_text(dependency.loc))


def _check_data(dependency: Dependency, source: ModelSource, spec: EvaluateJobSpec, session: Session) -> None:
    assert dependency.evaluation is not None
    evaluated = session.data(spec["evaluations"][dependency.evaluation]["data"] or spec["data"], "test")
    trained_on = session.data(source["spec"]["data"], "test")
    for fact in FACTS:
        theirs, ours = made_for(trained_on, fact), made_for(evaluated, fact)
        if theirs != ours:
            raise ValueError(
                f"{path_text(dependency.loc)}: the model of {_named(dependency)} is made for {theirs} {fact},"
                f" {evaluated.name!r} has {ours}"
            )
    check_fit(evaluated, trained_on, None, path_text(dependency.loc))


def _load(
    dependency: Dependency, source: ModelSource, spec: EvaluateJobSpec, session: Session, loaded: Loaded
) -> Loaded:
    other = session.other(source, spec["execution"], device=loaded.device_class)
    if other.image_size != loaded.image_size:
        raise ValueError(
            f"{path_text(dependency.loc)}: the model of {_named(dependency)} is for images of"
            f" {other.image_size} pixels, the evaluated one for {loaded.image_size}"
        )
    return other


def hash_data(request: HashRequest, session: Session) -> HashReport:
    """Answer a hash request; MissingData or CorruptData where a data set cannot be read."""
    found: dict[str, str] = {}
    for index in request["evaluations"]:
        item = request["spec"]["evaluations"][index]
        found |= content_hash(session, request["spec"], item, examples_of(session, request["spec"], item))
    return {"type": "hashed", "data_sha256": found}


def examples_of(session: Session, spec: EvaluateJobSpec, item: EvaluationItem) -> ExampleSet:
    """The data set of an evaluation; for stored corrupted images the requested ones, or MissingData."""
    data = session.data(item["data"] or spec["data"], "test")
    chosen: ExampleSet = catalog.task(data.task).chosen(data, item["params"])
    return chosen


def content_hash(
    session: Session, spec: EvaluateJobSpec, item: EvaluationItem, examples: ExampleSet
) -> dict[str, str]:
    """The hashes of an evaluation's data set, by its label, and of files that its corruptions read."""
    if (library := library_of(item["params"])) is not None:
        require_module(f"the backend {library!r} of {item['name']!r}", library)
    label = content_label(data_label(item["data"] or spec["data"]), item["params"])
    found = {label: session.content_sha256(label, examples)}
    evaluation = catalog.build("evaluation", item["name"], item["params"])()
    for corruption in getattr(evaluation, "kernels", ()):
        label = " ".join(filter(None, ("files of", corruption.name, corruption.variant)))
        if corruption.files is None or label in found:
            continue
        try:
            found[label] = corruption.files()
        except ValueError as error:
            raise MissingData(str(error)) from error
    return found


def check_content(
    plan: Plan, session: Session, spec: EvaluateJobSpec, item: EvaluationItem, examples: ExampleSet
) -> None:
    """Refuse to measure on other data than was planned: OtherData has both hashes."""
    for label, found in content_hash(session, spec, item, examples).items():
        planned = plan["data_sha256"].get(label, found)
        if planned != found:
            raise OtherData(
                f"the data set {label} has the content {found} on this worker, {planned} in the plan"
            )
