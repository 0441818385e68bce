"""Weights that come from a job: whether there are any, and whether they fit the model that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from service.contract.parameters import check
from service.contract.report import Loc, Report

if TYPE_CHECKING:
    from service.contract.catalog import Checked

DEAD_ENDS = ("failed", "canceled", "timed_out")
EXPIRED = "the weights of this job have expired: they were deleted because the job ended long ago"
LOC: Loc = ("model", "weights")


class JobLike(Protocol):
    """What has to be known of a job whose weights are used."""

    @property
    def kind(self) -> str:
        """As in `specs`: train or evaluate."""

    @property
    def state(self) -> str:
        """As in `states.JobState`."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """With every default filled in."""

    @property
    def expired(self) -> bool:
        """Whether its weights were deleted because it ended long ago."""


FindJob = Callable[[str], JobLike | None]


def find_source(
    model: Mapping[str, Any], report: Report, find_job: FindJob | None
) -> Mapping[str, Any] | None:
    """The spec of the training job that a model's weights come from, or None; what is wrong is reported.

    Args:
        model: The well-formed parts of a `ModelSpec`.
        report: Receives what is wrong with the weights.
        find_job: Job id to the job, or None when there is no such job; without it nothing is looked up.
    """
    weights = model.get("weights") or {}
    if "timm" in weights and model.get("name", "timm") != "timm":
        message = "only the model 'timm' has pretrained weights"
        report.add((*LOC, "timm"), message, given=True, allowed='{"job": id}, or no weights')
    if "checkpoint" in weights:
        message = "uploaded checkpoints come in a later version"
        allowed = '{"job": id} or {"timm": true}'
        report.add((*LOC, "checkpoint"), message, given=weights["checkpoint"], allowed=allowed)
    if "job" not in weights or find_job is None:
        return None
    return check_source(weights["job"], report, (*LOC, "job"), find_job)


def check_source(given: str, report: Report, loc: Loc, find_job: FindJob) -> Mapping[str, Any] | None:
    """The spec of the training job that a field names, or None; what is wrong is reported.

    The job may be unfinished: whoever needs its weights waits for them.

    Args:
        given: The job's id, as it came.
        report: Receives what is wrong with the job.
        loc: The field.
        find_job: Job id to the job, or None when there is no such job.
    """
    job = find_job(given)
    complaint = _complaint(job)
    if job is None or complaint is not None:
        allowed = "the id of a training job that has its weights, or has not ended"
        report.add(loc, complaint or "", given=given, allowed=allowed)
        return None
    return job.spec


def _complaint(job: JobLike | None) -> str | None:
    if job is None:
        return "there is no such job"
    if job.kind != "train":
        return f"this job is of kind {job.kind}: it leaves no weights"
    if job.state in DEAD_ENDS:
        return f"this job is {job.state!s}: it leaves no weights"
    return EXPIRED if job.expired else None


def check_same_model(model: Checked, trained: Mapping[str, Any], report: Report) -> None:
    """Report where a model differs from the one that was trained: its weights fit no other.

    Args:
        model: The model that is asked for.
        trained: {"name", "params"} of the training job.
        report: Receives one remark per parameter that differs.
    """
    component = model.component
    if component.name != trained["name"]:
        message = f"the weights are of the model {trained['name']!r}"
        report.add(("model", "name"), message, given=component.name, allowed=[trained["name"]])
        return
    # Parameters that are newer than the training job had their defaults in it.
    wanted = check(component.parameters, dict(trained["params"]), Report(), component=_trusted)
    for name, value in model.params.items():
        if name in wanted and wanted[name] != value:
            message = f"the weights are of a model with {name} {wanted[name]}"
            report.add(("model", "params", name), message, given=value, allowed=[wanted[name]])


def _trusted(kind: str, value: object, loc: Loc, report: Report) -> object:
    return value
