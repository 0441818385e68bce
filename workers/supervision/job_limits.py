"""Limits that the supervisor applies to plans, to trainings by their pace, and to an evaluator.

Of an evaluator the kernel limits each file and process, not their sum.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from assay.service.contract.messages import ProgressReport
from assay.service.contract.records import PlanWithShards
from assay.service.submission.limits import DEADLINE_FACTOR, JobLimits, plan_excess, planned_seconds
from assay.workers.containment.limits import SPARE_PROCESSES
from assay.workers.supervision.evaluator_process import EvaluatorProcess

PACE_STEPS = 10  # Steps and seconds before a training is judged by its pace
PACE_SECONDS = 60.0
MAX_TASKS = 2 * SPARE_PROCESSES  # Of an evaluator: more than the kernel allows where it counts
MAX_FILES = 1_000_000  # Of a job: room on a disk is names, too, and counting must end
MAX_LEVELS = 32
COUNTING = 0.05  # Most of the time that counting takes


class OverLimit(Exception):
    """A job asks for more than the limits allow; for its user."""


class TooManyFiles(OverLimit):
    """A job's files take more than the limits allow, or cannot be counted."""


def accepted(limits: JobLimits, plan: PlanWithShards) -> PlanWithShards:
    """The plan with its default deadline. Raises OverLimit."""
    excess = plan_excess(limits, plan)
    if excess is not None:
        raise OverLimit(excess)
    seconds = limits.deadline_seconds(plan["device"], planned_seconds(plan))
    return {**plan, "deadline_seconds": seconds}


class TrainingLimits:
    """Holds a training to the limits.

    `device`: its class; "auto" counts as the class with the higher maximum. `set_deadline`: ends the job in
    so many seconds. `clock`: monotonic seconds.
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

    @property
    def longest_seconds(self) -> float | None:
        """The longest deadline without a timeout; None without a limit."""
        most = self._limits.seconds[self._device]
        return None if most is None else DEADLINE_FACTOR * most

    def note(self, report: ProgressReport) -> None:
        """Takes a training report. Raises OverLimit: too many steps, or too long at this pace."""
        if self._first is None:
            self._begin(report)
        elif not self._judged:
            self._judge(report, *self._first)

    def _begin(self, report: ProgressReport) -> None:
        self._first = (self._clock(), report["done"])
        # A step has an example at least.
        self._check(0.0, report["total"], "")
        if self.longest_seconds is not None:
            self._set_deadline(self.longest_seconds)

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


class EvaluatorWatch:
    """Holds a job's evaluator to limits that only its supervisor can see."""

    def __init__(self, process: EvaluatorProcess, folder: Path, max_bytes: int, seconds: float) -> None:
        self._process, self._folder, self._max_bytes, self._seconds = process, folder, max_bytes, seconds
        self._due = float("-inf")
        self._others: int | None = None  # tasks of the machine, when the evaluator's were few

    def is_of(self, process: EvaluatorProcess, folder: Path) -> bool:
        """Whether it watches this process and folder."""
        return self._process is process and self._folder == folder

    def look_when_due(self) -> None:
        """Looks, unless it just did. Raises OverLimit: too many files or processes."""
        if time.monotonic() >= self._due:
            self.look()

    def look(self) -> None:
        """Looks now. Raises OverLimit: see `look_when_due`."""
        begun = time.monotonic()
        self._check_tasks()
        if self._max_bytes:
            check_files([self._folder, *self._process.temporary_folders], self._max_bytes)
        ended = time.monotonic()
        self._due = ended + max(self._seconds, (ended - begun) / COUNTING)

    def _check_tasks(self) -> None:
        """Few new tasks on the machine need one read; else the evaluator's are counted."""
        found = _tasks_of_machine()
        if found and self._others is not None and found - self._others < MAX_TASKS // 4:
            self._others = min(self._others, found)
            return
        self._others = found
        tasks = self._process.tasks
        if tasks > MAX_TASKS:
            raise OverLimit(
                f"the evaluator of the job has {tasks:,} processes and threads; allowed: {MAX_TASKS:,}"
            )


def _tasks_of_machine() -> int:
    """Processes and threads; 0 where the system does not tell."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def check_files(folders: Iterable[Path], max_bytes: int) -> None:
    """TooManyFiles: over `max_bytes`, `MAX_FILES` or `MAX_LEVELS`, or a folder that may not be read."""
    size = files = 0
    waiting = [(folder, 0) for folder in folders]
    while waiting:
        folder, level = waiting.pop()
        if level > MAX_LEVELS:
            raise TooManyFiles(f"the job's folders are nested too deeply; allowed: {MAX_LEVELS} levels")
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    files += 1
                    with contextlib.suppress(FileNotFoundError):
                        facts = entry.stat(follow_symlinks=False)
                        # Small files take whole blocks; holes may be filled.
                        size += max(facts.st_size, 512 * facts.st_blocks)
                    if files > MAX_FILES:
                        raise TooManyFiles(f"the job has more than {MAX_FILES:,} files and folders")
                    if size > max_bytes:
                        raise TooManyFiles(
                            f"the job's files, with its evaluator's temporary ones, take {size:,} bytes and"
                            f" more; allowed: {max_bytes:,} (ASSAY_MAX_JOB_FILES_BYTES)"
                        )
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((Path(entry.path), level + 1))
        except (FileNotFoundError, NotADirectoryError):  # gone by now
            continue
        except PermissionError:
            raise TooManyFiles("the job has a folder that may not be read") from None


def remove_files_but(folder: Path, kept: Collection[str]) -> None:
    """Removes what is in a folder except entries of these names."""
    for path in [] if not folder.is_dir() else list(folder.iterdir()):
        if path.name in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
