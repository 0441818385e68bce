"""Python client of the service, over HTTP only; `service.client` shows it at work.

An error answer is raised as the class of `service.contract.errors` with its type and details; `Unreachable`:
no service.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.service.audit.client import AuditCalls
from assay.service.checkpoints.client import CheckpointCalls
from assay.service.client.events import followed
from assay.service.client.frames import FrameCalls
from assay.service.client.mirrors import MirrorCalls
from assay.service.client.notebook_tables import JobView
from assay.service.client.result_views import ResultsView
from assay.service.client.transport import API, BadAnswer, Connection, naming, parsed, part
from assay.service.contract import errors
from assay.service.contract.events import Event
from assay.service.contract.results import Artifact, Page
from assay.service.contract.summaries import Sort
from assay.service.contract.warning_codes import WarningMeaning
from assay.service.plots.client import PlotCalls
from assay.service.signing.client import SignatureCalls
from assay.service.studies.client import StudyCalls
from assay.service.tenants.client import TenantCalls
from assay.service.usage.client import UsageCalls
from assay.service.webhooks.client import WebhookCalls
from assay.service.workers.client import WorkerCalls


class ArtifactCalls(Connection):
    """Lists and downloads files of jobs."""

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files of the job."""
        page = self._json("GET", f"{API}/jobs/{part(job_id)}/artifacts")
        return parsed(Page[Artifact], page).items

    def download(self, job_id: str, name: str, target: Path) -> Path:
        """Downloads a file and checks its sha256; the target appears only when complete.

        `target`: the file, or a folder for the last part of `name`. BadAnswer: another sha256.
        """
        if target.is_dir():
            target = target / (Path(name).name or "artifact")
        partial = target.with_name(f"{target.name}.part")
        path = f"{API}/jobs/{part(job_id)}/artifacts/{part(name)}"
        try:
            with self._streamed(path) as response:
                digest = hashlib.sha256()
                with partial.open("wb") as file:
                    for chunk in response.iter_bytes():
                        digest.update(chunk)
                        file.write(chunk)
            if response.headers.get("etag") != f'"{digest.hexdigest()}"':
                raise BadAnswer(f"{name}: the download does not have the sha256 that the service states")
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        return target


class AssayClient(
    ArtifactCalls,
    MirrorCalls,
    FrameCalls,
    # Features:
    StudyCalls,
    PlotCalls,
    SignatureCalls,
    CheckpointCalls,
    WebhookCalls,
    TenantCalls,
    AuditCalls,
    WorkerCalls,
    UsageCalls,
):
    """Client of a service. Close it, or use it in a `with` block.

    `url` is without path. `key`: None takes ASSAY_KEY, "" sends none. `timeout`: in seconds for an answer;
    `transport`: for tests.
    """

    def ready(self) -> bool:
        """Whether the service answers and can reach its database."""
        try:
            self._call("GET", "/readyz")
        except (errors.Unavailable, BadAnswer):
            return False
        return True

    def submit(self, spec: Mapping[str, Any] | str | bytes, *, idempotency_key: str | None = None) -> JobView:
        """Posts a job: its spec, or its JSON text, sent as it is.

        A broken connection is retried under `idempotency_key` (None: a random key): a call with the same key
        returns the same job. Raises InvalidSpec with a detail per wrong field; MalformedJson: no strict JSON.
        """
        return parsed(JobView, self._submitted(f"{API}/jobs", spec, idempotency_key))

    def dry_run(self, spec: Mapping[str, Any] | str | bytes, *, decode: bool = False) -> dict[str, Any]:
        """Validates a spec, stores nothing: `{"spec" with all defaults, "estimate", "warnings", "data"}`.

        `decode`: data files, for some seconds: `data` has all unreadable, ignored and empty.
        """
        asked = {"dry_run": "true"} | ({"decode": "true"} if decode else {})
        return self._json("POST", f"{API}/jobs", params=asked, body=spec)

    def job(self, job_id: str) -> JobView:
        """The job in its present state."""
        return self._job("GET", f"/jobs/{part(job_id)}")

    def jobs(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        model: str | None = None,
        tag: str | None = None,
        search: str | None = None,
        study: str | None = None,
        sort: Sort | None = None,
        page_size: int = 50,
    ) -> Iterator[JobView]:
        """All matching jobs, newest first or by `sort`; `search`: part of the name, or the id."""
        filters = {"state": state, "kind": kind, "model": model, "tag": tag, "search": search}
        filters |= {"study": study, "sort": sort}
        params = {name: value for name, value in filters.items() if value is not None}
        params["limit"] = str(page_size)
        return self._pages(JobView, f"{API}/jobs", params)

    def wait(
        self,
        job_id: str,
        *,
        callback: Callable[[JobView], None] | None = None,
        poll_seconds: float = 0.5,
        timeout_seconds: float | None = None,
    ) -> JobView:
        """Polls until the job has ended, in any final state; `callback` gets the job after every poll.

        Raises TimeoutError after `timeout_seconds` (None: no limit), Unavailable after a minute without the
        service.
        """
        return self._ended(
            f"job {job_id}",
            lambda: self.job(job_id),
            callback=callback,
            poll_seconds=poll_seconds,
            timeout_seconds=timeout_seconds,
        )

    def events(self, job_id: str, *, after: int = 0, follow: bool = True) -> Iterator[Event]:
        """A job's events after an event, until the job has ended.

        A broken stream is resumed: every event comes once and in order. Raises NotFound; Unavailable after a
        minute without the service.
        """
        path = f"{API}/jobs/{part(job_id)}/events" + ("" if follow else "?follow=false")
        found = followed(lambda last: self._event_lines(path, last), after, follow=follow)
        return naming(found, f"job {job_id}")

    def results(self, job_id: str) -> ResultsView:
        """The results so far: `results["pgd", "8/255"].top1` has its interval; NoResults before."""
        return parsed(ResultsView, self._json("GET", f"{API}/jobs/{part(job_id)}/results"))

    def results_csv(self, job_id: str) -> str:
        """The results so far as CSV, one row per metric."""
        return self._call("GET", f"{API}/jobs/{part(job_id)}/results", params={"format": "csv"}).text

    def robustbench(self, job_id: str) -> list[dict[str, Any]]:
        """The results so far as RobustBench's `model_info`, with more in their block `assay`."""
        path = f"{API}/jobs/{part(job_id)}/results"
        entries: list[dict[str, Any]] = self._json("GET", path, params={"format": "robustbench"})["entries"]
        return entries

    def cancel(self, job_id: str) -> JobView:
        """Cancels the job; a running job stops soon after."""
        return self._job("POST", f"/jobs/{part(job_id)}/cancel")

    def retry(self, job_id: str) -> JobView:
        """Queues a failed, canceled or timed-out job again."""
        return self._job("POST", f"/jobs/{part(job_id)}/retry")

    def replan(self, job_id: str) -> JobView:
        """Plans an evaluation again, with the present workers' code, and measures it again."""
        return self._job("POST", f"/jobs/{part(job_id)}/replan")

    def delete(self, job_id: str) -> None:
        """Deletes a job that has ended."""
        self._call("DELETE", f"{API}/jobs/{part(job_id)}")

    def tag(self, job_id: str, *, add: str | Sequence[str] = (), remove: str | Sequence[str] = ()) -> JobView:
        """Takes tags from the job, then gives it others; InvalidState: more than 32."""
        body = {"add": [add] if isinstance(add, str) else [*add]}
        body["remove"] = [remove] if isinstance(remove, str) else [*remove]
        return self._job("POST", f"/jobs/{part(job_id)}/tags", body=body)

    def catalog(self, kind: str | None = None) -> list[dict[str, Any]]:
        """All components, or all of a kind."""
        params = {} if kind is None else {"kind": kind}
        items: list[dict[str, Any]] = self._json_once(f"{API}/catalog", params=params)["items"]
        return items

    def component(self, kind: str, name: str) -> dict[str, Any]:
        """One component with the JSON Schema of its parameters."""
        return self._json("GET", f"{API}/catalog/{part(kind)}/{part(name)}")

    def warnings(self) -> list[WarningMeaning]:
        """Every code that a warning may have: severity, where it appears, cause, evidence and remedy."""
        return parsed(Page[WarningMeaning], self._json("GET", f"{API}/warnings")).items

    def compare(self, job_ids: Sequence[str], adjust: str = "holm") -> dict[str, Any]:
        """Metrics of 2 to 10 jobs, paired tests against the first; `adjust`: "holm", "benjamini_hochberg"."""
        return self._json("GET", f"{API}/compare", params={"jobs": ",".join(job_ids), "adjust": adjust})

    def compare_csv(self, job_ids: Sequence[str], adjust: str = "holm") -> str:
        """The comparison as CSV, one row per metric and pair of jobs."""
        params = {"jobs": ",".join(job_ids), "adjust": adjust, "format": "csv"}
        return self._call("GET", f"{API}/compare", params=params).text

    def _job(self, method: str, path: str, **options: Any) -> JobView:
        return parsed(JobView, self._json(method, API + path, **options))
