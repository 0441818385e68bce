"""A job's dependencies: its weights, and attacks' models, by job id or as `checkpoint:NAME@SHA256`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from assay.service.catalog.catalog import load
from assay.service.contract.errors import NotFound
from assay.service.contract.problems import Loc
from assay.service.contract.stored_specs import Spec, evaluations_in
from assay.service.submission.weights import LOC, checkpoint_named


@dataclass(frozen=True)
class Dependency:
    """A field that names a training job, or a checkpoint, as a source of weights."""

    job: str  # Id of the job; of a checkpoint the field's value, in the store its checking job's id
    loc: Loc  # The field, in a spec with expanded suites
    checkpoint: str | None = None  # The name of an uploaded checkpoint; None for a training job
    sha256: str | None = None  # Of a checkpoint's file, as the field states it

    @property
    def evaluation(self) -> int | None:
        """Index of the evaluation that needs it; None for the job's own weights."""
        return int(self.loc[1]) if self.loc[0] == "evaluations" else None


def dependencies_of(spec: Spec) -> list[Dependency]:
    """Fields of a valid spec, in order, that name another job, or for an attack a checkpoint."""
    weights = (spec["model"].get("weights") or {}).get("job")
    return [*([Dependency(weights, (*LOC, "job"))] if weights else []), *_of_evaluations(spec)]


def _of_evaluations(spec: Spec) -> Iterator[Dependency]:
    for index, item in enumerate(evaluations_in(spec)):
        with contextlib.suppress(NotFound):  # A name unknown to this version is refused by the evaluator.
            component = load().find_evaluation(item["name"])
            for parameter, job in component.jobs(item.get("params", {})):
                name, sha256 = checkpoint_named(job) or (None, None)
                yield Dependency(job, ("evaluations", index, "params", parameter), name, sha256)
