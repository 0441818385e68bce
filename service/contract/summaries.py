"""The summary of a finished job in lists: its accuracy without an attack, and under the strongest attack."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

Group = Literal["study", "arm", "tag"]
Sort = Literal[
    "created", "-created", "name", "-name", "clean", "-clean", "worst", "-worst", "n", "-n",
    "duration", "-duration", "seed", "-seed",
]  # fmt: skip
"""What lists are sorted by, descending with `-`; `worst` by the radius at which a tenth holds, then value."""


TELLING = 0.1  # A radius at which fewer hold tells little about where the accuracy falls


class SummaryValue(BaseModel, extra="forbid"):
    """An accuracy in [0, 1] over `n` examples.

    Of a worst case `radius` in the data's unit, and `at`, its text such as `8/255`; null and empty without.
    `invalid`: codes of the warnings that make this number invalid, null in summaries of earlier versions.
    """

    metric: str
    value: float
    n: int
    at: str = ""
    radius: float | None = None
    invalid: list[str] | None = None

    @property
    def held_radius(self) -> float | None:
        """The radius, 0 where less than a tenth holds: lists by worst case have the largest first."""
        return 0.0 if self.radius is not None and self.value < TELLING else self.radius


class JobSummary(BaseModel, extra="forbid"):
    """What lists of jobs show and sort by; null where the job has no such accuracy.

    `worst` is the lowest that any one attack left at the largest radius where a tenth holds, else at the
    smallest. `invalid`: codes of the warnings that make numbers of the job invalid.
    """

    clean: SummaryValue | None = None
    worst: SummaryValue | None = None
    invalid: list[str] = []

    def invalid_codes(self, value: SummaryValue) -> list[str]:
        """The codes that make a value of this summary invalid."""
        return self.invalid if value.invalid is None else value.invalid
