"""The Python client's calls that mirror jobs to experiment trackers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from assay.service.client.trackers import Tracker, TrackerName, tracker
from assay.service.client.transport import API, parsed, part
from assay.service.contract.errors import AssayError, InvalidState, NoResults, NotFound
from assay.service.contract.results import Job, Results
from assay.service.files.job_files import RESULTS_FILE, SIGNATURE_FILE
from assay.service.reports.client import ReportCalls
from assay.service.reports.run_record import RunRecord, flattened, run_record
from assay.service.studies.wire import StudyStatus

REPORT_FILE = "report.html"
STUDY_FILE = "study.json"


@dataclass(frozen=True)
class Mirrored:
    """A mirrored job or study; `where`: MLflow's tracking URI or Weights & Biases' project."""

    job: str
    state: str
    run: str
    metrics: int
    where: str


class MirrorCalls(ReportCalls):
    """Mirrors jobs to MLflow or Weights & Biases, with the caller's credentials alone."""

    def mirror(
        self,
        jobs: str | Iterable[str],
        to: TrackerName,
        *,
        tracking_uri: str | None = None,
        project: str | None = None,
        entity: str | None = None,
        report: bool = False,
        follow: bool = False,
        poll_seconds: float = 5.0,
        callback: Callable[[Mirrored], None] | None = None,
    ) -> list[Mirrored]:
        """Makes or updates a run of each job.

        `jobs`: ids of jobs or studies, whose jobs become runs below the study's run. `to`: "mlflow" or
        "wandb"; `tracking_uri`: MLflow's, by default MLFLOW_TRACKING_URI; `project`: MLflow's experiment or
        Weights & Biases' project, by default "assay"; `entity`: a user or team there. `report` saves
        `report.html` with each finished job. `follow` goes on until all jobs have ended, every
        `poll_seconds`. `callback`: for each written run. Raises ImportError without the tracker's package;
        NotFound: neither job nor study; TrackerError: the tracker refuses or is unreachable.
        """
        ids = [jobs] if isinstance(jobs, str) else list(jobs)
        target = tracker(to, uri=tracking_uri, project=project, entity=entity)
        written: dict[str, Mirrored] = {}
        seen: dict[str, object] = {}
        try:
            while True:
                going = False
                for record, results in self._records(ids):
                    going |= not record.state.terminal
                    version = (record.state, dict(record.metrics), dict(record.tags))
                    if seen.get(record.job) == version:
                        continue
                    seen[record.job] = version
                    written[record.job] = self._written(target, record, results, report=report)
                    if callback is not None:
                        callback(written[record.job])
                if not (follow and going):
                    return list(written.values())
                time.sleep(poll_seconds)
        finally:
            target.close()

    def _written(
        self, target: Tracker, record: RunRecord, results: Results | StudyStatus | None, *, report: bool
    ) -> Mirrored:
        files: dict[str, bytes] = {}
        if isinstance(results, Results):
            files = self._files(results, report=report and record.state.terminal)
        elif results is not None:
            files[STUDY_FILE] = _text(results)
        run = target.write(record, files)
        return Mirrored(record.job, record.state.value, run, len(record.metrics), target.where)

    def _records(self, ids: Iterable[str]) -> Iterator[tuple[RunRecord, Results | StudyStatus | None]]:
        for one in ids:
            try:
                job = parsed(Job, self._json("GET", f"{API}/jobs/{part(one)}"))
            except NotFound:
                study = self._study_of(one)
                yield self._study_record(study), study
                for job_id in _jobs_of(study):
                    yield self._record(parsed(Job, self._json("GET", f"{API}/jobs/{part(job_id)}")))
            else:
                yield self._record(job)

    def _record(self, job: Job) -> tuple[RunRecord, Results | None]:
        try:
            results = parsed(Results, self._json("GET", f"{API}/jobs/{part(job.id)}/results"))
        except NoResults:
            results = None
        return run_record(job, results, self.url), results

    def _study_of(self, study_id: str) -> StudyStatus:
        try:
            return parsed(StudyStatus, self._json("GET", f"{API}/studies/{part(study_id)}"))
        except NotFound as error:
            raise NotFound(f"there is no job and no study {study_id!r}") from error

    def _study_record(self, study: StudyStatus) -> RunRecord:
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

    def _files(self, results: Results, *, report: bool) -> dict[str, bytes]:
        files = {RESULTS_FILE: _text(results)}
        if results.signature is not None:
            with suppress(InvalidState, NotFound):  # the key is away, or nothing signs
                files[SIGNATURE_FILE] = self._call("GET", results.signature).content
        if report:
            try:
                files[REPORT_FILE] = self.report(results.job).encode()
            except AssayError as error:
                files["report.txt"] = f"no report: {error.message}\n".encode()
        return files


def _jobs_of(study: StudyStatus) -> list[str]:
    found: dict[str, None] = {}
    for arm in study.runs:
        for run in arm.runs:
            if run.train is not None and run.train_state != "deleted":
                found[run.train] = None
            if run.evaluate_state != "deleted":
                found[run.evaluate] = None
    return list(found)


def _text(answer: Results | StudyStatus) -> bytes:
    return (json.dumps(answer.model_dump(mode="json"), indent=2) + "\n").encode()
