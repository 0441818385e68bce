"""Limits of a job's work, applied by the supervisor: to plans, and to trainings once their pace is known."""

from __future__ import annotations

import time
from collections.abc import Callable

from assay.service.contract.messages import ProgressReport
from assay.service.contract.records import PlanWithShards
from assay.service.submission.limits import DEADLINE_FACTOR, JobLimits, plan_excess, planned_seconds

# A training is judged by its pace once it has made so many steps in so many seconds.
PACE_STEPS = 10
PACE_SECONDS = 60.0


class OverLimit(Exception):
    """A job asks for more than the limits allow; the message is for its user."""


def accepted(limits: JobLimits, plan: PlanWithShards) -> PlanWithShards:
    """The plan with the default deadline of its job.

    Raises:
        OverLimit: the plan is over a limit.
    """
    excess = plan_excess(limits, plan)
    if excess is not None:
        raise OverLimit(excess)
    seconds = limits.deadline_seconds(plan["device"], planned_seconds(plan))
    return {**plan, "deadline_seconds": seconds}


class TrainingLimits:
    """Holds a training to the limits.

    Args:
        limits: Those of a job.
        device: Device class of the training; "auto" counts as the class with the higher maximum.
        set_deadline: Ends the job in so many seconds.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        limits: JobLimits,
        device: str,
        set_deadline: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        known = [device] if device in limits.seconds else list(limits.seconds)
        self._device = max(known, key=lambda name: limits.seconds[name] or float("inf"))
        self._limits, self._set_deadline, self._clock = limits, set_deadline, clock
        self._first: tuple[float, int] | None = None
        self._judged = False

    def note(self, report: ProgressReport) -> None:
        """Takes a report of the training.

        Raises:
            OverLimit: it makes too many steps, or its pace and its steps make it too long.
        """
        if self._first is None:
            self._begin(report)
        elif not self._judged:
            self._judge(report, *self._first)

    def _begin(self, report: ProgressReport) -> None:
        self._first = (self._clock(), report["done"])
        # A step has at least one example.
        self._check(0.0, report["total"], "")
        max_seconds = self._limits.seconds[self._device]
        if max_seconds is not None:
            self._set_deadline(DEADLINE_FACTOR * max_seconds)

    def _judge(self, report: ProgressReport, begun: float, before: int) -> None:
        seconds, steps = self._clock() - begun, report["done"] - before
        if seconds < PACE_SECONDS or steps < PACE_STEPS:
            return
        self._judged = True
        each = seconds / steps
        self._check(each * report["total"], report["total"], f"{each:.3g} s a step over {steps} steps")
        left = each * (report["total"] - report["done"])
        self._set_deadline(self._limits.deadline_seconds(self._device, left))

    def _check(self, seconds: float, steps: int, source: str) -> None:
        found = self._limits.excess(self._device, seconds, steps, source)
        if found:
            raise OverLimit("; ".join(f"recipe: {message}" for message, _, _ in found))
