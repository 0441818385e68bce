"""A finished study of an embedded service, read from its database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.service.contract.states import JobState
from assay.service.contract.times import iso
from assay.service.store.store import open_store
from assay.service.store.tenants import TenantStore, View
from assay.service.studies.result_wire import StudyCell
from assay.service.studies.results import study_results
from assay.service.studies.rows import StudyRow
from assay.service.studies.store import Studies
from assay.service.studies.stored_results import measured_of
from benchmarks.evidence.archive import Archive, reduced

DATABASE = "assay.sqlite"


def collected(state: Path, study_id: str) -> Archive:
    """The study with its tested metrics, of the seeds of which all jobs have succeeded.

    Raises ValueError: no seed is whole, the code changed between jobs, or results need more than is kept.
    """
    with open_store(f"sqlite:///{state.resolve() / DATABASE}", migrate=False) as store:
        mine = TenantStore(store, View(tenant=None, everything=True))
        study = _whole(mine.features.of(Studies).get(study_id))
        plan, arms, _ = measured_of(mine, study)
        jobs = [mine.jobs.get(run.job_id) for run in study.runs]
        known: dict[str, dict[str, Any]] = {job.id: dict(job.provenance or {}) for job in jobs}
        first = next(iter(known.values()))
        facts = {
            "study": study_id,
            "design": study.design if study.fixing and study.fixing["registered_at"] else None,
            "fixed_at": iso(study.created_at),
            "first_run": min(one["times"]["started_at"] for one in known.values()),
            "seconds": round(sum(one["times"]["measured_seconds"] for one in known.values())),
            "jobs": len(known),
            **{name: first[name] for name in ("code", "packages", "device")},
        }
        if any(
            (one["code"], one["device"]["name"]) != (first["code"], first["device"]["name"])
            for one in known.values()
        ):
            raise ValueError(f"study {study_id}: its jobs ran with other code, or on another processor")
        found = Archive(study.spec, plan, reduced(plan, arms), facts)
        whole = {_place(cell): cell.comparisons for cell in study_results(plan, arms).cells}
        for cell in found.results().cells:
            if cell.comparisons != whole[_place(cell)]:
                raise ValueError(f"study {study_id}: {cell.evaluation} does not follow from the kept columns")
        return found


def _whole(study: StudyRow) -> StudyRow:
    lost = {run.seed for run in study.runs if run.state != JobState.SUCCEEDED}
    seeds = [seed for seed in study.spec["seeds"] if seed not in lost]
    if not seeds:
        raise ValueError(f"study {study.id}: of no seed have all jobs succeeded")
    runs = [run for run in study.runs if run.seed not in lost]
    return replace(study, spec={**study.spec, "seeds": seeds}, runs=runs)


def _place(cell: StudyCell) -> tuple[str, str, str, str]:
    return cell.evaluation, str(cell.params), str(cell.data), cell.metric
