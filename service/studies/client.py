"""Calls about studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from assay.service.client.notebook_tables import StudyResultsView
from assay.service.client.transport import API, Connection, parsed, part
from assay.service.studies.wire import StudyDryRun, StudyStatus, StudySummary

STUDIES = f"{API}/studies"


class StudyCalls(Connection):
    """Arms x seeds x evaluations: submitted, watched, extended, canceled, resumed, compared."""

    def submit_study(
        self, spec: Mapping[str, Any] | str | bytes, *, idempotency_key: str | None = None
    ) -> StudyStatus:
        """Posts a study, as a spec or its JSON text; all its jobs are queued, or none.

        A call with the same `idempotency_key` (None: random) returns the same study. Raises InvalidSpec with
        a detail per wrong field; TooManyRequests: the tenant's queue lacks room.
        """
        return parsed(StudyStatus, self._submitted(STUDIES, spec, idempotency_key))

    def plan_study(self, spec: Mapping[str, Any] | str | bytes) -> StudyDryRun:
        """The jobs of a study and their estimated work; nothing is stored."""
        return parsed(StudyDryRun, self._json("POST", STUDIES, params={"dry_run": "true"}, body=spec))

    def study(self, study_id: str) -> StudyStatus:
        """The study with its jobs, in its present state."""
        return parsed(StudyStatus, self._json("GET", f"{STUDIES}/{part(study_id)}"))

    def studies(self, *, page_size: int = 50) -> Iterator[StudySummary]:
        """All studies, newest first; pages are fetched on demand."""
        return self._pages(StudySummary, STUDIES, {"limit": page_size})

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

    def study_table(self, study_id: str, format: Literal["csv", "markdown"] = "markdown") -> str:  # noqa: A002
        """The results so far: a Markdown table of tested metrics, or all as CSV."""
        path = f"{STUDIES}/{part(study_id)}/results"
        return self._call("GET", path, params={"format": format}).text

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
