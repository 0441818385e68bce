"""Jobs that go by one id, as a study's do: what the client's calls need to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.service.client.transport import Connection
from assay.service.contract.errors import NotFound
from assay.service.contract.results import Answer
from assay.service.reports.run_record import RunRecord


@dataclass(frozen=True)
class Group:
    """Several jobs under one id."""

    answer: Answer  # the service's, about all of them
    record: RunRecord  # a tracker's run above the runs of the jobs
    jobs: Sequence[str]  # the ids that are left
    evaluations: Sequence[str]  # the ids of jobs that measure


class GroupCalls(Connection):
    """Finds groups; a feature with groups overrides the method."""

    def _group(self, found: str | Answer) -> Group:
        """The group with an id, or of an answer of the service. Raises NotFound."""
        raise NotFound(f"there is no job {str(found)!r}")
