"""Stored designs, and what is stored with a study of its design: plain values, times in unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict


class AddedSeeds(TypedDict):
    """Seeds that were added to a posted study; `begun`: a job of the study had begun by then.

    `by_rule`: the service added them, by the rule `until` of the design.
    """

    seeds: list[int]
    at: float
    begun: bool
    by_rule: NotRequired[bool]


class Fixing(TypedDict):
    """How the design of a posted study was fixed.

    `earlier` names runs that had begun before the design was registered or, without that, posted.
    """

    registered_at: float | None
    earlier: list[str]
    number: int  # of the study, among those posted with the design
    added: list[AddedSeeds]
    changed: NotRequired[str]  # what made it another design than the registered, in words


@dataclass(frozen=True)
class DesignRow:
    """A registered design."""

    tenant: str  # empty where the service asked for no keys
    sha256: str
    design: dict[str, Any]
    labels: dict[str, Any]  # name, tags, priority and timeout of its studies
    earlier: list[str]
    created_at: float
    studies: list[str]  # ids of the studies that were posted from it, oldest first

    @property
    def spec(self) -> dict[str, Any]:
        """What is posted to run it."""
        return {**self.design, **self.labels}
