"""The Python client's calls that mirror jobs to experiment trackers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from assay.service.client.groups import GroupCalls
from assay.service.client.trackers import Tracker, TrackerName, tracker
from assay.service.client.transport import API, parsed, part
from assay.service.contract.errors import AssayError, InvalidState, NoResults, NotFound
from assay.service.contract.results import Answer, Job, Results
from assay.service.files.job_files import RESULTS_FILE, SIGNATURE_FILE
from assay.service.reports.client import ReportCalls
from assay.service.reports.run_record import RunRecord, run_record

REPORT_FILE = "report.html"


@dataclass(frozen=True)
class Mirrored:
    """A mirrored job or study; `where`: MLflow's tracking URI or Weights & Biases' project."""

    job: str
    state: str
    run: str
    metrics: int
    where: str


class MirrorCalls(ReportCalls, GroupCalls):
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
        self, target: Tracker, record: RunRecord, results: Answer | None, *, report: bool
    ) -> Mirrored:
        files: dict[str, bytes] = {}
        if isinstance(results, Results):
            files = self._files(results, report=report and record.state.terminal)
        elif results is not None:
            files[f"{record.kind}.json"] = _text(results)
        run = target.write(record, files)
        return Mirrored(record.job, record.state.value, run, len(record.metrics), target.where)

    def _records(self, ids: Iterable[str]) -> Iterator[tuple[RunRecord, Answer | None]]:
        for one in ids:
            try:
                job = parsed(Job, self._json("GET", f"{API}/jobs/{part(one)}"))
            except NotFound:
                group = self._group(one)
                yield group.record, group.answer
                for job_id in group.jobs:
                    yield self._record(parsed(Job, self._json("GET", f"{API}/jobs/{part(job_id)}")))
            else:
                yield self._record(job)

    def _record(self, job: Job) -> tuple[RunRecord, Results | None]:
        try:
            results = parsed(Results, self._json("GET", f"{API}/jobs/{part(job.id)}/results"))
        except NoResults:
            results = None
        return run_record(job, results, self.url), results

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


def _text(answer: Answer) -> bytes:
    return (json.dumps(answer.model_dump(mode="json"), indent=2) + "\n").encode()
