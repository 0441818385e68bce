"""The models of other jobs that evaluations use: they have to fit, and to be the same from plan to result.

The plan records each with the hash of its weights' content; a shard takes no other weights than those.
"""

from __future__ import annotations

from assay.service.contract.messages import EvaluateRequest, ModelSource, PlanRequest
from assay.service.contract.problems import path_text
from assay.service.contract.records import ForeignModel
from assay.service.contract.stored_specs import ComponentReference, EvaluateJobSpec
from assay.service.submission.dependencies import Need, needs_of
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.session import Loaded, Session
from assay.workers.weights.fit import FACTS, check_fit, made_for


def planned_sources(request: PlanRequest, session: Session, loaded: Loaded) -> dict[str, ForeignModel]:
    """What the plan keeps of the other models that a job uses.

    Args:
        request: The plan request; its `sources` are {job: {"spec", "weights"}}, with the path of the weights.
        session: Loads them, one after the other.
        loaded: The evaluated model.

    Returns:
        {job: {"model": {"name", "params"}, "weights_sha256"}}

    Raises:
        BadWeights: weights are gone, or do not fit their model.
        ValueError: a model is made for other images or classes.
    """
    found: dict[str, ForeignModel] = {}
    for need in _needs(request):
        source = _source(need, request)
        _check_data(need, source, request["spec"], session)
        if need.job not in found:
            other = _load(need, source, request["spec"], session, loaded)
            stated = source["spec"]["model"]
            model: ComponentReference = {"name": stated["name"], "params": stated["params"]}
            found[need.job] = {"model": model, "weights_sha256": other.weights_sha256}
    return found


def shard_sources(request: EvaluateRequest, session: Session, loaded: Loaded) -> dict[str, Loaded]:
    """The other models of the evaluation that an evaluate request is about, by job.

    Raises:
        BadWeights: weights are gone, or do not fit their model.
        ValueError: weights changed since the job was planned.
    """
    planned = request["plan"].get("sources", {})  # plans of earlier versions have none
    found: dict[str, Loaded] = {}
    for need in _needs(request):
        if need.evaluation != request["evaluation"]:
            continue
        other = _load(need, _source(need, request), request["spec"], session, loaded)
        if need.job in planned and other.weights_sha256 != planned[need.job]["weights_sha256"]:
            raise ValueError(f"the weights of job {need.job} changed since the job was planned")
        found[need.job] = other
    return found


def _needs(request: PlanRequest | EvaluateRequest) -> list[Need]:
    return [need for need in needs_of(request["spec"]) if need.evaluation is not None]


def _source(need: Need, request: PlanRequest | EvaluateRequest) -> ModelSource:
    source = request.get("sources", {}).get(need.job)
    if source is None:
        raise BadWeights(f"{path_text(need.loc)}: job {need.job}, whose model is needed, was deleted")
    return source


def _check_data(need: Need, source: ModelSource, spec: EvaluateJobSpec, session: Session) -> None:
    assert need.evaluation is not None
    evaluated = session.data(spec["evaluations"][need.evaluation]["data"] or spec["data"], "test")
    trained_on = session.data(source["spec"]["data"], "test")
    for fact in FACTS:
        theirs, ours = made_for(trained_on, fact), made_for(evaluated, fact)
        if theirs != ours:
            raise ValueError(
                f"{path_text(need.loc)}: the model of job {need.job} is made for {theirs} {fact},"
                f" {evaluated.name!r} has {ours}"
            )
    check_fit(evaluated, trained_on, None, path_text(need.loc))


def _load(need: Need, source: ModelSource, spec: EvaluateJobSpec, session: Session, loaded: Loaded) -> Loaded:
    other = session.other(source, spec["execution"], device=loaded.device.type)
    if other.image_size != loaded.image_size:
        raise ValueError(
            f"{path_text(need.loc)}: the model of job {need.job} is for images of {other.image_size} pixels,"
            f" the evaluated one for {loaded.image_size}"
        )
    return other
