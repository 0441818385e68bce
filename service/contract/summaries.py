"""The summary of a finished job in lists: its accuracy without an attack, and under the strongest attack."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

Group = Literal["study", "arm", "tag"]
Sort = Literal[
    "created", "-created", "name", "-name", "clean", "-clean", "worst", "-worst", "n", "-n",
    "duration", "-duration", "seed", "-seed",
]  # fmt: skip
"""What lists of jobs are sorted by, descending with `-`."""


class SummaryValue(BaseModel, extra="forbid"):
    """An accuracy in [0, 1] over `n` examples; `at` is the radius of the worst case, as `8/255`, or empty."""

    metric: str
    value: float
    n: int
    at: str = ""


class JobSummary(BaseModel, extra="forbid"):
    """What lists of jobs show and sort by; null where the job has no such accuracy.

    `worst` is the lowest that any one attack left at the largest radius where a tenth holds. `invalid`: codes
    of the warnings that make numbers of the job invalid.
    """

    clean: SummaryValue | None = None
    worst: SummaryValue | None = None
    invalid: list[str] = []
