"""The Python client's calls about studies; their results are tables in notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal
from urllib.parse import urlencode

from assay.service.catalog.catalog import load
from assay.service.client.groups import Group, GroupCalls
from assay.service.client.notebook_tables import cell_text
from assay.service.client.transport import API, parsed, part, polling
from assay.service.contract.errors import InvalidState, NotFound
from assay.service.contract.results import Answer, Job
from assay.service.reports.numbers import RADIUS, difference_bounds, number, params_text, row_params
from assay.service.reports.run_record import RunRecord, flattened
from assay.service.studies.designs.wire import DesignSummary, RegisteredDesign
from assay.service.studies.result_wire import ArmValue, StudyCell, StudyComparison, StudyResults
from assay.service.studies.text import extension
from assay.service.studies.wire import StudyDryRun, StudyStatus, StudySummary

STUDIES = f"{API}/studies"
DESIGNS = f"{API}/designs"
SPEED_EXAMPLES = 256


class StudyResultsView(StudyResults):
    """Results of a study; the tested metrics are a table in notebooks."""

    def _repr_html_(self) -> str:
        others = [arm for arm in self.arms if arm != self.baseline]
        head = ["evaluation", "metric", *self.arms]
        head += [text for arm in others for text in (f"{arm} less {self.baseline}", "adjusted p")]
        rows = [self._row(cell, others) for cell in self.cells if cell.tested]
        state = "" if self.complete else f"<p><b>Not complete: {len(self.missing)} runs are missing.</b></p>"
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
        table = f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"
        seeds = f"seeds: {', '.join(map(str, self.seeds))}; {self.tests} p-values, adjusted by {self.adjust}"
        notes = (*extension(self), *self.notes, *(warning.message for warning in self.warnings))
        listed = "".join(f"<li>{cell_text(note)}</li>" for note in dict.fromkeys(notes))
        return f"{state}{table}<p>{cell_text(seeds)}</p>{f'<ul>{listed}</ul>' if listed else ''}"

    def _row(self, cell: StudyCell, others: Sequence[str]) -> list[str]:
        values = {value.arm: value for value in cell.arms}
        differences = {found.arm: found for found in cell.comparisons}
        params = row_params(cell)
        named = {RADIUS: params[RADIUS]} if params.get(RADIUS) else params
        texts = [f"{cell.evaluation} {params_text(named)}".strip(), cell.metric]
        texts += [_mean(values.get(arm), cell) for arm in self.arms]
        for arm in others:
            texts += _difference(differences.get(arm), cell)
        return texts


class DesignCalls(GroupCalls):
    """Designs of studies, registered before they run."""

    def register_study(self, spec: Mapping[str, Any] | str | bytes) -> RegisteredDesign:
        """Stores the design of a study with its digest and the time; nothing is queued.

        A design that is registered keeps its time. Raises InvalidSpec with a detail per wrong field.
        """
        return parsed(RegisteredDesign, self._json("POST", DESIGNS, body=spec))

    def design(self, digest: str) -> RegisteredDesign:
        """A registered design with the studies that were posted from it."""
        return parsed(RegisteredDesign, self._json("GET", f"{DESIGNS}/{part(digest)}"))

    def canonical_design(self, digest: str) -> bytes:
        """The canonical JSON of a registered design (RFC 8785); its SHA-256 is the digest."""
        return self._call("GET", f"{DESIGNS}/{part(digest)}", params={"format": "canonical"}).content

    def designs(self, *, page_size: int = 50) -> Iterator[DesignSummary]:
        """All registered designs, newest first; pages are fetched on demand."""
        return self._pages(DesignSummary, DESIGNS, {"limit": page_size})

    def delete_design(self, digest: str) -> None:
        """Deletes a design that no study was posted from."""
        self._call("DELETE", f"{DESIGNS}/{part(digest)}")


class StudyCalls(DesignCalls):
    """Arms x seeds x evaluations: submitted, watched, extended, canceled, resumed, compared."""

    def submit_study(
        self,
        spec: Mapping[str, Any] | str | bytes,
        *,
        idempotency_key: str | None = None,
        design: str | None = None,
        budget: float | None = None,
    ) -> StudyStatus:
        """Posts a study, as a spec or its JSON text; all its jobs are queued, or none.

        A call with the same `idempotency_key` (None: random) returns the same study. `design`: the digest of
        a registered design, which the study must be. `budget`: seconds of computing, to which the study is
        cut; its `fixing` says what it gave up. Raises InvalidSpec with a detail per wrong field;
        TooManyRequests: the tenant's queue lacks room.
        """
        asked = {"design": design, "budget": budget}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        path = f"{STUDIES}?{query}" if query else STUDIES
        return parsed(StudyStatus, self._submitted(path, spec, idempotency_key))

    def submit_design(self, digest: str, *, idempotency_key: str | None = None) -> StudyStatus:
        """Posts the study of a registered design."""
        path = f"{DESIGNS}/{part(digest)}/studies"
        return parsed(StudyStatus, self._submitted(path, {}, idempotency_key))

    def plan_study(
        self,
        spec: Mapping[str, Any] | str | bytes,
        *,
        design: str | None = None,
        budget: float | None = None,
    ) -> StudyDryRun:
        """The jobs of a study and their estimated work; nothing is stored. Else as `submit_study`."""
        asked = {"dry_run": "true", "design": design, "budget": budget}
        params = {name: value for name, value in asked.items() if value is not None}
        return parsed(StudyDryRun, self._json("POST", STUDIES, params=params, body=spec))

    def measure_study(self, spec: Mapping[str, Any] | str | bytes, *, timeout_seconds: float = 120.0) -> None:
        """Measures the speed of each arm that no job of the caller has measured on the device.

        A job for each arm: the first evaluation on 256 examples, without the arm's weights. Raises
        TimeoutError; the jobs are then canceled.
        """
        planned = self.plan_study(spec)
        whole, measured = planned.spec, []
        execution = {name: whole["execution"][name] for name in ("device", "batch_size")}
        shared = {"kind": "evaluate", "tags": ["budget"], "execution": execution, "limit": SPEED_EXAMPLES}
        shared |= {"protocol": whole["protocol"], "evaluations": [_first(whole["evaluations"])]}
        works = [work for told in planned.arms for work in (told.train, told.evaluate) if work is not None]
        if any(work["seconds"] is None for work in works):
            return  # of data that are counted when a job is planned: the service refuses a budget
        for arm, told in zip(whole["arms"], planned.arms, strict=True):
            if not told.evaluate["seconds_measured"]:
                model = {name: value for name, value in arm["model"].items() if name != "weights"}
                own = {"name": f"speed of {arm['name']}", "model": model, "data": arm["data"]}
                job = self._submitted(f"{API}/jobs", shared | own, None)
                measured.append(str(job["id"]))
        ended: set[str] = set()
        try:
            for job_id in measured:
                self._ended(
                    f"job {job_id}",
                    partial(self._speed_job, job_id),
                    callback=None,
                    poll_seconds=0.5,
                    timeout_seconds=timeout_seconds,
                )
                ended.add(job_id)
        finally:
            for job_id in [one for one in measured if one not in ended]:
                with suppress(InvalidState):
                    self._call("POST", f"{API}/jobs/{job_id}/cancel")

    def _speed_job(self, job_id: str) -> Job:
        return parsed(Job, self._json("GET", f"{API}/jobs/{part(job_id)}"))

    def study(self, study_id: str) -> StudyStatus:
        """The study with its jobs, in its present state."""
        return parsed(StudyStatus, self._json("GET", f"{STUDIES}/{part(study_id)}"))

    def studies(self, *, page_size: int = 50) -> Iterator[StudySummary]:
        """All studies, newest first; pages are fetched on demand."""
        return self._pages(StudySummary, STUDIES, {"limit": page_size})

    @polling("study")
    def wait_study(
        self,
        study_id: str,
        *,
        callback: Callable[[StudyStatus], None] | None = None,
        poll_seconds: float = 1.0,
        timeout_seconds: float | None = None,
    ) -> StudyStatus:
        """Polls until all jobs of the study have ended; errors are as of `wait`."""
        return self._ended(
            f"study {study_id}",
            lambda: self.study(study_id),
            callback=callback,
            poll_seconds=poll_seconds,
            timeout_seconds=timeout_seconds,
        )

    def study_results(self, study_id: str) -> StudyResultsView:
        """The results so far. Raises NoResults before the first evaluation has finished."""
        return parsed(StudyResultsView, self._json("GET", f"{STUDIES}/{part(study_id)}/results"))

    def study_table(self, study_id: str, format: Literal["csv", "md", "markdown"] = "md") -> str:  # noqa: A002
        """The results so far: a Markdown table of tested metrics, or all as CSV."""
        path = f"{STUDIES}/{part(study_id)}/results"
        return self._call("GET", path, params={"format": {"md": "markdown"}.get(format, format)}).text

    def extend_study(self, study_id: str, seeds: Sequence[int]) -> StudyStatus:
        """Queues the jobs of further seeds."""
        path = f"{STUDIES}/{part(study_id)}/seeds"
        return parsed(StudyStatus, self._json("POST", path, body={"seeds": list(seeds)}))

    def cancel_study(self, study_id: str) -> StudyStatus:
        """Cancels all jobs of the study that have not ended."""
        return parsed(StudyStatus, self._json("POST", f"{STUDIES}/{part(study_id)}/cancel"))

    def retry_study(self, study_id: str) -> StudyStatus:
        """Queues the failed, canceled and timed-out jobs of the study again."""
        return parsed(StudyStatus, self._json("POST", f"{STUDIES}/{part(study_id)}/retry"))

    def delete_study(self, study_id: str) -> None:
        """Deletes a study that has ended, with its jobs."""
        self._call("DELETE", f"{STUDIES}/{part(study_id)}")

    def _group(self, found: str | Answer) -> Group:
        if isinstance(found, StudyStatus):
            return Group(found, self._record_of(found), _jobs_of(found), _evaluations_of(found))
        try:
            return self._group(self.study(str(found)))
        except NotFound as error:
            raise NotFound(f"there is no job and no study {found!r}") from error

    def _record_of(self, study: StudyStatus) -> RunRecord:
        tags = {"assay.job": study.id, "assay.url": f"{self.url}{study.links.self}", "assay.kind": "study"}
        return RunRecord(
            job=study.id,
            name=study.name.strip() or study.id,
            kind="study",
            state=study.state,
            study=None,
            spec=study.spec,
            params=flattened(
                {name: value for name, value in study.spec.items() if name not in ("name", "tags")}
            ),
            metrics={},
            tags={**tags, "assay.state": study.state.value},
            labels=tuple(study.tags),
        )


def _first(evaluations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first evaluation; of a suite that the client's catalog has the suite's first."""
    first, catalog = evaluations[0], load()
    if first.get("suite") not in catalog.names("suite"):
        return first
    listed = catalog.find("suite", first["suite"]).evaluations
    return listed[0] if listed else first


def _jobs_of(study: StudyStatus) -> list[str]:
    runs = (run for arm in study.runs for run in arm.runs)
    jobs = (job for run in runs for job in ((run.train, run.train_state), (run.evaluate, run.evaluate_state)))
    return list(dict.fromkeys(job for job, state in jobs if job is not None and state != "deleted"))


def _evaluations_of(study: StudyStatus) -> list[str]:
    runs = (run for arm in study.runs for run in arm.runs)
    return [run.evaluate for run in runs if run.evaluate_state != "deleted"]


def _mean(value: ArmValue | None, cell: StudyCell) -> str:
    if value is None:
        return "-"
    spread = "" if value.sd is None else f" ± {number(value.sd, cell.unit)}"
    return number(value.mean, cell.unit) + spread


def _difference(found: StudyComparison | None, cell: StudyCell) -> list[str]:
    if found is None:
        return ["-", "-"]
    known = found.ci_low is not None
    interval = f" {difference_bounds(found.ci_low, found.ci_high, cell.unit)}" if known else ""
    p = "-" if found.test is None else f"{found.test.adjusted_p_value:.2g}"
    return [number(found.difference, cell.unit, sign=True) + interval, p]


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{cell_text(text)}</{tag}>" for text in texts)
